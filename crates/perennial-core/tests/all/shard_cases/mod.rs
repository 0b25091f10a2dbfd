//! What the tests of shards share: small orchestrations, each with one idea.
#![allow(dead_code, reason = "each test file uses the part it needs")]

use std::time::Duration;

use perennial_core::{ActivityError, Either, Handlers, OrchestrationContext, OrchestrationHandler, Payload};
use perennial_testkit::ManualNode;
use serde_json::json;

pub(crate) type Outcome = Result<Payload, Payload>;

/// Everything below, by the name of its function.
pub(crate) fn handlers() -> Handlers {
    let version = ManualNode::VERSION;
    Handlers::default()
        .with("echo", version, echo)
        .with("steps", version, steps)
        .with("fan", version, fan)
        .with("collect", version, collect)
        .with("sleep", version, sleep)
        .with("race", version, race)
        .with("tour", version, tour)
        .with("cleans_up", version, cleans_up)
}

/// All the orchestrations, and one more or another of that name.
pub(crate) fn handlers_and(name: &str, handler: impl OrchestrationHandler) -> Handlers {
    handlers().with(name, ManualNode::VERSION, handler)
}

pub(crate) fn number(number: u64) -> Payload {
    Payload::from(json!(number))
}

fn application_error(failure: ActivityError) -> Payload {
    match failure {
        ActivityError::Application(error) => error,
        other => Payload::from(format!("{other:?}")),
    }
}

/// Ends in its first turn, with its input.
pub(crate) async fn echo(_: OrchestrationContext, input: Payload) -> Outcome {
    Ok(input)
}

/// Activities `A1`, `A2`, …, as many as its input says, one after the other; ends with the last result.
pub(crate) async fn steps(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let count: u32 = input.decode().expect("a number");
    let mut last = Payload::null();
    for step in 1..=count {
        last = ctx.schedule_activity(format!("A{step}"), last).await.map_err(application_error)?;
    }
    Ok(last)
}

/// Activities `A1`, `A2`, …, as many as its input says, all at once; ends with all results.
pub(crate) async fn fan(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let count: u32 = input.decode().expect("a number");
    let tasks: Vec<_> = (1..=count).map(|number| ctx.schedule_activity(format!("A{number}"), ())).collect();
    let results = ctx.try_join(tasks).await.map_err(application_error)?;
    Ok(Payload::encode(&results).expect("payloads encode"))
}

/// Collects events `n` until one says `end`; ends with all that came before.
pub(crate) async fn collect(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    loop {
        let next = ctx.schedule_wait("n").await;
        if next == "end".into() {
            return Ok(Payload::encode(&seen).expect("payloads encode"));
        }
        seen.push(next);
    }
}

/// Sleeps for as many milliseconds as its input says.
pub(crate) async fn sleep(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let ms: u64 = input.decode().expect("a number");
    ctx.schedule_timer(Duration::from_millis(ms)).await;
    Ok("slept".into())
}

/// An activity `slow` against 5 s; then an activity `after`.
pub(crate) async fn race(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let winner = match ctx.select2(ctx.schedule_activity("slow", ()), ctx.schedule_timer(secs(5))).await {
        Either::First(_) => "slow",
        Either::Second(()) => "timer",
    };
    ctx.schedule_activity("after", winner).await.map_err(application_error)
}

/// An activity, an event, a timer, an activity.
pub(crate) async fn tour(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let first = ctx.schedule_activity("first", ()).await.map_err(application_error)?;
    let event: Payload = ctx.schedule_wait("n").await;
    ctx.schedule_timer(secs(10)).await;
    let last = ctx.schedule_activity("last", ()).await.map_err(application_error)?;
    Ok(Payload::encode(&(first, event, last)).expect("payloads encode"))
}

/// Takes cancellation over: when it is requested, runs an activity `clean` and fails with its result.
pub(crate) async fn cleans_up(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.cancelled().await;
    let cleaned = ctx.schedule_activity("clean", ()).await.map_err(application_error)?;
    Err(cleaned)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Does what can be done without taking a turn, a bounded number of times.
pub(crate) fn do_all_but_turns(node: &mut ManualNode) {
    for _ in 0..20 {
        let _ = node.look_up() || node.load() || node.commit() > 0 || node.follow_hint();
    }
}

/// Does what can be done, a bounded number of times.
pub(crate) fn settle_for_a_while(node: &mut ManualNode) {
    for _ in 0..50 {
        let _ = node.look_up() || node.load() || node.take_turns() || node.commit() > 0 || node.follow_hint();
    }
}

/// Begins an activity, and fails at the next event.
pub(crate) async fn fails_later(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _work = ctx.schedule_activity("work", ());
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}
