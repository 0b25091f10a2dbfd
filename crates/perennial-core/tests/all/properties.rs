//! What holds for every program in every world: replay is execution, and memory is no more than a convenience.
//!
//! See [`for_each_case`] for running more cases, or one of them again.

use std::sync::Arc;

use perennial_core::history::{decode_turn, encode_turn};
use perennial_core::{Ending, Execution, ExecutionOptions, Turn, TurnFailure};
use perennial_testkit::{
    Case, Features, INSTANCE, ProgramHandler, RecordedExecution, Recording, Unfinished, View, for_each_case,
};

const CASES: u64 = 1_000;

/// The recording of a case.
fn record(case: &Case) -> Recording {
    finished(case.world().run(&case.program))
}

fn finished(outcome: Result<Recording, Box<Unfinished>>) -> Recording {
    outcome.unwrap_or_else(|unfinished| panic!("{unfinished}"))
}

fn each_execution(features: &Features, mut property: impl FnMut(&RecordedExecution)) {
    for_each_case(CASES, features, |case| {
        record(case).executions.iter().for_each(&mut property);
    });
}

fn without_shadow() -> ExecutionOptions {
    ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() }
}

fn expect_taken<T>(outcome: Result<T, TurnFailure>) -> T {
    outcome.unwrap_or_else(|failure| match failure {
        TurnFailure::Nondeterminism(difference) => panic!("{}", difference.report()),
        failure => panic!("{failure}"),
    })
}

#[test]
fn e6_any_prefix_replays_and_then_takes_the_same_next_turn() {
    each_execution(&Features::all(), |recorded| {
        for (replayed, next) in recorded.history.turns.iter().enumerate() {
            let mut execution = expect_taken(recorded.resume_after(replayed, without_shadow()));
            if replayed > 0 {
                assert_eq!(View::of(&mut execution), recorded.views[replayed - 1]);
            }
            assert_eq!(shown(&take_again(&mut execution, next, recorded)), shown(next));
        }
    });
}

/// Takes a recorded turn live.
fn take_again(execution: &mut Execution, turn: &Turn, recorded: &RecordedExecution) -> Turn {
    if let Some(Ending::OrchestrationTerminated { reason }) = turn.ending() {
        return execution.ledger().clone().terminate(turn.at_ms, reason);
    }
    let jobs = turn.jobs().map(|(_, job)| job.clone()).collect();
    let taken = expect_taken(execution.take_turn(turn.at_ms, jobs));
    assert!(taken.stale.is_empty(), "a recorded job is stale: {:?}", taken.stale);
    if turn.ending().is_some() {
        assert_eq!(taken.successor, recorded.successor);
    }
    taken.turn.expect("the turn was recorded")
}

/// A turn's bytes, as text.
fn shown(turn: &Turn) -> String {
    String::from_utf8(encode_turn(turn)).expect("turns are JSON")
}

#[test]
fn e4_replaying_twice_changes_nothing() {
    each_execution(&Features::all(), |recorded| {
        for _ in 0..2 {
            let mut execution = expect_taken(recorded.resume_after(0, without_shadow()));
            for (index, turn) in recorded.history.turns.iter().enumerate() {
                expect_taken(execution.replay_turn(turn));
                // A turn that terminates runs no code, and nobody looked at the execution after it.
                if let Some(view) = recorded.views.get(index) {
                    assert!(view.state.is_ok(), "a query is answered after every turn, the last included");
                    assert_eq!(View::of(&mut execution), *view);
                }
            }
            assert!(execution.has_ended());
        }
    });
}

#[test]
fn e4_eviction_at_any_turn_boundary_is_invisible() {
    let (mut cases, mut evictions) = (0, 0);
    for_each_case(CASES, &Features::all(), |case| {
        let resident = record(case);
        let evicted = finished(case.world().evicting().run(&case.program));
        assert_same(&resident, &evicted);
        cases += 1;
        evictions += evicted.unrecorded.get("evicted").copied().unwrap_or_default();
    });
    assert!(evictions >= 2 * CASES || cases < CASES, "there were only {evictions} evictions");
}

#[test]
fn e28_shadow_replay_finds_nothing_in_deterministic_code() {
    for_each_case(CASES, &Features::all(), |case| {
        let plain = record(case);
        let shadowed = finished(case.world().with_shadow_replay().run(&case.program));
        assert_same(&plain, &shadowed);
    });
}

fn assert_same(one: &Recording, other: &Recording) {
    assert_eq!(one.executions.len(), other.executions.len());
    for (one, other) in one.executions.iter().zip(&other.executions) {
        assert_eq!(one, other);
        assert_eq!(one.bytes(), other.bytes());
    }
}

#[test]
fn e3_bytes_hold_what_was_recorded() {
    each_execution(&Features::all(), |recorded| {
        for turn in &recorded.history {
            let bytes = encode_turn(turn);
            let decoded = decode_turn(turn.number, &bytes).expect("a recorded turn decodes");
            assert_eq!(decoded, *turn);
            assert_eq!(encode_turn(&decoded), bytes);
        }
    });
}

#[test]
fn e20_patch_gates_can_be_deleted() {
    each_execution(&Features::all(), |recorded| {
        let handler = Arc::new(ProgramHandler::default().without_gates());
        let started = recorded.started.clone();
        let mut execution = Execution::new(INSTANCE, handler, started, without_shadow()).expect("it begins");
        for turn in &recorded.history {
            expect_taken(execution.replay_turn(turn));
        }
    });
}
