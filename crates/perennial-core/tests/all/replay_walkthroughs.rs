//! The walk-throughs of waits, children, system calls and cancellation, and the seeds' ways for a replay to fail.

use std::time::Duration;

use perennial_core::{
    ActivityError, ChildError, Either, EventId, EventKind, HistoryError, Job, OrchestrationContext, Payload,
    StaleReason, TurnFailure,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

fn application_error(failure: ActivityError) -> Payload {
    match failure {
        ActivityError::Application(error) => error,
        other => Payload::from(format!("{other:?}")),
    }
}

async fn slow_task_or_timeout(ctx: OrchestrationContext, _: Payload) -> Output {
    let task = ctx.schedule_activity("SlowTask", "");
    let limit = ctx.schedule_timer(Duration::from_secs(30));
    match ctx.select2(task, limit).await {
        Either::First(result) => result.map_err(application_error),
        Either::Second(()) => Err("timeout".into()),
    }
}

#[test]
fn a_timer_put_before_the_recorded_activities_is_nondeterminism() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_activity("A", "").await.map_err(application_error)?;
            ctx.schedule_activity("B", "").await.map_err(application_error)?;
            Ok("done".into())
        },
        (),
    );
    drive.complete(2, ()).complete(4, ());
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_timer(Duration::from_secs(5)).await;
        ctx.schedule_activity("A", "").await.map_err(application_error)?;
        ctx.schedule_activity("B", "").await.map_err(application_error)?;
        Ok("done".into())
    };
    match drive.replay_with(changed) {
        Err(TurnFailure::Nondeterminism(divergence)) => {
            assert_eq!((divergence.turn, divergence.event.0), (1, 2));
            assert_eq!(divergence.recorded.line, r#"ActivityScheduled "A" """#);
            assert_eq!(divergence.code.line, "TimerCreated due 6000");
        }
        other => panic!("expected nondeterminism, got {:?}", other.map(|_| ())),
    }
}

#[test]
fn waits_take_events_in_subscription_order_early_ones_included() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_activity("Prepare", "").await.map_err(application_error)?;
            let (first, second) = (ctx.schedule_wait("MyEvent"), ctx.schedule_wait("MyEvent"));
            let (first, second) = ctx.join2(first, second).await;
            Ok(Payload::encode(&(first, second)).expect("a pair encodes"))
        },
        (),
    );
    drive.evict().raise("MyEvent", "early");
    assert_eq!(drive.last_lines(), [r#"3 ExternalEvent "MyEvent" "early""#]);
    drive.evict().complete(2, ()).evict().raise("MyEvent", "late").evict();
    assert_eq!(
        drive.lines()[3..],
        [
            r#"4 ActivityCompleted of 2 null"#,
            r#"5 ExternalSubscribed "MyEvent""#,
            r#"6 ExternalSubscribed "MyEvent""#,
            r#"7 ExternalEvent "MyEvent" "late""#,
            r#"8 OrchestrationCompleted ["early","late"]"#,
        ]
    );
}

#[test]
fn a_sub_orchestration_returns_or_fails() {
    let parent = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_sub_orchestration("Child", "input").await.map_err(|failure| match failure {
            ChildError::Application(error) => error,
            other => Payload::from(format!("{other:?}")),
        })
    };
    let mut drive = Drive::start(parent, ());
    drive.evict().turn([Drive::child_completed(2, "grown")]).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 SubOrchestrationScheduled "Child" latest as derived id "input""#,
            r#"3 SubOrchestrationCompleted of 2 "grown""#,
            r#"4 OrchestrationCompleted "grown""#,
        ]
    );

    let mut drive = Drive::start(parent, ());
    let failed = Job::SubOrchestrationFailed {
        source_event_id: EventId(2),
        error: ChildError::Application("lost".into()),
    };
    drive.evict().turn([failed]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"3 SubOrchestrationFailed of 2 "lost""#, r#"4 OrchestrationFailed "lost""#]
    );
}

#[test]
fn system_calls_give_the_recorded_value_at_once() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (guid, now) = (ctx.new_guid().await, ctx.utc_now().await);
            let result = ctx
                .schedule_activity("Use", format!("{guid} at {}", now.as_millis()))
                .await
                .map_err(application_error)?;
            Ok(Payload::encode(&(guid, now, result)).expect("a triple encodes"))
        },
        (),
    );
    let lines = drive.lines();
    assert_eq!(lines[1..3], [r#"2 SystemCall "new_guid""#, r#"3 SystemCall "utc_now""#]);
    assert!(
        lines[3].starts_with(r#"4 ActivityScheduled "Use" ""#) && lines[3].ends_with(r#" at 1000""#),
        "{lines:?}"
    );
    let guid: String =
        lines[3].trim_start_matches(r#"4 ActivityScheduled "Use" ""#).chars().take(36).collect();
    drive.evict().at(9_000).complete(4, "used").evict();
    assert_eq!(drive.last_lines()[1], format!(r#"6 OrchestrationCompleted ["{guid}",1000,"used"]"#));
}

#[test]
fn a_cancel_request_in_the_same_turn_wins_over_an_output() {
    let mut drive = Drive::start(slow_task_or_timeout, ());
    drive.evict().turn([Drive::completed(2, "result"), Drive::cancel("no longer wanted", 9_000)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 2 "result""#,
            r#"5 OrchestrationCancelRequested "no longer wanted""#,
            r#"6 OrchestrationCancelled "no longer wanted""#,
        ]
    );
}

#[test]
fn a_completion_without_an_open_schedule_is_dropped_live_and_corrupt_in_a_record() {
    let mut drive = Drive::start(slow_task_or_timeout, ());
    let taken =
        drive.try_turn([Drive::completed(7, "whose?"), Drive::fired(2)]).expect("stale jobs are no failure");
    let reasons: Vec<StaleReason> = taken.stale.iter().map(|stale| stale.reason).collect();
    assert_eq!(reasons, [StaleReason::NotOpen, StaleReason::WrongKind]);
    assert!(taken.turn.is_none());

    drive.complete(2, "result");
    let mut forged = drive.history().clone();
    match &mut forged.turns[1].events[0].kind {
        EventKind::Job(Job::ActivityCompleted { source_event_id, .. }) => {
            source_event_id.0 = 7;
        }
        other => panic!("unexpected {other:?}"),
    }
    match drive.replayed(&forged) {
        Err(TurnFailure::History(HistoryError::Corrupt(corrupt))) => {
            assert_eq!((corrupt.turn, corrupt.event.map(|event| event.0)), (2, Some(4)));
        }
        other => panic!("expected corruption, got {:?}", other.map(|_| ())),
    }
}

#[test]
fn other_waits_than_recorded_are_nondeterminism_though_the_events_are_the_same() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let first = ctx.schedule_wait("X").await;
            let second = ctx.schedule_wait("Y").await;
            Ok(Payload::encode(&(first, second)).expect("a pair encodes"))
        },
        (),
    );
    drive.turn([Drive::event("X", 1.to_string()), Drive::event("Y", 2.to_string())]);
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        let second = ctx.schedule_wait("Y").await;
        let first = ctx.schedule_wait("X").await;
        Ok(Payload::encode(&(first, second)).expect("a pair encodes"))
    };
    match drive.replay_with(changed) {
        Err(TurnFailure::Nondeterminism(divergence)) => {
            assert_eq!((divergence.turn, divergence.event.0), (1, 2));
            assert_eq!(divergence.code.line, r#"ExternalSubscribed "Y""#);
        }
        other => panic!("expected nondeterminism, got {:?}", other.map(|_| ())),
    }
}
