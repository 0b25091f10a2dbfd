//! Completions and cancels that do not fit: dropped and reported while live, corruption once recorded (E3, E14).

use std::time::Duration;

use crate::history_builders::{
    activity, begun, child, completions, corruption, job, root, status, stored, timer, turns, wait,
};
use perennial_core::{
    ClosePolicy, Decision, EventId, Job, Ledger, OrchestrationContext, Payload, StaleReason, Turn, TurnTaken,
};
use perennial_testkit::Drive;

/// The decisions that open something, and one that does not.
fn openings() -> [Decision; 5] {
    [activity("a"), timer(1_000), wait("go"), child("c"), status("busy")]
}

/// Which completions fit which opening.
fn fits(job: &Job, opening: &Decision) -> bool {
    matches!(
        (job, opening),
        (Job::ActivityCompleted { .. } | Job::ActivityFailed { .. }, Decision::ActivityScheduled { .. })
            | (Job::TimerFired { .. }, Decision::TimerCreated { .. })
            | (
                Job::SubOrchestrationCompleted { .. } | Job::SubOrchestrationFailed { .. },
                Decision::SubOrchestrationScheduled { .. }
            )
    )
}

/// The words for a recorded job that should have been dropped.
fn stale(job: &Job, reason: StaleReason) -> String {
    format!("{}: {reason}", job.name())
}

fn opened_and(opening: Decision, jobs: impl IntoIterator<Item = Job>) -> Vec<Turn> {
    turns([(1_000, vec![begun(), root(opening)]), (2_000, jobs.into_iter().map(job).collect())])
}

#[test]
fn e3_every_pair_of_a_wrong_kind_of_completion_is_corruption() {
    let mut wrong = 0;
    for opening in openings() {
        for completion in completions(2) {
            let recorded = opened_and(opening.clone(), [completion.clone()]);
            if fits(&completion, &opening) {
                assert!(stored(&recorded).is_ok(), "{} of {}", completion.name(), opening.name());
                continue;
            }
            let reason = match opening {
                Decision::StatusSet { .. } => StaleReason::NotOpen,
                _ => StaleReason::WrongKind,
            };
            assert_eq!(corruption(&recorded), (2, Some(3), stale(&completion, reason)));
            wrong += 1;
        }
    }
    assert_eq!(wrong, 20);
}

#[test]
fn e14_every_pair_of_a_wrong_kind_of_completion_is_dropped_while_live() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let activity = ctx.schedule_activity("a", ());
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let wait = ctx.schedule_wait("go");
        let child = ctx.schedule_sub_orchestration("c", ());
        ctx.set_status("busy");
        let _ = ctx.join3(activity, timer, child).await;
        Ok(wait.await)
    };
    let mut drive = Drive::start(code, ());
    let openings: Vec<(u64, Decision)> =
        drive.last_turn().decisions().map(|(id, _, decision)| (id.0, decision.clone())).collect();
    assert_eq!(openings.len(), 5);
    let mut wrong = Vec::new();
    for (id, opening) in &openings {
        wrong.extend(completions(*id).into_iter().filter(|job| !fits(job, opening)));
    }
    let TurnTaken { turn, stale, .. } = drive.try_turn(wrong.clone()).expect("dropping is no failure");
    assert_eq!(turn, None, "nothing is recorded");
    let dropped: Vec<(Job, StaleReason)> = stale.into_iter().map(|stale| (stale.job, stale.reason)).collect();
    let expected: Vec<(Job, StaleReason)> = wrong
        .into_iter()
        .map(|job| match job.source_event_id() {
            Some(EventId(6)) => (job, StaleReason::NotOpen),
            _ => (job, StaleReason::WrongKind),
        })
        .collect();
    assert_eq!(dropped, expected, "all are reported, in order");
    assert_eq!(dropped.len(), 20);

    let right =
        [Drive::completed(2, ()), Drive::fired(3), Drive::event("go", ()), Drive::child_completed(5, ())];
    drive.evict().turn(right);
    assert_eq!(
        drive.last_lines(),
        [
            "7 ActivityCompleted of 2 null",
            "8 TimerFired of 3",
            "9 ExternalEvent \"go\" null",
            "10 SubOrchestrationCompleted of 5 null",
            "11 OrchestrationCompleted null",
        ],
        "and what they named is still open for what fits"
    );
}

#[test]
fn e3_a_completion_without_its_schedule_is_corruption() {
    for source in [0, 1, 3, 4, 99, u64::MAX] {
        for completion in completions(source) {
            let recorded = opened_and(activity("a"), [completion.clone()]);
            let problem = stale(&completion, StaleReason::NotOpen);
            assert_eq!(corruption(&recorded), (2, Some(3), problem), "source {source}");
        }
    }
    let [done, ..] = completions(3);
    let before = turns([(1_000, vec![begun(), job(done.clone()), root(activity("a"))])]);
    assert_eq!(corruption(&before), (1, Some(2), stale(&done, StaleReason::NotOpen)), "nor before it");
}

#[test]
fn e3_a_second_completion_is_corruption() {
    for opening in openings() {
        let fitting = || completions(2).into_iter().filter(|job| fits(job, &opening));
        for (first, second) in
            fitting().flat_map(|first| fitting().map(move |second| (first.clone(), second)))
        {
            let problem = stale(&second, StaleReason::NotOpen);
            let together = opened_and(opening.clone(), [first.clone(), second.clone()]);
            assert_eq!(corruption(&together), (2, Some(4), problem.clone()));
            let apart = turns([
                (1_000, vec![begun(), root(opening.clone())]),
                (2_000, vec![job(first)]),
                (2_000, vec![job(second)]),
            ]);
            assert_eq!(corruption(&apart), (3, Some(4), problem));
        }
    }
}

/// The decisions that close an opening, in the order of the openings.
fn cancels(source: u64) -> [Decision; 4] {
    let source_event_id = EventId(source);
    [
        Decision::ActivityCancelRequested { source_event_id },
        Decision::TimerCancelled { source_event_id },
        Decision::ExternalUnsubscribed { source_event_id },
        Decision::SubOrchestrationCancelRequested { source_event_id },
    ]
}

#[test]
fn e3_a_completion_of_a_cancelled_operation_is_corruption() {
    for (opening, cancel) in openings().into_iter().zip(cancels(2)) {
        for completion in completions(2) {
            let recorded = turns([
                (1_000, vec![begun(), root(opening.clone()), root(cancel.clone())]),
                (2_000, vec![job(completion.clone())]),
            ]);
            let problem = stale(&completion, StaleReason::NotOpen);
            assert_eq!(corruption(&recorded), (2, Some(4), problem));
        }
    }
}

#[test]
fn e3_a_cancel_of_what_is_not_open_or_of_another_kind_is_corruption() {
    let problem = |cancel: &Decision| format!("{} has nothing open to refer to", cancel.name());
    for (position, opening) in openings().into_iter().enumerate() {
        for (kind, cancel) in cancels(2).into_iter().enumerate() {
            let once = turns([(1_000, vec![begun(), root(opening.clone()), root(cancel.clone())])]);
            if kind != position {
                assert_eq!(corruption(&once), (1, Some(3), problem(&cancel)));
                continue;
            }
            assert!(stored(&once).is_ok());
            let twice = turns([(
                1_000,
                vec![begun(), root(opening.clone()), root(cancel.clone()), root(cancel.clone())],
            )]);
            assert_eq!(corruption(&twice), (1, Some(4), problem(&cancel)));
        }
    }
    for (opening, cancel) in openings().into_iter().zip(cancels(2)) {
        for completion in completions(2).into_iter().filter(|job| fits(job, &opening)) {
            let late = turns([
                (1_000, vec![begun(), root(opening.clone())]),
                (2_000, vec![job(completion), root(cancel.clone())]),
            ]);
            assert_eq!(corruption(&late), (2, Some(4), problem(&cancel)), "nothing is left to cancel");
        }
    }
}

#[test]
fn e14_a_second_completion_and_one_of_a_cancelled_operation_are_dropped_while_live() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let slow = ctx.schedule_activity("slow", ());
        let _ = ctx.schedule_activity("quick", ()).await;
        drop(slow);
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    let mut drive = Drive::start(code, ());
    let twice = [Drive::completed(3, "first"), Drive::completed(3, "second"), Drive::failed(3, "third")];
    let taken = drive.try_turn(twice).expect("a turn");
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 3 "first""#,
            r#"5 ExternalSubscribed "end""#,
            "6 ActivityCancelRequested of 2",
        ]
    );
    let reasons: Vec<StaleReason> = taken.stale.iter().map(|stale| stale.reason).collect();
    assert_eq!(reasons, [StaleReason::NotOpen, StaleReason::NotOpen]);

    let late = [Drive::completed(2, "late"), Drive::event("end", ()), Drive::completed(3, "again")];
    let taken = drive.evict().try_turn(late).expect("a turn");
    assert_eq!(drive.last_lines(), ["7 ExternalEvent \"end\" null", "8 OrchestrationCompleted null"]);
    assert_eq!(taken.stale.len(), 2);
    assert_eq!(drive.execution().ledger().admit(&Drive::event("end", ())), Err(StaleReason::Ended));
}

#[test]
fn e14_what_is_open_follows_from_the_history() {
    let kept = Decision::SubOrchestrationScheduled {
        name: "c".to_owned(),
        version: None,
        instance: None,
        input: Payload::null(),
        close: ClosePolicy::Abandon,
        options: None,
    };
    let [done, .., child_failed] = completions(2);
    let recorded = turns([
        (
            1_000,
            vec![begun(), root(activity("a")), root(timer(9_000)), root(timer(5_000)), root(kept.clone())],
        ),
        (
            2_000,
            vec![
                job(done),
                root(activity("b")),
                root(Decision::TimerCancelled { source_event_id: EventId(4) }),
            ],
        ),
        (3_000, vec![job(Drive::update("u", ()))]),
    ]);
    let mut ledger = Ledger::default();
    for turn in &recorded {
        ledger.apply_turn(turn).expect("it applies");
    }
    let open: Vec<(u64, Decision)> = ledger.open().map(|(id, decision)| (id.0, decision.clone())).collect();
    assert_eq!(open, [(3, timer(9_000)), (5, kept), (7, activity("b"))]);
    assert_eq!(ledger.timers().collect::<Vec<_>>(), [(9_000, EventId(3))]);
    assert_eq!(ledger.open_activities(), 1);
    assert_eq!(ledger.open_updates().collect::<Vec<_>>(), [EventId(9)]);
    assert_eq!((ledger.turns(), ledger.events(), ledger.last_at_ms()), (3, 9, 3_000));
    assert_eq!(ledger.admit(&child_failed), Err(StaleReason::NotOpen));
}
