//! Retry policies, timeouts and heartbeats (G21, G22): which attempts follow, when, how many, and what the
//! next attempt knows of the one before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial::history::Job;
use perennial::{
    ActivityContext, ActivityError, Client, OrchestrationContext, Payload, RetryPolicy, Runtime,
    RuntimeBuilder, RuntimeOptions, TimeoutKind,
};
use perennial_core::store::{MemoryStore, TaskRow, TaskState};
use perennial_testkit::invariants::ClientLog;
use tokio::sync::Notify;

use crate::support::hands::Hands;
use crate::support::home::{Home, on_each_store};
use crate::support::{failed, number, relaxed, soon};

type Outcome = Result<Payload, Payload>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Calls `work` under a policy until it has a result, and tells it.
fn under(policy: RetryPolicy) -> impl Fn(OrchestrationContext, Payload) -> PayloadFuture + Clone {
    move |ctx: OrchestrationContext, input: Payload| {
        let call = ctx.schedule_activity("work", input).retry(policy.clone());
        Box::pin(async move { told(call.await) })
    }
}

type PayloadFuture = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

fn told(result: Result<Payload, ActivityError<Payload>>) -> Outcome {
    match result {
        Ok(result) => Ok(result),
        Err(ActivityError::Application(error)) => Err(error),
        Err(other) => Ok(failed(other)),
    }
}

/// The outcome of the only activity of an instance.
async fn outcome(client: &Client, id: &str) -> Job {
    client.wait(id).await.unwrap();
    let history = client.history(id).await.unwrap();
    let jobs: Vec<Job> =
        history.turns.iter().flat_map(|turn| turn.jobs()).map(|(_, job)| job.clone()).collect();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.into_iter().next().unwrap()
}

/// The pauses between the attempts of an activity that always fails, by the store's clock.
async fn pauses(policy: RetryPolicy) -> Vec<u64> {
    let hands = Hands::new();
    let clock = Arc::clone(&hands);
    let store = Arc::new(MemoryStore::new(move || clock.store_ms()));
    let attempts = Arc::new(AtomicUsize::new(0));
    let attempted = Arc::clone(&attempts);
    let runtime = Runtime::open("memory:")
        .store(Arc::clone(&store) as _)
        .clock(Arc::clone(&hands) as _)
        .orchestration("caller", "1.0.0", under(policy.clone()))
        .activity("work", move |_: ActivityContext, _: Payload| {
            attempted.fetch_add(1, Ordering::SeqCst);
            async { Outcome::Err(Payload::from("no")) }
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("caller", "c", Payload::null()).await.unwrap();
    let mut pauses = Vec::new();
    for attempt in 2..=policy.max_attempts {
        let waiting = soon(async {
            loop {
                let row: Option<TaskRow> = store.tables().tasks.values().next().cloned();
                if let Some(row) = row.filter(|row| row.attempt == attempt && row.state == TaskState::Waiting)
                {
                    return row;
                }
                tokio::time::sleep(ms(1)).await;
            }
        })
        .await;
        let pause_ms = waiting.due_ms.unwrap() - hands.store_ms();
        pauses.push(pause_ms);
        hands.pass(ms(pause_ms - 1));
        assert_eq!(attempts.load(Ordering::SeqCst), attempt as usize - 1, "not before it is due");
        hands.pass(ms(1));
    }
    let job = soon(outcome(&client, "c")).await;
    assert!(
        matches!(job, Job::ActivityFailed { attempts, .. } if attempts == policy.max_attempts),
        "{job:?}"
    );
    assert_eq!(attempts.load(Ordering::SeqCst), policy.max_attempts as usize);
    pauses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_every_back_off_waits_as_long_as_it_says() {
    assert_eq!(pauses(RetryPolicy::fixed(Duration::from_millis(700)).attempts(4)).await, [700, 700, 700]);
    assert_eq!(
        pauses(RetryPolicy::linear(Duration::from_secs(1), Duration::from_millis(2_500)).attempts(5)).await,
        [1_000, 2_000, 2_500, 2_500]
    );
    let exponential = pauses(RetryPolicy::exponential(9).jitter(0)).await;
    assert_eq!(exponential, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 100_000]);
    assert_eq!(
        pauses(RetryPolicy::fixed(Duration::from_millis(700)).attempts(1)).await,
        [0; 0],
        "once is no retry"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_jitter_strays_within_its_share_of_the_pause() {
    let pauses = pauses(RetryPolicy::fixed(Duration::from_secs(10)).attempts(9).jitter(20)).await;
    assert!(pauses.iter().all(|pause| (8_000..=12_000).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause != pauses[0]), "it strays: {pauses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_the_completion_records_how_many_attempts_it_took_and_final_errors_are_not_tried_again() {
    let policy = RetryPolicy::fixed(Duration::from_millis(1)).attempts(4).non_retryable([
        "no such card",
        "fraud",
        "Limit",
    ]);
    // What each attempt returns: an error as JSON, or nothing.
    let work = |ctx: ActivityContext, script: Payload| async move {
        let script: Vec<Option<serde_json::Value>> = script.decode().map_err(failed)?;
        match &script[ctx.attempt() as usize - 1] {
            Some(error) => Err(Payload::encode(error).unwrap()),
            None => Ok(Payload::from("paid")),
        }
    };
    let build = |builder: RuntimeBuilder| {
        builder.orchestration("caller", "1.0.0", under(policy.clone())).activity("work", work)
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        let scripts = [
            ("first", "[null]", Ok(1)),
            ("third", r#"["busy", "busy", null]"#, Ok(3)),
            ("last", r#"["busy", "busy", "busy", null]"#, Ok(4)),
            ("never", r#"["busy", "busy", "busy", "busy"]"#, Err(4)),
            ("text", r#"["busy", "no such card", null]"#, Err(2)),
            ("kind", r#"[{"kind": "fraud", "score": 3}, null]"#, Err(1)),
            ("variant", r#"[{"Limit": 5}, null]"#, Err(1)),
        ];
        for (id, script, expected) in scripts {
            client.start("caller", id, Payload::from_json(script).unwrap()).await.unwrap();
            log.started(id);
            let found = match outcome(&client, id).await {
                Job::ActivityCompleted { attempts, .. } => Ok(attempts),
                Job::ActivityFailed { attempts, error: ActivityError::Application(_), .. } => Err(attempts),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected, "{id}");
        }
    })
    .await;
}

/// Calls `work` in the way that its input names.
async fn timed(ctx: OrchestrationContext, way: Payload) -> Outcome {
    let call = ctx.schedule_activity("work", way.clone());
    let call = match way.decode::<String>().map_err(failed)?.as_str() {
        "attempt" => call.timeout(ms(20)).retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2)),
        "total" => call
            .total_timeout(ms(80))
            .timeout(ms(10))
            .retry(RetryPolicy::fixed(Duration::from_millis(5)).attempts(1_000_000)),
        "total while it runs" => call.total_timeout(ms(40)),
        "heartbeat" => {
            call.heartbeat_timeout(ms(30)).retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        }
        "queue" => call.queue_timeout(ms(30)).retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(5)),
        "unserved" => call.tag("nowhere").queue_timeout(ms(30)),
        "alive" => call.heartbeat_timeout(ms(400)),
        _ => call,
    };
    told(call.await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_each_timeout_ends_what_it_limits() {
    let work = |ctx: ActivityContext, way: Payload| async move {
        match way.decode::<String>().map_err(failed)?.as_str() {
            "alive" => {
                for beat in 0..10 {
                    ctx.heartbeat(number(beat));
                    tokio::time::sleep(ms(100)).await;
                }
                Ok::<_, Payload>(Payload::from("alive"))
            }
            "heartbeat" => {
                ctx.heartbeat("once");
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    };
    let build = |builder: RuntimeBuilder| {
        let options = RuntimeOptions { activity_cancel_grace: ms(1), ..relaxed() };
        builder.options(options).orchestration("timed", "1.0.0", timed).activity("work", work)
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        let ways = [
            ("attempt", TimeoutKind::Attempt, 2),
            ("total while it runs", TimeoutKind::Total, 1),
            ("heartbeat", TimeoutKind::Heartbeat, 2),
            ("unserved", TimeoutKind::Queue, 1),
        ];
        for (way, kind, expected) in ways {
            client.start("timed", way, way).await.unwrap();
            log.started(way);
            let job = outcome(&client, way).await;
            let Job::ActivityFailed { error: ActivityError::Timeout(found), attempts, .. } = job else {
                panic!("{way}: {job:?}");
            };
            assert_eq!((found, attempts), (kind, expected), "{way}");
        }
        // Between attempts, the last one's error says what happened.
        client.start("timed", "total", "total").await.unwrap();
        log.started("total");
        let job = outcome(&client, "total").await;
        let Job::ActivityFailed { error: ActivityError::Timeout(_), attempts, .. } = job else {
            panic!("{job:?}");
        };
        assert!((2..=8).contains(&attempts), "ten milliseconds each, eighty in all: {attempts}");
        client.start("timed", "alive", "alive").await.unwrap();
        assert_eq!(client.result("alive").await.unwrap().as_json(), r#""alive""#);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g21_what_waits_too_long_for_a_slot_is_given_up_and_not_tried_again() {
    let begun: Arc<Notify> = Arc::default();
    let begins = Arc::clone(&begun);
    let work = move |ctx: ActivityContext, _: Payload| {
        begins.notify_one();
        async move {
            ctx.cancelled().await;
            Ok::<_, Payload>(Payload::null())
        }
    };
    let build = |builder: RuntimeBuilder| {
        let options = RuntimeOptions { activity_slots: 1, ..relaxed() };
        builder.options(options).orchestration("timed", "1.0.0", timed).activity("work", work.clone())
    };
    on_each_store(build, async |runtime, _, log| {
        let client = runtime.client();
        client.start("timed", "hog", "").await.unwrap();
        begun.notified().await;
        client.start("timed", "late", "queue").await.unwrap();
        ["hog", "late"].into_iter().for_each(|id| log.started(id));
        let job = outcome(&client, "late").await;
        let timeout = ActivityError::Timeout(TimeoutKind::Queue);
        assert!(
            matches!(&job, Job::ActivityFailed { error, attempts: 1, .. } if *error == timeout),
            "{job:?}"
        );
        client.terminate("hog", "enough").await.unwrap();
    })
    .await;
}

/// What attempts said of themselves: attempt and details.
type Seen = Arc<Mutex<Vec<(u32, Option<String>)>>>;

/// Reports how far it is, then fails or waits for ever, and ends on its last attempt.
fn reporting(
    seen: &Seen,
    begun: &Arc<Notify>,
    ends: bool,
) -> impl Fn(ActivityContext, Payload) -> PayloadFuture + Clone + use<> {
    let (seen, begun) = (Arc::clone(seen), Arc::clone(begun));
    move |ctx: ActivityContext, _: Payload| {
        let (seen, begun) = (Arc::clone(&seen), Arc::clone(&begun));
        Box::pin(async move {
            let place = {
                let mut seen = seen.lock().unwrap();
                seen.push((ctx.attempt(), ctx.decode_details()));
                seen.len()
            };
            if place == 3 {
                return Ok(Payload::from("done"));
            }
            ctx.heartbeat(format!("page {place}"));
            begun.notify_one();
            match ends {
                true => Err(Payload::from("not yet")),
                false => std::future::pending().await,
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_a_retry_across_a_restart_comes_when_it_is_due_with_its_heartbeats_details() {
    const PAUSE_MS: u64 = 1_200;
    for (home, is_killed) in Home::lasting().zip([false, false]).chain(Home::lasting().zip([true, true])) {
        let (seen, begun) = (Seen::default(), Arc::default());
        let open = || {
            home.open()
                .orchestration(
                    "caller",
                    "1.0.0",
                    under(RetryPolicy::fixed(Duration::from_millis(PAUSE_MS)).attempts(3)),
                )
                .activity("work", reporting(&seen, &begun, true))
        };
        let mut runtime = open().start().await.unwrap();
        runtime.client().start("caller", "c", Payload::null()).await.unwrap();
        for attempt in 2..=3 {
            soon(begun.notified()).await;
            let row = soon(waiting_task(&home, attempt)).await;
            assert_eq!(row.interruptions, 0);
            assert_eq!(row.details, Some(Payload::from(format!("page {}", attempt - 1))));
            match is_killed {
                true => drop(runtime),
                false => soon(runtime.shutdown()).await.unwrap(),
            }
            assert_eq!(
                home.stored("c").tasks.unwrap(),
                std::slice::from_ref(&row),
                "a waiting one is left as it is"
            );
            runtime = open().start().await.unwrap();
            let begins = seen.lock().unwrap().len();
            assert!(
                begins < attempt as usize || crate::support::now_ms() >= row.due_ms.unwrap(),
                "it came early"
            );
        }
        assert_eq!(soon(runtime.client().result("c")).await.unwrap().as_json(), r#""done""#);
        let page = |page: u32| Some(format!("page {page}"));
        assert_eq!(*seen.lock().unwrap(), [(1, None), (2, page(1)), (3, page(2))]);
        soon(runtime.shutdown()).await.unwrap();
        let handlers = open().handlers();
        home.check(&ClientLog::default(), &handlers);
    }
}

/// The task of `c` once it waits for an attempt.
async fn waiting_task(home: &Home, attempt: u32) -> TaskRow {
    loop {
        let tasks = home.stored("c").tasks.unwrap();
        let row = tasks.into_iter().find(|row| row.attempt == attempt && row.state == TaskState::Waiting);
        if let Some(row) = row {
            return row;
        }
        tokio::time::sleep(ms(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_heartbeats_survive_the_end_of_the_process() {
    for home in Home::lasting() {
        let (seen, begun) = (Seen::default(), Arc::default());
        let open = || {
            home.open()
                .orchestration(
                    "caller",
                    "1.0.0",
                    under(RetryPolicy::fixed(Duration::from_millis(1)).attempts(1)),
                )
                .activity("work", reporting(&seen, &begun, false))
        };
        let leased = async |page: u32| loop {
            let tasks = home.stored("c").tasks.unwrap();
            if let Some(row) =
                tasks.into_iter().find(|row| row.details == Some(format!("page {page}").into()))
            {
                return row;
            }
            tokio::time::sleep(ms(5)).await;
        };
        let mut runtime = open().start().await.unwrap();
        runtime.client().start("caller", "c", Payload::null()).await.unwrap();
        for page in 1..=2 {
            soon(begun.notified()).await;
            let row = soon(leased(page)).await;
            assert!(matches!(row.state, TaskState::Leased { .. }) && row.due_ms.is_none(), "{row:?}");
            assert_eq!((row.attempt, row.interruptions), (1, 0));
            drop(runtime);
            runtime = open().start().await.unwrap();
        }
        assert_eq!(soon(runtime.client().result("c")).await.unwrap().as_json(), r#""done""#);
        let page = |page: u32| Some(format!("page {page}"));
        assert_eq!(
            *seen.lock().unwrap(),
            [(1, None), (1, page(1)), (1, page(2))],
            "an interruption is no attempt"
        );
        soon(runtime.shutdown()).await.unwrap();
        let handlers = open().handlers();
        home.check(&ClientLog::default(), &handlers);
    }
}
