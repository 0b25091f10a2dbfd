//! An execution can move between threads, and dropping it changes nothing durable and frees everything.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use perennial_core::{
    Execution, ExecutionOptions, OrchestrationContext, OrchestrationHandler, Payload, Started, TimerFuture,
};
use perennial_testkit::Drive;

fn options_without_shadow() -> ExecutionOptions {
    ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() }
}

fn start_alone(handler: impl OrchestrationHandler) -> Drive {
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive =
        Drive::prepare(Arc::new(handler), started, options_without_shadow()).expect("it can start");
    drive.turn([]);
    drive
}

#[test]
fn e4_an_execution_moves_between_threads_from_turn_to_turn() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let mut words = Vec::new();
        for step in 0..4 {
            let word = ctx.schedule_activity("Step", step.to_string()).await;
            words.push(word.map_err(|_| Payload::null())?);
        }
        Ok(Payload::encode(&words).expect("a list encodes"))
    };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut execution = Execution::new("moving", Arc::new(handler), started, ExecutionOptions::default())
        .expect("it can start");
    let mut lines = Vec::new();
    for turn in 0..5_u64 {
        let (moved, events) = thread::spawn(move || {
            let jobs = match turn {
                0 => vec![],
                _ => vec![Drive::completed(2 * turn, format!("turn {turn}"))],
            };
            let taken = execution.take_turn(1_000 + turn, jobs).expect("the turn is taken");
            (execution, taken.turn.expect("a turn").events)
        })
        .join()
        .expect("the thread does not panic");
        execution = moved;
        lines.extend(events.iter().map(|event| format!("{} {}", event.id, event.summary())));
    }
    assert_eq!(
        lines[1..],
        [
            r#"2 ActivityScheduled "Step" "0""#,
            r#"3 ActivityCompleted of 2 "turn 1""#,
            r#"4 ActivityScheduled "Step" "1""#,
            r#"5 ActivityCompleted of 4 "turn 2""#,
            r#"6 ActivityScheduled "Step" "2""#,
            r#"7 ActivityCompleted of 6 "turn 3""#,
            r#"8 ActivityScheduled "Step" "3""#,
            r#"9 ActivityCompleted of 8 "turn 4""#,
            r#"10 OrchestrationCompleted ["turn 1","turn 2","turn 3","turn 4"]"#,
        ]
    );
}

/// Calls everything it can reach when it is dropped, and notes what it was told.
struct Meddler {
    ctx: OrchestrationContext,
    timer: Option<TimerFuture>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        let ctx = &self.ctx;
        ctx.set_status("meddled");
        drop(ctx.schedule_activity("Meddle", ""));
        drop(ctx.schedule_timer(Duration::from_secs(1)));
        drop(ctx.schedule_wait("event"));
        drop(ctx.schedule_sub_orchestration("Child", ""));
        ctx.schedule_orchestration("Other", "other", "");
        ctx.raise_event("other", "Event", "");
        ctx.upsert_attributes([("a", "b")]);
        drop((ctx.utc_now(), ctx.new_guid(), ctx.side_effect("effect", || 7)));
        drop(ctx.spawn(async {}));
        drop(ctx.parallel([async {}]));
        drop(ctx.shield(async {}));
        ctx.on_event("late", |_| async {});
        ctx.on_update("late", |_| Ok(()), |payload| async move { Ok(payload) });
        ctx.on_query("late", Ok);
        ctx.on_cancel(|| async {});
        drop((ctx.cancelled(), ctx.handlers_idle()));
        let state = ctx.state(1);
        state.update(|n| *n += 1);
        drop(ctx.wait_until(&state, |n| *n == 9));
        drop(ctx.continue_as_new::<()>("again"));
        ctx.trace_info("not to be seen");
        drop(self.timer.take());
        let told = format!(
            "now {}, random {}, uuid {:?}, patched {}, replaying {}, cancelled {}, instance {:?}",
            ctx.now(),
            ctx.random(),
            ctx.uuid4(),
            ctx.patched("patch"),
            ctx.is_replaying(),
            ctx.is_cancelled(),
            ctx.info().instance,
        );
        self.told.lock().expect("not poisoned").push(told);
    }
}

#[test]
fn e4_destructors_find_the_context_inert_at_eviction() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&told);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let told = Arc::clone(&kept);
        async move {
            let meddler = |ctx: &OrchestrationContext| Meddler {
                timer: Some(ctx.schedule_timer(Duration::from_secs(60))),
                ctx: ctx.clone(),
                told: Arc::clone(&told),
            };
            let _in_root = meddler(&ctx);
            let (in_unit, in_query) = (meddler(&ctx), meddler(&ctx));
            let inner = ctx.clone();
            ctx.spawn(async move {
                let _in_unit = in_unit;
                inner.schedule_wait("never").await;
            })
            .detach();
            ctx.on_query("q", move |_| {
                let _ = &in_query;
                Ok(Payload::null())
            });
            let _ = ctx.schedule_activity("A", "").await;
            ctx.schedule_activity("B", "").await.map_err(|_| Payload::null())
        }
    });
    let lines = drive.lines();
    drive.evict();
    assert_eq!(
        *told.lock().expect("not poisoned"),
        [r#"now 1970-01-01T00:00:00Z, random 0, uuid "", patched false, replaying true, cancelled false, instance """#;
            3]
    );
    assert_eq!(drive.lines(), lines, "nothing was recorded");
    drive.complete(5, "a");
    assert_eq!(
        drive.last_lines(),
        [r#"7 ActivityCompleted of 5 "a""#, r#"8 ActivityScheduled "B" """#],
        "and the next turn knows nothing of it"
    );
}

#[test]
fn e4_an_execution_can_be_evicted_on_another_thread() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&told);
    let drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let told = Arc::clone(&kept);
        async move {
            let _meddler =
                Meddler { timer: Some(ctx.schedule_timer(Duration::from_secs(60))), ctx: ctx.clone(), told };
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        }
    });
    thread::spawn(move || drop(drive)).join().expect("dropping does not panic");
    assert_eq!(told.lock().expect("not poisoned").len(), 1);
}

#[test]
fn e4_eviction_on_a_thread_that_runs_another_execution_leaves_that_alone() {
    // The orchestration holds an execution of its own making, and evicts it in its step.
    let drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let inner = start_alone(move |ctx: OrchestrationContext, _: Payload| {
            let told = Arc::clone(&kept);
            async move {
                let _meddler = Meddler {
                    timer: Some(ctx.schedule_timer(Duration::from_secs(60))),
                    ctx: ctx.clone(),
                    told,
                };
                ctx.schedule_activity("Inner", "").await.map_err(|_| Payload::null())
            }
        });
        ctx.set_status("before");
        drop(inner);
        ctx.set_status(format!("{} evicted", told.lock().expect("one thread").len()));
        ctx.schedule_activity("Outer", "").await.map_err(|_| Payload::null())
    });
    assert_eq!(
        drive.lines()[1..],
        [r#"2 StatusSet "before""#, r#"3 StatusSet "1 evicted""#, r#"4 ActivityScheduled "Outer" """#,]
    );
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a destructor that panics");
        }
    }
}

#[test]
fn e4_a_destructor_that_panics_does_not_panic_out_of_eviction() {
    let drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let _bomb = Bomb;
        ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
    });
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(drive)));
    assert!(dropped.is_ok());
}

/// A bomb that goes off no matter what.
struct StubbornBomb;

impl Drop for StubbornBomb {
    fn drop(&mut self) {
        panic!("a destructor that panics");
    }
}

#[test]
fn e4_destructors_of_several_units_that_panic_do_not_abort_the_process() {
    const INSIDE: &str = "PERENNIAL_TEST_EVICT_BOMBS";
    if std::env::var_os(INSIDE).is_some() {
        let drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
            let branch = || {
                let ctx = ctx.clone();
                async move {
                    let _bomb = StubbornBomb;
                    ctx.schedule_wait("never").await;
                }
            };
            ctx.parallel([branch(), branch()]).await;
            Ok(Payload::null())
        });
        drop(drive);
        return;
    }
    // A panic while another unwinds would take this whole test process down; so it happens in a child.
    let status = Command::new(std::env::current_exe().expect("the path of this test"))
        .args(["--exact", "e4_destructors_of_several_units_that_panic_do_not_abort_the_process"])
        .env(INSIDE, "1")
        .output()
        .expect("the test can run itself")
        .status;
    assert!(status.success(), "evicting two units whose destructors panic: {status}");
}

#[test]
fn e4_nothing_keeps_the_codes_memory_alive_after_eviction() {
    let canary = Arc::new(());
    let handler = |canary: Arc<()>| {
        move |ctx: OrchestrationContext, _: Payload| {
            let canary = Arc::clone(&canary);
            async move {
                // A state that holds contexts and futures, shared with every kind of handler.
                let state = ctx.state((Arc::clone(&canary), ctx.clone(), Vec::new()));
                let (futures_ctx, held) = (ctx.clone(), state.clone());
                held.update(|_| ());
                let kept = futures_ctx.schedule_timer(Duration::from_secs(5));
                state.update(|state| state.2.push(kept));
                let hold = || (Arc::clone(&canary), ctx.clone(), state.clone());
                let (event, validator, update, query, cancel) = (hold(), hold(), hold(), hold(), hold());
                ctx.on_event("event", move |_| {
                    let held = event.clone();
                    async move {
                        held.1.schedule_wait("never").await;
                    }
                });
                ctx.on_update(
                    "update",
                    move |_| {
                        let _ = &validator;
                        Ok(())
                    },
                    move |payload| {
                        let held = update.clone();
                        async move {
                            held.1.schedule_wait("never").await;
                            Ok(payload)
                        }
                    },
                );
                ctx.on_query("query", move |_| {
                    let _ = &query;
                    Ok(Payload::null())
                });
                ctx.on_cancel(move || async move {
                    let _ = cancel;
                });
                let spawned = hold();
                let unit = ctx.spawn(async move {
                    spawned.1.wait_until(&spawned.2, |_| false).await;
                });
                let stored = ctx.state(Some(unit));
                let in_unordered = hold();
                let mut unordered: FuturesUnordered<_> = (0..3)
                    .map(|_| {
                        let held = in_unordered.clone();
                        async move {
                            let _ = held.1.schedule_activity("A", "").await;
                        }
                    })
                    .collect();
                let joined = ctx.join((0..3).map(|_| {
                    let held = hold();
                    async move {
                        let _ = held.1.schedule_activity("B", "").await;
                    }
                }));
                let boxed = ctx.select2(Box::pin(joined), Box::pin(unordered.next()));
                boxed.await;
                drop(stored);
                Ok(Payload::null())
            }
        }
    };
    let mut drive = start_alone(handler(Arc::clone(&canary)));
    drive.turn([Drive::event("event", ()), Drive::update("update", ())]);
    assert!(Arc::strong_count(&canary) > 10, "the code holds it in many places");
    drop(drive);
    assert_eq!(Arc::strong_count(&canary), 1, "and lets go of all of them");

    let mut ended = start_alone(handler(Arc::clone(&canary)));
    ended.turn([Drive::event("event", ()), Drive::cancel("stop", 5_000)]);
    let unordered_first = ended
        .history()
        .flatten()
        .find(|event| event.summary().contains(r#""A""#))
        .map(|event| event.id.0)
        .expect("an activity of the unordered set");
    ended.complete(unordered_first, "");
    assert!(ended.execution().has_ended());
    drop(ended);
    assert_eq!(Arc::strong_count(&canary), 1);
}

#[test]
fn e4_a_failed_turn_leaves_nothing_behind_either() {
    let canary = Arc::new(());
    let held = Arc::clone(&canary);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let held = Arc::clone(&held);
        async move {
            let kept: HashMap<u32, _> = (0..3)
                .map(|n| (n, (ctx.schedule_timer(Duration::from_secs(9)), Arc::clone(&held))))
                .collect();
            let _ = ctx.schedule_activity("A", "").await;
            assert!(kept.is_empty(), "this fails");
            Ok(Payload::null())
        }
    });
    assert!(drive.try_turn([Drive::completed(5, "")]).is_err());
    drop(drive);
    assert_eq!(Arc::strong_count(&canary), 1);
}

#[test]
fn e4_an_execution_kept_by_a_thread_local_can_go_down_with_its_thread() {
    const INSIDE: &str = "PERENNIAL_TEST_THREAD_LOCAL";
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Drive>> = const { std::cell::RefCell::new(None) };
    }
    if std::env::var_os(INSIDE).is_some() {
        let keeping = thread::spawn(|| {
            KEPT.with_borrow_mut(|kept| assert!(kept.is_none()));
            let drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
                let _timer = ctx.schedule_timer(Duration::from_secs(9));
                ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
            });
            KEPT.set(Some(drive));
        });
        keeping.join().expect("the thread ends");
        return;
    }
    // A destructor that panics at the end of a thread would take this whole test process down.
    let output = Command::new(std::env::current_exe().expect("the path of this test"))
        .args(["--exact", "e4_an_execution_kept_by_a_thread_local_can_go_down_with_its_thread"])
        .env(INSIDE, "1")
        .output()
        .expect("the test can run itself");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
