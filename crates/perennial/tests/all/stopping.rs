//! Stopping, dying, restarting, and the ownership of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use perennial::history::{EventKind, Job};
use perennial::{
    ActivityContext, ClientError, Error, OrchestrationContext, Payload, Runtime, RuntimeBuilder,
    RuntimeOptions, StartError, Status,
};
use perennial_core::Handlers;
use perennial_core::store::MemoryStore;
use perennial_testkit::invariants::ClientLog;
use tokio::sync::{Notify, Semaphore};

use super::support::hands::Hands;
use super::support::tapped::Tapped;
use super::support::{Place, event, failed, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

/// Waits for a time, given in milliseconds.
async fn sleeper(ctx: OrchestrationContext, ms: Payload) -> Outcome {
    ctx.schedule_timer(Duration::from_millis(ms.decode().map_err(failed)?)).await;
    Ok(Payload::from("slept"))
}

async fn waiter(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

async fn caller(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("work", Payload::null()).await.map_err(failed)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("sleeper", "1.0.0", sleeper)
        .orchestration("waiter", "1.0.0", waiter)
        .orchestration("caller", "1.0.0", caller)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

/// Work that says when it begins, and ends when it may.
#[derive(Clone, Default)]
struct Work {
    begun: Arc<Notify>,
    gate: Arc<Notify>,
    runs: Arc<AtomicUsize>,
}

impl Work {
    fn runtime(&self, place: &Place) -> RuntimeBuilder {
        let work = self.clone();
        orchestrations(
            Runtime::open(place.url())
                .options(RuntimeOptions { activity_cancel_grace: Duration::from_millis(50), ..relaxed() }),
        )
        .activity("work", move |_: ActivityContext, _: Payload| {
            let work = work.clone();
            async move {
                work.runs.fetch_add(1, Ordering::Relaxed);
                work.begun.notify_one();
                work.gate.notified().await;
                Ok::<_, Payload>(Payload::from("worked"))
            }
        })
    }
}

/// One instance of each kind, each in the middle of its work.
async fn leave_some(runtime: &Runtime, work: &Work) -> ClientLog {
    let client = runtime.client();
    let mut log = ClientLog::default();
    for (name, id, input) in [
        ("sleeper", "short", "150"),
        ("sleeper", "long", "60000000"),
        ("waiter", "waiting", "0"),
        ("caller", "calling", "0"),
    ] {
        client.start(name, id, Payload::from_json(input).unwrap()).await.unwrap();
        log.started(id);
    }
    soon(work.begun.notified()).await;
    log
}

/// Everything that was left continues.
async fn all_goes_on(place: &Place, work: &Work, mut log: ClientLog) {
    // A gate of its own: an attempt of the old runtime may still stand at the old one.
    let work = Work { runs: Arc::clone(&work.runs), ..Work::default() };
    let runtime = soon(work.runtime(place).start()).await.unwrap();
    let client = runtime.client();
    soon(work.begun.notified()).await;
    work.gate.notify_one();
    assert_eq!(soon(client.result("calling")).await.unwrap().as_json(), r#""worked""#);
    assert_eq!(soon(client.result("short")).await.unwrap().as_json(), r#""slept""#);
    client.raise_event("waiting", "go", "went").await.unwrap();
    log.raised("me", "waiting", "go", "went");
    assert_eq!(soon(client.result("waiting")).await.unwrap().as_json(), r#""went""#);
    assert_eq!(client.status("long").await.unwrap().status, Status::Running);
    assert_eq!(work.runs.load(Ordering::Relaxed), 2, "the interrupted attempt, and one more");
    soon(runtime.shutdown()).await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread")]
async fn g31_whoever_does_not_wait_for_the_end_of_a_shutdown_leaves_the_store_free() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let log = leave_some(&runtime, &work).await;
    let patience = Duration::from_millis(20);
    let stopped = tokio::time::timeout(patience, runtime.shutdown_within(Duration::from_secs(600))).await;
    assert!(stopped.is_err(), "an activity runs and has ten minutes");
    all_goes_on(&place, &work, log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_a_runtime_that_was_shut_down_goes_on_with_everything_when_it_is_opened_again() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let log = leave_some(&runtime, &work).await;
    // The activity does not listen; it is dropped after the grace of cancelled activities.
    soon(runtime.shutdown_within(Duration::from_millis(20))).await.unwrap();
    place.check(&log, &handlers());
    let history = place.snapshot();
    let calling = &history.instance("calling").unwrap().row;
    assert_eq!(calling.status, Status::Running, "what was interrupted by the shutdown is still to be done");
    all_goes_on(&place, &work, log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_a_runtime_that_is_dropped_is_as_one_that_was_killed() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let log = leave_some(&runtime, &work).await;
    drop(runtime);
    all_goes_on(&place, &work, log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_callers_of_a_dropped_runtime_learn_that_the_outcome_is_unknown() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let client = runtime.client();
    client.start("waiter", "w", Payload::null()).await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait("w").await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(runtime);
    let answer = soon(waiting).await.unwrap();
    assert!(matches!(answer, Err(ClientError::Unknown { .. } | ClientError::Stopped { .. })), "{answer:?}");
    let refused = client.raise_event("w", "go", "went").await;
    assert_eq!(refused, Err(ClientError::Stopped { reason: "the runtime was dropped".to_owned() }));
    let mut log = ClientLog::default();
    log.started("w");
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_who_waits_for_an_instance_is_told_when_its_runtime_was_shut_down() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let client = runtime.client();
    client.start("waiter", "w", Payload::null()).await.unwrap();
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.wait("w").await })
    };
    // One client is asked in order: this answer comes after the other question.
    tokio::task::yield_now().await;
    client.status("w").await.unwrap();
    soon(runtime.shutdown()).await.unwrap();
    let answer = soon(waiting).await.unwrap();
    assert!(matches!(answer, Err(ClientError::Unknown { .. } | ClientError::Stopped { .. })), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_shutdown_waits_for_running_activities_within_its_grace() {
    let (place, work) = (Place::new(), Work::default());
    let runtime = work.runtime(&place).start().await.unwrap();
    let client = runtime.client();
    client.start("caller", "c", Payload::null()).await.unwrap();
    soon(work.begun.notified()).await;
    let shutdown = tokio::spawn(runtime.shutdown_within(Duration::from_secs(30)));
    soon(async {
        while client.raise_event("c", "x", "x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = client.start("caller", "d", Payload::null()).await;
    assert_eq!(refused, Err(ClientError::Stopped { reason: "it is shutting down".to_owned() }));
    assert!(!shutdown.is_finished());
    work.gate.notify_one();
    soon(shutdown).await.unwrap().unwrap();
    // Its result was recorded before the store was given up.
    let snapshot = place.snapshot();
    assert_eq!(snapshot.instance("c").unwrap().row.status, Status::Completed);
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_an_activity_that_the_shutdown_cancels_has_no_result() {
    let place = Place::new();
    let begun: Arc<Notify> = Arc::default();
    let begins = Arc::clone(&begun);
    let obedient = move |ctx: ActivityContext, _: Payload| {
        let begins = Arc::clone(&begins);
        async move {
            begins.notify_one();
            ctx.cancelled().await;
            Outcome::Err(Payload::from("I was told to stop"))
        }
    };
    let runtime = Runtime::open(place.url())
        .options(relaxed())
        .orchestration("caller", "1.0.0", caller)
        .activity("work", obedient)
        .start()
        .await
        .unwrap();
    runtime.client().start("caller", "c", Payload::null()).await.unwrap();
    soon(begun.notified()).await;
    soon(runtime.shutdown_within(Duration::from_millis(20))).await.unwrap();
    let work = Work::default();
    work.gate.notify_one();
    let runtime = work.runtime(&place).start().await.unwrap();
    let result = soon(runtime.client().result("c")).await;
    assert_eq!(result.unwrap().as_json(), r#""worked""#, "nobody asked for the activity to be cancelled");
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_shutdown_does_not_wait_for_activities_that_have_not_begun() {
    let place = Place::new();
    let endless = |ctx: OrchestrationContext, _: Payload| async move {
        loop {
            if let Err(error) = ctx.schedule_activity("work", Payload::null()).await {
                return Outcome::Err(failed(error));
            }
        }
    };
    let runtime = Runtime::open(place.url())
        .options(relaxed())
        .orchestration("endless", "1.0.0", endless)
        .activity("work", |_: ActivityContext, _: Payload| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok::<_, Payload>(Payload::null())
        })
        .start()
        .await
        .unwrap();
    for count in 0..20 {
        runtime.client().start("endless", &format!("e-{count}"), Payload::null()).await.unwrap();
    }
    let since = Instant::now();
    soon(runtime.shutdown_within(Duration::from_secs(30))).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(20), "it took new work until its grace was over");
    place.check(
        &ClientLog::default(),
        &Runtime::open("memory:").orchestration("endless", "1.0.0", endless).handlers(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_shutdown_ends_also_if_there_is_always_something_to_do() {
    async fn ticks(ctx: OrchestrationContext, count: Payload) -> Outcome {
        for _ in 0..100 {
            ctx.schedule_timer(Duration::from_millis(1)).await;
        }
        ctx.continue_as_new(count).await
    }
    async fn again(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.continue_as_new(()).await
    }
    let place = Place::new();
    let node = || {
        let builder = Runtime::open(place.url()).options(relaxed()).orchestration("ticks", "1.0.0", ticks);
        builder.orchestration("again", "1.0.0", again)
    };
    let runtime = node().start().await.unwrap();
    for count in 0..20 {
        runtime.client().start("ticks", &format!("t-{count}"), Payload::null()).await.unwrap();
        runtime.client().start("again", &format!("a-{count}"), Payload::null()).await.unwrap();
    }
    soon(runtime.shutdown_within(Duration::from_secs(1))).await.unwrap();
    place.check(&ClientLog::default(), &node().handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g13_timers_that_fell_due_during_an_outage_fire_when_the_store_is_opened() {
    let (place, work, hands) = (Place::new(), Work::default(), Hands::new());
    let node = || {
        let clock = Arc::clone(&hands);
        let store = place.store(move || clock.store_ms());
        work.runtime(&place).store(store).clock(Arc::clone(&hands) as _)
    };
    let runtime = node().start().await.unwrap();
    let mut log = ClientLog::default();
    for count in 0..20 {
        let id = format!("s-{count}");
        runtime.client().start("sleeper", &id, Payload::from_json("3600000").unwrap()).await.unwrap();
        log.started(id);
    }
    runtime.shutdown().await.unwrap();
    hands.pass(Duration::from_secs(2 * 3_600));
    let runtime = node().start().await.unwrap();
    for count in 0..20 {
        soon(runtime.client().result(&format!("s-{count}"))).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_what_cannot_be_started_says_why() {
    let start = async |builder: RuntimeBuilder| match builder.start().await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    };
    let (place, work) = (Place::new(), Work::default());
    let unknown = start(Runtime::open("mysql:shop")).await;
    assert!(matches!(unknown, Error::Start(StartError::UnknownUrl { .. })), "{unknown}");
    assert_eq!(format!("{unknown:?}"), unknown.to_string(), "as a `main` prints it");
    let twice = work.runtime(&place).orchestration("waiter", "1.0.0", waiter);
    let twice = start(twice).await.to_string();
    assert_eq!(
        twice,
        r#"PER-0603 registered twice: orchestration "waiter" 1.0.0; each name and version has one handler"#
    );
    let missing = start(Runtime::open("sqlite:/no/such/directory/shop.db")).await.to_string();
    assert!(missing.starts_with("PER-0506 cannot open the store: "), "{missing}");
    // A refused start leaves nothing behind.
    let runtime = work.runtime(&place).start().await.unwrap();
    runtime.client().start("waiter", "w", Payload::null()).await.unwrap();
    runtime.shutdown().await.unwrap();
    let mut log = ClientLog::default();
    log.started("w");
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activity_slots_bound_what_runs_at_a_time() {
    let place = Place::new();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let (at_once, highest, wait) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&gate));
    let runtime = Runtime::open(place.url())
        .options(RuntimeOptions { activity_slots: 3, ..relaxed() })
        .orchestration("caller", "1.0.0", caller)
        .activity("work", move |_: ActivityContext, _: Payload| {
            let (at_once, highest, wait) = (Arc::clone(&at_once), Arc::clone(&highest), Arc::clone(&wait));
            async move {
                highest.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                wait.acquire().await.map_err(failed)?.forget();
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Payload>(Payload::null())
            }
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    for count in 0..10 {
        client.start("caller", &format!("c-{count}"), Payload::null()).await.unwrap();
    }
    soon(async {
        while running.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gate.add_permits(10);
    for count in 0..10 {
        until(&client, &format!("c-{count}"), |status| status.status == Status::Completed).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let history = client.history("c-0").await.unwrap();
    let results = history
        .flatten()
        .filter(|event| matches!(event.kind, EventKind::Job(Job::ActivityCompleted { attempts: 1, .. })));
    assert_eq!(results.count(), 1);
    runtime.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread")]
async fn g31_shutdown_returns_in_time_from_a_store_that_answers_nothing() {
    let hands = Hands::new();
    let clock = Arc::clone(&hands);
    let store = Tapped::new(Arc::new(MemoryStore::new(move || clock.store_ms())));
    let runtime = orchestrations(Runtime::open(""))
        .store(Arc::clone(&store) as _)
        .clock(Arc::clone(&hands) as _)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("waiter", "w", Payload::null()).await.unwrap();
    until(&client, "w", |status| status.status == Status::Running).await;
    store.go_away();
    let commits = store.count("commit");
    let raised = tokio::spawn({
        let client = client.clone();
        async move { client.raise_event("w", "go", "went").await }
    });
    soon(async {
        while store.count("commit") == commits {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut stopping = Box::pin(runtime.shutdown_within(Duration::from_secs(2)));
    assert!((&mut stopping).now_or_never().is_none());
    hands.pass(Duration::from_millis(6_900));
    assert!((&mut stopping).now_or_never().is_none(), "the store has five seconds more than the activities");
    hands.pass(Duration::from_millis(200));
    let error = soon(stopping).await.unwrap_err().to_string();
    assert!(error.contains("the store did not respond in time"), "{error}");
    assert!(error.contains("the shards not released"), "{error}");
    let raised = soon(raised).await.unwrap();
    assert!(matches!(raised, Err(ClientError::Unknown { .. })), "nobody knows: {raised:?}");
}
