//! Typical uses of a runtime, from end to end, on every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use perennial::history::Ending;
use perennial::history::{Decision, EventKind};
use perennial::{
    ActivityContext, ActivityError, ClientError, Either, Error, Filter, OrchestrationContext,
    OrchestrationError, Payload, Runtime, RuntimeBuilder, RuntimeOptions, Status,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;
use tokio::sync::Notify;

use crate::support::{Place, check_client, failed, not_found, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

async fn hello(ctx: OrchestrationContext, name: Payload) -> Outcome {
    ctx.schedule_activity("greet", name).await.map_err(failed)
}

async fn greet(_: ActivityContext, name: Payload) -> Outcome {
    Ok(Payload::from(format!("Hello, {}!", name.decode::<String>().map_err(failed)?)))
}

/// Collects three events and returns them.
async fn collect(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(ctx.schedule_wait("item").typed::<String>().await);
    }
    Ok(Payload::encode(&seen).unwrap())
}

/// Takes cancellation over, and says so in its own words.
async fn graceful(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.cancelled().await;
    Ok(Payload::from("cleaned up"))
}

/// Takes cancellation over, and never ends.
async fn stubborn(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.cancelled().await;
    ctx.schedule_wait("never").await;
    Ok(Payload::null())
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("hello", "1.0.0", hello)
        .orchestration("collect", "1.0.0", collect)
        .orchestration("graceful", "1.0.0", graceful)
        .orchestration("stubborn", "1.0.0", stubborn)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

fn runtime(url: &str) -> RuntimeBuilder {
    orchestrations(Runtime::open(url)).activity("greet", greet)
}

/// Runs a test on every store, and checks the invariants after each.
async fn on_each_store(test: impl AsyncFn(&Runtime, &mut ClientLog)) {
    for place in std::iter::once(None).chain(Place::each().into_iter().map(Some)) {
        let url = place.as_ref().map_or("memory:".to_owned(), Place::url);
        let runtime = runtime(&url).options(relaxed()).start().await.unwrap();
        let mut log = ClientLog::default();
        soon(test(&runtime, &mut log)).await;
        assert_eq!(runtime.failure(), None);
        check_client(&runtime.client(), &log, &handlers()).await;
        runtime.shutdown().await.unwrap();
        if let Some(place) = place {
            place.check(&log, &handlers());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_hello() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        client.start("hello", "hello-1", "Ada").await.unwrap();
        log.started("hello-1");
        assert_eq!(client.result("hello-1").await.unwrap().as_json(), r#""Hello, Ada!""#);
        let status = client.status("hello-1").await.unwrap();
        assert_eq!((status.status, status.name.as_str(), status.blocked), (Status::Completed, "hello", None));
        assert_eq!(client.history("hello-1").await.unwrap().flatten().count(), 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_events_before_their_wait_are_kept_in_their_senders_order() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        client.start("collect", "c", Payload::null()).await.unwrap();
        log.started("c");
        for item in ["one", "two", "three"] {
            client.raise_event("c", "item", item).await.unwrap();
            log.raised("me", "c", "item", item);
        }
        assert_eq!(client.result("c").await.unwrap().as_json(), r#"["one","two","three"]"#);
        let late = client.raise_event("c", "item", "four").await;
        assert_eq!(late, Err(ClientError::Ended { id: "c".to_owned() }));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_event_with_a_key_counts_once() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        client.start("collect", "c", Payload::null()).await.unwrap();
        log.started("c");
        for (key, item) in [("1", "one"), ("1", "again"), ("2", "two"), ("1", "again"), ("3", "three")] {
            client.raise_event("c", "item", item).once(key).await.unwrap();
        }
        assert_eq!(client.result("c").await.unwrap().as_json(), r#"["one","two","three"]"#);
        assert_eq!(runtime.counters().events_duplicate, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_concurrent_starts_of_one_id_give_one_instance() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        let starts = join_all((0..100).map(|_| client.start("hello", "one", "Ada"))).await;
        log.started("one");
        let (winners, losers): (Vec<_>, Vec<_>) = starts.into_iter().partition(Result::is_ok);
        assert_eq!((winners.len(), losers.len()), (1, 99));
        for loser in losers {
            assert!(matches!(loser, Err(ClientError::AlreadyExists { .. })), "{loser:?}");
        }
        client.result("one").await.unwrap();
        let status = Status::Completed;
        let again = client.start("hello", "one", "Ada").await;
        assert_eq!(again, Err(ClientError::AlreadyExists { id: "one".to_owned(), status }));
        assert_eq!(client.list(Filter::new(), None, 10).await.unwrap().rows.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_a_refused_start_does_not_come_between_others_and_the_instance_that_is_there() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        client.start("hello", "done", "Ada").await.unwrap();
        log.started("done");
        client.result("done").await.unwrap();
        for _ in 0..20 {
            let (start, result, event) = tokio::join!(
                client.start("hello", "done", "Eve"),
                client.result("done"),
                client.raise_event("done", "item", "late"),
            );
            assert!(matches!(start, Err(ClientError::AlreadyExists { .. })), "{start:?}");
            assert_eq!(result.unwrap().as_json(), r#""Hello, Ada!""#);
            assert_eq!(event, Err(ClientError::Ended { id: "done".to_owned() }));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g18_starts_that_wait_for_room_get_it() {
    let place = Place::new();
    let options = RuntimeOptions { max_queued_commits: 1, max_batch: 2, ..relaxed() };
    let runtime = runtime(&place.url()).options(options).start().await.unwrap();
    let client = runtime.client();
    let ids: Vec<String> = (0..500).map(|count| format!("hello-{count}")).collect();
    let starts = ids.iter().map(|id| client.start("hello", id, "Ada"));
    for start in soon(join_all(starts)).await {
        start.unwrap();
    }
    soon(join_all(ids.iter().map(|id| client.result(id)))).await.into_iter().for_each(|it| drop(it.unwrap()));
    runtime.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    ids.iter().for_each(|id| log.started(id));
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_the_loser_of_a_race_is_told_to_stop() {
    let told: Arc<Notify> = Arc::default();
    let race = |ctx: OrchestrationContext, _: Payload| async move {
        let slow = ctx.schedule_activity("slow", Payload::null());
        match ctx.select2(slow, ctx.schedule_activity("fast", Payload::null())).await {
            Either::First(_) => Err(Payload::from("the slow one won")),
            Either::Second(fast) => {
                // It continues, so that the race cancels the loser and not the end.
                ctx.schedule_wait("end").await;
                fast.map_err(failed)
            }
        }
    };
    // One that has not begun would not be told, and never run.
    let begun: Arc<Notify> = Arc::default();
    let (tell, begins) = (Arc::clone(&told), Arc::clone(&begun));
    let slow = move |ctx: ActivityContext, _: Payload| {
        let (tell, begins) = (Arc::clone(&tell), Arc::clone(&begins));
        async move {
            begins.notify_one();
            ctx.cancelled().await;
            assert!(ctx.is_cancelled());
            tell.notify_one();
            Ok::<_, Payload>(Payload::from("too late"))
        }
    };
    let runtime = Runtime::open("memory:")
        .orchestration("race", "1.0.0", race)
        .activity("slow", slow)
        .activity("fast", move |_: ActivityContext, _: Payload| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notified().await;
                Ok::<_, Payload>(Payload::from("first"))
            }
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("race", "r", Payload::null()).await.unwrap();
    soon(told.notified()).await;
    client.raise_event("r", "end", Payload::null()).await.unwrap();
    assert_eq!(soon(client.result("r")).await.unwrap().as_json(), r#""first""#);
    let history = client.history("r").await.unwrap();
    let cancels = history.flatten().filter(|event| {
        matches!(event.kind, EventKind::Decision { decision: Decision::ActivityCancelRequested { .. }, .. })
    });
    assert_eq!(cancels.count(), 1);
    check_client(
        &client,
        &ClientLog::default(),
        &Runtime::open("memory:").orchestration("race", "1.0.0", race).handlers(),
    )
    .await;
    runtime.shutdown().await.unwrap();
    // The loser's result came too late, or never.
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e23_cancel_and_terminate_end_an_instance() {
    on_each_store(async |runtime, log| {
        let client = runtime.client();
        for (name, id) in [("collect", "a"), ("graceful", "b"), ("collect", "c")] {
            client.start(name, id, Payload::null()).await.unwrap();
            log.started(id);
        }
        client.cancel("a", "no longer wanted").await.unwrap();
        let ending = Ending::OrchestrationCancelled { reason: "no longer wanted".to_owned(), output: None };
        assert_eq!(client.wait("a").await, Ok(ending));
        assert!(matches!(
            client.result("a").await,
            Err(Error::Orchestration(OrchestrationError::Cancelled { .. }))
        ));
        client.cancel("b", "no longer wanted").await.unwrap();
        assert_eq!(client.result("b").await.unwrap().as_json(), r#""cleaned up""#);
        client.terminate("c", "at once").await.unwrap();
        let ending = Ending::OrchestrationTerminated { reason: "at once".to_owned() };
        assert_eq!(client.wait("c").await, Ok(ending));
        assert_eq!(client.status("c").await.unwrap().status, Status::Terminated);
        assert_eq!(client.terminate("c", "again").await, Err(ClientError::Ended { id: "c".to_owned() }));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e23_code_that_cleans_up_for_longer_than_its_grace_is_terminated() {
    let mut options = relaxed();
    options.shard.cancel_grace = Duration::from_millis(50);
    let runtime = runtime("memory:").options(options).start().await.unwrap();
    let client = runtime.client();
    client.start("stubborn", "s", Payload::null()).await.unwrap();
    client.cancel("s", "please").await.unwrap();
    let reason = "cancelled, but did not end within its grace period: please".to_owned();
    assert_eq!(soon(client.wait("s")).await, Ok(Ending::OrchestrationTerminated { reason }));
    check_client(&client, &ClientLog::default(), &handlers()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_only_blocked_instances_can_be_retried() {
    on_each_store(async |runtime, _| {
        let client = runtime.client();
        client.start("collect", "c", Payload::null()).await.unwrap();
        assert_eq!(client.retry("c").await, Err(ClientError::NotBlocked { id: "c".to_owned() }));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_payloads_over_the_limit_are_refused_before_anything_is_written() {
    let echo = |ctx: OrchestrationContext, _: Payload| async move {
        match ctx.schedule_activity("big", Payload::null()).await {
            Err(ActivityError::Application(error)) => Ok(error),
            other => Err(failed(other)),
        }
    };
    let mut options = RuntimeOptions::default();
    options.shard.execution.limits.payload_bytes = 100;
    let runtime = Runtime::open("memory:")
        .options(options)
        .orchestration("echo", "1.0.0", echo)
        .activity("big", |_: ActivityContext, _: Payload| async {
            Ok::<_, Payload>(Payload::from("x".repeat(200)))
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    let big = "x".repeat(99);
    let too_large = |id: &str| Err(ClientError::TooLarge { id: id.to_owned(), bytes: 101, limit: 100 });
    assert_eq!(client.start("echo", "e", big.as_str()).await.map(drop), too_large("e"));
    assert_eq!(client.status("e").await, Err(not_found("e")));
    client.start("echo", "e", Payload::null()).await.unwrap();
    assert_eq!(client.raise_event("e", "item", big.as_str()).await, too_large("e"));
    let error = soon(client.result("e")).await.unwrap();
    assert_eq!(error.as_json(), r#""PER-0401 too large: the result has 202 bytes, 100 are allowed""#);
    check_client(
        &client,
        &ClientLog::default(),
        &Runtime::open("memory:").orchestration("echo", "1.0.0", echo).handlers(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g11_instances_that_were_evicted_go_on_when_something_comes() {
    let place = Place::new();
    let mut options = relaxed();
    options.shard.max_resident = 0;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let napping = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_activity("count", Payload::null()).await.map_err(failed)?;
        ctx.schedule_timer(Duration::from_millis(30)).await;
        Ok::<_, Payload>(ctx.schedule_wait("item").await)
    };
    let runtime = Runtime::open(place.url())
        .options(options)
        .orchestration("napping", "1.0.0", napping)
        .activity("count", move |_: ActivityContext, _: Payload| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Payload>(Payload::null()) }
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    let mut log = ClientLog::default();
    for count in 0..50 {
        let id = format!("n-{count}");
        client.start("napping", &id, Payload::null()).await.unwrap();
        log.started(&id);
    }
    for count in 0..50 {
        let id = format!("n-{count}");
        client.raise_event(&id, "item", id.as_str()).await.unwrap();
        log.raised("me", &id, "item", id.as_str());
        assert_eq!(soon(client.result(&id)).await.unwrap(), Payload::from(id));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 50, "an activity that runs is not run again");
    assert!(runtime.counters().evictions >= 50 && runtime.counters().hydrations >= 50);
    let _ = until(&client, "n-0", |status| status.status == Status::Completed).await;
    runtime.shutdown().await.unwrap();
    place.check(&log, &Runtime::open("memory:").orchestration("napping", "1.0.0", napping).handlers());
}
