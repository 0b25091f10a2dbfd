//! What is recorded once: keys, cancel requests, answers to updates, patch marks (E3, E14).

use std::collections::BTreeSet;

use crate::history_builders::{begun, corruption, job, root, started, stored, turns, wait};
use perennial_core::{
    CancelRequest, Decision, EventId, EventKind, Job, Ledger, OrchestrationContext, Payload, StaleReason,
    Started,
};
use perennial_testkit::Drive;

/// The words for a recorded job that should have been dropped.
fn stale(job: &Job, reason: StaleReason) -> String {
    format!("{}: {reason}", job.name())
}

fn keyed(name: &str, key: &str) -> Job {
    let (name, payload, key) = (name.to_owned(), Payload::null(), Some(key.to_owned()));
    Job::ExternalEvent { name, payload, key, trace: None }
}

fn keyed_update(name: &str, key: &str) -> Job {
    let (name, payload, key) = (name.to_owned(), Payload::null(), Some(key.to_owned()));
    Job::UpdateRequested { name, payload, key, trace: None }
}

#[test]
fn e3_a_key_is_recorded_once() {
    for second in [keyed("other", "k"), keyed_update("other", "k")] {
        let problem = stale(&second, StaleReason::KnownKey);
        let together = turns([(1_000, vec![begun(), job(keyed("go", "k")), job(second.clone())])]);
        assert_eq!(corruption(&together), (1, Some(3), problem.clone()));
        let apart =
            turns([(1_000, vec![begun(), job(keyed_update("go", "k"))]), (2_000, vec![job(second.clone())])]);
        assert_eq!(corruption(&apart), (2, Some(3), problem.clone()));
        let carried = Started { recent_keys: vec!["k".to_owned()], ..started() };
        let carried = turns([(1_000, vec![EventKind::Started(Box::new(carried)), job(second)])]);
        assert_eq!(corruption(&carried), (1, Some(2), problem));
    }
    let without = turns([(1_000, vec![begun(), job(Drive::event("go", ())), job(Drive::event("go", ()))])]);
    assert!(stored(&without).is_ok(), "events without a key are never duplicates");
}

#[test]
fn e14_a_known_key_is_dropped_while_live() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    let mut drive = Drive::start(code, ());
    let jobs = [keyed("go", "k"), keyed("other", "k"), keyed("other", "l")];
    let taken = drive.try_turn(jobs).expect("a turn");
    assert_eq!(drive.last_lines(), [r#"3 ExternalEvent "go" null"#, r#"4 ExternalEvent "other" null"#]);
    assert_eq!(taken.stale[0].reason, StaleReason::KnownKey);
    let taken = drive.evict().try_turn([keyed_update("x", "l")]).expect("no turn");
    assert_eq!((taken.turn, taken.stale[0].reason), (None, StaleReason::KnownKey));
    assert_eq!(drive.execution().ledger().keys_to_carry(&BTreeSet::new()).0, ["k", "l"]);
}

#[test]
fn e3_a_second_cancel_request_is_recorded_only_with_a_sooner_grace() {
    let recorded = |grace| {
        turns([
            (1_000, vec![begun(), root(wait("go"))]),
            (2_000, vec![job(Drive::cancel("first", 7_000))]),
            (3_000, vec![job(Drive::cancel("second", grace))]),
        ])
    };
    let problem =
        "OrchestrationCancelRequested: cancellation is already requested, and its grace period ends no later";
    for grace in [6_000, 6_001] {
        assert_eq!(corruption(&recorded(grace)), (3, Some(4), problem.to_owned()));
    }
    let mut ledger = Ledger::default();
    for turn in recorded(5_999) {
        ledger.apply_turn(&turn).expect("a sooner grace counts");
    }
    assert_eq!(ledger.cancel_request().map(CancelRequest::until_ms), Some(8_999));
    assert_eq!(ledger.admit(&Drive::cancel("third", 5_999)), Err(StaleReason::AlreadyCancelling));
    assert_eq!(ledger.admit(&Drive::cancel("third", 5_998)), Ok(()));
}

#[test]
fn e3_an_update_is_answered_once_and_only_if_it_was_requested() {
    let answer = |source| {
        root(Decision::UpdateCompleted { source_event_id: EventId(source), result: Ok(Payload::null()) })
    };
    let problem = || "UpdateCompleted has nothing open to refer to".to_owned();
    let update = || job(Drive::update("u", ()));
    let twice = turns([(1_000, vec![begun(), update(), answer(2), answer(2)])]);
    assert_eq!(corruption(&twice), (1, Some(4), problem()));
    let unknown = turns([(1_000, vec![begun(), update(), answer(1)])]);
    assert_eq!(corruption(&unknown), (1, Some(3), problem()));
    let no_update = turns([(1_000, vec![begun(), job(Drive::event("e", ())), answer(2)])]);
    assert_eq!(corruption(&no_update), (1, Some(3), problem()));
    assert!(stored(&turns([(1_000, vec![begun(), update(), answer(2)])])).is_ok());
}

#[test]
fn e3_a_patch_is_marked_once() {
    let mark = || root(Decision::PatchMarked { id: "p".to_owned() });
    let twice = turns([(1_000, vec![begun(), mark()]), (2_000, vec![mark()])]);
    let problem = "PatchMarked has nothing open to refer to".to_owned();
    assert_eq!(corruption(&twice), (2, Some(3), problem));
}
