//! Cancellation that says what happened: reasons, endings as cancelled, units that are exempt, and operations that are
//! asked to stop and waited for (E29, E30, E31).

use std::time::Duration;

use perennial_core::{
    ActivityError, ChildError, Either, Job, OrchestrationContext, Payload, RetryPolicy, TurnFailure,
};
use perennial_testkit::Drive;

type Outcome = Result<Payload, Payload>;

fn child_failed(source: u64, error: ChildError) -> Job {
    Job::SubOrchestrationFailed { source_event_id: perennial_core::EventId(source), error }
}

fn activity_cancelled(source: u64) -> Job {
    Job::ActivityFailed {
        source_event_id: perennial_core::EventId(source),
        error: ActivityError::Cancelled,
        attempts: 1,
        trail: Default::default(),
    }
}

/// Waits to be cancelled, cleans up with an activity, and ends as cancelled with its result.
async fn cleans_up(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let reason = ctx.cancelled().await;
    assert_eq!(ctx.cancel_reason().as_deref(), Some(reason.as_str()));
    let cleaned = ctx.schedule_activity("clean", reason).await.expect("it cleans");
    ctx.end_cancelled(cleaned).await
}

#[test]
fn e29_the_reason_reaches_the_code_and_the_ending_has_reason_and_output() {
    let mut drive = Drive::start(cleans_up, ());
    drive.evict().turn([Drive::cancel("too late", 31_000)]).evict();
    assert_eq!(drive.last_lines()[1], r#"3 ActivityScheduled "clean" "too late""#);
    drive.complete(3, "all clean").evict();
    assert_eq!(drive.last_lines()[1], r#"5 OrchestrationCancelled "too late" "all clean""#);
    assert!(drive.execution().has_ended());
}

#[test]
fn e29_handlers_of_a_cancel_read_the_reason_and_can_end_the_instance() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            ctx.on_cancel(move || async move {
                let reason = inner.cancel_reason().expect("it is requested");
                inner.end_cancelled::<()>(format!("undone: {reason}")).await;
            });
            assert_eq!(ctx.cancel_reason(), None);
            ctx.schedule_wait("n").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(drive.last_lines()[1], r#"4 OrchestrationCancelled "enough" "undone: enough""#);
}

#[test]
fn e29_code_may_end_as_cancelled_although_nobody_asked() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("n").await;
            ctx.end_cancelled(()).await
        },
        (),
    );
    drive.raise("n", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"4 OrchestrationCancelled "its code ended it" null"#);
}

#[test]
fn e29_a_replay_that_ends_with_another_output_diverges() {
    let code = |output: &'static str| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            ctx.cancelled().await;
            ctx.end_cancelled::<Outcome>(output).await
        }
    };
    let mut drive = Drive::start(code("one"), ());
    drive.turn([Drive::cancel("enough", 31_000)]);
    drive.replay_with(code("one")).expect("the same code");
    let failure = drive.replay_with(code("two")).err();
    assert!(matches!(failure, Some(TurnFailure::Nondeterminism(_))), "{failure:?}");
}

/// A payment that a cancel must not tear apart, beside a wait.
async fn pays(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let inner = ctx.clone();
    let payment = ctx.uncancellable(async move {
        let paid = inner.schedule_activity("charge", ()).await;
        inner.schedule_activity("book", ()).await.expect("it books");
        paid.expect("it is paid")
    });
    let _other = ctx.schedule_activity("slow", ());
    let waits = ctx.schedule_wait("n");
    ctx.join2(payment, waits).await;
    Ok("paid".into())
}

#[test]
fn e30_a_cancel_ends_everything_but_what_is_exempt_and_waits_for_that() {
    let mut drive = Drive::start(pays, ());
    drive.evict().turn([Drive::cancel("enough", 31_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"5 OrchestrationCancelRequested "enough""#,
            "6 ActivityCancelRequested of 2",
            "7 ExternalUnsubscribed of 3"
        ]
    );
    drive.complete(4, ()).evict();
    assert_eq!(drive.last_lines()[1], r#"9 ActivityScheduled "book" null in p0"#);
    drive.complete(9, ()).evict();
    assert_eq!(drive.last_lines()[1], r#"11 OrchestrationCancelled "enough""#);
}

#[test]
fn e30_without_a_cancel_exempt_units_are_like_any_other() {
    let mut drive = Drive::start(pays, ());
    drive.complete(4, ()).complete(6, ()).raise("n", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"9 OrchestrationCompleted "paid""#);
}

#[test]
fn e30_an_exempt_unit_sees_that_it_is_the_last_and_can_say_what_it_did() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            ctx.uncancellable(async move {
                inner.schedule_activity("charge", ()).await.expect("it is charged");
                if inner.is_cancelled() {
                    inner.end_cancelled::<()>(inner.cancel_reason().expect("a reason")).await;
                }
            })
            .await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::cancel("enough", 31_000)]).evict().complete(2, ()).evict();
    assert_eq!(drive.last_lines()[1], r#"5 OrchestrationCancelled "enough" "enough""#);
}

/// An activity that is asked to stop when it takes too long, and waited for.
async fn stops(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut work = ctx.schedule_activity("work", ());
    match ctx.select2(&mut work, ctx.schedule_timer(Duration::from_secs(5))).await {
        Either::First(done) => Ok(format!("in time: {done:?}").into()),
        Either::Second(()) => {
            work.cancel();
            work.cancel();
            Ok(format!("stopped: {:?}", work.await).into())
        }
    }
}

#[test]
fn e31_an_activity_that_is_asked_to_stop_is_waited_for() {
    for (job, outcome) in [
        (activity_cancelled(2), "stopped: Err(Cancelled)"),
        (Drive::completed(2, "half"), r#"stopped: Ok(\"half\")"#),
    ] {
        let mut drive = Drive::start(stops, ());
        drive.at(6_000).fire(3).evict();
        assert_eq!(drive.last_lines()[1..], ["5 ActivityStopRequested of 2"], "once, and it stays open");
        assert!(drive.execution().ledger().open().any(|(event, _)| event.0 == 2));
        drive.turn([job]).evict();
        assert_eq!(drive.last_lines()[1], format!(r#"7 OrchestrationCompleted "{outcome}""#));
    }
}

#[test]
fn e31_what_is_stopped_in_the_step_that_scheduled_it_leaves_nothing() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut work = ctx.schedule_activity("work", ());
            work.cancel();
            let mut child = ctx.schedule_sub_orchestration("child", ());
            child.cancel("not needed");
            Ok(format!("{:?} {:?}", work.await, child.await).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(drive.last_lines().len(), 2, "{:?}", drive.last_lines());
    assert!(
        drive.last_lines()[1].contains("Err(Cancelled) Err(Cancelled { reason"),
        "{:?}",
        drive.last_lines()
    );
}

#[test]
fn e31_what_is_stopped_after_its_result_was_recorded_returns_it() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut work = ctx.schedule_activity("work", ());
            ctx.schedule_wait("n").await;
            work.cancel();
            Ok(work.await.expect("it was done before"))
        },
        (),
    );
    drive.turn([Drive::event("n", ()), Drive::completed(2, "done")]).evict();
    assert_eq!(drive.last_lines()[2], r#"6 OrchestrationCompleted "done""#);
}

#[test]
fn e31_a_stopped_operation_that_is_dropped_is_cancelled_like_any_other() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut work = ctx.schedule_activity("work", ());
            ctx.schedule_wait("n").await;
            work.cancel();
            ctx.schedule_wait("n").await;
            drop(work);
            ctx.schedule_wait("n").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.raise("n", ()).evict().raise("n", ()).evict();
    assert_eq!(drive.last_lines()[2], "9 ActivityCancelRequested of 2");
    drive.turn([activity_cancelled(2), Drive::event("n", ())]).evict();
    assert_eq!(drive.last_lines().len(), 2, "its end is stale");
}

#[test]
fn e31_a_child_is_asked_to_cancel_with_reason_and_grace_and_waited_for() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut child = ctx
                .schedule_sub_orchestration("child", ())
                .retry(RetryPolicy::fixed(Duration::from_millis(1_000)).attempts(5));
            let reason = ctx.select2(&mut child, ctx.schedule_wait("n")).await;
            assert!(matches!(reason, Either::Second(_)));
            child.cancel_within("enough", Duration::from_secs(7));
            Ok(format!("{:?}", child.await).into())
        },
        (),
    );
    drive.raise("n", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"5 SubOrchestrationStopRequested of 2 "enough""#);
    let error = ChildError::Cancelled { reason: "enough".to_owned(), output: Some("half".into()) };
    drive.turn([child_failed(2, error)]).evict();
    assert!(drive.last_lines()[1].contains("OrchestrationCompleted"), "it is not tried again");
    assert!(drive.last_lines()[1].contains("half"), "{:?}", drive.last_lines());
}
