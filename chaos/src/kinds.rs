//! The orchestrations of the load, and the results they must return.
//!
//! The first part of an instance's id is its kind: `fanout-3-17` is an instance of `fanout`.

use std::time::Duration;

use perennial::prelude::*;
use perennial::replay::Handlers;
use perennial::{Either, RuntimeBuilder};

const STEPS: u64 = 5;
const WIDTH: u64 = 12;
/// Number of letters that each instance of `mail` waits for.
pub const LETTERS: usize = 4;
/// Amounts that events add to an account. Each amount is a different bit, so that the sum shows which events arrived,
/// and how often.
pub const DEPOSITS: [u64; 5] = [1, 2, 4, 8, 16];
/// Amounts that updates add to an account.
pub const ADDITIONS: [u64; 3] = [32, 64, 128];
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);

type Outcome<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A number as a payload.
pub fn number(number: u64) -> Payload {
    Payload::encode(&number).expect("a number is JSON")
}

async fn add_one(ctx: &OrchestrationContext, value: u64) -> Outcome<u64> {
    ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(text)
}

/// Runs activities in sequence, each with the result of the previous one.
async fn sequence(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    let mut value = 0;
    for _ in 0..STEPS {
        value = add_one(&ctx, value).await?;
    }
    Ok(value)
}

/// Runs many activities concurrently.
async fn fanout(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    let calls = (0..WIDTH).map(|value| ctx.schedule_activity("add_one", number(value)).typed::<u64>());
    let results = ctx.try_join(calls.collect::<Vec<_>>()).await.map_err(text)?;
    Ok(results.into_iter().sum())
}

/// Runs timers between activities, and a race that the activity wins, so that a timer is cancelled.
async fn timers(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    let mut value = 0;
    for pause in [5, 60, 300] {
        ctx.schedule_timer(Duration::from_millis(pause)).await;
        value = add_one(&ctx, value).await?;
    }
    let call = ctx.schedule_activity("add_one", number(value)).typed::<u64>();
    match ctx.select2(call, ctx.schedule_timer(FOR_EVER)).await {
        Either::First(value) => value.map_err(text),
        Either::Second(()) => Err("a day has passed".to_owned()),
    }
}

/// Waits for external events, with an activity between them.
async fn mail(ctx: OrchestrationContext, _: ()) -> Outcome<Vec<String>> {
    let mut seen = Vec::new();
    for _ in 0..LETTERS {
        seen.push(ctx.schedule_wait("letter").typed::<String>().await);
        add_one(&ctx, 0).await?;
    }
    Ok(seen)
}

/// Adds up the amounts of events and updates, and continues as new after every second event. An event with amount zero
/// ends it.
async fn account(ctx: OrchestrationContext, total: u64) -> Outcome<u64> {
    let total = ctx.state(total);
    ctx.on_query("total", &total, |total, _: ()| total.read(|total| *total));
    ctx.on_update("add", &(ctx.clone(), total.clone()), |(ctx, total), amount: u64| async move {
        add_one(&ctx, 0).await?;
        let now = total.update(|total| {
            *total += amount;
            *total
        });
        Ok::<u64, String>(now)
    });
    for _ in 0..2 {
        let amount = ctx.schedule_wait("deposit").typed::<u64>().await;
        total.update(|total| *total += amount);
        ctx.handlers_idle().await;
        let now = total.read(|total| *total);
        ctx.set_status(number(now));
        ctx.upsert_attributes([("total", number(now))]);
        if amount == 0 {
            return Ok(now);
        }
    }
    ctx.continue_as_new(total.read(|total| *total)).await
}

/// Runs children, grandchildren that continue as new, and a race that a child loses.
async fn family(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    let brief = [1, 2].map(|value| ctx.schedule_sub_orchestration("brief", number(value)).typed::<u64>());
    let results = ctx.try_join(brief).await.map_err(text)?;
    let hops = ctx.schedule_sub_orchestration("hops", number(3)).typed::<u64>().await.map_err(text)?;
    let loser = ctx.schedule_sub_orchestration("waits", ());
    let winner = ctx.schedule_sub_orchestration("brief", number(10)).typed::<u64>();
    match ctx.select2(winner, loser).await {
        Either::First(won) => Ok(results.into_iter().sum::<u64>() + hops + won.map_err(text)?),
        Either::Second(_) => Err("the child that waits has ended".to_owned()),
    }
}

/// Counts down to zero, and continues as new at each step.
async fn hops(ctx: OrchestrationContext, left: u64) -> Outcome<u64> {
    add_one(&ctx, left).await?;
    if left > 0 { ctx.continue_as_new(left - 1).await } else { Ok(100) }
}

/// Runs one activity.
async fn brief(ctx: OrchestrationContext, value: u64) -> Outcome<u64> {
    add_one(&ctx, value).await
}

/// Waits for an event that never arrives.
async fn waits(ctx: OrchestrationContext, _: ()) -> Outcome<()> {
    ctx.schedule_wait("never").await;
    Ok(())
}

/// Waits with a child and an activity until it is cancelled.
async fn patient(ctx: OrchestrationContext, _: ()) -> Outcome<()> {
    let child = ctx.schedule_sub_orchestration("waits", ());
    add_one(&ctx, 0).await?;
    let nap = ctx.schedule_activity("nap", number(86_400_000));
    match ctx.select2(child, nap).await {
        Either::First(_) => Err("the child that waits has ended".to_owned()),
        Either::Second(_) => Err("a day has passed".to_owned()),
    }
}

/// Books three things, of which the last one always fails, and compensates the others.
async fn trip(ctx: OrchestrationContext, _: ()) -> Outcome<()> {
    let saga = Saga::new(&ctx);
    saga.run(async {
        for what in ["flight", "hotel", "moon"] {
            ctx.schedule_activity("book", what).await.map_err(text)?;
            saga.undo("unbook", what);
        }
        Ok(())
    })
    .await
}

/// Runs an activity that succeeds at its third attempt.
async fn retries(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    let policy = RetryPolicy::fixed(Duration::from_millis(20)).attempts(100);
    ctx.schedule_activity("flaky", number(7)).retry(policy).typed::<u64>().await.map_err(text)
}

/// Runs an activity that takes the given number of milliseconds.
async fn long(ctx: OrchestrationContext, ms: u64) -> Outcome<u64> {
    ctx.schedule_activity("nap", number(ms)).typed::<u64>().await.map_err(text)
}

/// Runs an activity that only some nodes have.
async fn errand(ctx: OrchestrationContext, _: ()) -> Outcome<String> {
    ctx.schedule_activity("special", ()).typed::<String>().await.map_err(text)
}

/// Runs an activity on nodes with a tag.
async fn tagged(ctx: OrchestrationContext, tag: String) -> Outcome<String> {
    ctx.schedule_activity("where_am_i", ()).tag(tag).typed::<String>().await.map_err(text)
}

/// The version of release 1.
async fn greet_1(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    ctx.schedule_timer(Duration::from_millis(200)).await;
    add_one(&ctx, 0).await
}

/// The version of release 2: it uses an activity that release 1 does not have.
async fn greet_2(ctx: OrchestrationContext, _: ()) -> Outcome<u64> {
    ctx.schedule_activity("add_two", number(0)).typed::<u64>().await.map_err(text)
}

/// Registers the orchestrations of a release.
pub fn register(runtime: RuntimeBuilder, release: u32) -> RuntimeBuilder {
    let runtime = runtime
        .orchestration("sequence", "1.0.0", sequence)
        .orchestration("fanout", "1.0.0", fanout)
        .orchestration("timers", "1.0.0", timers)
        .orchestration("mail", "1.0.0", mail)
        .orchestration("account", "1.0.0", account)
        .orchestration("family", "1.0.0", family)
        .orchestration("hops", "1.0.0", hops)
        .orchestration("brief", "1.0.0", brief)
        .orchestration("waits", "1.0.0", waits)
        .orchestration("patient", "1.0.0", patient)
        .orchestration("trip", "1.0.0", trip)
        .orchestration("retries", "1.0.0", retries)
        .orchestration("long", "1.0.0", long)
        .orchestration("errand", "1.0.0", errand)
        .orchestration("tagged", "1.0.0", tagged)
        .orchestration("greet", "1.0.0", greet_1);
    if release >= 2 { runtime.orchestration("greet", "2.0.0", greet_2) } else { runtime }
}

/// The handlers of all releases.
pub fn handlers() -> Handlers {
    register(Runtime::open("memory:"), 2).handlers()
}

/// The letters that an instance of `mail` waits for.
pub fn letters() -> impl Iterator<Item = String> {
    (0..LETTERS).map(|letter| format!("letter {letter}"))
}

/// The JSON that an instance must return, if there is only one correct value.
pub fn expected_output(id: &str) -> Option<String> {
    let sum = |amounts: &[u64]| amounts.iter().sum::<u64>();
    match id.split('-').next()? {
        "sequence" => Some(STEPS.to_string()),
        "fanout" => Some((WIDTH * (WIDTH + 1) / 2).to_string()),
        "timers" => Some("4".to_owned()),
        "mail" => Some(serde_json::json!(letters().collect::<Vec<_>>()).to_string()),
        "account" => Some((sum(&DEPOSITS) + sum(&ADDITIONS)).to_string()),
        "family" => Some((2 + 3 + 100 + 11).to_string()),
        "hops" => Some("100".to_owned()),
        "retries" => Some("7".to_owned()),
        _ => None,
    }
}
