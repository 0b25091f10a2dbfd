//! The cancellation of activities (G20, G23), and which attempt's result counts (G20).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial::history::{EventKind, Job};
use perennial::{
    ActivityContext, ActivityError, Either, OrchestrationContext, Payload, RetryPolicy, Runtime,
    RuntimeBuilder, RuntimeOptions, TimeoutKind,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;
use tokio::sync::{Notify, Semaphore};

use crate::support::home::{Home, on_each_store};
use crate::support::{event, failed, relaxed, soon};

type Outcome = Result<Payload, Payload>;

/// Calls an activity of two attempts, waits for what the activity raises, and once does all of it again.
async fn twice(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let seen = ctx
        .schedule_activity("tell", Payload::null())
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        .await;
    ctx.schedule_wait("told").await;
    match input.decode::<bool>() {
        Ok(true) => ctx.continue_as_new(Payload::null()).await,
        _ => seen.map_err(failed),
    }
}

/// One call, as its input says.
async fn caller(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("work", Payload::null()).await.map_err(failed)
}

/// Calls an activity until it is cancelled.
async fn fickle(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let call = ctx.schedule_activity("work", Payload::null());
    match ctx.select2(call, ctx.schedule_wait("enough")).await {
        Either::First(done) => done.map_err(failed),
        Either::Second(_) => Ok(ctx.schedule_wait(event("end")).await),
    }
}

/// Tries with a timeout, up to three times.
async fn impatient(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let call = ctx.schedule_activity("work", Payload::null()).timeout(Duration::from_millis(30));
    call.retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(3)).await.map_err(failed)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("twice", "1.0.0", twice)
        .orchestration("caller", "1.0.0", caller)
        .orchestration("fickle", "1.0.0", fickle)
        .orchestration("impatient", "1.0.0", impatient)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

fn with_orchestrations(builder: RuntimeBuilder) -> RuntimeBuilder {
    orchestrations(
        builder.options(RuntimeOptions { activity_cancel_grace: Duration::from_millis(30), ..relaxed() }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_an_attempt_knows_what_it_is_an_attempt_of() {
    type Told = (String, u64, u64, u32, String);
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let tells = Arc::clone(&told);
    let tell = move |ctx: ActivityContext, _: Payload| {
        let tells = Arc::clone(&tells);
        async move {
            let key = ctx.idempotency_key();
            let (id, attempt) = (ctx.instance().to_owned(), ctx.attempt());
            tells.lock().unwrap().push((id.clone(), ctx.execution(), ctx.event_id().0, attempt, key));
            if attempt == 1 {
                return Err(Payload::from("not yet"));
            }
            ctx.client().raise_event(&id, "told", Payload::null()).await.map_err(failed)?;
            Ok(Payload::null())
        }
    };
    let build = |builder| with_orchestrations(builder).activity("tell", tell.clone());
    on_each_store(build, async |runtime, _, log| {
        told.lock().unwrap().clear();
        let client = runtime.client();
        client.start("twice", "t", Payload::encode(&true).unwrap()).await.unwrap();
        log.started("t");
        client.result("t").await.unwrap();
        let told = told.lock().unwrap().clone();
        let seen: Vec<_> = told
            .iter()
            .map(|(id, execution, event, attempt, _)| (id.as_str(), *execution, *event, *attempt))
            .collect();
        assert_eq!(seen, [("t", 1, 2, 1), ("t", 1, 2, 2), ("t", 2, 2, 1), ("t", 2, 2, 2)]);
        let keys: Vec<&String> = told.iter().map(|(.., key)| key).collect();
        assert!(keys[0] == keys[1] && keys[2] == keys[3], "the same for all attempts: {keys:?}");
        assert_ne!(keys[0], keys[2], "the next execution's activity is another one");
    })
    .await;
}

/// Work that says when it begins and with which key, and ends when it may.
#[derive(Clone)]
struct Work {
    begun: Arc<Notify>,
    gate: Arc<Semaphore>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Work {
    fn new() -> Work {
        Work { begun: Arc::default(), gate: Arc::new(Semaphore::new(0)), keys: Arc::default() }
    }

    /// Stands at the gate, and does not listen to anybody.
    fn register(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        let work = self.clone();
        with_orchestrations(builder).activity("work", move |ctx: ActivityContext, _: Payload| {
            let work = work.clone();
            async move {
                work.keys.lock().unwrap().push(ctx.idempotency_key());
                work.begun.notify_one();
                work.gate.acquire().await.map_err(failed)?.forget();
                Ok::<_, Payload>(Payload::from(format!("attempt {}", ctx.attempt())))
            }
        })
    }

    fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_idempotency_key_survives_restarts_and_is_another_one_when_the_id_is_used_again() {
    for home in Home::lasting() {
        let work = Work::new();
        let runtime = work.register(home.open()).start().await.unwrap();
        runtime.client().start("caller", "c", Payload::null()).await.unwrap();
        soon(work.begun.notified()).await;
        drop(runtime);
        let runtime = work.register(home.open()).start().await.unwrap();
        soon(work.begun.notified()).await;
        soon(runtime.shutdown_within(Duration::from_millis(1))).await.unwrap();
        let runtime = work.register(home.open()).start().await.unwrap();
        let client = runtime.client();
        soon(work.begun.notified()).await;
        work.gate.add_permits(1);
        soon(client.result("c")).await.unwrap();
        assert_eq!(client.delete("c", false).await, Ok(1));
        client.start("caller", "c", Payload::null()).await.unwrap();
        soon(work.begun.notified()).await;
        work.gate.add_permits(1);
        soon(client.result("c")).await.unwrap();
        let keys = work.keys();
        assert_eq!(keys.len(), 4);
        assert!(keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
        assert_ne!(keys[2], keys[3], "another instance of the same id");
        soon(runtime.shutdown()).await.unwrap();
        home.check(&ClientLog::default(), &handlers());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_late_result_of_an_attempt_that_timed_out_does_not_count() {
    // One attempt returns when it is cancelled, within its grace period; a blocking one cannot even be
    // dropped.
    let obedient = |ctx: ActivityContext, _: Payload| async move {
        if ctx.attempt() == 1 {
            ctx.cancelled().await;
        }
        Ok::<_, Payload>(Payload::from(format!("attempt {}", ctx.attempt())))
    };
    let has_returned = Arc::new(AtomicBool::new(false));
    let returns = Arc::clone(&has_returned);
    let blocking = move |ctx: ActivityContext, _: Payload| {
        if ctx.attempt() == 1 {
            while !ctx.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Longer than the grace.
            std::thread::sleep(Duration::from_millis(100));
            returns.store(true, Ordering::SeqCst);
        }
        Ok::<_, Payload>(Payload::from(format!("attempt {}", ctx.attempt())))
    };
    for is_blocking in [false, true] {
        let build = |builder| match is_blocking {
            true => with_orchestrations(builder).blocking_activity("work", blocking.clone()),
            false => with_orchestrations(builder).activity("work", obedient),
        };
        on_each_store(build, async |runtime, _, log| {
            has_returned.store(!is_blocking, Ordering::SeqCst);
            let client = runtime.client();
            client.start("impatient", "i", Payload::null()).await.unwrap();
            log.started("i");
            assert_eq!(client.result("i").await.unwrap().as_json(), r#""attempt 2""#);
            while !has_returned.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let history = client.history("i").await.unwrap();
            let jobs: Vec<&Job> =
                history.turns.iter().flat_map(|turn| turn.jobs()).map(|(_, job)| job).collect();
            assert!(matches!(jobs[..], [Job::ActivityCompleted { attempts: 2, .. }]), "{jobs:?}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g20_the_result_for_an_instance_that_has_ended_is_refused_and_counted() {
    // The grace period is long: the attempt returns a result, which is no longer needed.
    let work = Work::new();
    let build = |builder| {
        let options = RuntimeOptions { activity_cancel_grace: Duration::from_secs(60), ..relaxed() };
        work.register(builder).options(options)
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        client.start("caller", "c", Payload::null()).await.unwrap();
        log.started("c");
        work.begun.notified().await;
        client.terminate("c", "enough").await.unwrap();
        client.wait("c").await.unwrap();
        let before = client.history("c").await.unwrap();
        assert_eq!(runtime.counters().stale, 0);
        work.gate.add_permits(1);
        while runtime.counters().stale == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(client.history("c").await.unwrap(), before);
    })
    .await;
}

/// Says when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_cancelled_activity_is_told_and_after_its_grace_it_is_dropped() {
    let (begun, told, dropped): (Arc<Notify>, Arc<Notify>, Arc<Notify>) = Default::default();
    let (begins, tells, drops) = (Arc::clone(&begun), Arc::clone(&told), Arc::clone(&dropped));
    let stubborn = move |ctx: ActivityContext, _: Payload| {
        let (begins, tells, guard) = (Arc::clone(&begins), Arc::clone(&tells), Dropped(Arc::clone(&drops)));
        async move {
            let _guard = guard;
            assert!(!ctx.is_cancelled());
            begins.notify_one();
            ctx.cancelled().await;
            assert!(ctx.is_cancelled());
            tells.notify_one();
            std::future::pending::<Outcome>().await
        }
    };
    let build = |builder| with_orchestrations(builder).activity("work", stubborn.clone());
    on_each_store(build, async |runtime, home, log| {
        let client = runtime.client();
        client.start("fickle", "f", Payload::null()).await.unwrap();
        log.started("f");
        begun.notified().await;
        client.raise_event("f", "enough", Payload::null()).await.unwrap();
        log.raised("me", "f", "enough", Payload::null());
        told.notified().await;
        dropped.notified().await;
        let row = home.stored("f").row;
        assert!(!row.owed, "nobody waits for it any more");
        client.raise_event("f", "end", "done").await.unwrap();
        log.raised("me", "f", "end", "done");
        assert_eq!(client.result("f").await.unwrap().as_json(), r#""done""#);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_blocking_activity_does_not_block_others_and_sees_that_it_is_cancelled() {
    let begun: Arc<Notify> = Arc::default();
    let seen = Arc::new(AtomicUsize::new(0));
    let (begins, sees) = (Arc::clone(&begun), Arc::clone(&seen));
    let blocking = move |ctx: ActivityContext, _: Payload| {
        begins.notify_one();
        while !ctx.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        sees.fetch_add(1, Ordering::SeqCst);
        Outcome::Err(Payload::from("told off"))
    };
    // One thread runs all that is async: a blocking activity must not have it.
    let build = |builder| {
        with_orchestrations(builder)
            .blocking_activity("work", blocking.clone())
            .activity("tell", |_: ActivityContext, _: Payload| async { Ok::<_, Payload>(Payload::null()) })
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        seen.store(0, Ordering::SeqCst);
        for number in 0..10 {
            client.start("fickle", &format!("f-{number}"), Payload::null()).await.unwrap();
            log.started(format!("f-{number}"));
            begun.notified().await;
        }
        client.start("twice", "other", Payload::null()).await.unwrap();
        client.raise_event("other", "told", Payload::null()).await.unwrap();
        client.result("other").await.unwrap();
        for number in 0..10 {
            client.cancel(&format!("f-{number}"), "enough").await.unwrap();
        }
        while seen.load(Ordering::SeqCst) < 10 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_panic_is_a_failure_of_its_attempt_and_is_tried_again() {
    async fn clumsy(ctx: OrchestrationContext, attempts: Payload) -> Outcome {
        let attempts = attempts.decode().map_err(failed)?;
        let call = ctx
            .schedule_activity("stumble", Payload::null())
            .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(attempts));
        match call.await {
            Ok(result) => Ok(result),
            Err(ActivityError::Application(error)) => Err(error),
            Err(other) => Err(failed(other)),
        }
    }
    let stumble = |ctx: ActivityContext, _: Payload| async move {
        assert!(ctx.attempt() > 1, "over its own feet");
        Ok::<_, Payload>(Payload::from("up again"))
    };
    let stumble_blocking = |ctx: ActivityContext, _: Payload| {
        assert!(ctx.attempt() > 1, "over its own feet");
        Ok::<_, Payload>(Payload::from("up again"))
    };
    for is_blocking in [false, true] {
        let build = |builder: RuntimeBuilder| {
            let builder = builder.orchestration("clumsy", "1.0.0", clumsy);
            match is_blocking {
                true => builder.blocking_activity("stumble", stumble_blocking),
                false => builder.activity("stumble", stumble),
            }
        };
        on_each_store(build, async |runtime, _, log| {
            let client = runtime.client();
            client.start("clumsy", "again", crate::support::number(2)).await.unwrap();
            client.start("clumsy", "once", crate::support::number(1)).await.unwrap();
            ["again", "once"].into_iter().for_each(|id| log.started(id));
            assert_eq!(client.result("again").await.unwrap().as_json(), r#""up again""#);
            let ending = client.wait("once").await.unwrap();
            let text = format!("{ending:?}");
            assert!(text.contains("the activity panicked: over its own feet"), "{text}");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_an_activity_that_ends_with_an_execution_takes_nothing_from_the_next_ones() {
    /// Leaves its activity behind, and calls it again in the next execution, under the same event.
    async fn restless(ctx: OrchestrationContext, again: Payload) -> Outcome {
        let call = ctx.schedule_activity("work", again.clone());
        match again.decode::<bool>() {
            Ok(true) => match ctx.select2(call, ctx.schedule_wait("next")).await {
                Either::First(done) => done.map_err(failed),
                Either::Second(_) => ctx.continue_as_new(Payload::encode(&false).unwrap()).await,
            },
            _ => match ctx.select2(call, ctx.schedule_wait("enough")).await {
                Either::First(done) => done.map_err(failed),
                Either::Second(_) => Ok(Payload::from("enough")),
            },
        }
    }
    let (begun, told): (Arc<Notify>, Arc<Notify>) = Default::default();
    let gone: Arc<Notify> = Arc::default();
    let (begins, tells, goes) = (Arc::clone(&begun), Arc::clone(&told), Arc::clone(&gone));
    let work = move |ctx: ActivityContext, is_first: Payload| {
        let (begins, tells, goes) = (Arc::clone(&begins), Arc::clone(&tells), Arc::clone(&goes));
        async move {
            begins.notify_one();
            if is_first.decode::<bool>().map_err(failed)? {
                // It does not listen, and is dropped after its grace: by then the next one runs.
                let _guard = Dropped(goes);
                std::future::pending().await
            }
            ctx.cancelled().await;
            tells.notify_one();
            Ok::<_, Payload>(Payload::null())
        }
    };
    let build = |builder: RuntimeBuilder| {
        let options = RuntimeOptions { activity_cancel_grace: Duration::from_millis(200), ..relaxed() };
        builder.options(options).orchestration("restless", "1.0.0", restless).activity("work", work.clone())
    };
    on_each_store(build, async |runtime, _, _| {
        let client = runtime.client();
        client.start("restless", "r", Payload::encode(&true).unwrap()).await.unwrap();
        begun.notified().await;
        client.raise_event("r", "next", Payload::null()).await.unwrap();
        begun.notified().await;
        gone.notified().await;
        // The worker that looked after the first one has a moment to clear its place.
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.raise_event("r", "enough", Payload::null()).await.unwrap();
        told.notified().await;
        assert_eq!(client.result("r").await.unwrap().as_json(), r#""enough""#);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_an_id_that_is_deleted_and_used_again_meets_nothing_of_the_old_instances_activity() {
    let work = Work::new();
    let build = |builder| {
        let options = RuntimeOptions { activity_cancel_grace: Duration::from_secs(60), ..relaxed() };
        work.register(builder).options(options)
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        client.start("caller", "c", Payload::null()).await.unwrap();
        work.begun.notified().await;
        assert_eq!(client.delete("c", true).await, Ok(1));
        client.start("caller", "c", Payload::null()).await.unwrap();
        log.started("c");
        work.begun.notified().await;
        // The semaphore is fair: the old instance's attempt goes first.
        work.gate.add_permits(1);
        while runtime.counters().stale == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let history = client.history("c").await.unwrap();
        let jobs = history.flatten().filter(|event| matches!(event.kind, EventKind::Job(_))).count();
        assert_eq!(jobs, 0, "the result was the other's");
        work.gate.add_permits(1);
        assert_eq!(client.result("c").await.unwrap().as_json(), r#""attempt 1""#);
        assert_eq!(runtime.counters().stale, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_timeout_is_told_apart_from_a_cancellation() {
    async fn reporter(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let call = ctx.schedule_activity("work", Payload::null()).timeout(Duration::from_millis(10)).await;
        assert_eq!(call, Err(ActivityError::Timeout(TimeoutKind::Attempt)));
        Ok(Payload::from("timed out"))
    }
    let work = Work::new();
    let build = |builder| work.register(builder).orchestration("reporter", "1.0.0", reporter);
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        client.start("reporter", "r", Payload::null()).await.unwrap();
        log.started("r");
        assert_eq!(client.result("r").await.unwrap().as_json(), r#""timed out""#);
    })
    .await;
}
