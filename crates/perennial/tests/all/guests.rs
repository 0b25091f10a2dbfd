//! Clients beside the runtime: they look, send, start and wait through the store.

use futures::future::join_all;
use perennial::client::Tree;
use perennial::history::Ending;
use perennial::{
    ActivityContext, Client, ClientError, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder,
    Status,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;

use super::support::{Place, at, check_client, failed, not_found, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

/// Collects events until one is empty.
async fn collect(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    loop {
        let item = ctx.schedule_wait("item").typed::<String>().await;
        if item.is_empty() {
            return Ok(Payload::encode(&seen).unwrap());
        }
        seen.push(item);
    }
}

async fn hello(ctx: OrchestrationContext, name: Payload) -> Outcome {
    ctx.schedule_activity("echo", name).await.map_err(failed)
}

async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_sub_orchestration("collect", Payload::null()).await.map_err(failed)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("collect", "1.0.0", collect)
        .orchestration("hello", "1.0.0", hello)
        .orchestration("parent", "1.0.0", parent)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

async fn runtime(place: &Place) -> Runtime {
    orchestrations(Runtime::open(place.url()).options(relaxed()))
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_guest_looks_starts_raises_and_waits() {
    let place = Place::new();
    let runtime = runtime(&place).await;
    let guest = place.guest();
    let mut log = ClientLog::default();
    guest.start_with("hello", "h", "Ada", at("1.0.0")).await.unwrap();
    log.started("h");
    assert_eq!(soon(guest.result("h")).await.unwrap().as_json(), r#""Ada""#);
    let again = guest.start_with("hello", "h", "Ada", at("1.0.0")).await;
    assert_eq!(again, Err(ClientError::AlreadyExists { id: "h".to_owned(), status: Status::Completed }));

    runtime.client().start("collect", "c", Payload::null()).await.unwrap();
    log.started("c");
    for item in ["one", "two", ""] {
        guest.raise_event("c", "item", item).await.unwrap();
        log.raised("guest", "c", "item", item);
    }
    assert_eq!(soon(guest.result("c")).await.unwrap().as_json(), r#"["one","two"]"#);
    let ids: Vec<String> =
        guest.list(Filter::new(), None, 10).await.unwrap().rows.into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["h", "c"]);
    assert_eq!(guest.history("h").await.unwrap(), runtime.client().history("h").await.unwrap());
    assert_eq!(guest.status("c").await.unwrap().status, Status::Completed);

    assert_eq!(guest.raise_event("nobody", "item", "x").await, Err(not_found("nobody")));
    assert_eq!(guest.raise_event("c", "item", "x").await, Err(ClientError::Ended { id: "c".to_owned() }));
    let big = guest.raise_event("c", "item", "x".repeat(4 << 20)).await;
    assert!(matches!(big, Err(ClientError::TooLarge { .. })), "{big:?}");
    runtime.shutdown().await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_what_a_guest_starts_without_a_version_gets_the_latest_that_its_owner_has() {
    let place = Place::new();
    let guest = place.guest();
    guest.start("hello", "h", "Ada").await.unwrap();
    assert_eq!(guest.status("h").await.unwrap().version, "", "nobody here knows which there are");
    let old =
        |_: OrchestrationContext, _: Payload| async { Outcome::Err(Payload::from("an old version ran")) };
    let runtime = Runtime::open(place.url())
        .options(relaxed())
        .orchestration("hello", "0.9.0", old)
        .orchestration("hello", "1.0.0", hello)
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
        .start()
        .await
        .unwrap();
    assert_eq!(soon(guest.result("h")).await.unwrap().as_json(), r#""Ada""#);
    assert_eq!(guest.status("h").await.unwrap().version, "1.0.0");
    // With the owner beside it, as well.
    guest.start("hello", "i", "Bob").await.unwrap();
    assert_eq!(soon(guest.result("i")).await.unwrap().as_json(), r#""Bob""#);
    assert_eq!(guest.status("i").await.unwrap().version, "1.0.0");
    runtime.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    ["h", "i"].into_iter().for_each(|id| log.started(id));
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e23_a_guest_cancels_and_terminates() {
    let place = Place::new();
    let runtime = runtime(&place).await;
    let guest = place.guest();
    for id in ["a", "b"] {
        runtime.client().start("collect", id, Payload::null()).await.unwrap();
    }
    guest.cancel("a", "enough").await.unwrap();
    let cancelled = Ending::OrchestrationCancelled { reason: "enough".to_owned(), output: None };
    assert_eq!(soon(guest.wait("a")).await, Ok(cancelled));
    guest.terminate("b", "enough").await.unwrap();
    let terminated = Ending::OrchestrationTerminated { reason: "enough".to_owned() };
    assert_eq!(soon(guest.wait("b")).await, Ok(terminated));
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g15_what_a_guest_sends_while_nobody_runs_is_kept() {
    let place = Place::new();
    let guest = place.guest();
    guest.start_with("collect", "c", Payload::null(), at("1.0.0")).await.unwrap();
    assert_eq!(guest.status("c").await.unwrap().status, Status::Pending);
    let mut log = ClientLog::default();
    log.started("c");
    for item in ["one", "two", ""] {
        guest.raise_event("c", "item", item).await.unwrap();
        log.raised("guest", "c", "item", item);
    }
    place.check(&log, &handlers());
    let runtime = runtime(&place).await;
    assert_eq!(soon(guest.result("c")).await.unwrap().as_json(), r#"["one","two"]"#);
    runtime.shutdown().await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_starts_by_guests_and_the_runtime_give_one_instance() {
    let place = Place::new();
    let runtime = runtime(&place).await;
    let clients = [runtime.client(), place.guest(), place.guest()];
    for round in 0..20 {
        let id = format!("h-{round}");
        let starts = clients.iter().map(|client| client.start_with("hello", &id, "Ada", at("1.0.0")));
        let starts = soon(join_all(starts)).await;
        assert_eq!(starts.iter().filter(|start| start.is_ok()).count(), 1, "{starts:?}");
        for client in &clients {
            assert_eq!(soon(client.result(&id)).await.unwrap().as_json(), r#""Ada""#);
        }
    }
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_events_of_several_senders_come_once_each_in_their_senders_order() {
    const EVENTS: usize = 40;
    let place = Place::new();
    let runtime = runtime(&place).await;
    let senders = [("runtime", runtime.client()), ("guest a", place.guest()), ("guest b", place.guest())];
    let client = runtime.client();
    client.start("collect", "c", Payload::null()).await.unwrap();
    let send = async |sender: &str, client: &Client| {
        for count in 0..EVENTS {
            client.raise_event("c", "item", format!("{sender} {count}")).await.unwrap();
        }
    };
    soon(join_all(senders.iter().map(|(sender, client)| send(sender, client)))).await;
    let mut log = ClientLog::default();
    for (sender, _) in &senders {
        (0..EVENTS).for_each(|count| log.raised(sender, "c", "item", format!("{sender} {count}")));
    }
    // The last one must not overtake what guests sent before it.
    soon(async {
        loop {
            let history = client.history("c").await.unwrap();
            let jobs: usize = history.turns.iter().map(|turn| turn.jobs().count()).sum();
            if jobs >= 3 * EVENTS {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    client.raise_event("c", "item", "").await.unwrap();
    let seen: Vec<String> = soon(client.result("c")).await.unwrap().decode().unwrap();
    assert_eq!(seen.len(), 3 * EVENTS);
    until(&client, "c", |status| status.status == Status::Completed).await;
    runtime.shutdown().await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_memory_has_no_guests() {
    let runtime = Runtime::open("memory:").orchestration("collect", "1.0.0", collect).start().await.unwrap();
    runtime.client().start("collect", "c", Payload::null()).await.unwrap();
    let refused = Client::open("memory:").err().unwrap().to_string();
    assert_eq!(
        refused,
        "PER-0506 cannot open the store: a memory store belongs to its process; use the client of that runtime"
    );
    let mut log = ClientLog::default();
    log.started("c");
    check_client(&runtime.client(), &log, &handlers()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_with_no_live_owner_a_guest_takes_the_store_in_charge_to_terminate_and_delete() {
    let place = Place::new();
    let first = runtime(&place).await;
    for id in ["gone", "ended", "kept"] {
        first.client().start("collect", id, Payload::null()).await.unwrap();
    }
    for id in ["family", "orphaned"] {
        first.client().start("parent", id, Payload::null()).await.unwrap();
        let has_begun =
            |tree: Tree| tree.children.iter().any(|child| child.instance.status == Status::Running);
        while !has_begun(first.client().tree(id).await.unwrap()) {
            tokio::task::yield_now().await;
        }
    }
    first.shutdown().await.unwrap();
    let guest = Client::open(&place.url()).unwrap();
    guest.raise_event("kept", "item", "waits for the next owner").await.unwrap();
    guest.start("hello", "unborn", "Ada").await.unwrap();
    for id in ["ended", "orphaned", "unborn"] {
        guest.terminate(id, "nobody needs it").await.unwrap();
        let ending = soon(guest.wait(id)).await.unwrap();
        assert_eq!(ending, Ending::OrchestrationTerminated { reason: "nobody needs it".to_owned() });
    }
    assert_eq!(guest.delete("gone", true).await, Ok(1));
    assert_eq!(guest.delete("family", true).await, Ok(2));
    assert_eq!(guest.status("gone").await, Err(not_found("gone")));
    assert_eq!(guest.terminate("gone", "again").await, Err(not_found("gone")));
    let child = guest.tree("orphaned").await.unwrap().children[0].instance.clone();
    assert_eq!((child.status, child.blocked), (Status::Running, None), "its cancel waits for the next owner");
    let kept = guest.status("kept").await.unwrap();
    assert_eq!((kept.status, kept.blocked), (Status::Running, None), "it was left alone");
    let second = runtime(&place).await;
    second.client().raise_event("kept", "item", "").await.unwrap();
    let kept = soon(second.client().result("kept")).await.unwrap();
    assert_eq!(kept.as_json(), r#"["waits for the next owner"]"#);
    let ending = soon(second.client().wait(&child.id)).await.unwrap();
    assert!(matches!(ending, Ending::OrchestrationCancelled { .. }), "{ending:?}");
    second.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    for id in ["ended", "kept", "orphaned", "unborn"] {
        log.started(id);
    }
    place.check(&log, &handlers());
}
