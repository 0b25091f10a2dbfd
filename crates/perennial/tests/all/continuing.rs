//! Continue-as-new: one commit, and nothing is lost (G26, I9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use perennial::history::Ending;
use perennial::history::{EventKind, Job};
use perennial::{
    ClientError, OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions, StartOptions, Status,
};
use perennial_core::store::{MemoryStore, Store};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::invariants::ClientLog;
use serde_json::{Value, json};

use crate::support::hands::Hands;
use crate::support::stage::{Stage, on_each_stage};
use crate::support::{at, event, failed, number, soon, until};

type Outcome = Result<Payload, Payload>;

/// How many events one execution reads.
const EACH: u64 = 10;

/// Reads numbered events and insists on their order; continues as new every ten, up to the number at which it is done.
async fn in_order(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let (mut next, end): (u64, u64) = input.decode().map_err(failed)?;
    for _ in 0..EACH {
        let came = ctx.schedule_wait("n").typed::<u64>().await;
        if came != next {
            return Err(Payload::from(format!("{came} came when it was the turn of {next}")));
        }
        next += 1;
    }
    if next == end {
        return Ok(number(next));
    }
    ctx.continue_as_new(json!([next, end])).await
}

/// Reads one event of each execution, and keeps what it read.
async fn collects(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let mut seen: Vec<String> = input.decode().map_err(failed)?;
    let item = ctx.schedule_wait("item").typed::<String>().await;
    if item.is_empty() {
        return Ok(Payload::encode(&seen).unwrap());
    }
    seen.push(item);
    ctx.continue_as_new(Payload::encode(&seen).unwrap()).await
}

/// Says where it is, and leaves it at that in the next execution.
async fn publishes(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == Payload::from("first") {
        ctx.set_status("packing");
        ctx.upsert_attributes([("region", "eu"), ("priority", "high")]);
        ctx.schedule_wait(event("on")).await;
        return ctx.continue_as_new("second").await;
    }
    ctx.schedule_wait(event("on")).await;
    ctx.upsert_attributes([("priority", Payload::null())]);
    ctx.schedule_wait(event("on")).await;
    Ok(Payload::null())
}

/// Goes where it is told: to another version, or to the latest.
async fn moves(ctx: OrchestrationContext, _: Payload) -> Outcome {
    match ctx.schedule_wait("to").typed::<String>().await.as_str() {
        "end" => Ok(Payload::from(ctx.info().version)),
        "latest" => ctx.continue_as_new(()).await,
        version => ctx.continue_as_new_versioned(version, ()).await,
    }
}

/// Leaves a timer and an activity behind, which mean nothing to the next execution.
async fn leaves_work(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == Payload::from("second") {
        return Ok(ctx.schedule_wait(event("on")).await);
    }
    let _timer = ctx.schedule_timer(Duration::from_millis(30));
    ctx.schedule_wait(event("on")).await;
    ctx.continue_as_new("second").await
}

/// Takes cancellation over, and cleans up in its next execution.
async fn cleans_up_later(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == Payload::from("second") {
        ctx.cancelled().await;
        return Ok(Payload::from("cleaned up"));
    }
    ctx.cancelled().await;
    ctx.continue_as_new("second").await
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("in_order", "1.0.0", in_order)
        .orchestration("collects", "1.0.0", collects)
        .orchestration("publishes", "1.0.0", publishes)
        .orchestration("moves", "1.0.0", moves)
        .orchestration("moves", "1.5.0", moves)
        .orchestration("moves", "2.0.0", moves)
        .orchestration("leaves_work", "1.0.0", leaves_work)
        .orchestration("cleans_up_later", "1.0.0", cleans_up_later)
}

async fn runtime(stage: &Stage) -> Runtime {
    orchestrations(stage.runtime()).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_a_storm_of_events_loses_none_and_keeps_their_order() {
    const EVENTS: u64 = 2_000;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        client.start("in_order", "storm", json!([0, EVENTS])).await.unwrap();
        log.started("storm");
        // Several at once, so that a turn brings more of them than its execution reads.
        let all: Vec<u64> = (0..EVENTS).collect();
        for some in all.chunks(64) {
            let raise = |n: &u64| client.raise_event("storm", "n", number(*n)).into_future();
            for raised in join_all(some.iter().map(raise)).await {
                raised.unwrap();
            }
            some.iter().for_each(|n| log.raised("me", "storm", "n", number(*n)));
        }
        assert_eq!(client.result("storm").await.unwrap(), number(EVENTS));
        assert_eq!(client.status("storm").await.unwrap().execution, EVENTS / EACH);
        for execution in 1..EVENTS / EACH {
            let history = client.history_of("storm", execution).await.unwrap();
            assert!(
                matches!(history.ending(), Some(Ending::OrchestrationContinuedAsNew { .. })),
                "{execution}"
            );
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_a_storm_goes_on_through_runtimes_that_are_killed() {
    const EVENTS: u64 = 300;
    const STRETCH: u64 = 60;
    on_each_stage(async |stage| {
        let mut runtime = runtime(stage).await;
        let mut log = ClientLog::default();
        runtime.client().start("in_order", "storm", json!([0, EVENTS])).await.unwrap();
        log.started("storm");
        let mut next = 0;
        // Killed in the middle of each stretch: some events are acknowledged, some are on their way, some are not read.
        for stretch_end in (STRETCH..=EVENTS).step_by(usize::try_from(STRETCH).unwrap()) {
            let (client, raised) = (runtime.client(), Arc::new(AtomicU64::new(next)));
            let count = Arc::clone(&raised);
            let raising = tokio::spawn(async move {
                for n in next..stretch_end {
                    if client.raise_event("storm", "n", number(n)).once(format!("key {n}")).await.is_err() {
                        return;
                    }
                    count.store(n + 1, Ordering::Relaxed);
                }
            });
            while raised.load(Ordering::Relaxed) < stretch_end - STRETCH / 2 {
                tokio::task::yield_now().await;
            }
            drop(runtime);
            raising.await.unwrap();
            runtime = self::runtime(stage).await;
            // Whether the last one arrived is not known, so that it is sent again; its key says that it is the same.
            let reached = raised.load(Ordering::Relaxed);
            (next..reached).for_each(|n| log.raised("me", "storm", "n", number(n)));
            next = reached;
        }
        for n in next..EVENTS {
            let key = format!("key {n}");
            runtime.client().raise_event("storm", "n", number(n)).once(key).await.unwrap();
            log.raised("me", "storm", "n", number(n));
        }
        assert_eq!(runtime.client().result("storm").await.unwrap(), number(EVENTS));
        assert_eq!(runtime.client().status("storm").await.unwrap().execution, EVENTS / EACH);
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_keys_of_events_cross_continue_as_new() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let client = first.client();
        client.start("collects", "c", json!([])).await.unwrap();
        for (key, item) in [("1", "one"), ("2", "two"), ("1", "again"), ("3", "three")] {
            client.raise_event("c", "item", item).once(key).await.unwrap();
        }
        until(&client, "c", |status| status.execution == 4).await;
        assert_eq!(first.counters().events_duplicate, 1);
        first.shutdown().await.unwrap();

        let second = runtime(stage).await;
        let client = second.client();
        for (key, item) in [("1", "again"), ("2", "again"), ("3", "again"), ("4", "")] {
            client.raise_event("c", "item", item).once(key).await.unwrap();
        }
        assert_eq!(client.result("c").await.unwrap().as_json(), r#"["one","two","three"]"#);
        assert_eq!(second.counters().events_duplicate, 3);
        stage.finish(second, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g26_attributes_and_published_status_are_carried_on() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let client = first.client();
        let options = StartOptions::default().attribute("customer", "Ada").attribute("region", "us");
        client.start_with("publishes", "p", "first", options).await.unwrap();
        let before = until(&client, "p", |status| status.published.is_some()).await;
        assert_eq!(
            serde_json::to_value(&before.attributes).unwrap(),
            json!({
                "customer": "Ada", "priority": "high", "region": "eu",
            })
        );
        client.raise_event("p", "on", ()).await.unwrap();
        let after = until(&client, "p", |status| status.execution == 2).await;
        assert_eq!((&after.attributes, &after.published), (&before.attributes, &before.published));
        drop(first);

        let second = runtime(stage).await;
        let client = second.client();
        let again = client.status("p").await.unwrap();
        assert_eq!((&again.attributes, &again.published), (&before.attributes, &before.published));
        client.raise_event("p", "on", ()).await.unwrap();
        let status = until(&client, "p", |status| status.attributes.len() == 2).await;
        assert_eq!(status.published, Some(Payload::from("packing")));
        client.raise_event("p", "on", ()).await.unwrap();
        client.result("p").await.unwrap();
        stage.finish(second, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g26_the_next_execution_has_the_version_that_was_given_or_else_the_latest() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start_with("moves", "m", (), at("1.0.0")).await.unwrap();
        let mut versions = vec!["1.0.0"];
        for (to, version) in
            [("1.5.0", "1.5.0"), ("latest", "2.0.0"), ("1.0.0", "1.0.0"), ("latest", "2.0.0")]
        {
            client.raise_event("m", "to", to).await.unwrap();
            versions.push(version);
            let execution = versions.len() as u64;
            if to == "latest" {
                // What has to be found out is written with the first turn.
                until(&client, "m", |status| status.execution == execution && status.version == version)
                    .await;
            } else {
                let status = until(&client, "m", |status| status.execution == execution).await;
                assert_eq!(status.version, version);
            }
        }
        client.raise_event("m", "to", "end").await.unwrap();
        assert_eq!(client.result("m").await.unwrap().as_json(), r#""2.0.0""#);
        for (execution, version) in (1..).zip(versions) {
            let history = client.history_of("m", execution).await.unwrap();
            assert_eq!(history.turns[0].started().unwrap().version, version, "execution {execution}");
        }
        let sixth = client.history_of("m", 6).await;
        assert!(matches!(sixth, Err(ClientError::NoExecution { execution: 6, current: 5, .. })), "{sixth:?}");
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e16_unread_events_of_all_names_come_first_in_the_next_execution() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        client.start("collects", "c", json!([])).await.unwrap();
        log.started("c");
        for (event, payload) in [("other", "kept"), ("item", "one"), ("other", "kept, too"), ("item", "two")]
        {
            client.raise_event("c", event, payload).await.unwrap();
            log.raised("me", "c", event, payload);
        }
        until(&client, "c", |status| status.execution == 3).await;
        while client.history("c").await.unwrap().turns.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let history = client.history("c").await.unwrap();
        let unread: Vec<Value> = history.turns[0]
            .jobs()
            .map(|(_, job)| match job {
                Job::ExternalEvent { payload, .. } => payload.decode().unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(unread, ["kept", "kept, too"]);
        client.raise_event("c", "item", "").await.unwrap();
        assert_eq!(client.result("c").await.unwrap().as_json(), r#"["one","two"]"#);
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g26_work_of_an_execution_that_is_over_does_not_reach_the_next() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("leaves_work", "w", "first").await.unwrap();
        client.raise_event("w", "on", ()).await.unwrap();
        until(&client, "w", |status| status.execution == 2).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        client.raise_event("w", "on", "still here").await.unwrap();
        assert_eq!(client.result("w").await.unwrap().as_json(), r#""still here""#);
        let fired = |kind: &EventKind| matches!(kind, EventKind::Job(Job::TimerFired { .. }));
        assert!(!client.history("w").await.unwrap().flatten().any(|event| fired(&event.kind)));
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e23_a_cancellation_that_was_taken_over_crosses_continue_as_new() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("cleans_up_later", "c", "first").await.unwrap();
        client.cancel("c", "enough").await.unwrap();
        assert_eq!(client.result("c").await.unwrap().as_json(), r#""cleaned up""#);
        let status = client.status("c").await.unwrap();
        assert_eq!((status.status, status.execution), (Status::Completed, 2));
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g30_a_timeout_counts_on_through_continue_as_new() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let options = StartOptions::default().timeout(Duration::from_millis(400));
        client.start_with("collects", "c", json!([]), options).await.unwrap();
        for item in ["one", "two"] {
            client.raise_event("c", "item", item).await.unwrap();
        }
        let Ending::OrchestrationTerminated { reason } = client.wait("c").await.unwrap() else { panic!() };
        assert_eq!(reason, "timeout");
        assert_eq!(client.status("c").await.unwrap().execution, 3);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g33_an_endless_loop_keeps_executions_by_count_and_by_age_on_both_stores() {
    let directory = tempfile::tempdir().unwrap();
    for is_sqlite in [false, true] {
        let hands = Hands::new();
        let clock = Arc::clone(&hands);
        let now_ms = move || clock.store_ms();
        let store: Arc<dyn Store> = match is_sqlite {
            true => {
                let options = SqliteOptions::default().relaxed(true).clock(now_ms);
                Arc::new(SqliteStore::open(directory.path().join("loop.db"), options).unwrap())
            }
            false => Arc::new(MemoryStore::new(now_ms)),
        };
        let minute = Duration::from_secs(60);
        let options = RuntimeOptions {
            keep_executions: Some(5),
            keep_executions_for: Some(10 * minute),
            ..RuntimeOptions::default()
        };
        let runtime = Runtime::open("")
            .options(options)
            .store(store)
            .clock(Arc::clone(&hands) as _)
            .orchestration("moves", "1.0.0", moves)
            .start()
            .await
            .unwrap();
        let client = runtime.client();
        client.start("moves", "m", ()).await.unwrap();
        let stored = async || {
            let current = client.status("m").await.unwrap().execution;
            let mut stored = Vec::new();
            for execution in 1..=current {
                match client.history_of("m", execution).await {
                    Ok(_) => stored.push(execution),
                    Err(ClientError::NoExecution { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            stored
        };
        // Time passes until so many are left.
        let left = async |expected: &[u64]| {
            soon(async {
                while stored().await != expected {
                    hands.pass(Duration::from_secs(1));
                }
            })
            .await;
        };
        for execution in 2..=12 {
            client.raise_event("m", "to", "latest").await.unwrap();
            until(&client, "m", |status| status.execution == execution).await;
        }
        left(&[8, 9, 10, 11, 12]).await;
        // It waits where it is, and what it left behind is too old one day.
        hands.pass(10 * minute);
        left(&[12]).await;
        client.raise_event("m", "to", "end").await.unwrap();
        assert_eq!(client.result("m").await.unwrap().to_text(), "1.0.0");
        runtime.shutdown().await.unwrap();
    }
}
