//! The orchestrations of the crash test's load, and their expected results.

use std::time::Duration;

use perennial::{
    ActivityError, ChildError, ClosePolicy, Either, OrchestrationContext, Payload, RetryPolicy, Runtime,
    RuntimeBuilder,
};
use perennial_core::Handlers;

use crate::support::{failed, number};

const STEPS: u64 = 6;
const WIDTH: u64 = 15;
const PINGS: usize = 3;
/// How many letters each instance of `mail` waits for.
pub(crate) const LETTERS: usize = 3;
/// Which attempt of a flaky activity goes well.
pub(crate) const GOOD_ATTEMPT: u32 = 3;
/// How many steps an activity that reports its progress has.
pub(crate) const PROGRESS: u64 = 4;
/// An hour: longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3_600);

type Outcome = Result<Payload, Payload>;

/// One activity after another, each given the result of the one before.
async fn sequence(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut value = 0;
    for _ in 0..STEPS {
        value = ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(failed)?;
    }
    Ok(number(value))
}

/// Many activities at once.
async fn fanout(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let calls = (0..WIDTH).map(|value| ctx.schedule_activity("add_one", number(value)).typed::<u64>());
    let results = ctx.try_join(calls.collect::<Vec<_>>()).await.map_err(failed)?;
    Ok(number(results.into_iter().sum()))
}

/// Timers between activities, and a race that the activity wins, so that a timer is cancelled.
async fn timers(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut value = 0;
    for pause in [5, 40, 120] {
        ctx.schedule_timer(Duration::from_millis(pause)).await;
        value = ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(failed)?;
    }
    let call = ctx.schedule_activity("add_one", number(value)).typed::<u64>();
    match ctx.select2(call, ctx.schedule_timer(FOR_EVER)).await {
        Either::First(value) => value.map(number).map_err(failed),
        Either::Second(()) => Err(Payload::from("an hour has passed")),
    }
}

/// Events, one at a time, with an activity between them.
async fn events(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..PINGS {
        seen.push(ctx.schedule_wait("ping").typed::<String>().await);
        ctx.schedule_activity("add_one", number(0)).await.map_err(failed)?;
    }
    Ok(Payload::encode(&seen).unwrap())
}

/// Activities that fail before they go well, with different pauses, and one whose error is final.
async fn retries(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut sum = 0;
    let policies = [
        RetryPolicy::fixed(Duration::from_millis(10)).attempts(50),
        RetryPolicy::linear(Duration::from_millis(5), Duration::from_millis(20)).attempts(50).jitter(50),
        RetryPolicy::exponential(50),
    ];
    for policy in &policies[..2] {
        let call = ctx.schedule_activity("flaky", number(1)).retry(policy.clone()).timeout(FOR_EVER);
        sum += call.typed::<u64>().await.map_err(failed)?;
    }
    let hopeless = RetryPolicy::fixed(Duration::from_millis(10)).attempts(50).non_retryable(["hopeless"]);
    match ctx.schedule_activity("flaky", number(0)).retry(hopeless).await {
        Err(ActivityError::Application(_)) => Ok(number(sum)),
        other => Err(failed(other)),
    }
}

/// An activity that reports its progress, and continues from there.
async fn heartbeats(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let call = ctx.schedule_activity("progress", ()).heartbeat_timeout(Duration::from_secs(60));
    call.await.map_err(failed)
}

/// Children side by side, one that races and loses, one that outlives its parent, one that continues as new; and an
/// instance that is nobody's child.
async fn family(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let id = ctx.info().instance.to_string();
    let stray = ctx.schedule_sub_orchestration_with_id("brief", format!("stray-{id}"), number(1));
    let stray = ctx.spawn(stray.close_policy(ClosePolicy::Abandon));
    ctx.schedule_orchestration("brief", format!("free-{id}"), number(1));
    let children = [("brief", number(1)), ("brief", number(2)), ("hops", number(3))];
    let children = children.map(|(name, input)| ctx.schedule_sub_orchestration(name, input).typed::<u64>());
    let results = ctx.try_join(children).await.map_err(failed)?;
    let loser = ctx.schedule_sub_orchestration("waits", Payload::null());
    let winner = ctx.schedule_sub_orchestration("brief", number(10)).typed::<u64>();
    let won = match ctx.select2(winner, loser).await {
        Either::First(won) => won.map_err(failed)?,
        Either::Second(lost) => return Err(failed(lost)),
    };
    let taken = ctx.schedule_sub_orchestration_with_id("brief", id, number(1)).await;
    stray.detach();
    match taken {
        Err(ChildError::NotStarted { .. }) => Ok(number(results.into_iter().sum::<u64>() + won)),
        other => Err(failed(other)),
    }
}

/// Continues as new until there is nothing left to count down.
async fn hops(ctx: OrchestrationContext, left: Payload) -> Outcome {
    let left: u64 = left.decode().map_err(failed)?;
    ctx.schedule_activity("add_one", number(left)).await.map_err(failed)?;
    if left > 0 { ctx.continue_as_new(number(left - 1)).await } else { Ok(number(100)) }
}

/// One activity.
async fn brief(ctx: OrchestrationContext, value: Payload) -> Outcome {
    ctx.schedule_activity("add_one", value).await.map_err(failed)
}

/// Waits for an event that never arrives.
async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(Payload::from(ctx.schedule_wait("never").await))
}

/// Waits with children that wait, an activity and a timer, until somebody ends it.
async fn patient(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration("waits", Payload::null());
    let grandchild = ctx.schedule_sub_orchestration("waits", Payload::null());
    ctx.schedule_activity("progress", ()).await.map_err(failed)?;
    match ctx.select3(child, grandchild, ctx.schedule_timer(FOR_EVER)).await {
        perennial::Either3::Third(()) => Ok(Payload::null()),
        _ => Err(Payload::from("a child that waits has ended")),
    }
}

/// Letters from a sender outside of the process.
async fn mail(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..LETTERS {
        seen.push(ctx.schedule_wait("letter").typed::<String>().await);
    }
    ctx.schedule_activity("add_one", number(0)).await.map_err(failed)?;
    Ok(Payload::encode(&seen).unwrap())
}

/// Adds up what events and updates bring, each a bit of its own, and continues as new after every second event, until
/// an event brings nothing.
async fn account(ctx: OrchestrationContext, total: Payload) -> Outcome {
    let total = ctx.state(total.decode::<u64>().map_err(failed)?);
    ctx.on_query("total", &total, |total, _: Payload| total.read(|total| *total));
    ctx.on_update("add", &(ctx.clone(), total.clone()), |(ctx, total), amount: Payload| async move {
        let amount: u64 = amount.decode().map_err(failed)?;
        ctx.schedule_activity("add_one", number(0)).await.map_err(failed)?;
        Ok(number(total.update(|total| {
            *total += amount;
            *total
        })))
    })
    .validate(|_, amount| match amount.decode::<u64>() {
        Ok(amount) if amount > 0 => Ok(()),
        _ => Err(Payload::from("nothing to add")),
    });
    for _ in 0..2 {
        let amount = ctx.schedule_wait("deposit").typed::<u64>().await;
        total.update(|total| *total += amount);
        ctx.handlers_idle().await;
        let now = number(total.read(|total| *total));
        ctx.set_status(now.clone());
        ctx.upsert_attributes([("total", now.clone())]);
        if amount == 0 {
            return Ok(now);
        }
    }
    ctx.continue_as_new(number(total.read(|total| *total))).await
}

/// The same name, twice.
async fn greet_1(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(Duration::from_millis(20)).await;
    ctx.schedule_activity("add_one", number(0)).await.map_err(failed)
}

async fn greet_2(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("add_one", number(1)).await.map_err(failed)
}

/// Registers all of them.
pub(crate) fn register(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("sequence", "1.0.0", sequence)
        .orchestration("fanout", "1.0.0", fanout)
        .orchestration("timers", "1.0.0", timers)
        .orchestration("events", "1.0.0", events)
        .orchestration("retries", "1.0.0", retries)
        .orchestration("heartbeats", "1.0.0", heartbeats)
        .orchestration("family", "1.0.0", family)
        .orchestration("hops", "1.0.0", hops)
        .orchestration("brief", "1.0.0", brief)
        .orchestration("waits", "1.0.0", waits)
        .orchestration("patient", "1.0.0", patient)
        .orchestration("mail", "1.0.0", mail)
        .orchestration("account", "1.0.0", account)
        .orchestration("greet", "1.0.0", greet_1)
        .orchestration("greet", "2.0.0", greet_2)
}

/// The code of all of them.
pub(crate) fn handlers() -> Handlers {
    register(Runtime::open("memory:")).handlers()
}

/// The events that an instance of `events` waits for.
pub(crate) fn pings() -> impl Iterator<Item = String> {
    (0..PINGS).map(|ping| format!("ping {ping}"))
}

/// The letters that an instance of `mail` waits for.
pub(crate) fn letters() -> impl Iterator<Item = String> {
    (0..LETTERS).map(|letter| format!("letter {letter}"))
}

/// The expected result of an instance.
pub(crate) fn expected_output(id: &str) -> String {
    match id.split('-').next().unwrap() {
        "sequence" | "delayed" => STEPS.to_string(),
        "fanout" => (WIDTH * (WIDTH + 1) / 2).to_string(),
        "timers" => "4".to_owned(),
        "events" => Payload::encode(&pings().collect::<Vec<_>>()).unwrap().as_json().to_owned(),
        "mail" | "raised" => Payload::encode(&letters().collect::<Vec<_>>()).unwrap().as_json().to_owned(),
        "retries" => "2".to_owned(),
        "heartbeats" => PROGRESS.to_string(),
        "family" => (2 + 3 + 100 + 11).to_string(),
        "account" => super::guests::ALL_AMOUNTS.to_string(),
        "used" | "old" => "1".to_owned(),
        "new" | "stray" | "free" => "2".to_owned(),
        other => panic!("nothing is called {other}"),
    }
}
