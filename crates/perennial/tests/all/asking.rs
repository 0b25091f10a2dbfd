//! Queries, updates, event handlers and published statuses, from the runtime's process and from others (G19,
//! E21).

use std::sync::Arc;
use std::time::Duration;

use perennial::history::History;
use perennial::history::{EventKind, Job};
use perennial::{
    ActivityContext, Client, ClientError, Filter, OrchestrationContext, Payload, Query, Runtime,
    RuntimeBuilder, RuntimeOptions, StartOptions, Status, Update, UpdateError,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::stage::{Stage, on_each_lasting_stage, on_each_stage};
use crate::support::{Place, at, failed, not_found, number, relaxed, soon, until, until_blocked};

type Outcome = Result<Payload, Payload>;

const ITEMS: Query<(), Vec<String>> = Query::named("items");
const ADD: Update<String, usize> = Update::named("add");

/// A cart: items arrive as events or updates, a query returns its content, and it waits until it is paid.
async fn cart(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let items = ctx.state(Vec::<String>::new());
    ctx.on_query(ITEMS, &items, |items, ()| items.read(Clone::clone));
    // A query is refused if its input cannot be read.
    ctx.on_query("refuses", &(), |(), number: u32| number);
    ctx.on_event("add", &items, |items, item| async move { items.update(|items| items.push(item)) });
    ctx.on_update(ADD, &(ctx.clone(), items.clone()), |(ctx, items), item| async move {
        if item == "broken" {
            return Err("it fell apart".to_owned());
        }
        if item == "slow" {
            ctx.schedule_activity("fetch", "").await?;
        }
        Ok(items.update(|items| {
            items.push(item);
            items.len()
        }))
    })
    .validate(|(_, items), item| {
        let is_full = items.read(|items| items.len() >= 3);
        if item.is_empty() || is_full { Err(format!("no room for {item:?}")) } else { Ok(()) }
    });
    ctx.schedule_wait("pay").await;
    Ok(items.read(|items| Payload::encode(items).unwrap()))
}

/// Publishes how far it is, and waits until enough events have come.
async fn counter(ctx: OrchestrationContext, enough: Payload) -> Outcome {
    let enough: u64 = enough.decode().map_err(failed)?;
    let count = ctx.state(0_u64);
    ctx.set_status(json!({ "count": 0 }));
    ctx.on_event("one more", &(ctx.clone(), count.clone()), |(ctx, count), _| async move {
        let count = count.update(|count| {
            *count += 1;
            *count
        });
        ctx.set_status(json!({ "count": count }));
        ctx.upsert_attributes([("count", number(count))]);
    });
    ctx.wait_until(&count, move |count| *count >= enough).await;
    Ok(count.read(|count| number(*count)))
}

/// Adds up the amounts of updates, in as many executions as given.
async fn account(ctx: OrchestrationContext, sum: u64) -> Outcome {
    let sum = ctx.state(sum);
    ctx.on_update("add", &sum, |sum, amount: u64| async move {
        Ok::<_, String>(sum.update(|sum| {
            *sum += amount;
            *sum
        }))
    });
    match ctx.schedule_wait("next").await.as_str() {
        "again" => ctx.continue_as_new(sum.read(|sum| *sum)).await,
        _ => Ok(number(sum.read(|sum| *sum))),
    }
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("cart", "1.0.0", cart)
        .orchestration("counter", "1.0.0", counter)
        .orchestration("account", "1.0.0", account)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

/// The activity of slow updates waits at a gate.
fn builder(runtime: RuntimeBuilder, begun: &Arc<Notify>, gate: &Arc<Notify>) -> RuntimeBuilder {
    let (begun, gate) = (Arc::clone(begun), Arc::clone(gate));
    orchestrations(runtime).activity("fetch", move |_: ActivityContext, _: Payload| {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        async move {
            begun.notify_one();
            gate.notified().await;
            Ok::<_, Payload>(Payload::null())
        }
    })
}

async fn runtime(stage: &Stage) -> Runtime {
    builder(stage.runtime(), &Arc::default(), &Arc::default()).start().await.unwrap()
}

/// The runtime's client and, where there can be one, that of another process.
fn clients(stage: &Stage, runtime: &Runtime) -> Vec<(&'static str, Client)> {
    let guest = stage.guest().map(|guest| ("guest", guest));
    [("own", runtime.client())].into_iter().chain(guest).collect()
}

async fn items(client: &Client, id: &str) -> Result<Value, ClientError> {
    client.query(id, ITEMS, ()).await.map(|items| json!(items))
}

async fn add(client: &Client, id: &str, item: &str) -> Result<usize, UpdateError<String>> {
    client.update(id, ADD, item.to_owned()).await
}

fn updates(history: &History) -> usize {
    let is_update = |kind: &EventKind| matches!(kind, EventKind::Job(Job::UpdateRequested { .. }));
    history.flatten().filter(|event| is_update(&event.kind)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e21_a_query_is_answered_by_resident_dormant_and_finished_instances_without_a_trace() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        first.client().start("cart", "c", ()).await.unwrap();
        first.client().raise_event("c", "add", "tea").await.unwrap();
        let before = first.client().history("c").await.unwrap();
        for (who, client) in clients(stage, &first) {
            assert_eq!(items(&client, "c").await, Ok(json!(["tea"])), "{who}, resident");
            let refused = client.query("c", "refuses", "why").await;
            let Err(ClientError::Refused { error: Some(error), .. }) = refused else { panic!("{refused:?}") };
            let words = error.to_text();
            assert!(words.starts_with("PER-0103") && words.contains("expected u32"), "{words}");
            let unknown = client.query("c", "nothing", ()).await;
            assert!(matches!(unknown, Err(ClientError::Refused { error: None, .. })), "{who}: {unknown:?}");
            assert_eq!(items(&client, "nobody").await, Err(not_found("nobody")), "{who}");
        }
        first.shutdown().await.unwrap();

        let second = runtime(stage).await;
        for (who, client) in clients(stage, &second) {
            assert_eq!(items(&client, "c").await, Ok(json!(["tea"])), "{who}, dormant");
        }
        let client = second.client();
        assert_eq!(client.history("c").await.unwrap(), before, "a query leaves no trace");
        client.raise_event("c", "pay", ()).await.unwrap();
        client.result("c").await.unwrap();
        let ended = client.history("c").await.unwrap();
        for (who, client) in clients(stage, &second) {
            assert_eq!(items(&client, "c").await, Ok(json!(["tea"])), "{who}, finished");
        }
        assert_eq!(client.history("c").await.unwrap(), ended);
        second.shutdown().await.unwrap();
        let third = runtime(stage).await;
        for (who, client) in clients(stage, &third) {
            assert_eq!(items(&client, "c").await, Ok(json!(["tea"])), "{who}, finished long ago");
        }
        stage.finish(third, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_blocked_instance_says_why_it_cannot_answer() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        first.client().start("cart", "c", ()).await.unwrap();
        log.started("c");
        log.troubled("c");
        first.shutdown().await.unwrap();
        let without = stage.runtime().orchestration("counter", "1.0.0", counter).start().await.unwrap();
        for (who, client) in clients(stage, &without) {
            for answer in [
                items(&client, "c").await.map_err(UpdateError::from).map(drop),
                add(&client, "c", "x").await.map(drop),
            ] {
                let Err(UpdateError::Client(ClientError::Blocked { code, .. })) = &answer else {
                    panic!("{who}: {answer:?}")
                };
                assert_eq!(code, "PER-0301");
            }
        }
        until_blocked(&without.client(), "c", "PER-0301").await;
        without.shutdown().await.unwrap();
        let with = runtime(stage).await;
        until(&with.client(), "c", |status| status.blocked.is_none()).await;
        assert_eq!(add(&with.client(), "c", "tea").await, Ok(1));
        stage.finish(with, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e21_an_update_that_is_refused_leaves_no_event_and_one_that_is_accepted_is_answered() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (who, client) in clients(stage, &runtime) {
            runtime.client().start("cart", who, ()).await.unwrap();
            let before = client.history(who).await.unwrap();
            for (name, payload) in [("add", json!("")), ("add", json!(17)), ("nothing", json!("x"))] {
                let refused = client.update(who, name, payload).await;
                assert!(matches!(refused, Err(UpdateError::Refused { .. })), "{who}: {refused:?}");
            }
            assert_eq!(client.history(who).await.unwrap(), before, "{who}: refused without a trace");
            for (place, item) in [(1, "tea"), (2, "milk")] {
                assert_eq!(add(&client, who, item).await, Ok(place), "{who}");
            }
            let error = "it fell apart".to_owned();
            let id = who.to_owned();
            assert_eq!(add(&client, who, "broken").await, Err(UpdateError::Failed { id, error }));
            assert_eq!(add(&client, who, "salt").await, Ok(3));
            let full = add(&client, who, "one too many").await;
            let Err(UpdateError::Refused { error: Some(error), .. }) = full else { panic!("{full:?}") };
            assert_eq!(error, r#"no room for "one too many""#);
            assert_eq!(updates(&client.history(who).await.unwrap()), 4);
            client.raise_event(who, "pay", ()).await.unwrap();
            until(&client, who, |status| status.status.is_final()).await;
            let late = add(&client, who, "late").await;
            assert_eq!(late, Err(ClientError::Ended { id: who.to_owned() }.into()));
            assert_eq!(add(&client, "nobody", "x").await, Err(not_found("nobody").into()));
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e26_updates_that_are_under_way_when_the_instance_ends_are_told_so() {
    on_each_stage(async |stage| {
        let begun = Arc::new(Notify::new());
        // The activity does not listen.
        let options = RuntimeOptions { activity_cancel_grace: Duration::from_millis(10), ..relaxed() };
        let opened = stage.runtime().options(options);
        let runtime = builder(opened, &begun, &Arc::default()).start().await.unwrap();
        for (who, client) in clients(stage, &runtime) {
            for end in ["pay", "cancel", "terminate"] {
                let id = format!("{who}-{end}");
                runtime.client().start("cart", &id, ()).await.unwrap();
                let (asker, asked) = (client.clone(), id.clone());
                let update = tokio::spawn(async move { add(&asker, &asked, "slow").await });
                begun.notified().await;
                match end {
                    "pay" => client.raise_event(&id, "pay", ()).await.unwrap(),
                    "cancel" => client.cancel(&id, "enough").await.unwrap(),
                    _ => client.terminate(&id, "enough").await.unwrap(),
                }
                assert_eq!(update.await.unwrap(), Err(ClientError::Unanswered { id }.into()), "{who}");
            }
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_update_sent_again_with_its_key_after_a_restart_gets_the_first_ones_answer() {
    on_each_stage(async |stage| {
        let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = builder(stage.runtime(), &begun, &Arc::default()).start().await.unwrap();
        let client = first.client();
        client.start("cart", "c", ()).await.unwrap();
        assert_eq!(client.update("c", ADD, "tea".to_owned()).once("key 1").await, Ok(1));
        assert_eq!(
            client.update("c", "add", "milk").once("key 1").await,
            Ok("1".to_owned()),
            "the first one's"
        );
        // Accepted, and not answered when the runtime dies.
        let asker = client.clone();
        let update =
            tokio::spawn(async move { asker.update("c", ADD, "slow".to_owned()).once("key 2").await });
        begun.notified().await;
        drop(first);
        let unknown = update.await.unwrap();
        assert!(
            matches!(
                unknown,
                Err(UpdateError::Client(ClientError::Unknown { .. } | ClientError::Stopped { .. }))
            ),
            "neither yes nor no: {unknown:?}"
        );

        let second = builder(stage.runtime(), &begun, &gate).start().await.unwrap();
        let client = second.client();
        let asker = client.clone();
        let update =
            tokio::spawn(async move { asker.update("c", ADD, "slow".to_owned()).once("key 2").await });
        begun.notified().await;
        gate.notify_one();
        assert_eq!(update.await.unwrap(), Ok(2));
        assert_eq!(client.update("c", ADD, "slow".to_owned()).once("key 2").await, Ok(2));
        assert_eq!(client.update("c", ADD, "tea".to_owned()).once("key 1").await, Ok(1));
        assert_eq!(items(&client, "c").await, Ok(json!(["tea", "slow"])));
        assert_eq!(updates(&client.history("c").await.unwrap()), 2);
        stage.finish(second, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_update_sent_again_with_its_key_gets_its_answer_in_later_executions_and_after_the_end() {
    const ADD_TO: Update<u64, u64> = Update::named("add");
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (who, client) in clients(stage, &runtime) {
            client.start("account", who, number(0)).await.unwrap();
            let add = async |key: &str, amount| soon(client.update(who, ADD_TO, amount).once(key)).await;
            assert_eq!(add("key 1", 5).await, Ok(5));
            for execution in [2, 3] {
                client.raise_event(who, "next", "again").await.unwrap();
                until(&client, who, |status| status.execution == execution).await;
                assert_eq!(add("key 1", 100).await, Ok(5), "{who}, execution {execution}");
                assert_eq!(add(&format!("key {execution}"), 1).await, Ok(execution + 4));
            }
            client.raise_event(who, "next", "enough").await.unwrap();
            assert_eq!(soon(client.result(who)).await.unwrap(), number(7));
            assert_eq!(add("key 1", 100).await, Ok(5), "{who}, after its end");
            assert_eq!(add("key 3", 100).await, Ok(7), "{who}, after its end");
            assert_eq!(add("key 4", 1).await, Err(ClientError::Ended { id: who.to_owned() }.into()));
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_update_sent_again_whose_outcome_was_deleted_is_told_so_and_not_done_again() {
    const ADD_TO: Update<u64, u64> = Update::named("add");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let url = format!("sqlite:{}", path.display());
    let runtime = orchestrations(Runtime::open(url)).start().await.unwrap();
    let client = runtime.client();
    client.start("account", "a", number(0)).await.unwrap();
    assert_eq!(client.update("a", ADD_TO, 5).once("key 1").await, Ok(5));
    client.raise_event("a", "next", "again").await.unwrap();
    until(&client, "a", |status| status.execution == 2).await;
    // As pruning does.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    assert!(connection.execute("DELETE FROM turns WHERE execution = 1", []).unwrap() > 0);
    let again = client.update("a", ADD_TO, 5).once("key 1").await;
    assert_eq!(again, Err(ClientError::OutcomeDeleted { id: "a".to_owned() }.into()));
    assert!(matches!(client.history_of("a", 1).await, Err(ClientError::NoExecution { current: 2, .. })));
    client.raise_event("a", "next", "enough").await.unwrap();
    assert_eq!(soon(client.result("a")).await.unwrap(), number(5));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e21_what_an_instance_publishes_shows_while_it_runs() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (who, client) in clients(stage, &runtime) {
            let options = StartOptions::default().version("1.0.0").attribute("who", who);
            client.start_with("counter", who, number(3), options).await.unwrap();
            for count in 1..3 {
                client.raise_event(who, "one more", ()).await.unwrap();
                let published = Some(Payload::from(json!({ "count": count })));
                let status = until(&client, who, |status| status.published == published).await;
                assert_eq!(status.status, Status::Running);
                assert_eq!(status.attributes.get("count"), Some(&number(count)));
                let filter = Filter::new().attribute("who", who).attribute("count", count);
                let rows = client.list(filter, None, 10).await.unwrap().rows;
                assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), [who]);
                assert_eq!(rows[0].published, published);
            }
            client.raise_event(who, "one more", ()).await.unwrap();
            assert_eq!(client.result(who).await.unwrap(), number(3), "it waited until there were enough");
            assert_eq!(client.status(who).await.unwrap().published, Some(json!({ "count": 3 }).into()));
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_a_question_that_no_runtime_takes_is_withdrawn_and_reported() {
    const PATIENCE: Duration = Duration::from_millis(100);
    on_each_lasting_stage(async |stage| {
        let first = runtime(stage).await;
        first.client().start("cart", "c", ()).await.unwrap();
        first.shutdown().await.unwrap();
        let guest = stage.guest().unwrap().patience(PATIENCE);
        let unanswered = ClientError::NotAnswered { id: "c".to_owned(), patience: PATIENCE };
        assert!(unanswered.to_string().contains("is one running"), "{unanswered}");
        assert_eq!(items(&guest, "c").await, Err(unanswered));
        let update = add(&guest, "c", "tea").await;
        assert!(matches!(&update, Err(UpdateError::Client(ClientError::NotAnswered { .. }))), "{update:?}");
        assert_eq!(guest.stats().await.unwrap().requests.rows, 0, "nothing waits for the next runtime");
        let second = runtime(stage).await;
        assert_eq!(
            items(&guest.patience(Duration::from_secs(30)), "c").await,
            Ok(json!([])),
            "it was withdrawn"
        );
        stage.finish(second, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

/// Where the worker process finds the store, and whether it answers.
const STORE: &str = "PERENNIAL_ASKING_STORE";
const ANSWERS: &str = "PERENNIAL_ASKING_ANSWERS";

#[test]
#[ignore = "it is a process of the test below"]
fn asking_worker_process() {
    let Some(url) = std::env::var_os(STORE) else { return };
    let gate = Arc::new(Notify::new());
    if std::env::var_os(ANSWERS).is_some() {
        gate.notify_one();
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    tokio.block_on(async {
        let opened = Runtime::open(url.into_string().unwrap()).options(relaxed());
        let _runtime = builder(opened, &Arc::default(), &gate).start().await.unwrap();
        std::future::pending::<()>().await;
    });
}

struct Worker(std::process::Child);

impl Worker {
    fn spawn(place: &Place, answers: bool) -> Worker {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "asking::asking_worker_process", "--nocapture"]);
        command.env(STORE, place.url()).stdout(std::process::Stdio::null());
        if answers {
            command.env(ANSWERS, "yes");
        }
        Worker(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s6_an_accepted_update_is_answered_once_although_its_process_was_killed_before_the_answer() {
    let place = Place::new();
    let guest = place.guest();
    guest.start_with("cart", "c", (), at("1.0.0")).await.unwrap();
    let worker = Worker::spawn(&place, false);
    let (asker, key) = (guest.clone(), "key");
    let update = tokio::spawn(async move { asker.update("c", ADD, "slow".to_owned()).once(key).await });
    soon(async {
        while !matches!(guest.history("c").await, Ok(history) if updates(&history) == 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(worker);
    assert!(!update.is_finished());
    let worker = Worker::spawn(&place, true);
    assert_eq!(soon(update).await.unwrap(), Ok(1));
    assert_eq!(
        soon(guest.update("c", ADD, "slow".to_owned()).once(key)).await,
        Ok(1),
        "the same answer again"
    );
    assert_eq!(soon(items(&guest, "c")).await, Ok(json!(["slow"])));
    assert_eq!(updates(&guest.history("c").await.unwrap()), 1);
    assert_eq!(guest.stats().await.unwrap().requests.rows, 0);
    drop(worker);
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_an_instance_that_waits_for_updates_or_handled_events_alone_can_be_woken() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let code = |builder: RuntimeBuilder| {
            builder.orchestration("door", "1.0.0", |ctx: OrchestrationContext, by_update: bool| async move {
                let open = ctx.state(false);
                if by_update {
                    ctx.on_update("open", &open, |open, ()| async move {
                        open.update(|open| *open = true);
                        Ok::<(), String>(())
                    });
                } else {
                    ctx.on_event("open", &open, |open, _| async move { open.update(|open| *open = true) });
                }
                ctx.wait_until(&open, |open| *open).await;
                Ok::<_, String>(())
            })
        };
        let runtime = code(stage.runtime()).start().await.unwrap();
        for (id, by_update) in [("by update", true), ("by event", false)] {
            runtime.client().start("door", id, Payload::encode(&by_update).unwrap()).await.unwrap();
            log.started(id);
        }
        stage.finish(runtime, &log, code).await;
    })
    .await;
}
