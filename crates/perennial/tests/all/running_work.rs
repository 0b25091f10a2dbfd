//! Running activities whose waiters end: a family is cancelled, a node stops or dies, a deadline passes (G25,
//! G28, G30, G31).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::history::Ending;
use perennial::{
    ActivityContext, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions,
    StartOptions, Status,
};
use perennial_core::Handlers;
use perennial_core::store::TaskState;
use perennial_testkit::invariants::ClientLog;
use tokio::sync::Semaphore;

use crate::support::home::{Home, on_each_store};
use crate::support::{failed, number, relaxed, soon, until, until_blocked};

type Outcome = Result<Payload, Payload>;

const CHILDREN: u64 = 100;

/// As many children as there may be, each with a running activity, and one of its own.
async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let own = ctx.schedule_activity("work", Payload::null());
    let children = (0..CHILDREN).map(|child| ctx.schedule_sub_orchestration("caller", number(child)));
    let children: Vec<_> = children.collect();
    own.await.map_err(failed)?;
    ctx.try_join(children).await.map_err(failed)?;
    Ok(Payload::null())
}

async fn caller(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("work", Payload::null()).await.map_err(failed)
}

async fn clumsy(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_wait("go").await;
    panic!("over its own feet")
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("parent", "1.0.0", parent)
        .orchestration("caller", "1.0.0", caller)
        .orchestration("clumsy", "1.0.0", clumsy)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

/// Work that is counted from its beginning until it is dropped, and does not listen.
#[derive(Clone)]
struct Work {
    begun: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
    told: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

/// Counts as long as it lives.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    fn new() -> Work {
        let [begun, alive, told] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        Work { begun, alive, told, gate: Arc::new(Semaphore::new(0)) }
    }

    fn register(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        let work = self.clone();
        orchestrations(
            builder.options(RuntimeOptions { activity_cancel_grace: Duration::from_millis(50), ..relaxed() }),
        )
        .activity("work", move |ctx: ActivityContext, _: Payload| {
            let work = work.clone();
            async move {
                work.begun.fetch_add(1, Ordering::SeqCst);
                work.alive.fetch_add(1, Ordering::SeqCst);
                let _alive = Alive(Arc::clone(&work.alive));
                tokio::select! {
                    permit = work.gate.acquire() => permit.map_err(failed)?.forget(),
                    () = ctx.cancelled() => {
                        work.told.fetch_add(1, Ordering::SeqCst);
                        std::future::pending::<()>().await;
                    }
                }
                Ok::<_, Payload>(Payload::from(format!("attempt {}", ctx.attempt())))
            }
        })
    }

    fn forget(&self) {
        assert_eq!(self.alive.load(Ordering::SeqCst), 0);
        [&self.begun, &self.told].into_iter().for_each(|count| count.store(0, Ordering::SeqCst));
    }

    async fn until_begun(&self, count: usize) {
        soon(until_is(&self.begun, count)).await;
    }
}

async fn until_is(count: &AtomicUsize, expected: usize) {
    while count.load(Ordering::SeqCst) != expected {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_parent_that_is_cancelled_takes_100_children_and_their_running_activities_with_it() {
    let work = Work::new();
    for how in ["cancel", "terminate"] {
        on_each_store(
            |builder| work.register(builder),
            async |runtime, home, log| {
                work.forget();
                let all = CHILDREN as usize + 1;
                let client = runtime.client();
                client.start("parent", "p", Payload::null()).await.unwrap();
                log.started("p");
                work.until_begun(all).await;
                match how {
                    "cancel" => client.cancel("p", "enough").await.unwrap(),
                    _ => client.terminate("p", "enough").await.unwrap(),
                }
                let ending = client.wait("p").await.unwrap();
                let reason = "enough".to_owned();
                let expected = match how {
                    "cancel" => Ending::OrchestrationCancelled { reason, output: None },
                    _ => Ending::OrchestrationTerminated { reason },
                };
                assert_eq!(ending, expected);
                until_is(&work.told, all).await;
                until_is(&work.alive, 0).await;
                let tree = client.tree("p").await.unwrap();
                assert_eq!(tree.size(), all);
                for child in &tree.children {
                    until(&client, &child.instance.id, |it| it.status == Status::Cancelled).await;
                }
                let running = Filter::new().statuses([Status::Pending, Status::Running]);
                assert!(client.list(running, None, 10).await.unwrap().rows.is_empty());
                assert_eq!(home.snapshot().rows.unwrap().tasks, []);
                assert_eq!(work.begun.load(Ordering::SeqCst), all, "nothing ran twice");
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_a_shutdown_with_running_activities_writes_rows_and_no_interruption() {
    const CALLERS: usize = 10;
    for home in Home::lasting() {
        let work = Work::new();
        let mut log = ClientLog::default();
        let mut runtime = work.register(home.open()).start().await.unwrap();
        for number in 0..CALLERS {
            runtime.client().start("caller", &format!("c-{number}"), Payload::null()).await.unwrap();
            log.started(format!("c-{number}"));
        }
        // Far more often than an activity may be interrupted.
        for stop in 1..=8 {
            work.until_begun(stop * CALLERS).await;
            home.check(&log, &handlers());
            soon(runtime.shutdown_within(Duration::from_millis(1))).await.unwrap();
            home.check(&log, &handlers());
            assert_eq!(work.alive.load(Ordering::SeqCst), 0, "whatever ran was dropped");
            for number in 0..CALLERS {
                let stored = home.stored(&format!("c-{number}"));
                let tasks = stored.tasks.unwrap();
                assert_eq!(tasks.len(), 1);
                assert_eq!(
                    (tasks[0].state, tasks[0].attempt, tasks[0].interruptions),
                    (TaskState::Waiting, 1, 0)
                );
                assert!(!stored.row.owed);
            }
            runtime = work.register(home.open()).start().await.unwrap();
        }
        work.until_begun(9 * CALLERS).await;
        work.gate.add_permits(CALLERS);
        for number in 0..CALLERS {
            let result = soon(runtime.client().result(&format!("c-{number}"))).await;
            assert_eq!(result.unwrap().as_json(), r#""attempt 1""#);
        }
        soon(runtime.shutdown()).await.unwrap();
        home.check(&log, &handlers());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_neither_a_dropped_runtime_nor_a_clean_stop_counts_as_an_interruption() {
    for home in Home::lasting() {
        let work = Work::new();
        let mut runtime = work.register(home.open()).start().await.unwrap();
        runtime.client().start("caller", "c", Payload::null()).await.unwrap();
        for (run, is_dropped) in (1..).zip([true, false, true, true, false, true, true, true, true, true]) {
            work.until_begun(run).await;
            match is_dropped {
                true => drop(runtime),
                false => soon(runtime.shutdown_within(Duration::from_millis(1))).await.unwrap(),
            }
            runtime = work.register(home.open()).start().await.unwrap();
            work.until_begun(run + 1).await;
            let tasks = home.stored("c").tasks.unwrap();
            assert!(tasks.iter().all(|task| !task.is_suspect()), "after run {run}: {tasks:?}");
        }
        work.gate.add_permits(11);
        assert_eq!(soon(runtime.client().result("c")).await.unwrap().as_json(), r#""attempt 1""#);
        soon(runtime.shutdown()).await.unwrap();
        home.check(&ClientLog::default(), &handlers());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g30_an_instance_whose_time_is_up_ends_and_so_does_its_activity() {
    let work = Work::new();
    on_each_store(
        |builder| work.register(builder),
        async |runtime, _, log| {
            work.forget();
            let client = runtime.client();
            let options = StartOptions::default().timeout(Duration::from_millis(1_500));
            client.start_with("caller", "c", Payload::null(), options.clone()).await.unwrap();
            // One that is blocked needs no code to end.
            client.start_with("clumsy", "b", Payload::null(), options).await.unwrap();
            ["b", "c"].into_iter().for_each(|id| log.started(id));
            client.raise_event("b", "go", Payload::null()).await.unwrap();
            until_blocked(&client, "b", "PER-0201").await;
            work.until_begun(1).await;
            for id in ["b", "c"] {
                let timed_out = Ending::OrchestrationTerminated { reason: "timeout".to_owned() };
                assert_eq!(client.wait(id).await, Ok(timed_out));
                let status = client.status(id).await.unwrap();
                assert!(status.status.is_final() && status.blocked.is_none(), "{status:?}");
            }
            until_is(&work.told, 1).await;
            until_is(&work.alive, 0).await;
        },
    )
    .await;
}
