//! Results go to tokens; what nothing waits for is dropped before it is recorded, and reported (E14).

use std::time::Duration;

use perennial_core::{
    ActivityError, ChildError, Event, EventId, EventKind, HistoryError, Job, OrchestrationContext, Payload,
    StaleReason, TurnFailure, TurnTaken,
};
use perennial_testkit::Drive;

/// Waits for an activity (2), a timer (3), an event (4) and a child (5), and publishes a status (6).
async fn waits_for_everything(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let activity = ctx.schedule_activity("A", ());
    let timer = ctx.schedule_timer(Duration::from_secs(1));
    let wait = ctx.schedule_wait("go");
    let child = ctx.schedule_sub_orchestration("Child", ());
    ctx.set_status("waiting");
    let (_, (), _) = ctx.join3(activity, timer, child).await;
    Ok(wait.await)
}

/// Every kind of completion of `source`.
fn completions_of(source: u64) -> [Job; 5] {
    let source_event_id = EventId(source);
    let (activity_error, child_error) = (ActivityError::Poisoned, ChildError::Application(().into()));
    [
        Drive::completed(source, ()),
        Job::ActivityFailed {
            source_event_id,
            error: activity_error,
            attempts: 1,
            trail: Default::default(),
        },
        Drive::fired(source),
        Drive::child_completed(source, ()),
        Job::SubOrchestrationFailed { source_event_id, error: child_error },
    ]
}

fn reasons(taken: &TurnTaken) -> Vec<(&Job, StaleReason)> {
    taken.stale.iter().map(|stale| (&stale.job, stale.reason)).collect()
}

#[test]
fn e14_a_second_completion_is_dropped() {
    let mut drive = Drive::start(waits_for_everything, ());
    let again = Drive::completed(2, "again");
    let taken = drive.try_turn([Drive::completed(2, "first"), again.clone()]).unwrap();
    assert_eq!(reasons(&taken), [(&again, StaleReason::NotOpen)]);
    assert_eq!(drive.last_lines(), [r#"7 ActivityCompleted of 2 "first""#]);

    let failed = Drive::failed(2, "and once more");
    let taken = drive.evict().try_turn([failed.clone()]).unwrap();
    assert_eq!(taken.turn, None);
    assert_eq!(reasons(&taken), [(&failed, StaleReason::NotOpen)]);
}

#[test]
fn e14_a_completion_of_the_wrong_kind_is_dropped_in_every_pairing() {
    let mut drive = Drive::start(waits_for_everything, ());
    let fitting = |source, name: &str| match source {
        2 => name.starts_with("Activity"),
        3 => name == "TimerFired",
        5 => name.starts_with("SubOrchestration"),
        _ => false,
    };
    let mut pairs = 0;
    for source in 2..=5 {
        for job in completions_of(source) {
            if fitting(source, job.name()) {
                continue;
            }
            pairs += 1;
            let taken = drive.try_turn([job.clone()]).unwrap();
            assert_eq!(taken.turn, None, "{job:?}");
            assert_eq!(reasons(&taken), [(&job, StaleReason::WrongKind)]);
        }
    }
    assert_eq!(pairs, 20 - 5);
    assert_eq!(drive.history().turns.len(), 1);
}

#[test]
fn e14_a_completion_of_an_unknown_source_is_dropped() {
    let mut drive = Drive::start(waits_for_everything, ());
    // The started event, a decision that waits for nothing, an event that is still to come, and none at all.
    for source in [1, 6, 7, 99, 0, u64::MAX] {
        for job in completions_of(source) {
            let taken = drive.try_turn([job.clone()]).unwrap();
            assert_eq!(taken.turn, None);
            assert_eq!(reasons(&taken), [(&job, StaleReason::NotOpen)]);
        }
    }
}

#[test]
fn e14_a_completion_of_a_cancelled_operation_is_dropped() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let activity = ctx.schedule_activity("A", ());
            let timer = ctx.schedule_timer(Duration::from_secs(60));
            let child = ctx.schedule_sub_orchestration("Child", ());
            ctx.schedule_wait("go").await;
            drop((activity, timer, child));
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.raise("go", ()).evict();
    let jobs = [Drive::completed(2, ()), Drive::fired(3), Drive::child_completed(4, ())];
    let taken = drive.try_turn(jobs.clone()).unwrap();
    assert_eq!(taken.turn, None);
    assert_eq!(reasons(&taken), jobs.each_ref().map(|job| (job, StaleReason::NotOpen)));
}

#[test]
fn e14_stale_jobs_leave_no_gap_among_the_others_and_do_not_move_time() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.select2(ctx.schedule_timer(Duration::from_secs(60)), ctx.schedule_wait("go")).await);
            let end = ctx.schedule_wait("end").await;
            Ok(end)
        },
        (),
    );
    drive.raise("go", ());
    assert_eq!(
        drive.last_lines(),
        [r#"4 ExternalEvent "go" null"#, r#"5 ExternalSubscribed "end""#, "6 TimerCancelled of 2",]
    );
    let taken =
        drive.try_turn([Drive::fired(2), Drive::event("end", "now"), Drive::completed(99, ())]).unwrap();
    assert_eq!(taken.stale.len(), 2);
    assert_eq!(drive.last_lines(), [r#"7 ExternalEvent "end" "now""#, r#"8 OrchestrationCompleted "now""#]);
    assert_eq!(drive.last_turn().at_ms, 1_000, "a timer that is gone moves nothing");
    drive.evict();
}

#[test]
fn e14_a_turn_of_stale_jobs_alone_records_nothing() {
    let mut drive = Drive::start(waits_for_everything, ());
    let (lines, bytes) = (drive.lines(), drive.execution().ledger().bytes());
    let stale = [Drive::completed(99, ()), Drive::fired(2)];
    let taken = drive.at(9_000).try_turn(stale).unwrap();
    assert_eq!(taken.turn, None);
    assert_eq!(taken.stale.len(), 2);
    assert!(taken.successor.is_none() && taken.ended_updates.is_empty());
    let ledger = drive.execution().ledger();
    assert_eq!((ledger.turns(), ledger.events(), ledger.bytes(), ledger.last_at_ms()), (1, 6, bytes, 1_000));
    assert_eq!(drive.lines(), lines);

    drive.at(2_000).complete(2, ());
    assert_eq!((drive.last_turn().number, drive.last_turn().at_ms), (2, 2_000));
    assert_eq!(drive.last_lines(), ["7 ActivityCompleted of 2 null"]);
}

#[test]
fn e14_an_event_or_update_with_a_known_key_is_dropped() {
    let mut drive = Drive::start(waits_for_everything, ());
    let keyed = |payload: &str| Job::ExternalEvent {
        name: "other".to_owned(),
        payload: payload.into(),
        key: Some("k-1".to_owned()),
        trace: None,
    };
    drive.turn([keyed("first")]).evict();
    let update = Job::UpdateRequested {
        name: "change".to_owned(),
        payload: ().into(),
        key: Some("k-1".to_owned()),
        trace: None,
    };
    let taken = drive.try_turn([keyed("again"), update.clone()]).unwrap();
    assert_eq!(taken.turn, None);
    assert_eq!(reasons(&taken), [(&keyed("again"), StaleReason::KnownKey), (&update, StaleReason::KnownKey)]);
    // Without a key every event is a new one.
    drive.turn([Drive::event("other", "x"), Drive::event("other", "x")]);
    assert_eq!(drive.last_lines(), [r#"8 ExternalEvent "other" "x""#, r#"9 ExternalEvent "other" "x""#]);
}

#[test]
fn e14_a_stale_job_in_a_recorded_turn_is_corruption() {
    let mut drive = Drive::start(waits_for_everything, ());
    drive.complete(2, ());
    for (source, job) in [2, 3, 4, 6, 99].into_iter().flat_map(|source| {
        let fits_timer = |job: &Job| matches!(job, Job::TimerFired { .. });
        let jobs = completions_of(source).into_iter();
        jobs.filter(move |job| source != 3 || !fits_timer(job)).map(move |job| (source, job))
    }) {
        let mut history = drive.history().clone();
        let mut turn = history.turns[1].clone();
        turn.number = 3;
        turn.at_ms = 60_000;
        turn.events = vec![Event { id: EventId(8), kind: EventKind::Job(job) }];
        history.turns.push(turn);
        match drive.replayed(&history) {
            Err(TurnFailure::History(HistoryError::Corrupt(corrupt))) => {
                assert_eq!((corrupt.turn, corrupt.event), (3, Some(EventId(8))), "of {source}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a stale completion of {source} was replayed"),
        }
    }
}

#[test]
fn e14_a_result_that_nobody_awaits_is_recorded_and_harmless() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let activity = ctx.schedule_activity("A", ());
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            let child = ctx.schedule_sub_orchestration("Child", ());
            ctx.schedule_wait("go").await;
            drop((timer, child));
            ctx.schedule_wait("end").await;
            Ok(activity.await.unwrap())
        },
        (),
    );
    drive.turn([Drive::completed(2, "early"), Drive::fired(3), Drive::child_completed(4, ())]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"6 ActivityCompleted of 2 "early""#, "7 TimerFired of 3", "8 SubOrchestrationCompleted of 4 null",]
    );
    drive.raise("go", ()).evict().raise("end", ()).evict();
    assert_eq!(
        drive.lines()[8..],
        [
            r#"9 ExternalEvent "go" null"#,
            r#"10 ExternalSubscribed "end""#,
            r#"11 ExternalEvent "end" null"#,
            r#"12 OrchestrationCompleted "early""#,
        ]
    );
}
