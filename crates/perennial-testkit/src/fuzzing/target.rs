//! The orchestration that hostile histories are replayed with, and histories that it records.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::{
    ActivityError, ChildError, Decision, EventId, Execution, Job, Ledger, OrchestrationContext, Payload,
    QueryFailure, Started, Turn, UpdateRefusal,
};

use super::choices::Choices;
use super::options;

pub(super) const INSTANCE: &str = "fuzzed-1";

/// Inputs of the orchestration, which select its behaviour.
const SHAPES: [&str; 4] = ["plain", "tidy", "again", "race"];

/// Uses a bit of every feature, depending on `input`. It never panics by itself.
pub(super) async fn orchestration(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let shape: String = input.decode().unwrap_or_default();
    let ticks = ctx.state(0_u64);
    answer(&ctx, &ticks);
    if shape == "tidy" {
        let tidying = ctx.clone();
        ctx.on_cancel(move || async move {
            let _ = tidying.schedule_activity("tidy", ()).await;
            tidying.set_status("tidied");
        });
    }
    let greeting = if ctx.patched("greeting") { "hello" } else { "hi" };
    let _ = ctx.schedule_activity("greet", greeting).await;
    let dice = ctx.side_effect("dice", || 4_u8).await;
    ctx.upsert_attributes([("dice", Payload::from(serde_json::Value::from(dice)))]);

    let results = ctx.parallel((0..3_u64).map(|number| branch(ctx.clone(), number))).await;
    ctx.set_status(Payload::from(serde_json::Value::from(results)));

    let (go, patience) = (ctx.schedule_wait("go"), ctx.schedule_timer(Duration::from_secs(5)));
    let _ = ctx.select2(go, patience).await;
    let count = ctx.schedule_activity("count", ctx.uuid4()).typed::<u64>().await.unwrap_or(0);
    match shape.as_str() {
        "again" => {
            ctx.schedule_orchestration("audit", "audit-1", input.clone());
            ctx.continue_as_new("plain").await
        }
        "race" => {
            let racers = (0..count % 4 + 1).map(|number| ctx.schedule_activity("run", number.to_string()));
            let won = ctx.select(racers.collect::<Vec<_>>()).await;
            ctx.raise_event("other-1", "won", won.0.to_string());
        }
        _ => {}
    }
    ctx.wait_until(&ticks, |ticks| *ticks > 0).await;
    ctx.handlers_idle().await;
    if ctx.is_cancelled() { Err(Payload::from("cancelled")) } else { Ok(input) }
}

/// Installs handlers of events, queries and updates.
fn answer(ctx: &OrchestrationContext, ticks: &perennial_core::State<u64>) {
    let (handling, counted) = (ctx.clone(), ticks.clone());
    ctx.on_event("tick", move |payload| {
        let (ctx, ticks) = (handling.clone(), counted.clone());
        async move {
            let _ = ctx.schedule_activity("tock", payload).await;
            ticks.update(|ticks| *ticks += 1);
        }
    });
    let updating = ctx.clone();
    ctx.on_update(
        "rename",
        |payload| {
            if payload.is_null() { Err(Payload::from("no name")) } else { Ok(()) }
        },
        move |payload| {
            let ctx = updating.clone();
            async move {
                ctx.schedule_timer(Duration::from_millis(ctx.random() % 100)).await;
                Ok(payload)
            }
        },
    );
    let asked = ticks.clone();
    ctx.on_query("ticks", move |_| Ok(Payload::from(serde_json::Value::from(asked.read(|ticks| *ticks)))));
}

async fn branch(ctx: OrchestrationContext, number: u64) -> String {
    match number {
        0 => {
            let first = ctx.schedule_activity("first", number.to_string()).await;
            let second = ctx.schedule_activity("second", ctx.new_guid().await);
            drop(ctx.schedule_wait("never"));
            format!("{:?} {:?}", first.is_ok(), second.await.is_ok())
        }
        1 => {
            ctx.schedule_timer(Duration::from_millis(10 + ctx.random() % 10)).await;
            ctx.utc_now().await.as_millis().to_string()
        }
        _ => {
            let child = ctx.schedule_sub_orchestration("child", number.to_string());
            let slow = ctx.schedule_timer(Duration::from_secs(60));
            match ctx.select2(child, slow).await {
                perennial_core::Either::First(result) => format!("{}", result.is_ok()),
                perennial_core::Either::Second(()) => "slow".to_owned(),
            }
        }
    }
}

/// Sends a query and an update between turns. Whether there is an answer depends on how far the code came.
pub(super) fn query_and_update(execution: &mut Execution) {
    match execution.query("ticks", Payload::null()) {
        Ok(_) | Err(QueryFailure::NoHandler { .. }) => {}
        Err(other) => panic!("a query led to {other}"),
    }
    match execution.offer_update("rename", &Payload::null()) {
        Err(
            UpdateRefusal::NoHandler { .. }
            | UpdateRefusal::NotRunning { .. }
            | UpdateRefusal::Refused { .. },
        ) => {}
        other => panic!("an offer led to {other:?}"),
    }
}

/// Records a history of the orchestration.
pub(super) fn record(choices: &mut Choices<'_>) -> Vec<Turn> {
    let shape = choices.pick(&SHAPES).copied().unwrap_or_default();
    let started = Started::new("fuzzed", "1.0.0", shape, 7);
    let mut execution = Execution::new(INSTANCE, Arc::new(orchestration), started, options())
        .expect("the start is of this engine");
    let mut turns = Vec::new();
    let mut now_ms = 1_000;
    for _ in 0..=choices.below(16) {
        let jobs = if turns.is_empty() { Vec::new() } else { jobs(execution.ledger(), choices) };
        let taken = execution.take_turn(now_ms, jobs).expect("the orchestration has no errors");
        turns.extend(taken.turn);
        now_ms += 10;
        if execution.has_ended() {
            break;
        }
    }
    turns
}

/// Jobs for a turn: some open operations complete, and other jobs arrive, valid or not.
pub(super) fn jobs(ledger: &Ledger, choices: &mut Choices<'_>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (id, open) in ledger.open() {
        if !choices.once_in(3) {
            jobs.extend(completion(id, open, choices));
        }
    }
    if choices.once_in(4) {
        jobs.push(event("tick", choices));
    }
    if choices.once_in(8) {
        jobs.push(event("noise", choices));
    }
    if choices.once_in(8) {
        let (name, payload, key) = ("rename".to_owned(), value(choices), None);
        jobs.push(Job::UpdateRequested { name, payload, key, trace: None });
    }
    if choices.once_in(32) {
        let (reason, grace_ms) = ("enough".to_owned(), choices.number());
        jobs.push(Job::OrchestrationCancelRequested { reason, grace_ms });
    }
    if choices.once_in(8) {
        let source_event_id = EventId(choices.number());
        jobs.push(Job::TimerFired { source_event_id });
    }
    jobs
}

fn completion(source_event_id: EventId, open: &Decision, choices: &mut Choices<'_>) -> Option<Job> {
    let fails = choices.once_in(8);
    Some(match open {
        Decision::ActivityScheduled { .. } if fails => Job::ActivityFailed {
            source_event_id,
            error: ActivityError::Application(value(choices)),
            attempts: 2,
            trail: Default::default(),
        },
        Decision::ActivityScheduled { .. } => Job::ActivityCompleted {
            source_event_id,
            result: Payload::from(serde_json::Value::from(choices.below(8))),
            attempts: 1,
            trail: Default::default(),
        },
        Decision::TimerCreated { .. } => Job::TimerFired { source_event_id },
        Decision::ExternalSubscribed { name } => event(name, choices),
        Decision::SubOrchestrationScheduled { .. } if fails => {
            Job::SubOrchestrationFailed { source_event_id, error: ChildError::Application(value(choices)) }
        }
        Decision::SubOrchestrationScheduled { .. } => {
            Job::SubOrchestrationCompleted { source_event_id, result: value(choices) }
        }
        _ => return None,
    })
}

fn event(name: &str, choices: &mut Choices<'_>) -> Job {
    let key = choices.once_in(4).then(|| choices.below(4).to_string());
    let (name, payload) = (name.to_owned(), value(choices));
    Job::ExternalEvent { name, payload, key, trace: None }
}

pub(super) fn value(choices: &mut Choices<'_>) -> Payload {
    let texts = ["null", "0", "\"text\"", "[1, 2]", "{\"b\":1,\"a\":[true]}", "1e400"];
    let text = choices.pick(&texts).copied().unwrap_or("null");
    Payload::from_json(text).expect("each is JSON")
}
