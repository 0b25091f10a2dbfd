//! The orchestrations and activities of the fixture: one small program for each state that the dashboard shows.

use std::sync::atomic::{AtomicBool, Ordering};

use perennial::prelude::*;

use crate::hostile;

/// Which build of the code a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The build that records what later builds no longer agree with.
    First,
    Good,
    /// `checkout` differs from what its instances recorded.
    Bad,
}

/// Whether `charge` succeeds.
pub(crate) static CARD_SERVICE: AtomicBool = AtomicBool::new(false);
/// Whether `import` ends.
pub(crate) static IMPORTS_END: AtomicBool = AtomicBool::new(false);

pub(crate) const APPROVED: &str = "approved";
pub(crate) const GO: &str = "go";
/// The tag that no node serves.
pub(crate) const NO_SUCH_TAG: &str = "scanner";

const DAY: Duration = Duration::from_secs(86_400);

fn event(name: &'static str) -> ExternalEvent<Payload> {
    ExternalEvent::named(name)
}

#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

/// Four attempts within seconds, then pauses of an hour.
#[activity]
async fn charge(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    match CARD_SERVICE.load(Ordering::SeqCst) {
        true => Ok(format!("charged {cents} at attempt {}", ctx.attempt())),
        false => Err(format!(
            "card service answered 503 to request {}",
            ctx.idempotency_key().len() + cents as usize
        )),
    }
}

#[activity]
async fn ship(ctx: ActivityContext, item: String) -> Result<String, String> {
    match item.as_str() {
        "nothing" => Err(format!("out of stock (attempt {})", ctx.attempt())),
        _ => Ok(format!("{item} shipped")),
    }
}

#[activity]
async fn reserve(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(format!("{item} reserved"))
}

/// Reports its progress until it is told to end.
#[activity(heartbeat_timeout = "60s")]
async fn import(ctx: ActivityContext, file: String) -> Result<String, String> {
    let mut row: u64 = ctx.decode_details().unwrap_or(0);
    while !IMPORTS_END.load(Ordering::SeqCst) {
        row += 1;
        ctx.heartbeat(row);
        tokio::select! {
            () = ctx.cancelled() => return Err("stopped".to_owned()),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    Ok(format!("{row} rows of {file}"))
}

/// Runs until it is cancelled, without a sign of life.
#[activity]
async fn silent(ctx: ActivityContext, _input: Payload) -> Result<(), String> {
    ctx.cancelled().await;
    Err("stopped".to_owned())
}

#[orchestration(version = "1.0.0")]
async fn hello(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

#[orchestration(version = "1.0.0")]
async fn shipping(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    let retry = RetryPolicy::fixed(Duration::from_millis(5)).attempts(5);
    Ok(ctx.schedule_activity(ship, item).retry(retry).await?)
}

/// Returns its input, whatever its size.
#[orchestration(version = "1.0.0")]
async fn echo(_: OrchestrationContext, input: Payload) -> Result<Payload, String> {
    Ok(input)
}

/// Waits for an event for 21 hours, with a published status and attributes.
#[orchestration(version = "1.0.0")]
async fn approval(ctx: OrchestrationContext, input: Payload) -> Result<Payload, String> {
    ctx.set_status("waits for somebody to approve");
    ctx.set_attribute("city", "Oslo");
    ctx.set_attribute("cents", 2_500);
    let approved = ctx.timeout(Duration::from_secs(21 * 3_600), ctx.schedule_wait(event(APPROVED))).await;
    approved.map_err(|_| format!("nobody approved {}", input.to_text()))
}

/// Sleeps for some milliseconds; `null` is for ever.
#[orchestration(version = "1.0.0")]
async fn nap(ctx: OrchestrationContext, ms: Option<u64>) -> Result<String, String> {
    ctx.schedule_timer(ms.map_or(Duration::MAX, Duration::from_millis)).await;
    Ok("rested".to_owned())
}

#[orchestration(version = "1.0.0")]
async fn payment(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    ctx.set_attribute("cents", cents);
    let backoff = Backoff::Exponential {
        first: Duration::from_millis(2),
        factor_percent: 4_000,
        max: Duration::from_secs(3_600),
    };
    Ok(ctx.schedule_activity(charge, cents).retry(backoff.attempts(9)).await?)
}

#[orchestration(version = "1.0.0")]
async fn nightly(ctx: OrchestrationContext, file: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(import, file).await?)
}

#[orchestration(version = "1.0.0")]
async fn hangs(ctx: OrchestrationContext, input: Payload) -> Result<(), String> {
    Ok(ctx.schedule_activity(silent, input).await?)
}

/// Waits for an activity whose tag no node serves.
#[orchestration(version = "1.0.0")]
async fn scan(ctx: OrchestrationContext, page: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, page).tag(NO_SUCH_TAG).await?)
}

/// Waits for an activity that no node has registered.
#[orchestration(version = "1.0.0")]
async fn pager(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    ctx.schedule_activity("page_somebody", text).await
}

#[orchestration(version = "1.0.0")]
async fn fragile(ctx: OrchestrationContext, shelf: u32) -> Result<(), String> {
    ctx.schedule_activity(greet, "the warehouse".to_owned()).await?;
    panic!("the warehouse has no shelf {shelf}")
}

/// Three levels: each level waits for its children, and the last for an event. Input is the number of levels below.
#[orchestration(version = "1.0.0")]
async fn level(ctx: OrchestrationContext, below: u32) -> Result<u32, String> {
    if below == 0 {
        ctx.schedule_wait(event(GO)).await;
        return Ok(1);
    }
    let children = (0..2).map(|_| ctx.schedule_sub_orchestration(level, below - 1));
    Ok(ctx.try_join(children).await?.into_iter().sum())
}

/// One child below another. The id of a child is that of its parent and a few bytes more.
#[orchestration(version = "1.0.0")]
async fn deep(ctx: OrchestrationContext, below: u32) -> Result<u32, String> {
    if below == 0 {
        ctx.schedule_wait(event(GO)).await;
        return Ok(0);
    }
    Ok(1 + ctx.schedule_sub_orchestration(deep, below - 1).await?)
}

/// Has many children: every tenth fails, every seventh waits, the others complete.
#[orchestration(version = "1.0.0")]
async fn fan(ctx: OrchestrationContext, children: u32) -> Result<u32, String> {
    let started: Vec<_> = (0..children).map(|child| ctx.schedule_sub_orchestration(leaf, child)).collect();
    let done = ctx.join(started).await;
    Ok(done.iter().filter(|child| child.is_ok()).count() as u32)
}

#[orchestration(version = "1.0.0")]
async fn leaf(ctx: OrchestrationContext, number: u32) -> Result<u32, String> {
    match number {
        _ if number % 10 == 3 => Err(format!("leaf {number} withered")),
        _ if number % 7 == 5 => {
            ctx.schedule_wait(event(GO)).await;
            Ok(number)
        }
        _ => Ok(number),
    }
}

/// Continues as new so many times, then waits.
#[orchestration(version = "1.0.0")]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<String, String> {
    ctx.schedule_activity(greet, format!("round {left}")).await?;
    ctx.set_status(format!("{left} rounds left"));
    if left > 0 {
        return ctx.continue_as_new(left - 1).await;
    }
    ctx.schedule_wait(event(GO)).await;
    Ok("done".to_owned())
}

/// Branches of control side by side, each in another state.
#[orchestration(version = "1.0.0")]
async fn branches(ctx: OrchestrationContext, _input: Payload) -> Result<usize, String> {
    let (a, b, c) = (ctx.clone(), ctx.clone(), ctx.clone());
    let packing = ctx.spawn(async move {
        for step in ["fold", "wrap", "tie"] {
            a.schedule_activity(greet, step.to_owned()).await?;
        }
        Ok::<_, ActivityError<String>>(())
    });
    let waiting = ctx.spawn(async move { b.schedule_wait(event(GO)).await });
    let napping = ctx.spawn(async move { c.schedule_timer(DAY).await });
    ctx.join2(waiting, napping).await;
    packing.await.map_err(|error| error.to_string())?;
    Ok(3)
}

#[orchestration(version = "1.0.0")]
async fn cart(ctx: OrchestrationContext, _input: Payload) -> Result<Vec<String>, String> {
    let items = ctx.state(Vec::<String>::new());
    ctx.on_query("items", &items, |items, ()| items.read(Clone::clone));
    ctx.on_query("item", &items, |items, at: usize| items.read(|items| items.get(at).cloned()));
    ctx.on_update(Update::<String, usize>::named("add"), &items, |items, item| async move {
        Ok::<_, String>(items.update(|items| {
            items.push(item);
            items.len()
        }))
    })
    .validate(|items, item| match items.read(|items| items.contains(item)) {
        true => Err(format!("{item} is in the cart")),
        false => Ok(()),
    });
    ctx.on_event(ExternalEvent::<String>::named("note"), &items, |items, note| async move {
        items.update(|items| items.push(format!("note: {note}")));
    });
    ctx.schedule_wait(event("checkout")).await;
    ctx.handlers_idle().await;
    Ok(items.read(Clone::clone))
}

/// Cleans up after a cancel for as long as it is let.
#[orchestration(version = "1.0.0")]
async fn tidy(ctx: OrchestrationContext, _input: Payload) -> Result<String, String> {
    let reason = ctx.cancelled().await;
    ctx.set_status(format!("cleaning up: {reason}"));
    ctx.schedule_wait(event("cleaned")).await;
    ctx.end_cancelled(format!("cleaned up: {reason}")).await
}

/// Steps with a timer between them, to be watched. Input: how many, and the milliseconds between two.
#[orchestration(version = "1.0.0")]
async fn steps(ctx: OrchestrationContext, count: u32, pause_ms: u64) -> Result<u32, String> {
    for step in 0..count {
        ctx.schedule_activity(greet, format!("step {step}")).await?;
        ctx.schedule_timer(Duration::from_millis(pause_ms)).await;
    }
    Ok(count)
}

/// Many activities, 500 at a time, then a wait: a long history. Input: how many activities.
#[orchestration(version = "1.0.0")]
async fn long(ctx: OrchestrationContext, activities: u32) -> Result<u32, String> {
    let mut begun = 0;
    while begun < activities {
        let batch = activities.min(begun + 500);
        let calls = (begun..batch).map(|step| ctx.schedule_activity(greet, format!("step {step}")));
        ctx.try_join(calls).await?;
        begun = batch;
    }
    ctx.set_status("all done");
    ctx.schedule_wait(event(GO)).await;
    Ok(activities)
}

/// Everything about it is hostile: names, texts, attributes, status, error.
async fn poisoned(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    for (number, text) in hostile::TEXTS.iter().enumerate() {
        ctx.set_attribute(hostile::NAMES[number % hostile::NAMES.len()], *text);
    }
    ctx.set_status(hostile::TEXTS);
    let failed = ctx.schedule_activity(hostile::NAMES[1], input).await;
    let error = failed.err().map_or_else(String::new, |error| error.to_string());
    ctx.schedule_wait(event(hostile::NAMES[0])).await;
    Err(Payload::from(error))
}

/// Takes so many milliseconds.
#[activity]
async fn pack(_: ActivityContext, parcel: u32, ms: u64) -> Result<u32, String> {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(parcel)
}

/// Succeeds at its third attempt.
#[activity]
async fn charge_card(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(120)).await;
    match ctx.attempt() {
        1 | 2 => Err("card service answered 503".to_owned()),
        _ => Ok(format!("charged {cents}")),
    }
}

/// An order as shops have them: a charge that is retried, parcels side by side, a child, and a wait for the delivery.
#[orchestration(version = "2.1.0")]
async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    ctx.set_attribute("customer", "Ada");
    ctx.set_status("reserving");
    ctx.schedule_activity(reserve, item.clone()).await?;
    ctx.set_status("charging");
    let retry = RetryPolicy::fixed(Duration::from_millis(250)).attempts(5);
    ctx.schedule_activity(charge_card, 4_200).retry(retry).await?;
    ctx.set_status("packing");
    let parcels = (1..=3).map(|parcel| ctx.schedule_activity(pack, (parcel, 90 + 60 * u64::from(parcel))));
    ctx.try_join(parcels).await?;
    ctx.schedule_timer(Duration::from_millis(200)).await;
    ctx.schedule_sub_orchestration(shipping, item.clone()).await?;
    ctx.set_status("on its way");
    ctx.timeout(DAY, ctx.schedule_wait(event("delivered")))
        .await
        .map_err(|_| "lost on its way".to_owned())?;
    Ok(item)
}

mod recorded {
    use super::*;

    #[orchestration(version = "1.0.0")]
    pub(crate) async fn invoice(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        ctx.schedule_activity(reserve, item.clone()).await?;
        ctx.schedule_wait(event(GO)).await;
        Ok(ctx.schedule_activity(ship, item).await?)
    }

    #[orchestration(version = "0.9.0")]
    pub(crate) async fn retired(ctx: OrchestrationContext, _input: Payload) -> Result<(), String> {
        ctx.schedule_wait(event(GO)).await;
        Ok(())
    }

    #[orchestration(version = "1.2.0")]
    pub(crate) async fn checkout(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        ctx.schedule_activity(reserve, item.clone()).await?;
        ctx.schedule_wait(event(GO)).await;
        Ok(ctx.schedule_activity(ship, item).await?)
    }
}

mod changed {
    use super::*;

    #[orchestration(version = "1.0.0")]
    pub(crate) async fn invoice(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        ctx.schedule_activity(greet, item.clone()).await?;
        ctx.schedule_wait(event(GO)).await;
        Ok(ctx.schedule_activity(ship, item).await?)
    }

    #[orchestration(version = "1.2.0")]
    pub(crate) async fn checkout(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        ctx.schedule_activity(ship, item.clone()).await?;
        ctx.schedule_wait(event(GO)).await;
        Ok(ctx.schedule_activity(reserve, item).await?)
    }
}

/// What a build registers.
pub(crate) fn registrations(code: Code) -> Registrations {
    let all = Registrations::new()
        .register(greet)
        .register(charge)
        .register(ship)
        .register(reserve)
        .register(import)
        .register(silent)
        .register(hello)
        .register(shipping)
        .register(echo)
        .register(approval)
        .register(nap)
        .register(payment)
        .register(nightly)
        .register(hangs)
        .register(scan)
        .register(pager)
        .register(fragile)
        .register(level)
        .register(deep)
        .register(fan)
        .register(leaf)
        .register(rounds)
        .register(branches)
        .register(cart)
        .register(tidy)
        .register(steps)
        .register(order)
        .register(pack)
        .register(charge_card)
        .register(long)
        .orchestration(hostile::NAMES[0], "1.0.0-alpha", poisoned)
        .activity(hostile::NAMES[1], |_: ActivityContext, _: Payload| async {
            Err::<Payload, _>(Payload::from(hostile::TEXTS.join(" ")))
        });
    match code {
        Code::First => {
            all.register(recorded::invoice).register(recorded::retired).register(recorded::checkout)
        }
        Code::Good => all.register(changed::invoice).register(recorded::checkout),
        Code::Bad => all.register(changed::invoice).register(changed::checkout),
    }
}
