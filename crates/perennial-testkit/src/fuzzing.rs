//! Bodies of fuzz targets: arbitrary bytes as turns, and arbitrary turns as histories of real code.
//!
//! The fuzz targets and an ordinary test run the same bodies. A body panics when it finds a bug. Its return
//! value says how far the input came, so that a test can check that its inputs have the intended reach.

mod choices;
mod mutation;
mod target;

use std::sync::Arc;

use perennial_core::ErrorCode;
use perennial_core::history::{decode_history, decode_turn, encode_turn};
use perennial_core::{
    Execution, ExecutionOptions, Handlers, History, HistoryError, Ledger, ReplayReport, Replayer, Turn,
    TurnFailure,
};

use choices::Choices;

/// How far an input came: to the end, or to a failure with this stable code.
pub type Reached = Result<(), ErrorCode>;

/// Decodes bytes as one turn and, split at newlines, as a history. Decoded values must survive encoding and
/// decoding.
///
/// # Panics
///
/// If they do not, which is a bug.
pub fn decode(bytes: &[u8]) -> Reached {
    if let Ok(turn) = checked_code(decode_turn(1, bytes)) {
        let encoded = encode_turn(&turn);
        let again = decode_turn(1, &encoded).expect("what was encoded decodes");
        assert_eq!(again, turn, "encoding changed a turn");
        assert_eq!(encode_turn(&again), encoded, "a turn has two encodings");
    }
    let history = checked_code(decode_history(lines(bytes)))?;
    let encoded: Vec<Vec<u8>> = history.turns.iter().map(encode_turn).collect();
    let again = decode_history(&encoded).expect("what was encoded decodes");
    assert_eq!(again, history, "encoding changed a history");
    Ok(())
}

/// Decodes bytes, split at newlines, as turns, replays them with an orchestration that uses a bit of every
/// feature, and takes further turns if the replay succeeds.
///
/// # Panics
///
/// If something other than the history is at fault, or if an invalid history replays: both are bugs.
pub fn replay(bytes: &[u8]) -> Reached {
    let turns: Result<Vec<Turn>, HistoryError> =
        (1..).zip(lines(bytes)).map(|(number, line)| decode_turn(number, line)).collect();
    replay_turns(checked_code(turns)?, bytes)
}

/// Records a history, corrupts it, and passes it to [`decode`] and [`replay`]. The bytes determine all
/// choices.
///
/// # Panics
///
/// As [`decode`] and [`replay`] do.
pub fn replay_mutated(choices: &[u8]) -> Reached {
    let bytes = mutated_history(choices);
    // An invalid history may decode and fail only in the replay, with another error.
    let _ = decode(&bytes);
    replay(&bytes)
}

/// A recorded history with a change in its bytes, numbers, words, events or turns. One line per turn.
pub fn mutated_history(choices: &[u8]) -> Vec<u8> {
    let mut choices = Choices::new(choices);
    let recorded = target::record(&mut choices);
    mutation::mutate(recorded, &mut choices)
}

/// A history that [`replay`] accepts. One line per turn.
pub fn recorded_history(choices: &[u8]) -> Vec<u8> {
    let recorded = target::record(&mut Choices::new(choices));
    recorded.iter().map(encode_turn).collect::<Vec<_>>().join(&b'\n')
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

/// The code of an error, after checking that its text can be formatted.
fn checked_code<T>(result: Result<T, HistoryError>) -> Result<T, ErrorCode> {
    result.map_err(|error| {
        assert!(error.to_string().starts_with(error.code().prefix()));
        error.code()
    })
}

fn replay_turns(mut turns: Vec<Turn>, choices: &[u8]) -> Reached {
    let first = replay_once(&turns);
    match (&first, replay_once(&turns)) {
        (Ok(_), Ok(_)) => {}
        (Err(first), Err(second)) => assert_eq!(first, &second, "a second replay has another result"),
        (first, second) => panic!("one of two replays succeeded: {:?} {:?}", first.is_ok(), second.is_ok()),
    }
    let mut execution = first?;

    let mut ledger = Ledger::default();
    for turn in &turns {
        ledger.apply_turn(turn).expect("a history that replays is valid");
    }
    let replayed = execution.ledger();
    assert_eq!(
        (replayed.turns(), replayed.events(), replayed.bytes(), replayed.ended()),
        (ledger.turns(), ledger.events(), ledger.bytes(), ledger.ended()),
        "replay and offline reading count differently"
    );

    let mut choices = Choices::new(choices);
    for _ in 0..3 {
        target::query_and_update(&mut execution);
        if execution.has_ended() {
            break;
        }
        let jobs = target::jobs(execution.ledger(), &mut choices);
        match execution.take_turn(choices.number(), jobs) {
            Ok(taken) => turns.extend(taken.turn),
            Err(failure) => return Err(allowed_live(&failure)),
        }
        // Continue from the bytes, so that the recorded turns are those that the bytes contain.
        let bytes: Vec<Vec<u8>> = turns.iter().map(encode_turn).collect();
        let history = decode_history(&bytes).expect("a recorded history is valid");
        assert_eq!(history.turns, turns, "encoding changed a recorded turn");
        execution = replay_once(&turns).unwrap_or_else(|code| panic!("a live turn does not replay: {code}"));
    }
    Ok(())
}

/// Replays turns in a new execution.
fn replay_once(turns: &[Turn]) -> Result<Execution, ErrorCode> {
    let history = History::from(turns.to_vec());
    let Some(started) = history.started() else {
        let report = Replayer::new(Handlers::default()).replay(target::INSTANCE, &history);
        assert!(matches!(report, ReplayReport::Unusable(_)), "{report:?}");
        return Err(ErrorCode::CorruptHistory);
    };
    let mut execution = checked_code(Execution::new(
        target::INSTANCE,
        Arc::new(target::orchestration),
        started.clone(),
        options(),
    ))?;
    for turn in &history {
        execution.replay_turn(turn).map_err(|failure| allowed(&failure))?;
    }
    Ok(execution)
}

fn options() -> ExecutionOptions {
    ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() }
}

/// The code of a failure that a hostile history may cause. The orchestration itself has no errors.
fn allowed(failure: &TurnFailure) -> ErrorCode {
    match failure {
        TurnFailure::Nondeterminism(difference) => {
            assert!(difference.report().contains("what to do"));
        }
        TurnFailure::History(error) => assert!(error.to_string().starts_with(error.code().prefix())),
        other => panic!("a hostile history led to {other}"),
    }
    failure.code()
}

/// The code of a failure that further turns after a hostile history may cause.
fn allowed_live(failure: &TurnFailure) -> ErrorCode {
    match failure {
        TurnFailure::OverLimit { .. } | TurnFailure::History(HistoryError::PayloadMismatch { .. }) => {
            failure.code()
        }
        other => panic!("a further turn led to {other}"),
    }
}
