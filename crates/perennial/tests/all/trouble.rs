//! Instances in trouble: each is reported, blocks only itself, loses nothing, and finishes once the cause is
//! fixed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use perennial::history::Ending;
use perennial::typed::OrchestrationCode;
use perennial::{
    ActivityContext, Client, ClientError, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder,
    RuntimeOptions, Status,
};
use perennial_core::{Handlers, ShardId};
use perennial_testkit::invariants::ClientLog;

use super::support::{Place, event, failed, relaxed, soon, until, until_blocked};

type Outcome = Result<Payload, Payload>;

async fn neighbour(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("echo", Payload::from("fine")).await.map_err(failed)
}

async fn echo(_: ActivityContext, input: Payload) -> Outcome {
    Ok(input)
}

/// An activity, then an event.
async fn patient(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("echo", "before").await.map_err(failed)?;
    Ok(ctx.schedule_wait(event("go")).await)
}

fn runtime(place: &Place) -> RuntimeBuilder {
    let mut options = RuntimeOptions { turn_deadline: Duration::from_millis(100), ..relaxed() };
    // No automatic retry within a test.
    options.shard.retry_first = Duration::from_millis(1_000_000);
    options.shard.retry_max = Duration::from_millis(1_000_000);
    Runtime::open(place.url())
        .options(options)
        .orchestration("neighbour", "1.0.0", neighbour)
        .activity("echo", echo)
}

fn with<K>(name: &str, code: impl OrchestrationCode<K>) -> Handlers {
    Runtime::open("memory:")
        .orchestration("neighbour", "1.0.0", neighbour)
        .orchestration(name, "1.0.0", code)
        .handlers()
}

/// Other instances are not affected (I16), even in the same shards.
async fn others_are_fine(client: &Client) {
    let rows = client.list(Filter::new(), None, 1_000).await.unwrap().rows;
    let unfinished = rows.iter().filter(|row| !row.status.is_final());
    let shards: BTreeSet<ShardId> = unfinished.map(|row| ShardId::of(&row.id)).chain([ShardId(0)]).collect();
    for shard in shards {
        let ids = (0..).map(|number| format!("neighbour-{}-{number}", rows.len()));
        let id = ids.into_iter().find(|id| ShardId::of(id) == shard).unwrap();
        client.start("neighbour", &id, Payload::null()).await.unwrap();
        assert_eq!(soon(client.result(&id)).await.unwrap().as_json(), r#""fine""#);
    }
}

/// Starts a patient instance, lets it come to its wait, and stops.
async fn leave_a_patient_one(place: &Place) {
    let runtime = runtime(place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    let client = runtime.client();
    client.start("patient", "p", Payload::null()).await.unwrap();
    until(&client, "p", |status| status.status == Status::Running).await;
    soon(async {
        while client.history("p").await.unwrap().turns.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    runtime.shutdown().await.unwrap();
}

/// The fixed runtime finishes the blocked instance with the event that arrived while it was blocked.
async fn the_patient_one_recovers(place: &Place) {
    let runtime = runtime(place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    assert_eq!(soon(runtime.client().result("p")).await.unwrap().as_json(), r#""went""#);
    assert_eq!(runtime.client().status("p").await.unwrap().blocked, None);
    runtime.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    log.started("p");
    log.raised("me", "p", "go", "went");
    place.check(&log, &with("patient", patient));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_panic_blocks_its_instance_until_it_is_cured_and_retried() {
    let place = Place::new();
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let touchy = move |ctx: OrchestrationContext, _: Payload| {
        let is_broken = Arc::clone(&is_broken);
        async move {
            let echoed = ctx.schedule_activity("echo", "x").await.map_err(failed);
            assert!(!is_broken.load(Ordering::Relaxed), "out of cheese");
            echoed
        }
    };
    let runtime = runtime(&place).orchestration("touchy", "1.0.0", touchy.clone()).start().await.unwrap();
    let client = runtime.client();
    // By then the runtime has read everything that was blocked when it opened, and makes no automatic retry.
    others_are_fine(&client).await;
    client.start("touchy", "t", Payload::null()).await.unwrap();
    let status = until_blocked(&client, "t", "PER-0201").await;
    let blocked = status.blocked.unwrap();
    assert!(
        blocked.reason.starts_with("PER-0201 panic in unit root at crates/perennial/tests/all/trouble.rs:")
    );
    assert!(blocked.reason.ends_with(": out of cheese"), "{}", blocked.reason);
    assert_eq!((status.status, blocked.attempts), (Status::Running, 1));
    let shown = client.list(Filter::new().blocked(true), None, 10).await.unwrap();
    assert_eq!(shown.rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["t"]);
    others_are_fine(&client).await;
    client.retry("t").await.unwrap();
    until(&client, "t", |status| status.blocked.as_ref().is_some_and(|it| it.attempts == 2)).await;
    broken.store(false, Ordering::Relaxed);
    client.retry("t").await.unwrap();
    assert_eq!(soon(client.result("t")).await.unwrap().as_json(), r#""x""#);
    assert_eq!(client.status("t").await.unwrap().blocked, None);
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &with("touchy", touchy));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_a_start_whose_first_turn_fails_is_kept_and_blocked() {
    async fn broken(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("at once")
    }
    let place = Place::new();
    let runtime_1 = runtime(&place).orchestration("patient", "1.0.0", broken).start().await.unwrap();
    let client = runtime_1.client();
    client.start("patient", "p", Payload::null()).await.unwrap();
    let status = until_blocked(&client, "p", "PER-0201").await;
    assert_eq!(status.status, Status::Pending);
    client.raise_event("p", "go", "went").await.unwrap();
    others_are_fine(&client).await;
    runtime_1.shutdown().await.unwrap();
    place.check(
        &ClientLog::default(),
        &Runtime::open("memory:").orchestration("neighbour", "1.0.0", neighbour).handlers(),
    );
    the_patient_one_recovers(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_an_endless_loop_with_context_calls_is_unwound_at_its_deadline() {
    let place = Place::new();
    let spinning = |ctx: OrchestrationContext, _: Payload| async move {
        while ctx.now() > perennial::Timestamp::UNIX_EPOCH {}
        Outcome::Ok(Payload::null())
    };
    let runtime_1 = runtime(&place).orchestration("patient", "1.0.0", spinning).start().await.unwrap();
    let client = runtime_1.client();
    client.start("patient", "p", Payload::null()).await.unwrap();
    until_blocked(&client, "p", "PER-0205").await;
    client.raise_event("p", "go", "went").await.unwrap();
    others_are_fine(&client).await;
    assert_eq!(runtime_1.failure(), None);
    runtime_1.shutdown().await.unwrap();
    the_patient_one_recovers(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_an_endless_loop_without_context_calls_loses_its_thread_and_nothing_else() {
    let place = Place::new();
    let (stop, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (until_stopped, entries) = (Arc::clone(&stop), Arc::clone(&entered));
    let deaf = move |_: OrchestrationContext, _: Payload| {
        let (until_stopped, entries) = (Arc::clone(&until_stopped), Arc::clone(&entries));
        async move {
            entries.fetch_add(1, Ordering::Relaxed);
            while !until_stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok::<_, Payload>(Payload::null())
        }
    };
    let mut options =
        RuntimeOptions { turn_deadline: Duration::from_millis(100), turn_threads: 1, ..relaxed() };
    options.shard.retry_first = Duration::from_millis(1);
    options.shard.retry_max = Duration::from_millis(1);
    let runtime_1 =
        runtime(&place).options(options).orchestration("patient", "1.0.0", deaf).start().await.unwrap();
    let client = runtime_1.client();
    // It is durable only once its thread is given up, so its caller waits that long.
    soon(client.start("patient", "p", Payload::null())).await.unwrap();
    until_blocked(&client, "p", "PER-0205").await;
    client.raise_event("p", "go", "went").await.unwrap();
    others_are_fine(&client).await;
    // Long enough for it to be tried again, if it were.
    tokio::time::sleep(Duration::from_millis(100)).await;
    others_are_fine(&client).await;
    assert_eq!(entered.load(Ordering::Relaxed), 1, "it is not tried again in this process");
    assert_eq!(runtime_1.failure(), None);
    runtime_1.shutdown().await.unwrap();
    stop.store(true, Ordering::Relaxed);
    the_patient_one_recovers(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_a_node_that_loses_too_many_threads_stops_and_says_so() {
    let place = Place::new();
    let stop = Arc::new(AtomicBool::new(false));
    let until_stopped = Arc::clone(&stop);
    let deaf = move |_: OrchestrationContext, _: Payload| {
        let until_stopped = Arc::clone(&until_stopped);
        async move {
            while !until_stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            Ok::<_, Payload>(Payload::null())
        }
    };
    let deadline = Duration::from_millis(10);
    let options = RuntimeOptions { turn_deadline: deadline, max_lost_threads: 1, ..relaxed() };
    let runtime = Runtime::open(place.url())
        .options(options)
        .orchestration("deaf", "1.0.0", deaf.clone())
        .start()
        .await;
    let runtime = runtime.unwrap();
    let client = runtime.client();
    let (a, b) = soon(async {
        tokio::join!(client.start("deaf", "a", Payload::null()), client.start("deaf", "b", Payload::null()))
    })
    .await;
    let reason = "too many turns did not end and kept their threads; restart the process";
    // What was not durable by then is unknown, never failed.
    let mut log = ClientLog::default();
    for (id, start) in [("a", a), ("b", b)] {
        match start {
            Ok(_) => log.started(id),
            Err(error) => assert!(matches!(error, ClientError::Unknown { .. }), "{error:?}"),
        }
    }
    let failed = soon(runtime.failed()).await;
    assert!(failed.to_string().contains(reason), "{failed}");
    assert_eq!(runtime.failure().as_deref(), Some(reason));
    let refused = client.start("deaf", "c", Payload::null()).await;
    assert_eq!(refused, Err(ClientError::Stopped { reason: reason.to_owned() }));
    stop.store(true, Ordering::Relaxed);
    place.check(&log, &with("deaf", deaf));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_diverged_deployment_blocks_until_the_code_is_back() {
    let place = Place::new();
    leave_a_patient_one(&place).await;
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_activity("echo", "changed").await.map_err(failed)?;
        Ok::<_, Payload>(ctx.schedule_wait("go").await)
    };
    let runtime_2 = runtime(&place).orchestration("patient", "1.0.0", changed).start().await.unwrap();
    let client = runtime_2.client();
    soon(client.raise_event("p", "go", "went")).await.unwrap();
    let blocked = until_blocked(&client, "p", "PER-0203").await.blocked.unwrap();
    assert!(blocked.report.contains("trouble.rs"), "the report names the line:\n{}", blocked.report);
    others_are_fine(&client).await;
    runtime_2.shutdown().await.unwrap();
    the_patient_one_recovers(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_an_instance_whose_code_is_missing_waits_for_it() {
    let place = Place::new();
    leave_a_patient_one(&place).await;
    let runtime_2 = runtime(&place).start().await.unwrap();
    let client = runtime_2.client();
    soon(client.raise_event("p", "go", "went")).await.unwrap();
    let blocked = until_blocked(&client, "p", "PER-0301").await.blocked.unwrap();
    assert_eq!(
        blocked.reason,
        "PER-0301 missing code: patient 1.0.0 is not registered; register it and start the node again"
    );
    others_are_fine(&client).await;
    runtime_2.shutdown().await.unwrap();
    the_patient_one_recovers(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_corrupt_turn_blocks_its_instance_until_it_is_mended() {
    let place = Place::new();
    leave_a_patient_one(&place).await;
    let turn = "WHERE number = 2 AND key = (SELECT key FROM instances WHERE id = 'p')";
    let body = place.bytes(&format!("SELECT body FROM turns {turn}"));
    let set = |body: &[u8]| place.execute(&format!("UPDATE turns SET body = {} {turn}", place.literal(body)));
    assert_eq!(set(&body[..body.len() / 2]), 1);

    let runtime_2 = runtime(&place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    let client = runtime_2.client();
    soon(client.raise_event("p", "go", "went")).await.unwrap();
    let blocked = until_blocked(&client, "p", "PER-0101").await.blocked.unwrap();
    assert!(blocked.reason.contains("turn 2"), "{}", blocked.reason);
    assert!(matches!(client.history("p").await, Err(ClientError::Store { .. })));
    others_are_fine(&client).await;
    runtime_2.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &with("patient", patient));

    assert_eq!(set(&body), 1);
    the_patient_one_recovers(&place).await;
}

/// Damages a column of the instance's row; no other instance may be affected.
async fn a_corrupt_column(column: &str, damage: &str) {
    let place = Place::new();
    leave_a_patient_one(&place).await;
    let row = "WHERE id = 'p'";
    let old = place.text(&format!("SELECT {column} FROM instances {row}"));
    let old = old.map_or("NULL".to_owned(), |old| format!("'{old}'"));
    assert_eq!(place.execute(&format!("UPDATE instances SET {column} = {damage} {row}")), 1);

    let runtime_2 = runtime(&place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    let client = runtime_2.client();
    let start = client.start("neighbour", "n", Payload::null()).await;
    assert_eq!(start.map(drop), Ok(()), "the damage of one row stops others: {:?}", runtime_2.failure());
    assert_eq!(soon(client.result("n")).await.unwrap().as_json(), r#""fine""#);
    // Either the request is refused, or it is kept and the instance is shown as blocked.
    let sent = soon(client.raise_event("p", "go", "went")).await;
    match &sent {
        Ok(()) => drop(until_blocked(&client, "p", "PER-0508").await),
        Err(error) => assert!(error.to_string().contains("PER-0508"), "{error}"),
    }
    assert_eq!(runtime_2.failure(), None, "the damage of one row stops the node");
    let start = client.start("neighbour", "m", Payload::null()).await;
    assert_eq!(start.map(drop), Ok(()), "the damage of one row stops others: {:?}", runtime_2.failure());
    runtime_2.shutdown().await.unwrap();

    place.execute(&format!("UPDATE instances SET {column} = {old} {row}"));
    place.execute(&format!("UPDATE instances SET blocked = NULL {row}"));
    let runtime_3 = runtime(&place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    if sent.is_err() {
        runtime_3.client().raise_event("p", "go", "went").await.unwrap();
    }
    assert_eq!(soon(runtime_3.client().result("p")).await.unwrap().as_json(), r#""went""#);
    runtime_3.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &with("patient", patient));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_a_corrupt_row_troubles_nobody_else() {
    a_corrupt_column("attributes", "'{'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_a_corrupt_row_that_claims_to_be_blocked_troubles_nobody_else() {
    a_corrupt_column("blocked", "'{'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_terminated_instance_with_a_damaged_message_is_not_blocked_again() {
    let place = Place::new();
    leave_a_patient_one(&place).await;
    let outside = place.guest();
    outside.raise_event("p", "other", "damaged").await.unwrap();
    assert_eq!(place.execute(&format!("UPDATE inbox SET body = {}", place.literal(b"\0"))), 1);
    outside.raise_event("p", "other", "sound").await.unwrap();
    let runtime_2 = runtime(&place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    let client = runtime_2.client();
    // A file has a checksum for the row, a server only that of the body.
    let blocked = until(&client, "p", |status| status.blocked.is_some()).await.blocked.unwrap();
    assert!(["PER-0308", "PER-0508"].contains(&&*blocked.code), "{blocked:?}");
    client.terminate("p", "damaged").await.unwrap();
    until(&client, "p", |status| status.status == Status::Terminated).await;
    soon(runtime_2.shutdown()).await.unwrap();

    let runtime_3 = runtime(&place).orchestration("patient", "1.0.0", patient).start().await.unwrap();
    let messages = || place.number("SELECT count(*) FROM inbox");
    soon(async {
        // Messages that can be read are cleared away. A row with a wrong checksum stays until the instance is deleted.
        while messages() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let status = runtime_3.client().status("p").await.unwrap();
    assert_eq!((status.status, status.blocked), (Status::Terminated, None));
    runtime_3.client().delete("p", false).await.unwrap();
    assert_eq!(messages(), 0);
    runtime_3.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_an_activity_that_is_not_registered_runs_once_it_is() {
    let place = Place::new();
    let calls = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_activity("later", Payload::null()).await.map_err(failed)
    };
    let runtime_1 = runtime(&place).orchestration("calls", "1.0.0", calls).start().await.unwrap();
    let client = runtime_1.client();
    client.start("calls", "c", Payload::null()).await.unwrap();
    others_are_fine(&client).await;
    soon(runtime_1.shutdown()).await.unwrap();
    place.check(&ClientLog::default(), &with("calls", calls));
    let runtime_2 = runtime(&place)
        .orchestration("calls", "1.0.0", calls)
        .activity("later", |_: ActivityContext, _: Payload| async { Ok::<_, Payload>(Payload::from("now")) })
        .start()
        .await
        .unwrap();
    assert_eq!(soon(runtime_2.client().result("c")).await.unwrap().as_json(), r#""now""#);
    runtime_2.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &with("calls", calls));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_terminating_and_cancelling_a_blocked_instance_need_no_code() {
    let place = Place::new();
    async fn broken(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_activity("echo", "x").await.map_err(failed)?;
        panic!("out of cheese")
    }
    let mut options = relaxed();
    options.shard.retry_first = Duration::from_millis(1_000_000);
    options.shard.retry_max = Duration::from_millis(1_000_000);
    options.shard.cancel_grace = Duration::from_millis(50);
    let runtime = runtime(&place).options(options).orchestration("broken", "1.0.0", broken).start().await;
    let runtime = runtime.unwrap();
    let client = runtime.client();
    for id in ["t", "c", "g"] {
        client.start("broken", id, Payload::null()).await.unwrap();
        until_blocked(&client, id, "PER-0201").await;
    }
    client.terminate("t", "enough").await.unwrap();
    let ending = Ending::OrchestrationTerminated { reason: "enough".to_owned() };
    assert_eq!(soon(client.wait("t")).await, Ok(ending));
    client.cancel("c", "enough").await.unwrap();
    soon(client.wait("c")).await.unwrap();
    assert!(client.status("c").await.unwrap().status.is_final());
    let guest = place.guest();
    guest.terminate("g", "from outside").await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(5), client.wait("g")).await;
    let ending = Ending::OrchestrationTerminated { reason: "from outside".to_owned() };
    assert_eq!(waited.expect("a guest's request reaches a blocked instance"), Ok(ending));
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &with("broken", broken));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_guest_can_retry_a_blocked_instance() {
    let place = Place::new();
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let touchy = move |ctx: OrchestrationContext, _: Payload| {
        let is_broken = is_broken.load(Ordering::Relaxed);
        async move {
            assert!(!is_broken, "out of cheese");
            ctx.schedule_activity("echo", "x").await.map_err(failed)
        }
    };
    let runtime = runtime(&place).orchestration("touchy", "1.0.0", touchy.clone()).start().await.unwrap();
    let client = runtime.client();
    // By then the runtime has read everything that was blocked when it opened, and makes no automatic retry.
    others_are_fine(&client).await;
    client.start("touchy", "t", Payload::null()).await.unwrap();
    until_blocked(&client, "t", "PER-0201").await;
    broken.store(false, Ordering::Relaxed);
    place.guest().retry("t").await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(5), client.result("t")).await;
    assert_eq!(waited.expect("a guest's request reaches a blocked instance").unwrap().as_json(), r#""x""#);
    runtime.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    log.started("t");
    place.check(&log, &with("touchy", touchy));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_a_row_that_is_corrupt_when_it_is_looked_at_again_troubles_nobody_else() {
    async fn queues(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let call = ctx.schedule_activity("echo", Payload::from("x")).tag("nobody");
        let call = call.queue_timeout(Duration::from_millis(200));
        call.await.map_err(failed)
    }
    let place = Place::new();
    let runtime = runtime(&place).orchestration("queues", "1.0.0", queues).start().await.unwrap();
    let client = runtime.client();
    client.start("queues", "q", Payload::null()).await.unwrap();
    let set = |value: &str| format!("UPDATE instances SET attributes = {value} WHERE id = 'q'");
    assert_eq!(place.execute(&set("'{'")), 1);
    // Its queue timeout has elapsed, and whether a node took it has to be read.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(runtime.failure(), None, "the damage of one row stops the node");
    client.start("neighbour", "n", Payload::null()).await.unwrap();
    assert_eq!(soon(client.result("n")).await.unwrap().as_json(), r#""fine""#);
    runtime.shutdown().await.unwrap();
    assert_eq!(place.execute(&set("NULL")), 1);
}
