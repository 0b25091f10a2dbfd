//! Bound to keys: what is meant for one instance never reaches another one that has its id by now (G2, N9, N16). And what
//! clients in other processes rely on: order, polling, and who is there (N12, N16, H41).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use perennial::history::Job;
use perennial::{
    Action, ActivityContext, Client, ClientError, ExternalEvent, Filter, InstanceKey, OnExisting,
    OrchestrationContext, Payload, Query, RunError, Runtime, RuntimeBuilder, RuntimeOptions, StartOptions,
    Status, Update,
};
use perennial_core::store::{InstanceRow, MemoryStore, NodeInfo, SessionRole, Store, StoreError, TurnRow};
use perennial_core::{EventId, ShardId, Started};

use crate::support::hands::Hands;
use crate::support::stage::on_each_stage;
use crate::support::tapped::{Fate, Tapped};
use crate::support::{Place, event, now_ms, relaxed, soon};

type Outcome = Result<Payload, Payload>;

const SECOND: Duration = Duration::from_secs(1);
const ADD: ExternalEvent<u32> = ExternalEvent::named("add");
const HAS: Query<u32, bool> = Query::named("has");
const SEEN: Update<u32, bool> = Update::named("seen");

/// Waits for an event, and returns what it was given.
async fn waits(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.schedule_wait(event("go")).await;
    Ok(input)
}

/// Continues as new with each event, and ends with the fourth.
async fn renews(ctx: OrchestrationContext, count: Payload) -> Outcome {
    let count: u32 = count.decode().unwrap();
    ctx.schedule_wait(event("go")).await;
    if count == 4 {
        return Ok(Payload::null());
    }
    ctx.continue_as_new(Payload::encode(&(count + 1)).unwrap()).await
}

/// Collects numbers that come as events; an update and a query tell whether one has come.
async fn collects(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let numbers = ctx.state(Vec::<u32>::new());
    ctx.on_event(
        ADD,
        &numbers,
        |numbers, number| async move { numbers.update(|numbers| numbers.push(number)) },
    );
    ctx.on_query(HAS, &numbers, |numbers, number| numbers.read(|numbers| numbers.contains(&number)));
    ctx.on_update(SEEN, &numbers, |numbers, number| async move {
        Ok(numbers.read(|numbers| numbers.contains(&number)))
    });
    ctx.schedule_wait(event("go")).await;
    Ok(Payload::null())
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("waits", "1.0.0", waits)
        .orchestration("renews", "1.0.0", renews)
        .orchestration("collects", "1.0.0", collects)
}

/// Another instance gets an id, as if the one that has it had been deleted and the id been started again.
fn replace(store: &MemoryStore, id: &str) -> InstanceKey {
    let mut tables = store.tables();
    let gone = tables.ids[id];
    tables.instances.remove(&gone);
    tables.inbox.retain(|_, message| message.to != gone);
    tables.turns.retain(|(key, ..), _| *key != gone);
    let key = InstanceKey::new(now_ms(), 77);
    let started = Started::new("waits", "1.0.0", Payload::null(), 7);
    tables.ids.insert(id.to_owned(), key);
    tables.instances.insert(key, InstanceRow::pending(key, id, &started, 1));
    key
}

fn in_memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(now_ms))
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_requests_that_moved_settle_with_the_instance_that_they_had_reached() {
    let hands = Hands::new();
    let clock = Arc::clone(&hands);
    let memory = Arc::new(MemoryStore::new(move || clock.store_ms()));
    let store = Tapped::new(Arc::clone(&memory) as _);
    let runtime = orchestrations(Runtime::open("memory:"))
        .options(RuntimeOptions { lease: Duration::from_secs(30), ..RuntimeOptions::default() })
        .store(Arc::clone(&store) as _)
        .clock(Arc::clone(&hands) as _)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("waits", "w", Payload::null()).await.unwrap();
    store.on_renewal(|| Fate::Response(Err(StoreError::Unavailable("cut off".to_owned()))));
    hands.pass_unseen(28 * SECOND);
    let mut raised = client.raise_event("w", event("go"), Payload::null()).into_future();
    let mut cancelled = client.cancel("w", "enough").into_future();
    let mut terminated = Box::pin(client.terminate("w", "enough"));
    let mut retried = Box::pin(client.retry("w"));
    let mut skipped = Box::pin(client.skip_event("w", EventId(3)));
    let mut updated = client.update("w", SEEN, 1).into_future();
    let mut ended = Box::pin(client.wait("w"));
    assert!(raised.as_mut().now_or_never().is_none(), "another node may own it");
    for asked in [&mut cancelled as &mut (dyn Future<Output = _> + Unpin), &mut terminated, &mut retried] {
        assert!(asked.now_or_never().is_none());
    }
    assert!(skipped.as_mut().now_or_never().is_none());
    assert!(updated.as_mut().now_or_never().is_none());
    assert!(ended.as_mut().now_or_never().is_none());

    let new = replace(&memory, "w");
    store.on_renewal(|| Fate::Response(Err(StoreError::SessionGone)));
    hands.pass(SECOND);
    let not_found = || ClientError::NotFound { id: "w".to_owned() };
    assert_eq!(soon(cancelled).await, Ok(()), "it is over");
    assert_eq!(soon(terminated).await, Ok(()), "it is over");
    assert_eq!(soon(raised).await, Err(not_found()));
    assert_eq!(soon(retried).await, Err(not_found()));
    assert_eq!(soon(skipped).await, Err(not_found()));
    assert_eq!(soon(updated).await.map_err(|error| error.to_string()), Err(not_found().to_string()));
    assert_eq!(soon(ended).await, Err(not_found()));
    let tables = memory.tables();
    assert_eq!((tables.ids["w"], tables.instances[&new].status), (new, Status::Pending));
    assert!(tables.inbox.is_empty() && tables.requests.is_empty(), "nothing was sent to the new one");
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_every_run_means_the_instance_that_had_the_id_when_it_was_made() {
    on_each_stage(async |stage| {
        let runtime = orchestrations(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        let options = StartOptions::default().version("1.0.0");
        client.start("waits", "w", Payload::from("first")).await.unwrap();
        let mut runs = vec![client.run("waits", "w")];
        for client in [Some(client.clone()), stage.guest()].into_iter().flatten() {
            let use_it = options.clone().on_existing(OnExisting::Use);
            runs.push(client.start_with("waits", "w", Payload::null(), use_it).await.unwrap());
            runs.push(client.run("waits", "w"));
        }
        let or_raise = options.clone().or_raise(event("go"), Payload::null());
        runs.push(client.start_with("waits", "w", Payload::null(), or_raise).await.unwrap());
        for run in &runs {
            assert!(!run.is_new());
            assert_eq!(soon(run.result()).await.unwrap(), Payload::from("first"));
        }
        let replace = options.on_existing(OnExisting::ReplaceEnded);
        client.start_with("waits", "w", Payload::from("second"), replace).await.unwrap();
        client.raise_event("w", event("go"), Payload::null()).await.unwrap();
        assert_eq!(soon(client.result("w")).await.unwrap(), Payload::from("second"));
        for run in &runs {
            let gone = soon(run.result()).await;
            assert!(matches!(gone, Err(RunError::Client(ClientError::NotFound { .. }))), "{gone:?}");
        }
        runtime.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n16_a_key_that_was_taken_executions_ago_is_known_after_the_end() {
    let runtime =
        orchestrations(Runtime::open("memory:")).options(relaxed()).store(in_memory()).start().await.unwrap();
    let client = runtime.client();
    let run = client.start("renews", "r", Payload::encode(&1).unwrap()).await.unwrap();
    for key in ["k1", "k2", "k3", "k4"] {
        client.raise_event("r", event("go"), Payload::null()).once(key).await.unwrap();
    }
    soon(run.result()).await.unwrap();
    assert_eq!(client.status("r").await.unwrap().execution, 4);
    for key in ["k1", "k2", "k3", "k4"] {
        let again = client.raise_event("r", event("go"), Payload::null()).once(key).await;
        assert_eq!(again, Ok(()), "{key} was taken");
    }
    let late = client.raise_event("r", event("go"), Payload::null()).once("k5").await;
    assert_eq!(late, Err(ClientError::Ended { id: "r".to_owned() }));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn n16_what_a_guest_asks_comes_after_what_it_sent_before() {
    let place = Place::new();
    let runtime = orchestrations(Runtime::open(place.url())).options(relaxed()).start().await.unwrap();
    runtime.client().start("collects", "c", Payload::null()).await.unwrap();
    let guest = place.guest();
    let sent = (0..200).map(|number| {
        let guest = guest.clone();
        async move {
            guest.raise_event("c", ADD, number).await.unwrap();
            match number % 2 {
                0 => guest.update("c", SEEN, number).await.unwrap(),
                _ => guest.query("c", HAS, number).await.unwrap(),
            }
        }
    });
    let seen = soon(join_all(sent)).await;
    let missed = seen.iter().filter(|seen| !**seen).count();
    assert_eq!(missed, 0, "of 200 that were asked for after they were acknowledged");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn n16_a_guest_names_the_message_after_which_its_question_comes() {
    let memory = in_memory();
    let store = Tapped::new(Arc::clone(&memory) as _);
    let runtime = orchestrations(Runtime::open("memory:")).store(Arc::clone(&store) as _);
    let runtime = runtime.start().await.unwrap();
    runtime.client().start("collects", "c", Payload::null()).await.unwrap();
    let guest = Client::of_store(memory);
    // The owner reads what is asked, and not what was sent before, unless it is told to.
    store.hold_inbox(true);
    guest.raise_event("c", ADD, 1).await.unwrap();
    assert!(soon(guest.update("c", SEEN, 1)).await.unwrap());
    guest.raise_event("c", ADD, 2).await.unwrap();
    assert!(soon(guest.query("c", HAS, 2)).await.unwrap());
    store.hold_inbox(false);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_a_guest_whose_store_gives_no_hints_hears_by_polling() {
    let memory = in_memory();
    let runtime = orchestrations(Runtime::open("memory:")).store(Arc::clone(&memory) as _);
    let runtime = runtime.start().await.unwrap();
    let guest = Client::of_store(Tapped::without_hints(memory));
    let client = runtime.client();
    client.start("collects", "c", Payload::null()).await.unwrap();
    client.raise_event("c", ADD, 1).await.unwrap();
    assert!(soon(guest.update("c", SEEN, 1)).await.unwrap());
    let ended = tokio::spawn(async move { guest.wait("c").await });
    client.raise_event("c", event("go"), Payload::null()).await.unwrap();
    soon(ended).await.unwrap().unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g33_an_action_over_a_filter_means_the_instances_that_were_listed() {
    let reason = "enough".to_owned();
    for action in [
        Action::Cancel { reason: reason.clone(), grace: None },
        Action::Terminate { reason },
        Action::Raise { event: "go".to_owned(), payload: Payload::null() },
        Action::Delete { force: false },
    ] {
        let memory = in_memory();
        let guest = Client::of_store(Arc::clone(&memory) as _);
        for id in ["a", "b"] {
            guest
                .start_with("waits", id, Payload::null(), StartOptions::default().version("1.0.0"))
                .await
                .unwrap();
        }
        if matches!(action, Action::Delete { .. }) {
            memory.tables().instances.values_mut().for_each(|row| row.status = Status::Completed);
        }
        let (changed, mut new) = (Arc::clone(&memory), None);
        let progress = |_: &perennial::client::Progress| {
            new.get_or_insert_with(|| replace(&changed, "b"));
        };
        let report = guest.for_each(Filter::new(), action.clone(), progress).await.unwrap();
        assert_eq!((report.done, report.skipped, report.failed), (1, 1, 0), "{action:?}");
        let tables = memory.tables();
        let new = new.expect("it was replaced");
        assert_eq!(tables.instances[&new].status, Status::Pending, "{action:?}");
        assert!(tables.inbox.values().all(|message| message.to != new), "{action:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h41_a_runtime_tells_the_directory_who_it_is_and_what_it_runs() {
    let memory = in_memory();
    let began_ms = now_ms();
    let runtime = orchestrations(Runtime::open("memory:"))
        .orchestration("waits", "2.0.0", waits)
        .activity("pack", |_: ActivityContext, input: Payload| async move { Ok::<_, Payload>(input) })
        .options(RuntimeOptions {
            node: "berlin-1".to_owned(),
            tags: vec!["gpu".to_owned()],
            activity_slots: 7,
            ..RuntimeOptions::default()
        })
        .store(Arc::clone(&memory) as _)
        .start()
        .await
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    memory.directory(Box::new(move |directory| sender.send(directory.unwrap()).unwrap()));
    let sessions = receiver.recv().unwrap().sessions;
    for role in [SessionRole::Node, SessionRole::Lane] {
        let session = sessions.iter().find(|session| session.role == role).expect("both are open");
        let info = NodeInfo::decode(&session.info);
        assert!((began_ms..=now_ms()).contains(&info.since_ms), "{info:?}");
        assert!(!info.host.is_empty(), "{info:?}");
        let both = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let expected = NodeInfo {
            name: "berlin-1".to_owned(),
            host: info.host.clone(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since_ms: info.since_ms,
            owns_shards: true,
            orchestrations: vec![
                both("collects", "1.0.0"),
                both("renews", "1.0.0"),
                both("waits", "1.0.0"),
                both("waits", "2.0.0"),
            ],
            activities: vec!["pack".to_owned()],
            tags: vec!["gpu".to_owned()],
            slots: 7,
            free: Some(7),
            turn_threads: info.turn_threads,
            load: info.load,
        };
        assert!(info.turn_threads > 0, "{info:?}");
        assert_eq!(info, expected, "{role:?}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_the_trace_context_of_an_update_is_recorded_from_here_and_from_elsewhere() {
    on_each_stage(async |stage| {
        let runtime = orchestrations(stage.runtime()).start().await.unwrap();
        runtime.client().start("collects", "c", Payload::null()).await.unwrap();
        let clients = [Some(runtime.client()), stage.guest()].into_iter().flatten();
        let mut expected = Vec::new();
        for (place, client) in clients.enumerate() {
            let parent = format!("00-{place}-2-01");
            let traced = client.with_trace_context(&parent, Some("a=b")).unwrap();
            traced.update("c", SEEN, 1).await.unwrap();
            expected.push((parent, Some("a=b".to_owned())));
        }
        let history = runtime.client().history("c").await.unwrap();
        let jobs = history.turns.iter().flat_map(|turn| turn.jobs());
        let traces: Vec<(String, Option<String>)> = jobs
            .filter_map(|(_, job)| match job {
                Job::UpdateRequested { trace, .. } => trace.as_ref(),
                _ => None,
            })
            .map(|trace| (trace.parent.to_string(), trace.state.as_ref().map(ToString::to_string)))
            .collect();
        assert_eq!(traces, expected);
        runtime.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn n6_a_damaged_instance_is_deleted_from_its_own_shard() {
    let memory = in_memory();
    let store = Tapped::new(Arc::clone(&memory) as _);
    let guest = Client::of_store(Arc::clone(&store) as _);
    guest.start_with("waits", "a", Payload::null(), StartOptions::default().version("1.0.0")).await.unwrap();
    let key = memory.tables().ids["a"];
    memory.tables().instances.get_mut(&key).unwrap().status = Status::Completed;
    assert_eq!(guest.delete_damaged(key).await, Ok(true));
    let asked: Vec<(ShardId, InstanceKey)> = store.deleted().into_iter().flatten().collect();
    assert!(asked.contains(&(ShardId::of("a"), key)), "a store may look in that shard only");
    assert!(memory.tables().instances.is_empty());
    assert_eq!(guest.delete_damaged(key).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn g33_rows_of_large_instances_are_deleted_with_rests_in_between() {
    let memory = in_memory();
    let store = Tapped::new(Arc::clone(&memory) as _);
    let guest = Client::of_store(Arc::clone(&store) as _);
    let options = StartOptions::default().version("1.0.0");
    guest.start_with("waits", "a", Payload::null(), options).await.unwrap();
    {
        let mut tables = memory.tables();
        let key = tables.ids["a"];
        tables.instances.get_mut(&key).unwrap().status = Status::Completed;
        for number in 1..=9_000 {
            let row = TurnRow { execution: 1, number, bytes: Arc::from([]), checksum: 0 };
            tables.turns.insert((key, 1, number), row);
        }
    }
    let began = tokio::time::Instant::now();
    assert_eq!(guest.delete("a", false).await, Ok(1));
    assert!(memory.tables().turns.is_empty());
    let sweeps = u32::try_from(store.count("sweep")).unwrap();
    assert!(sweeps > 3, "{sweeps} sweeps");
    assert!(began.elapsed() >= (sweeps - 1) * Duration::from_millis(5), "{:?}", began.elapsed());
}
