//! Limits are checked at the call, on live turns only; over one, nothing of the turn is recorded (E24).

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use perennial_core::{
    Execution, ExecutionOptions, Limits, OrchestrationContext, OrchestrationHandler, Payload, Started,
    TurnFailure,
};
use perennial_testkit::Drive;
use serde_json::json;

fn prepare(handler: impl OrchestrationHandler, limits: Limits) -> Drive {
    let options = ExecutionOptions { limits, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    Drive::prepare(Arc::new(handler), started, options).unwrap()
}

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

/// What was over, by how much.
fn over<T>(outcome: Result<T, TurnFailure>) -> (&'static str, u64, u64) {
    match outcome {
        Err(TurnFailure::OverLimit { what, found, limit, .. }) => (what, found, limit),
        Err(other) => panic!("not over a limit: {other}"),
        Ok(_) => panic!("the turn did not fail"),
    }
}

/// Asserts that a first turn fails for its payload of 103 bytes, where 100 are allowed.
fn refuses_a_large_payload<F>(call: fn(OrchestrationContext, Payload) -> F)
where
    F: Future<Output = Result<Payload, Payload>> + Send + 'static,
{
    let large = || Payload::from("x".repeat(101));
    let small = limits(|limits| limits.payload_bytes = 100);
    let mut drive = prepare(move |ctx, _| call(ctx, large()), small);
    assert_eq!(over(drive.try_turn([])), ("bytes of a payload", 103, 100));
    assert!(drive.history().turns.is_empty());

    let exact = limits(|limits| limits.payload_bytes = 103);
    let mut drive = prepare(move |ctx, _| call(ctx, large()), exact);
    drive.turn([]);
}

#[test]
fn e24_a_payload_over_its_limit_fails_the_turn_whatever_carries_it() {
    refuses_a_large_payload(|ctx, large| async move {
        ctx.schedule_activity("A", large).await.map_err(|_| ().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.schedule_sub_orchestration("C", large).await.map_err(|_| ().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.schedule_orchestration("Other", "other-1", large);
        Ok(().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.raise_event("other-1", "ping", large);
        Ok(().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.set_status(large);
        Ok(().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.upsert_attributes([("", large)]);
        Ok(().into())
    });
    refuses_a_large_payload(|ctx, large| async move {
        ctx.side_effect("side", move || large).await;
        Ok(().into())
    });
    refuses_a_large_payload(|ctx, large| async move { ctx.continue_as_new(large).await });
    refuses_a_large_payload(|_, large| async move { Ok(large) });
    refuses_a_large_payload(|_, large| async move { Err(large) });
}

#[test]
fn e24_the_answer_to_an_update_has_the_limit_of_a_payload() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.on_update("grow", |_| Ok(()), |_| async { Ok("x".repeat(101).into()) });
        Ok(ctx.schedule_wait("end").await)
    };
    let mut drive = prepare(handler, limits(|limits| limits.payload_bytes = 100));
    drive.turn([]);
    let outcome = drive.try_turn([Drive::update("grow", ())]);
    assert_eq!(over(outcome), ("bytes of a payload", 103, 100));
    assert_eq!(drive.history().turns.len(), 1);
}

/// Publishes this many statuses when it starts, and as many for each `go`.
fn publishes(count: usize) -> impl OrchestrationHandler + Clone {
    move |ctx: OrchestrationContext, _: Payload| async move {
        loop {
            (0..count).for_each(|number| ctx.set_status(json!(number)));
            ctx.schedule_wait("go").await;
        }
    }
}

#[test]
fn e24_decisions_of_a_turn_are_limited() {
    // Three statuses and a wait.
    let mut allowed = prepare(publishes(3), limits(|limits| limits.turn_decisions = 4));
    allowed.turn([]).raise("go", ()).raise("go", ());
    assert_eq!(allowed.lines().len(), 15, "each turn counts for itself");

    let mut refused = prepare(publishes(4), limits(|limits| limits.turn_decisions = 4));
    assert_eq!(over(refused.try_turn([])), ("decisions of the turn", 5, 4));

    // Steps and units of one turn count together.
    let units = |ctx: OrchestrationContext, _: Payload| async move {
        let branch = |_| {
            let ctx = ctx.clone();
            async move { ctx.schedule_wait("go").await }
        };
        Ok(json!(ctx.parallel((0..5).map(branch)).await).into())
    };
    let mut refused = prepare(units, limits(|limits| limits.turn_decisions = 4));
    assert_eq!(over(refused.try_turn([])), ("decisions of the turn", 5, 4));
}

#[test]
fn e24_bytes_of_a_turn_are_limited() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        loop {
            (0..3).for_each(|_| ctx.set_status("x".repeat(1_000)));
            ctx.schedule_wait("go").await;
        }
    };
    let mut allowed = prepare(handler, limits(|limits| limits.turn_bytes = 4_000));
    allowed.turn([]).raise("go", ());
    let mut refused = prepare(handler, limits(|limits| limits.turn_bytes = 3_000));
    let (what, found, limit) = over(refused.try_turn([]));
    assert_eq!((what, limit), ("bytes of the turn", 3_000));
    assert!((3_001..4_000).contains(&found), "{found}");
}

#[test]
fn e24_events_of_a_history_are_limited() {
    // Four events with the first turn, four more with each further one.
    let mut drive = prepare(publishes(2), limits(|limits| limits.history_events = 8));
    drive.turn([]).raise("go", ());
    assert_eq!(drive.lines().len(), 8);
    assert_eq!(over(drive.try_turn([Drive::event("go", ())])), ("events of the history", 10, 8));
    assert_eq!(drive.lines().len(), 8);

    // All within one step.
    let mut drive = prepare(publishes(8), limits(|limits| limits.history_events = 8));
    assert_eq!(over(drive.try_turn([])), ("events of the history", 9, 8));
}

#[test]
fn e24_bytes_of_a_history_are_limited_over_its_turns() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        loop {
            ctx.set_status("x".repeat(1_000));
            ctx.schedule_wait("go").await;
        }
    };
    let mut drive = prepare(handler, limits(|limits| limits.history_bytes = 3_000));
    drive.turn([]).raise("go", ());
    let (what, found, limit) = over(drive.try_turn([Drive::event("go", ())]));
    assert_eq!((what, limit), ("bytes of the history", 3_000));
    assert!((3_001..4_000).contains(&found), "{found}");
    assert_eq!(drive.history().turns.len(), 2);
}

#[test]
fn e24_bytes_of_a_history_are_limited_within_a_step() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        (0..10).for_each(|_| ctx.set_status("x".repeat(1_000)));
        Ok(ctx.schedule_wait("go").await)
    };
    let mut drive = prepare(handler, limits(|limits| limits.history_bytes = 3_000));
    let (what, found, limit) = over(drive.try_turn([]));
    assert_eq!((what, limit), ("bytes of the history", 3_000));
    assert!((3_001..4_100).contains(&found), "{found}");
}

/// Yields this often, then waits.
fn yields(times: usize) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        let mut left = times;
        poll_fn(move |cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        Ok(ctx.schedule_wait("go").await)
    }
}

#[test]
fn e24_steps_of_a_turn_are_limited() {
    let mut allowed = prepare(yields(9), limits(|limits| limits.turn_steps = 10));
    allowed.turn([]);
    let mut refused = prepare(yields(10), limits(|limits| limits.turn_steps = 10));
    assert_eq!(over(refused.try_turn([])), ("steps of the turn", 11, 10));
    let mut endless = prepare(yields(usize::MAX), limits(|limits| limits.turn_steps = 10));
    assert_eq!(over(endless.try_turn([])), ("steps of the turn", 11, 10));
}

#[test]
fn e24_a_limit_is_checked_at_the_call() {
    let went_on = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&went_on);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let flag = Arc::clone(&flag);
        async move {
            ctx.set_status("one");
            ctx.set_status("one too many");
            flag.store(true, Ordering::Relaxed);
            Ok(ctx.schedule_wait("go").await)
        }
    };
    let mut drive = prepare(handler, limits(|limits| limits.turn_decisions = 1));
    assert_eq!(over(drive.try_turn([])), ("decisions of the turn", 2, 1));
    assert!(!went_on.load(Ordering::Relaxed));
}

#[test]
fn e24_a_turn_over_a_limit_fails_even_if_the_code_catches_the_unwinding() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let refused = catch_unwind(AssertUnwindSafe(|| ctx.set_status("x".repeat(101))));
        assert!(refused.is_err());
        Ok(Payload::null())
    };
    let mut drive = prepare(handler, limits(|limits| limits.payload_bytes = 100));
    assert_eq!(over(drive.try_turn([])), ("bytes of a payload", 103, 100));
}

#[test]
fn e24_a_history_recorded_under_larger_limits_still_replays() {
    let none = Limits {
        payload_bytes: 0,
        turn_decisions: 0,
        turn_bytes: 0,
        turn_steps: 0,
        history_events: 0,
        history_bytes: 0,
    };
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let from = ctx.clone();
        let unit = ctx.spawn(async move { from.side_effect("side", || "x".repeat(500)).await });
        let value = unit.await;
        ctx.set_status(value.as_str());
        ctx.schedule_wait("go").await;
        Ok(value.into())
    };
    let mut drive = Drive::start(handler, ());
    let replayed_under_none = |drive: &Drive| {
        let options = ExecutionOptions { limits: none.clone(), ..ExecutionOptions::default() };
        let started = drive.history().started().unwrap().clone();
        let mut execution = Execution::new(Drive::INSTANCE, Arc::new(handler), started, options).unwrap();
        for turn in drive.history() {
            execution.replay_turn(turn).unwrap();
        }
        execution
    };
    let mut execution = replayed_under_none(&drive);
    let live = execution.take_turn(1_000, vec![Drive::event("go", ())]);
    assert_eq!(over(live), ("steps of the turn", 1, 0), "the next live turn has the limits of today");

    drive.raise("go", ());
    assert!(replayed_under_none(&drive).has_ended());
}
