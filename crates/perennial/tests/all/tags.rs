//! Activities that this node cannot run (G22, S5): they stay in the store for a node that can, which reports
//! the result to their instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::{
    ActivityContext, OrchestrationContext, Payload, RetryPolicy, Runtime, RuntimeBuilder, RuntimeOptions,
};
use perennial_core::Handlers;
use perennial_core::store::{MemoryStore, StoreError, TaskState};
use perennial_testkit::invariants::ClientLog;
use tokio::sync::Notify;

use crate::support::hands::Hands;
use crate::support::home::{Home, on_each_store};
use crate::support::tapped::{Fate, Tapped};
use crate::support::{Place, failed, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

/// Calls `paint` where there is a printer, after something that runs anywhere.
async fn printer(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("echo", "first").await.map_err(failed)?;
    let call = ctx
        .schedule_activity("paint", Payload::from("page"))
        .tag("printer")
        .retry(RetryPolicy::fixed(Duration::from_millis(20)).attempts(3));
    call.await.map_err(failed)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime.orchestration("printer", "1.0.0", printer)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

fn node(builder: RuntimeBuilder, tags: &[&str], runs: &Arc<AtomicUsize>) -> RuntimeBuilder {
    let runs = Arc::clone(runs);
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    orchestrations(builder.options(RuntimeOptions { tags, ..relaxed() }))
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
        .activity("paint", move |ctx: ActivityContext, page: Payload| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move {
                match ctx.attempt() {
                    1 => {
                        ctx.heartbeat("half");
                        Err(Payload::from("out of paper"))
                    }
                    _ => Ok(Payload::encode(&(page, ctx.attempt(), ctx.decode_details::<String>())).unwrap()),
                }
            }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_a_node_that_serves_a_tag_runs_what_asks_for_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let build = |builder| node(builder, &["scanner", "printer"], &runs);
    on_each_store(build, async |runtime, home, log| {
        let client = runtime.client();
        client.start("printer", "p", Payload::null()).await.unwrap();
        log.started("p");
        assert_eq!(client.result("p").await.unwrap().as_json(), r#"["page",2,"half"]"#);
        assert_eq!(home.snapshot().rows.unwrap().tasks, []);
    })
    .await;
}

/// Waits until the task of `p` is in a state.
async fn until_task(home: &Home, is_so: impl Fn(&perennial_core::store::TaskRow) -> bool) {
    soon(async {
        while !home.snapshot().instance("p").is_some_and(|it| it.tasks.iter().flatten().any(&is_so)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_a_node_that_does_not_serve_a_tag_leaves_a_row_for_one_that_does() {
    for home in Home::lasting() {
        let runs = Arc::new(AtomicUsize::new(0));
        let runtime = node(home.open(), &["scanner"], &runs).start().await.unwrap();
        runtime.client().start("printer", "p", Payload::null()).await.unwrap();
        until_task(&home, |row| row.state == TaskState::Queued).await;
        let stored = home.stored("p");
        let task = &stored.tasks.as_ref().unwrap()[0];
        assert_eq!((task.name.as_str(), task.tag.as_deref(), task.attempt), ("paint", Some("printer"), 1));
        assert!(!stored.row.owed, "its owner has nothing to look after");
        soon(runtime.shutdown()).await.unwrap();
        home.check(&ClientLog::default(), &handlers());
        assert_eq!(runs.load(Ordering::SeqCst), 0);

        let runtime = node(home.open(), &["printer"], &runs).start().await.unwrap();
        assert_eq!(soon(runtime.client().result("p")).await.unwrap().as_json(), r#"["page",2,"half"]"#);
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        soon(runtime.shutdown()).await.unwrap();
        home.check(&ClientLog::default(), &handlers());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_queued_task_goes_when_nobody_waits_for_it() {
    let runs = Arc::new(AtomicUsize::new(0));
    let build = |builder| node(builder, &[], &runs);
    on_each_store(build, async |runtime, home, log| {
        let client = runtime.client();
        for (id, how) in [("p", "cancel"), ("q", "terminate")] {
            client.start("printer", id, Payload::null()).await.unwrap();
            log.started(id);
            until(&client, id, |_| home.stored(id).tasks.is_some_and(|tasks| tasks.len() == 1)).await;
            match how {
                "cancel" => client.cancel(id, "enough").await.unwrap(),
                _ => client.terminate(id, "enough").await.unwrap(),
            }
            client.wait(id).await.unwrap();
        }
        assert_eq!(home.snapshot().rows.unwrap().tasks, []);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_task_that_was_taken_is_told_when_its_node_stops_and_runs_again() {
    for home in Home::lasting() {
        let begun: Arc<Notify> = Arc::default();
        async fn caller(ctx: OrchestrationContext, _: Payload) -> Outcome {
            ctx.schedule_activity("paint", Payload::null()).tag("printer").await.map_err(failed)
        }
        let handlers = Runtime::open("memory:").orchestration("caller", "1.0.0", caller).handlers();
        let open = |ends: bool| {
            let begins = Arc::clone(&begun);
            let grace = Duration::from_millis(20);
            let options = RuntimeOptions {
                tags: vec!["printer".to_owned()],
                activity_cancel_grace: grace,
                ..relaxed()
            };
            home.open().options(options).orchestration("caller", "1.0.0", caller).activity(
                "paint",
                move |_: ActivityContext, _: Payload| {
                    let begins = Arc::clone(&begins);
                    async move {
                        begins.notify_one();
                        if !ends {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Payload>(Payload::from("painted"))
                    }
                },
            )
        };
        // No node serves it at first.
        let runtime = home.open().orchestration("caller", "1.0.0", caller).start().await.unwrap();
        runtime.client().start("caller", "p", Payload::null()).await.unwrap();
        until_task(&home, |row| row.state == TaskState::Queued).await;
        soon(runtime.shutdown()).await.unwrap();
        // It is taken, and given back when the node stops.
        let runtime = open(false).start().await.unwrap();
        soon(begun.notified()).await;
        until_task(&home, |row| matches!(row.state, TaskState::Leased { .. })).await;
        home.check(&ClientLog::default(), &handlers);
        soon(runtime.shutdown_within(Duration::from_millis(1))).await.unwrap();
        home.check(&ClientLog::default(), &handlers);
        let tasks = home.stored("p").tasks.unwrap();
        assert_eq!((tasks[0].attempt, tasks[0].interruptions), (1, 0), "a stop is no interruption");
        let runtime = open(true).start().await.unwrap();
        assert_eq!(soon(runtime.client().result("p")).await.unwrap().as_json(), r#""painted""#);
        soon(runtime.shutdown()).await.unwrap();
        home.check(&ClientLog::default(), &handlers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_tasks_that_were_interrupted_often_run_one_at_a_time_also_if_they_are_taken_from_the_store() {
    async fn caller(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_activity("paint", Payload::null()).tag("printer").await.map_err(failed)
    }
    let (place, running, most) = (Place::new(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // No node serves them at first.
    let runtime = Runtime::open(place.url()).orchestration("caller", "1.0.0", caller).start().await.unwrap();
    for number in 0..5 {
        runtime.client().start("caller", &format!("p-{number}"), Payload::null()).await.unwrap();
    }
    soon(runtime.shutdown()).await.unwrap();
    let (entered, highest) = (Arc::clone(&running), Arc::clone(&most));
    let paint = move |_: ActivityContext, _: Payload| {
        let (running, most) = (Arc::clone(&entered), Arc::clone(&highest));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Payload>(Payload::from("painted"))
        }
    };
    let mut options = RuntimeOptions { tags: vec!["printer".to_owned()], ..relaxed() };
    // None is often enough.
    options.shard.quarantine_after = 0;
    let builder = Runtime::open(place.url()).options(options).activity("paint", paint);
    let runtime = builder.orchestration("caller", "1.0.0", caller).start().await.unwrap();
    for number in 0..5 {
        let painted = soon(runtime.client().result(&format!("p-{number}"))).await.unwrap();
        assert_eq!(painted.as_json(), r#""painted""#);
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    soon(runtime.shutdown()).await.unwrap();
    let handlers = Runtime::open("memory:").orchestration("caller", "1.0.0", caller).handlers();
    place.check(&ClientLog::default(), &handlers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_a_task_whose_renewal_has_no_known_outcome_is_not_told_that_nobody_waits_for_it() {
    async fn prints(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_activity("paint", Payload::from("page")).tag("printer").await.map_err(failed)
    }
    let hands = Hands::new();
    let clock = Arc::clone(&hands);
    let store = Tapped::like_a_file(Arc::new(MemoryStore::new(move || clock.store_ms())));
    let node = |tags: Vec<String>| {
        let tapped = Arc::clone(&store);
        Runtime::open("memory:")
            .store(Arc::clone(&store) as _)
            .clock(Arc::clone(&hands) as _)
            .options(RuntimeOptions { tags, ..relaxed() })
            .orchestration("prints", "1.0.0", prints)
            .activity("paint", move |ctx: ActivityContext, _: Payload| {
                let tapped = Arc::clone(&tapped);
                async move {
                    ctx.heartbeat("half");
                    soon(async {
                        while tapped.count("renew_tasks") == 0 {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    })
                    .await;
                    Payload::encode(&!ctx.is_cancelled()).map_err(failed)
                }
            })
    };
    let without = node(Vec::new()).start().await.unwrap();
    without.client().start("prints", "p", Payload::null()).await.unwrap();
    without.shutdown().await.unwrap();
    store.on_task_renewal(|| Fate::PassThen(Err(StoreError::Unknown("connection lost".to_owned()))));
    let with = node(vec!["printer".to_owned()]).start().await.unwrap();
    assert_eq!(soon(with.client().result("p")).await.unwrap().as_json(), "true");
    with.shutdown().await.unwrap();
}
