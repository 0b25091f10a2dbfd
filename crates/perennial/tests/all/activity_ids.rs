//! Activities with ids of the code's choice: seen everywhere, unique while they are open, part of the decision (E6).

use std::time::Duration;

use perennial::history::{Decision, EventKind, History};
use perennial::prelude::*;
use perennial::replay::{ReplayReport, Replayer, TurnFailure};

use crate::support::{soon, until_blocked};

/// Says which id it has and which attempt it is; the first attempt fails.
#[activity]
async fn named(ctx: ActivityContext, _: u32) -> Result<String, String> {
    let id = ctx.activity_id().unwrap_or("none").to_owned();
    if ctx.attempt() == 1 { Err(id) } else { Ok(format!("{id} {}", ctx.attempt())) }
}

#[activity]
async fn never(_: ActivityContext) -> Result<String, String> {
    std::future::pending().await
}

#[orchestration]
async fn charges(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts(2);
    let first = ctx.schedule_activity(named, 1).id("charge-1").retry(retry.clone());
    let second = ctx.schedule_activity(named, 2).id("charge-2").retry(retry.clone());
    let mut said = ctx.try_join([first, second]).await?;
    // The id is free again: the one that had it has completed.
    said.push(ctx.schedule_activity(named, 3).id("charge-1").retry(retry).await?);
    // And so it is when the future of the one that has it is dropped, within the same step, too.
    for _ in 0..2 {
        let hanging = ctx.schedule_activity(never, ()).id("hangs");
        let _ = ctx.timeout(Duration::from_millis(1), hanging).await;
    }
    Ok(said)
}

/// Gives the id to another activity in the step that continues as new.
#[orchestration]
async fn polls(ctx: OrchestrationContext, round: u32) -> Result<u32, String> {
    if round == 1 {
        return Ok(round);
    }
    let hanging = ctx.schedule_activity(never, ()).id("poll");
    let _ = ctx.timeout(Duration::from_millis(1), hanging).await;
    let _again = ctx.schedule_activity(never, ()).id("poll");
    ctx.continue_as_new(1).await
}

#[tokio::test]
async fn e6_an_id_that_is_free_again_can_be_used_by_the_step_that_continues_as_new() {
    let runtime = Runtime::open("memory:").register(polls).register(never).start().await.unwrap();
    let run = runtime.client().start(polls, "polls", 0).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

async fn start() -> Runtime {
    let twice = |ctx: OrchestrationContext| async move {
        let first = ctx.schedule_activity(never, ()).id("one");
        let second = ctx.schedule_activity(never, ()).id("one");
        ctx.join2(first, second).await.0.map_err(String::from)
    };
    let later = |ctx: OrchestrationContext| async move {
        let first = ctx.schedule_activity(never, ()).id("one");
        ctx.schedule_timer(Duration::from_millis(1)).await;
        let second = ctx.schedule_activity(never, ()).id("one");
        ctx.join2(first, second).await.0.map_err(String::from)
    };
    let odd = |ctx: OrchestrationContext| async move {
        ctx.schedule_activity(never, ()).id("a::b").await.map_err(String::from)
    };
    let builder = Runtime::open("memory:").register(charges).register(named).register(never);
    let builder = builder.orchestration("twice", "1.0.0", twice).orchestration("later", "1.0.0", later);
    builder.orchestration("odd", "1.0.0", odd).start().await.unwrap()
}

fn ids(history: &History) -> Vec<Option<String>> {
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    let ids = events.filter_map(|event| match &event.kind {
        EventKind::Decision { decision: Decision::ActivityScheduled { id, .. }, .. } => Some(id.clone()),
        _ => None,
    });
    ids.collect()
}

#[tokio::test]
async fn e6_an_activity_id_is_recorded_seen_by_every_attempt_and_free_again_afterwards() {
    let runtime = start().await;
    let client = runtime.client();
    let run = client.start(charges, "charges-1", ()).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), ["charge-1 2", "charge-2 2", "charge-1 2"]);
    let history = client.history("charges-1").await.unwrap();
    let expected = ["charge-1", "charge-2", "charge-1", "hangs", "hangs"];
    assert_eq!(ids(&history), expected.map(|id| Some(id.to_owned())));
    let json = serde_json::to_string(&client.export("charges-1").await.unwrap()).unwrap();
    assert!(json.contains(r#""ActivityScheduled":{"name":"named","id":"charge-1""#), "{json}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn e6_two_open_activities_with_one_id_fail_the_turn() {
    let runtime = start().await;
    let client = runtime.client();
    for name in ["twice", "later"] {
        client.start(name, name, ()).await.unwrap();
        until_blocked(&client, name, "PER-0206").await;
        let blocked = client.status(name).await.unwrap().blocked.unwrap();
        assert_eq!(blocked.code, "PER-0206", "{name}");
        assert!(blocked.reason.contains("the activity id \"one\""), "{name}: {}", blocked.reason);
        assert!(blocked.reason.contains("activity_ids.rs:"), "{name}: {}", blocked.reason);
    }
    // Of the turn that failed nothing is recorded.
    assert_eq!(ids(&client.history("later").await.unwrap()), [Some("one".to_owned())]);
    client.start("odd", "odd", ()).await.unwrap();
    until_blocked(&client, "odd", "PER-0206").await;
    let blocked = client.status("odd").await.unwrap().blocked.unwrap();
    assert_eq!(blocked.code, "PER-0206");
    assert!(blocked.reason.contains("\"a::b\" cannot be the id of an activity"), "{}", blocked.reason);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn e6_an_open_activity_is_shown_with_its_id() {
    let runtime = start().await;
    let client = runtime.client();
    client.start("later", "waits", ()).await.unwrap();
    let explained = async {
        loop {
            let line = client.explain("waits").await.unwrap().to_string();
            if line.contains("never") {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let line = soon(explained).await;
    assert!(line.contains("activity `never` with id `one` (event "), "{line}");
    runtime.shutdown().await.unwrap();
}

/// Code that schedules one activity, with an id or without.
fn code(id: Option<&'static str>) -> perennial::replay::Handlers {
    let code = move |ctx: OrchestrationContext| async move {
        let scheduled = ctx.schedule_activity(never, ());
        match id {
            Some(id) => scheduled.id(id).await.map_err(String::from),
            None => scheduled.await.map_err(String::from),
        }
    };
    Runtime::open("memory:").orchestration("one", "1.0.0", code).handlers()
}

#[tokio::test]
async fn e6_code_that_gives_another_id_diverges() {
    let recorded = |ctx: OrchestrationContext| async move {
        ctx.schedule_activity(never, ()).id("as recorded").await.map_err(String::from)
    };
    let runtime = Runtime::open("memory:").orchestration("one", "1.0.0", recorded).start().await.unwrap();
    let client = runtime.client();
    client.start("one", "one", ()).await.unwrap();
    let history = soon(async {
        loop {
            let history = client.history("one").await.unwrap();
            if !history.turns.is_empty() {
                return history;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let replay = |id| Replayer::new(code(id)).replay("one", &history);
    assert!(matches!(replay(Some("as recorded")), ReplayReport::Compatible { .. }));
    for other in [Some("another"), None] {
        match replay(other) {
            ReplayReport::Incompatible(divergence @ TurnFailure::Nondeterminism(_)) => {
                assert!(divergence.to_string().contains("differs in its id"), "{divergence}");
            }
            other => panic!("{other:?}"),
        }
    }
    runtime.shutdown().await.unwrap();
}
