//! Bad input of every kind, through the runtime's client and through a guest's (G17, G24, G34): the sender
//! gets a clear error, nothing of it is written, and existing instances continue.

use std::sync::OnceLock;
use std::time::Duration;

use perennial::{
    ActivityContext, ActivityError, Client, ClientError, Filter, NameError, OrchestrationContext, Payload,
    RetryPolicy, Runtime, RuntimeBuilder, StartOptions, UpdateError,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;

use crate::support::home::{Home, on_each_store};
use crate::support::{at, event, failed, not_found, relaxed, soon};

type Outcome = Result<Payload, Payload>;

const LIMIT: usize = 4 << 20;
const HUNDRED_MB: usize = 100_000_000;

/// A text of 100 MB. Making one takes its time, so it is made once.
fn huge() -> Payload {
    static HUGE: OnceLock<Payload> = OnceLock::new();
    HUGE.get_or_init(|| Payload::from_json(format!("\"{}\"", "x".repeat(HUNDRED_MB - 2))).unwrap()).clone()
}

/// Waits for one event, and gives it back.
async fn waiter(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.on_query("sizes", &(), |(), _: Payload| Payload::null());
    Ok(ctx.schedule_wait(event("go")).await)
}

fn handlers() -> Handlers {
    Runtime::open("memory:").orchestration("waiter", "1.0.0", waiter).handlers()
}

/// Clients of a home: the runtime's own, and where there can be one, a guest's.
fn clients(runtime: &Runtime, home: &Home) -> Vec<Client> {
    let guest = match home {
        Home::Memory(_) => None,
        Home::Lasting(place) => Some(place.guest()),
    };
    [runtime.client()].into_iter().chain(guest).collect()
}

/// Must hold after every refusal: `w` is the only instance, its history is unchanged, and it continues.
async fn nothing_is_lost(client: &Client, log: &mut ClientLog, tried: impl AsyncFn()) {
    client.start("waiter", "w", Payload::null()).await.unwrap();
    log.started("w");
    // A start that was sent through the store is acknowledged before its first turn.
    let mut before = client.history("w").await.unwrap();
    while before.turns.is_empty() {
        tokio::task::yield_now().await;
        before = client.history("w").await.unwrap();
    }
    tried().await;
    assert_eq!(client.history("w").await.unwrap(), before);
    let rows = client.list(Filter::new(), None, 10).await.unwrap().rows;
    assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["w"], "nothing else was written");
    client.raise_event("w", "go", "went").await.unwrap();
    log.raised("me", "w", "go", "went");
    assert_eq!(client.result("w").await.unwrap().as_json(), r#""went""#);
    let ended = ClientError::Ended { id: "w".to_owned() };
    assert_eq!(client.raise_event("w", "go", "again").await, Err(ended.clone()));
    assert_eq!(client.raise_event("w", "go", "again").once("key").await, Err(ended.clone()));
    assert_eq!(client.cancel("w", "late").await, Err(ended.clone()));
    assert_eq!(client.terminate("w", "late").await, Err(ended));
}

fn with_waiter(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.orchestration("waiter", "1.0.0", waiter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_a_payload_of_100_mb_is_refused_wherever_it_comes_in() {
    on_each_store(with_waiter, async |runtime, home, log| {
        nothing_is_lost(&runtime.client(), log, async || {
            for client in clients(runtime, home) {
                let huge = huge();
                let too_large = |id: &str| {
                    let (id, bytes) = (id.to_owned(), HUNDRED_MB);
                    ClientError::TooLarge { id, bytes, limit: LIMIT }
                };
                let start = StartOptions::default;
                let with = async |options: StartOptions| {
                    client.start_with("waiter", "new", Payload::null(), options).await.map(drop)
                };
                assert_eq!(client.start("waiter", "new", huge.clone()).await, Err(too_large("new")));
                let (event, attribute) =
                    (start().or_raise("go", huge.clone()), start().attribute("size", huge.clone()));
                assert_eq!(with(event).await, Err(too_large("new")));
                assert_eq!(with(attribute).await, Err(too_large("new")));
                assert_eq!(client.raise_event("w", "go", huge.clone()).await, Err(too_large("w")));
                assert_eq!(
                    client.raise_event("w", "go", huge.clone()).once("key").await,
                    Err(too_large("w"))
                );
                assert_eq!(client.query("w", "sizes", huge.clone()).await, Err(too_large("w")));
                assert_eq!(client.update("w", "sizes", huge.clone()).await, Err(too_large("w").into()));
                let reason = "x".repeat(HUNDRED_MB);
                assert_eq!(client.cancel("w", &reason).await, Err(too_large("w")));
                assert_eq!(client.terminate("w", &reason).await, Err(too_large("w")));
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g34_ids_and_names_that_cannot_be_used_are_refused_wherever_they_come_in() {
    on_each_store(with_waiter, async |runtime, home, log| {
        nothing_is_lost(&runtime.client(), log, async || {
            let long = "x".repeat(10_000);
            let bad = [
                ("", NameError::Empty, NameError::Empty),
                (
                    long.as_str(),
                    NameError::TooLong { bytes: 10_000, limit: 200 },
                    NameError::TooLong { bytes: 10_000, limit: 1_000 },
                ),
                ("tab\there", NameError::ControlCharacter { at: 3 }, NameError::ControlCharacter { at: 3 }),
                ("nul\0", NameError::ControlCharacter { at: 3 }, NameError::ControlCharacter { at: 3 }),
                (
                    "esc\u{1b}[2J",
                    NameError::ControlCharacter { at: 3 },
                    NameError::ControlCharacter { at: 3 },
                ),
            ];
            for client in clients(runtime, home) {
                for (name, chosen, derived) in &bad {
                    let refused = |result: Result<(), ClientError>, why: &NameError| match result {
                        Err(ClientError::InvalidName { name: shown, source, .. }) => {
                            assert_eq!(source, *why);
                            assert!(shown.len() <= 50, "a message stays readable");
                        }
                        other => panic!("{name:?}: {other:?}"),
                    };
                    let null = Payload::null;
                    refused(client.start("waiter", name, null()).await.map(drop), chosen);
                    refused(client.start(name, "new", null()).await.map(drop), chosen);
                    refused(client.start_with("waiter", "new", null(), at(name)).await.map(drop), chosen);
                    refused(client.raise_event("w", name, null()).await, chosen);
                    refused(client.query("w", name, null()).await.map(drop), chosen);
                    match client.update("w", name, null()).await {
                        Err(UpdateError::Client(error)) => refused(Err(error), chosen),
                        other => panic!("{other:?}"),
                    }
                    refused(client.raise_event(name, "go", null()).await, derived);
                    refused(client.raise_event("w", "go", null()).once(*name).await, derived);
                    refused(client.cancel(name, "why not").await, derived);
                    refused(client.terminate(name, "why not").await, derived);
                    refused(client.retry(name).await, derived);
                    refused(client.wait(name).await.map(drop), derived);
                    refused(client.status(name).await.map(drop), derived);
                    refused(client.history(name).await.map(drop), derived);
                    refused(client.delete(name, true).await.map(drop), derived);
                }
                let reserved = client.start("waiter", "w::1.2", Payload::null()).await;
                let Err(ClientError::InvalidName { source: NameError::Reserved, .. }) = reserved else {
                    panic!("{reserved:?}");
                };
                // But a child's id may be named.
                assert_eq!(client.cancel("w::1.2", "why not").await, Err(not_found("w::1.2")));
            }
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_what_names_nobody_is_an_error_to_its_sender() {
    on_each_store(with_waiter, async |runtime, home, log| {
        nothing_is_lost(&runtime.client(), log, async || {
            let unknown = runtime.client().start("stranger", "new", Payload::null()).await;
            assert_eq!(
                unknown,
                Err(ClientError::NotRegistered { name: "stranger".to_owned(), similar: None })
            );
            for client in clients(runtime, home) {
                let missing = not_found("nobody");
                assert_eq!(client.query("nobody", "sizes", Payload::null()).await, Err(missing.clone()));
                assert_eq!(
                    client.update("nobody", "sizes", Payload::null()).await,
                    Err(missing.clone().into())
                );
                assert_eq!(client.delete("nobody", true).await, Err(missing.clone()));
                assert_eq!(client.raise_event("nobody", "item", "x").await, Err(missing.clone()));
                assert_eq!(client.cancel("nobody", "why not").await, Err(missing.clone()));
                assert_eq!(client.terminate("nobody", "why not").await, Err(missing.clone()));
                assert_eq!(client.retry("nobody").await, Err(missing.clone()));
                assert_eq!(client.wait("nobody").await, Err(missing.clone()));
                assert_eq!(client.status("nobody").await, Err(missing.clone()));
                assert_eq!(client.history("nobody").await.unwrap_err(), missing);
                assert_eq!(client.tree("nobody").await, Err(missing));
            }
        })
        .await;
    })
    .await;
}

/// Calls an activity whose result is too large, with a retry that would return a smaller one.
async fn reader(ctx: OrchestrationContext, _: Payload) -> Outcome {
    match ctx
        .schedule_activity("read", Payload::null())
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        .await
    {
        Ok(result) => Ok(result),
        Err(ActivityError::Application(error)) => Ok(error),
        Err(other) => Err(failed(other)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_a_result_or_an_error_of_100_mb_is_an_error_of_its_activity() {
    for is_error in [false, true] {
        let read = move |_: ActivityContext, _: Payload| async move {
            if is_error { Err(huge()) } else { Ok(huge()) }
        };
        let build =
            |builder: RuntimeBuilder| builder.orchestration("reader", "1.0.0", reader).activity("read", read);
        on_each_store(build, async |runtime, _, log| {
            let client = runtime.client();
            client.start("reader", "r", Payload::null()).await.unwrap();
            log.started("r");
            let error: String = client.result("r").await.unwrap().decode().unwrap();
            assert_eq!(error, "PER-0401 too large: the result has 100000000 bytes, 4194304 are allowed");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_details_of_a_heartbeat_over_the_limit_are_not_kept_and_the_attempt_goes_on() {
    let read = |ctx: ActivityContext, _: Payload| async move {
        if ctx.attempt() == 1 {
            ctx.heartbeat("x".repeat(LIMIT));
            return Err(Payload::from("not yet"));
        }
        assert!(ctx.details().is_none());
        Ok(Payload::from("read"))
    };
    let build =
        |builder: RuntimeBuilder| builder.orchestration("reader", "1.0.0", reader).activity("read", read);
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        client.start("reader", "r", Payload::null()).await.unwrap();
        log.started("r");
        assert_eq!(client.result("r").await.unwrap().as_json(), r#""read""#);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_what_code_makes_too_large_blocks_it_alone() {
    async fn boaster(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_activity("read", huge()).await.map_err(failed)
    }
    for home in Home::lasting() {
        let runtime = with_waiter(home.open())
            .options(relaxed())
            .orchestration("boaster", "1.0.0", boaster)
            .start()
            .await
            .unwrap();
        let client = runtime.client();
        client.start("boaster", "b", Payload::null()).await.unwrap();
        let blocked = crate::support::until_blocked(&client, "b", "PER-0204").await.blocked.unwrap();
        assert!(blocked.reason.contains("100000000"), "{}", blocked.reason);
        client.start("waiter", "w", Payload::null()).await.unwrap();
        client.raise_event("w", "go", "went").await.unwrap();
        assert_eq!(soon(client.result("w")).await.unwrap().as_json(), r#""went""#);
        runtime.shutdown().await.unwrap();
        let mut log = ClientLog::default();
        ["b", "w"].into_iter().for_each(|id| log.started(id));
        log.troubled("b");
        home.check(&log, &handlers());
    }
}
