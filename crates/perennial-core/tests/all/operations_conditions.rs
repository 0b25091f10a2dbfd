//! Waiting for shared state to change and for handlers to finish (E21, E26).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use perennial_core::{ExecutionOptions, OrchestrationContext, Payload, Started, State};
use perennial_testkit::Drive;
use serde_json::json;

#[test]
fn e21_wait_until_is_woken_only_by_a_step_that_changed_the_state() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&looks);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let looks = Arc::clone(&counter);
        async move {
            let (awaited, other) = (ctx.state(0), ctx.state(0));
            for name in ["read", "change other", "change", "change twice"] {
                let (awaited, other) = (awaited.clone(), other.clone());
                ctx.on_event(name, move |_| {
                    let (awaited, other) = (awaited.clone(), other.clone());
                    async move {
                        match name {
                            "read" => assert!(awaited.read(|value| *value) >= 0),
                            "change other" => other.update(|value| *value += 1),
                            "change" => awaited.update(|value| *value += 1),
                            _ => (0..2).for_each(|_| awaited.update(|value| *value += 1)),
                        }
                    }
                });
            }
            let reached = |value: &i32| {
                looks.fetch_add(1, Ordering::Relaxed);
                *value >= 3
            };
            ctx.wait_until(&awaited, reached).await;
            ctx.wait_until(&awaited, |value| *value >= 3).await;
            Ok(json!(awaited.read(|value| *value)).into())
        }
    };
    // Without a shadow, every look is one that the test asked for.
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options).unwrap();
    let look_count = || looks.load(Ordering::Relaxed);
    drive.turn([]);
    assert_eq!(look_count(), 1, "once when polled first");
    for name in ["read", "change other", "unknown"] {
        drive.raise(name, ());
        assert_eq!(look_count(), 1, "{name}");
    }
    drive.raise("change", ());
    assert_eq!(look_count(), 2);
    drive.raise("change twice", ());
    assert_eq!(look_count(), 3, "once per step");
    assert_eq!(drive.last_lines()[1], "7 OrchestrationCompleted 3");
}

#[test]
fn e21_wait_until_is_evaluated_when_polled_not_when_woken() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let open = ctx.state(false);
            let branch = |to: bool| {
                let (ctx, open) = (ctx.clone(), open.clone());
                async move {
                    ctx.schedule_wait(if to { "open" } else { "close" }).await;
                    open.update(|open| *open = to);
                    ctx.schedule_wait("rest").await;
                }
            };
            let branches = ctx.parallel([branch(true), branch(false)]);
            ctx.wait_until(&open, |open| *open).await;
            drop(branches);
            Ok("passed".into())
        },
        (),
    );
    // Both go on in one round: the branch that opens, then the one that closes.
    drive.turn([Drive::event("open", ()), Drive::event("close", ())]).evict();
    assert_eq!(
        drive.last_lines()[2..],
        [r#"6 ExternalSubscribed "rest" in p0"#, r#"7 ExternalSubscribed "rest" in p1"#]
    );

    let mut alone = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let open = ctx.state(true);
            ctx.wait_until(&open, |open| *open).await;
            Ok("passed at once".into())
        },
        (),
    );
    alone.evict();
    assert_eq!(alone.lines()[1], r#"2 OrchestrationCompleted "passed at once""#);
}

#[test]
fn e21_a_change_whose_closure_panicked_wakes_those_who_wait_for_it() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let open = ctx.state(false);
            let opened = open.clone();
            ctx.on_event("open", move |_| {
                let open = opened.clone();
                async move {
                    let change = || {
                        open.update(|open| {
                            *open = true;
                            panic!("too late")
                        })
                    };
                    let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(change));
                    assert!(caught.is_err());
                }
            });
            ctx.wait_until(&open, |open| *open).await;
            Ok("passed".into())
        },
        (),
    );
    drive.raise("open", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"3 OrchestrationCompleted "passed""#);
}

/// Opens when it is dropped.
struct OpensOnDrop(State<bool>);

impl Drop for OpensOnDrop {
    fn drop(&mut self) {
        self.0.update(|open| *open = true);
    }
}

#[test]
fn e21_a_change_by_what_is_dropped_at_the_end_of_a_step_wakes_those_who_wait_for_it() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let open = ctx.state(false);
            let handle = Arc::new(Mutex::new(None));
            let (from, opens, own) = (ctx.clone(), OpensOnDrop(open.clone()), Arc::clone(&handle));
            let unit = ctx.spawn(async move {
                let _opens = opens;
                from.schedule_wait("end").await;
                // The unit ends with this step, and with it all that it holds.
                own.lock().unwrap().take();
                from.schedule_wait("never").await;
            });
            *handle.lock().unwrap() = Some(unit);
            ctx.wait_until(&open, |open| *open).await;
            Ok("passed".into())
        },
        (),
    );
    drive.raise("end", ()).evict();
    assert_eq!(drive.last_lines().last().unwrap(), r#"4 OrchestrationCompleted "passed""#);
}

#[test]
fn e26_handlers_idle_leaves_out_the_handler_that_asks() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            for name in ["work", "sweep"] {
                let from = ctx.clone();
                ctx.on_event(name, move |_| {
                    let ctx = from.clone();
                    async move {
                        if name == "work" {
                            ctx.schedule_activity("Work", ()).await.unwrap();
                        } else {
                            ctx.handlers_idle().await;
                        }
                        ctx.set_status(name);
                    }
                });
            }
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.raise("sweep", ()).raise("work", ()).evict().raise("sweep", ()).evict();
    drive.complete(6, ()).evict();
    assert_eq!(
        drive.lines()[2..],
        [
            r#"3 ExternalEvent "sweep" null"#,
            r#"4 StatusSet "sweep" in h0"#,
            r#"5 ExternalEvent "work" null"#,
            r#"6 ActivityScheduled "Work" null in h1"#,
            r#"7 ExternalEvent "sweep" null"#,
            "8 ActivityCompleted of 6 null",
            r#"9 StatusSet "work" in h1"#,
            r#"10 StatusSet "sweep" in h2"#,
        ]
    );
}
