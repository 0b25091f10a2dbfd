//! I16: an instance in trouble stops no other. Every kind of failure at once, in one shard with healthy
//! instances: those finish while the failures last, and no healthy instance is blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perennial::{ActivityContext, Client, OrchestrationContext, Payload, Runtime, RuntimeOptions, Status};
use perennial_testkit::ManualNode;
use perennial_testkit::invariants::ClientLog;

use super::support::{Place, at, event, failed, relaxed, soon, until_blocked};

type Outcome = Result<Payload, Payload>;

/// An activity, a timer, an event.
async fn well(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.schedule_activity("echo", input).await.map_err(failed)?;
    ctx.schedule_timer(Duration::from_millis(5)).await;
    Ok(ctx.schedule_wait(event("go")).await)
}

async fn panicking(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("out of cheese")
}

async fn spinning(ctx: OrchestrationContext, _: Payload) -> Outcome {
    loop {
        ctx.now();
    }
}

/// Waits for an activity that is not registered.
async fn helpless(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("nowhere", Payload::null()).await.map_err(failed)
}

async fn echo(_: ActivityContext, input: Payload) -> Outcome {
    Ok(input)
}

fn options() -> RuntimeOptions {
    let mut options =
        RuntimeOptions { turn_deadline: Duration::from_millis(100), turn_threads: 2, ..relaxed() };
    // Every turn hydrates its instance, so that damage in the store is found.
    options.shard.max_resident = 0;
    // Blocked instances are retried all the time.
    options.shard.retry_first = Duration::from_millis(5);
    options.shard.retry_max = Duration::from_millis(50);
    options
}

/// Cuts the last stored turn of an instance in half.
fn damage(place: &Place, id: &str) {
    let damaged = place.execute(&format!(
        "UPDATE turns SET body = substr(body, 1, length(body) / 2) \
         WHERE key = (SELECT key FROM instances WHERE id = '{id}') AND number = (SELECT max(t.number) FROM turns t \
         JOIN instances i ON i.key = t.key AND i.execution = t.execution WHERE i.id = '{id}')"
    ));
    assert_eq!(damaged, 1);
}

/// Waits until an instance has taken so many turns.
async fn until_turns(client: &Client, id: &str, turns: usize) {
    soon(async {
        while client.history(id).await.unwrap().turns.len() < turns {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_trouble_of_every_kind_stops_no_neighbour_in_its_shard() {
    let place = Place::new();
    let is_changed = Arc::new(AtomicBool::new(false));
    let changes = Arc::clone(&is_changed);
    let fickle = move |ctx: OrchestrationContext, _: Payload| {
        let is_changed = changes.load(Ordering::Relaxed);
        async move {
            let word = if is_changed { "other" } else { "word" };
            ctx.schedule_activity("echo", word).await.map_err(failed)?;
            Ok::<_, Payload>(ctx.schedule_wait(event("go")).await)
        }
    };
    let runtime = Runtime::open(place.url())
        .options(options())
        .orchestration("well", "1.0.0", well)
        .orchestration("panicking", "1.0.0", panicking)
        .orchestration("spinning", "1.0.0", spinning)
        .orchestration("helpless", "1.0.0", helpless)
        .orchestration("fickle", "1.0.0", fickle)
        .activity("echo", echo)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    let mut log = ClientLog::default();
    let ids = ManualNode::ids_of_one_shard(30);
    let (troubled, others) = ids.split_at(6);
    let [panics, spins, missing, diverges, corrupt, waits] = troubled else { panic!("six are troubled") };
    for (name, id) in [
        ("panicking", panics),
        ("spinning", spins),
        ("unknown", missing),
        ("fickle", diverges),
        ("well", corrupt),
        ("helpless", waits),
    ] {
        soon(client.start_with(name, id, Payload::null(), at("1.0.0"))).await.unwrap();
        log.started(id);
        log.troubled(id);
    }
    until_turns(&client, diverges, 2).await;
    until_turns(&client, corrupt, 3).await;
    is_changed.store(true, Ordering::Relaxed);
    damage(&place, corrupt);
    for id in [diverges, corrupt] {
        soon(client.raise_event(id, "go", "went")).await.unwrap();
    }

    for id in others {
        soon(client.start("well", id, id.as_str())).await.unwrap();
        log.started(id);
        client.raise_event(id, "go", id.as_str()).await.unwrap();
        log.raised("me", id, "go", id.as_str());
    }
    for id in others {
        assert_eq!(soon(client.result(id)).await.unwrap(), Payload::from(id.as_str()));
    }

    // All the while, and still.
    let troubles = [
        (panics, "PER-0201"),
        (spins, "PER-0205"),
        (missing, "PER-0301"),
        (diverges, "PER-0203"),
        (corrupt, "PER-0101"),
    ];
    for (id, code) in troubles {
        until_blocked(&client, id, code).await;
    }
    assert_eq!(client.status(waits).await.unwrap().status, Status::Running);
    assert_eq!(runtime.failure(), None);
    place.nobody_is_stalled().await;
    let handlers = Runtime::open("memory:")
        .orchestration("well", "1.0.0", well)
        .orchestration("helpless", "1.0.0", helpless)
        .handlers();
    place.check(&log, &handlers);
    runtime.shutdown().await.unwrap();
    place.check(&log, &handlers);
}
