//! Calls out of turn, from other threads or between turns, fail the turn; while unwinding they do nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::misuse_calls::{DECISIONS, caught, misuse, start_alone, try_start_alone};
use perennial_core::{ExecutionOptions, OrchestrationContext, Payload, QueryFailure, Started, TurnFailure};
use perennial_testkit::Drive;

#[test]
fn e27_a_context_used_from_another_thread_fails_the_turn() {
    for (call, decide) in DECISIONS {
        let turn = Drive::try_start(
            move |ctx: OrchestrationContext, _: Payload| async move {
                let elsewhere = thread::spawn(move || decide(&ctx)).join();
                assert!(elsewhere.is_err(), "the call does not return");
                Ok(Payload::null())
            },
            (),
        );
        let what = misuse(turn);
        assert!(what.starts_with(&format!("{call} was called out of turn")), "{what}");
    }
    let looking = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let elsewhere = thread::spawn(move || ctx.now()).join();
            assert!(elsewhere.is_err(), "not even a look");
            Ok(Payload::null())
        },
        (),
    );
    assert!(misuse(looking).starts_with("now was called out of turn"));
}

#[test]
fn e27_a_future_polled_or_dropped_on_another_thread_fails_the_turn() {
    let polled = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let task = ctx.schedule_activity("A", "");
            let elsewhere = thread::spawn(move || futures::executor::block_on(task)).join();
            assert!(elsewhere.is_err(), "it does not block for ever");
            Ok(Payload::null())
        },
        (),
    );
    assert!(misuse(polled).starts_with("poll was called out of turn"));

    let dropped = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let task = ctx.schedule_activity("A", "");
            thread::spawn(move || drop(task)).join().expect("a drop does not panic");
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    assert!(misuse(dropped).starts_with("the drop of a durable future was called out of turn"));

    let handle = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let unit = ctx.spawn(async {});
            thread::spawn(move || drop(unit)).join().expect("a drop does not panic");
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    assert!(misuse(handle).starts_with("the drop of a unit's handle was called out of turn"));
}

/// An execution that waits for activity A, and its context.
fn escaped() -> (Drive, OrchestrationContext) {
    let escape = Arc::new(Mutex::new(None::<OrchestrationContext>));
    let leak = Arc::clone(&escape);
    let drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        *leak.lock().expect("one thread") = Some(ctx.clone());
        async move {
            ctx.on_query("q", Ok);
            let kept = ctx.schedule_activity("Kept", "");
            let _ = ctx.schedule_activity("A", "").await;
            kept.await.map_err(|_| Payload::null())
        }
    });
    let ctx = escape.lock().expect("one thread").take().expect("it began");
    (drive, ctx)
}

#[test]
fn e27_a_call_between_turns_fails_the_next_turn() {
    for (call, decide) in DECISIONS {
        let (mut drive, ctx) = escaped();
        caught(|| decide(&ctx));
        let what = misuse(drive.try_turn([Drive::completed(3, "")]));
        assert!(what.starts_with(&format!("{call} was called out of turn")), "{what}");
    }
}

#[test]
fn e27_a_call_between_turns_fails_the_next_turn_though_it_runs_no_unit() {
    let (mut drive, ctx) = escaped();
    caught(|| ctx.set_status("out of turn"));
    // Nobody has polled the future that this result is for: no unit runs.
    misuse(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e27_a_call_between_turns_is_not_forgiven_by_a_query() {
    let (mut drive, ctx) = escaped();
    caught(|| ctx.set_status("out of turn"));
    let _ = drive.execution().query("q", Payload::null());
    misuse(drive.try_turn([Drive::completed(3, "")]));
}

#[test]
fn e27_a_call_from_another_executions_step_fails_both() {
    let (mut drive, ctx) = escaped();
    let shared = ctx.clone();
    let other = try_start_alone(move |_: OrchestrationContext, _: Payload| {
        let ctx = shared.clone();
        async move {
            ctx.set_status("in the wrong step");
            Ok(Payload::null())
        }
    });
    assert!(matches!(other, Err(TurnFailure::Panicked { .. })));
    misuse(drive.try_turn([Drive::completed(3, "")]));
}

#[test]
fn e27_calls_on_the_context_of_an_ended_or_evicted_execution_do_nothing() {
    let (mut drive, ctx) = escaped();
    drive.complete(3, "").complete(2, "done");
    assert!(drive.execution().has_ended());
    DECISIONS.iter().for_each(|(_, decide)| decide(&ctx));
    assert_eq!(drive.lines().len(), 6);
    drop(drive);
    DECISIONS.iter().for_each(|(_, decide)| decide(&ctx));
}

/// Calls the context when it is dropped.
struct CallsWhenDropped(OrchestrationContext);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        DECISIONS.iter().for_each(|(_, decide)| decide(&self.0));
    }
}

#[test]
fn e27_calls_out_of_place_do_nothing_while_unwinding() {
    // Each would abort the process if it panicked.
    let in_state = try_start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let state = ctx.state(0);
        state.update(|_| {
            let _calls = CallsWhenDropped(ctx.clone());
            panic!("the first panic");
        });
        Ok(Payload::null())
    });
    assert!(matches!(in_state, Err(TurnFailure::Misuse { .. } | TurnFailure::Panicked { .. })));

    let on_a_thread = try_start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let elsewhere = thread::spawn(move || {
            let _calls = CallsWhenDropped(ctx);
            panic!("the first panic");
        });
        assert!(elsewhere.join().is_err());
        Ok(Payload::null())
    });
    misuse(on_a_thread);

    let mut drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let inner = ctx.clone();
        ctx.on_query("q", move |_| {
            let _calls = CallsWhenDropped(inner.clone());
            panic!("the first panic");
        });
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    });
    match drive.execution().query("q", Payload::null()) {
        Err(QueryFailure::Misuse { .. } | QueryFailure::Panicked { .. }) => {}
        other => panic!("expected a failed query, got {other:?}"),
    }
    drive.raise("end", ());
    assert!(drive.execution().has_ended());
}

#[test]
fn e27_a_destructor_that_decides_in_its_place_while_unwinding_leaves_nothing() {
    let failed = try_start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let _calls = CallsWhenDropped(ctx.clone());
        panic!("the first panic");
    });
    match failed {
        Err(TurnFailure::Panicked { message, .. }) => assert_eq!(message, "the first panic"),
        other => panic!("expected the panic, got {:?}", other.map(|drive| drive.lines())),
    }
}

#[test]
fn e27_a_turn_over_its_steps_fails_though_a_destructor_calls_the_context() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let _calls = CallsWhenDropped(ctx.clone());
        let _timer = ctx.schedule_timer(Duration::from_secs(1));
        loop {
            futures::pending!();
        }
    };
    let spinning = move |ctx: OrchestrationContext, payload: Payload| {
        let mut inner = Box::pin(handler(ctx, payload));
        std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            inner.as_mut().poll(cx)
        })
    };
    let mut options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    options.limits.turn_steps = 10;
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(spinning), started, options).expect("it can start");
    match catch_unwind(AssertUnwindSafe(|| drive.try_turn([]))) {
        Ok(Err(TurnFailure::OverLimit { what, found, limit, .. })) => {
            assert_eq!((what, found, limit), ("steps of the turn", 11, 10));
        }
        Ok(other) => panic!("expected a limit, got {other:?}"),
        Err(_) => panic!("a destructor's panic came out of take_turn"),
    }
}
