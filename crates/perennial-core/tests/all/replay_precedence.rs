//! Nondeterminism outranks whatever else is wrong with the same turn, and only a difference is nondeterminism.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use perennial_core::Timestamp;
use perennial_core::{
    Execution, ExecutionOptions, Interrupter, Nondeterminism, OrchestrationContext, Payload, TimerFuture,
    TurnFailure,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

fn diverged(replayed: Result<impl Sized, TurnFailure>) -> Nondeterminism {
    match replayed {
        Err(TurnFailure::Nondeterminism(divergence)) => *divergence,
        Err(other) => panic!("expected nondeterminism, got {other}"),
        Ok(_) => panic!("the replay found no difference"),
    }
}

/// Holds a timer when it begins to charge.
async fn until_checked(ctx: &OrchestrationContext, order: Payload) -> TimerFuture {
    let _ = ctx.schedule_activity("CheckStock", order).await;
    ctx.set_status("charging");
    ctx.schedule_timer(Duration::from_secs(60))
}

/// A history of three turns: checked, charged, shipping.
fn charged() -> Drive {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, order: Payload| async move {
            let limit = until_checked(&ctx, order.clone()).await;
            let _ = ctx.schedule_activity("Charge", "in stock").await;
            let shipped = ctx.schedule_activity("Ship", order).await;
            limit.await;
            shipped.map_err(|_| Payload::null())
        },
        "order-17",
    );
    drive.complete(2, "in stock").complete(6, "receipt-9");
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "CheckStock" "order-17""#,
            r#"3 ActivityCompleted of 2 "in stock""#,
            r#"4 StatusSet "charging""#,
            r#"5 TimerCreated due 61000"#,
            r#"6 ActivityScheduled "Charge" "in stock""#,
            r#"7 ActivityCompleted of 6 "receipt-9""#,
            r#"8 ActivityScheduled "Ship" "order-17""#,
        ]
    );
    drive
}

/// Replays `charged()` with code that decides `B` instead of the first decision, and then goes on as `then` says.
fn outranks(
    then: fn(OrchestrationContext) -> BoxFuture<'static, Output>,
    options: ExecutionOptions,
) -> TurnFailure {
    let drive = charged();
    let started = drive.history().started().expect("it started").clone();
    let handler = move |ctx: OrchestrationContext, _: Payload| async move {
        ctx.set_status("B");
        then(ctx).await
    };
    let mut execution =
        Execution::new(Drive::INSTANCE, Arc::new(handler), started, options).expect("it can start");
    execution.replay_turn(&drive.history().turns[0]).expect_err("the code differs")
}

#[test]
fn e7_nondeterminism_outranks_a_panic_of_the_same_turn() {
    let failure = outranks(|_| Box::pin(async { panic!("and then it panics") }), Default::default());
    assert_eq!(diverged(Err::<(), _>(failure)).event.0, 2);
}

#[test]
fn e7_nondeterminism_outranks_misuse_and_waiting_for_nothing_of_the_same_turn() {
    let failure = outranks(
        |ctx| {
            Box::pin(async move {
                let state = ctx.state(0);
                state.update(|_| ctx.set_status("not here"));
                Ok(Payload::null())
            })
        },
        Default::default(),
    );
    assert_eq!(diverged(Err::<(), _>(failure)).event.0, 2);
    let failure = outranks(|_| Box::pin(std::future::pending()), Default::default());
    assert_eq!(diverged(Err::<(), _>(failure)).event.0, 2);
}

#[test]
fn e7_nondeterminism_outranks_a_limit_of_the_same_turn() {
    let mut options = ExecutionOptions::default();
    options.limits.turn_decisions = 3;
    options.limits.payload_bytes = 20;
    let failure = outranks(
        |ctx| {
            Box::pin(async move {
                (0..9).for_each(|_| ctx.set_status("far more than any payload may hold"));
                Ok(Payload::null())
            })
        },
        options,
    );
    assert_eq!(diverged(Err::<(), _>(failure)).event.0, 2);
}

/// Lets code raise the deadline of the turn that it is in.
fn replay_past_the_deadline(
    drive: &Drive,
    turns: usize,
    code: impl Fn(OrchestrationContext, Interrupter) -> BoxFuture<'static, Output> + Send + Sync + 'static,
) -> Result<(), TurnFailure> {
    let interrupter = Arc::new(Mutex::new(None::<Interrupter>));
    let shared = Arc::clone(&interrupter);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let interrupter = shared.lock().expect("one thread").clone().expect("it is set");
        code(ctx, interrupter)
    };
    let started = drive.history().started().expect("it started").clone();
    let mut execution =
        Execution::new(Drive::INSTANCE, Arc::new(handler), started, ExecutionOptions::default())
            .expect("it can start");
    *interrupter.lock().expect("one thread") = Some(execution.interrupter());
    drive.history().turns[..turns].iter().try_for_each(|turn| execution.replay_turn(turn))
}

#[test]
fn e7_nondeterminism_outranks_the_deadline_of_the_same_turn() {
    let failure = replay_past_the_deadline(&charged(), 1, |ctx, interrupter| {
        Box::pin(async move {
            ctx.set_status("B");
            interrupter.raise();
            ctx.now();
            Ok(Payload::null())
        })
    });
    assert_eq!(diverged(failure).event.0, 2);
}

#[test]
fn e7_a_decision_that_the_unwinding_took_back_still_diverged() {
    // The future of the differing decision is a local of the step that panics.
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        let _held = ctx.schedule_activity("Other", "");
        if ctx.now() > Timestamp::UNIX_EPOCH {
            panic!("and then it panics");
        }
        Ok(Payload::null())
    };
    let divergence = diverged(charged().replay_with(changed));
    assert_eq!((divergence.event.0, &*divergence.code.line), (2, r#"ActivityScheduled "Other" """#));
}

#[test]
fn e7_what_unwinding_drops_is_no_divergence_of_a_panic() {
    let panics = |ctx: OrchestrationContext, order: Payload| async move {
        let limit = until_checked(&ctx, order).await;
        let _ = ctx.schedule_activity("Charge", "in stock").await;
        if ctx.now() > Timestamp::UNIX_EPOCH {
            panic!("a bug in turn 3");
        }
        limit.await;
        Ok(Payload::null())
    };
    match charged().replay_with(panics) {
        Err(TurnFailure::Panicked { message, .. }) => assert_eq!(message, "a bug in turn 3"),
        Err(other) => panic!("the panic is the news, not this: {other}"),
        Ok(_) => panic!("the replay went through"),
    }
}

#[test]
fn e7_what_unwinding_drops_is_no_divergence_of_a_deadline() {
    let failure = replay_past_the_deadline(&charged(), 3, |ctx, interrupter| {
        Box::pin(async move {
            let limit = until_checked(&ctx, "order-17".into()).await;
            let _ = ctx.schedule_activity("Charge", "in stock").await;
            interrupter.raise();
            ctx.now();
            limit.await;
            Ok(Payload::null())
        })
    });
    match failure {
        Err(TurnFailure::DeadlinePassed) => {}
        other => panic!("a slow replay has not diverged: {other:?}"),
    }
}
