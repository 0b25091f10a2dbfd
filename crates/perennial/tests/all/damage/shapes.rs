//! The instances that are damaged: one of each shape that the store knows, all of which finish by themselves.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use perennial::{
    ActivityContext, Client, OrchestrationContext, Payload, RetryPolicy, Runtime, RuntimeBuilder,
    RuntimeOptions, StartOptions,
};
use perennial_core::shard::InstanceCall;
use perennial_core::store::{NewRequest, RequestOutcome, Store};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::wait_for;

use crate::support::hands::Hands;
use crate::support::{failed, number, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Each instance with its result.
pub(super) const RESULTS: [(&str, &str); 12] = [
    ("timer", r#""rung""#),
    ("activity", r#""worked""#),
    ("queued", r#""worked""#),
    ("parent", r#"["rung","parent"]"#),
    ("child", r#""rung""#),
    ("events", "[1,2,3]"),
    ("update", "7"),
    ("blocked", r#""fixed""#),
    ("delayed", r#""late""#),
    ("loop", "4"),
    ("ended", r#""over""#),
    ("started", r#""over""#),
];

/// An instance and those that wait for it: what happens to the one may happen to the others.
pub(super) fn concerned(id: &str) -> &'static [&'static str] {
    match id {
        "child" => &["child", "parent"],
        "parent" => &["parent", "child"],
        other => RESULTS.iter().position(|(id, _)| *id == other).map_or(&[], |place| {
            // The name as it lives in the table above.
            std::slice::from_ref(&RESULTS[place].0)
        }),
    }
}

pub(super) fn options() -> RuntimeOptions {
    let mut options = RuntimeOptions { turn_threads: 2, ..relaxed() };
    // Every turn reads its instance again, so that damage is met.
    options.shard.max_resident = 0;
    options
}

/// A store by the hands of a clock.
pub(super) fn store(path: &Path, hands: &Arc<Hands>) -> SqliteStore {
    let clock = Arc::clone(hands);
    SqliteStore::open(path, SqliteOptions::default().relaxed(true).clock(move || clock.store_ms())).unwrap()
}

async fn updated(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let sum = ctx.state(0_u64);
    ctx.on_update("add", &sum, |sum, number: u64| async move {
        Ok::<_, String>(sum.update(|sum| {
            *sum += number;
            *sum
        }))
    });
    ctx.wait_until(&sum, |sum| *sum >= 7).await;
    Ok(number(sum.read(|sum| *sum)))
}

async fn loops(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let round: u64 = input.decode().unwrap_or(1);
    let next = ctx.schedule_wait("next").typed::<u64>().await;
    if next == 0 { Ok(number(round)) } else { ctx.continue_as_new(next).await }
}

async fn reads_events(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.set_attribute("kind", "reader");
    ctx.set_status("reading");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(ctx.schedule_wait("n").typed::<u64>().await);
    }
    Ok(Payload::encode(&seen).unwrap())
}

fn with_orchestrations(builder: RuntimeBuilder, is_fixed: bool) -> RuntimeBuilder {
    builder
        .orchestration("timer", "1.0.0", |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_timer(HOUR).await;
            Outcome::Ok(Payload::from("rung"))
        })
        .orchestration("activity", "1.0.0", |ctx: OrchestrationContext, _: Payload| async move {
            let work = ctx.schedule_activity("work", Payload::null());
            work.retry(RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(5)).await.map_err(failed)
        })
        .orchestration("queued", "1.0.0", |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_activity("work", Payload::null()).tag("gpu").await.map_err(failed)
        })
        .orchestration("parent", "1.0.0", |ctx: OrchestrationContext, _: Payload| async move {
            let child = ctx.schedule_sub_orchestration_with_id("timer", "child", Payload::null());
            let rung: Payload = child.await.map_err(failed)?;
            Outcome::Ok(Payload::encode(&[rung.to_text(), "parent".to_owned()]).unwrap())
        })
        .orchestration("events", "1.0.0", reads_events)
        .orchestration("update", "1.0.0", updated)
        .orchestration("loop", "1.0.0", loops)
        .orchestration("over", "1.0.0", |_: OrchestrationContext, _: Payload| async {
            Outcome::Ok(Payload::from("over"))
        })
        .orchestration("late", "1.0.0", |_: OrchestrationContext, _: Payload| async {
            Outcome::Ok(Payload::from("late"))
        })
        .orchestration("blocked", "1.0.0", move |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").typed::<u64>().await;
            assert!(is_fixed, "a defect that the next deployment fixes");
            Outcome::Ok(Payload::from("fixed"))
        })
        .activity("work", move |_: ActivityContext, _: Payload| async move {
            if is_fixed { Outcome::Ok(Payload::from("worked")) } else { Err(Payload::from("no")) }
        })
}

/// A runtime that can finish everything.
pub(super) fn fixed(path: &Path, hands: &Arc<Hands>) -> RuntimeBuilder {
    // Time passes in leaps: the lease has to outlast them.
    let lease = Duration::from_secs(365 * 24 * 3_600);
    let options = RuntimeOptions { tags: vec!["gpu".to_owned()], lease, ..options() };
    let builder = Runtime::open("").options(options).store(Arc::new(store(path, hands)));
    with_orchestrations(builder.clock(Arc::clone(hands) as _), true)
}

/// Makes a store in which every instance waits for something.
pub(super) async fn prepare(path: &Path, hands: &Arc<Hands>) {
    let builder = Runtime::open("").options(options()).store(Arc::new(store(path, hands)));
    let runtime = with_orchestrations(builder.clock(Arc::clone(hands) as _), false).start().await.unwrap();
    let client = runtime.client();
    for name in ["timer", "activity", "queued", "parent", "events", "update", "blocked", "loop"] {
        client.start(name, name, Payload::null()).await.unwrap();
    }
    client.start("over", "ended", Payload::null()).await.unwrap().result().await.unwrap();
    let later = StartOptions::default().delay(HOUR);
    client.start_with("late", "delayed", Payload::null(), later).await.unwrap();
    for round in 2..=4_u64 {
        client.raise_event("loop", "next", number(round)).await.unwrap();
    }
    client.raise_event("events", "n", number(1)).await.unwrap();
    client.update("update", "add", number(3)).await.unwrap();
    client.raise_event("blocked", "go", number(0)).await.unwrap();
    until(&client, "blocked", |status| status.blocked.is_some()).await;
    until(&client, "loop", |status| status.execution == 4).await;
    soon(async {
        while client.stats().await.unwrap().tasks_waiting.rows == 0
            || client.stats().await.unwrap().tasks_queued.rows == 0
            || client.status("child").await.is_err()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    runtime.shutdown().await.unwrap();
    by_guests(path, hands).await;
}

/// What other processes leave while no runtime runs.
async fn by_guests(path: &Path, hands: &Arc<Hands>) {
    let clock = Arc::clone(hands);
    let options = SqliteOptions::default().clock(move || clock.store_ms());
    let guest = Arc::new(SqliteStore::open_guest(path, options).unwrap());
    let client = Client::of_store(Arc::clone(&guest) as _);
    client.start("over", "started", Payload::null()).await.unwrap();
    for (id, event, content) in [("events", "n", 2_u64), ("events", "n", 3), ("loop", "next", 0)] {
        client.raise_event(id, event, number(content)).await.unwrap();
    }
    let (name, key) = ("add".to_owned(), Some("add-4".to_owned()));
    request(&*guest, "update", &InstanceCall::Update { name, payload: number(4), key, trace: None });
    request(&*guest, "timer", &InstanceCall::Query { name: "none".to_owned(), payload: Payload::null() });
    wait_for(|reply| guest.close(reply)).unwrap();
}

fn request(store: &dyn Store, id: &str, instance_call: &InstanceCall) {
    let patience_ms = 24 * 3_600_000;
    let new = NewRequest {
        instance: id.to_owned(),
        key: None,
        patience_ms,
        after: None,
        body: instance_call.encode(),
    };
    let written = wait_for(|reply| store.put_request(new, reply)).unwrap();
    assert!(matches!(written, RequestOutcome::Written(_)));
}
