//! Bodies for fuzzing: any bytes as turns, and any turns as histories of real code.
//!
//! The fuzz targets and an ordinary test run the same bodies. A body panics when it has found a bug; what it returns
//! tells how far its input came, so that a test can see that its inputs reach what they are meant for.

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

/// How far an input came: all the way, or to a failure with this stable code.
pub type Reached = Result<(), ErrorCode>;

/// Decodes bytes as one turn and, split at newlines, as a history. What decodes is the same once encoded and decoded
/// again.
///
/// # Panics
///
/// If it is not, which is a bug.
pub fn decode(bytes: &[u8]) -> Reached {
    if let Ok(turn) = told(decode_turn(1, bytes)) {
        let encoded = encode_turn(&turn);
        let again = decode_turn(1, &encoded).expect("what was encoded decodes");
        assert_eq!(again, turn, "a turn changed in its bytes");
        assert_eq!(encode_turn(&again), encoded, "a turn has two encodings");
    }
    let history = told(decode_history(lines(bytes)))?;
    let encoded: Vec<Vec<u8>> = history.turns.iter().map(encode_turn).collect();
    let again = decode_history(&encoded).expect("what was encoded decodes");
    assert_eq!(again, history, "a history changed in its bytes");
    Ok(())
}

/// Decodes bytes, split at newlines, as turns, replays them with an orchestration that does a bit of everything, and
/// lets what replays go on.
///
/// # Panics
///
/// If anything but the history is at fault, or if what replays is no history: both are bugs.
pub fn replay(bytes: &[u8]) -> Reached {
    let turns: Result<Vec<Turn>, HistoryError> =
        (1..).zip(lines(bytes)).map(|(number, line)| decode_turn(number, line)).collect();
    replay_turns(told(turns)?, bytes)
}

/// Records a history, breaks it, and hands it to [`decode`] and [`replay`]. The bytes are the choices that all of this
/// takes.
///
/// # Panics
///
/// As those do.
pub fn replay_mutated(choices: &[u8]) -> Reached {
    let bytes = mutated_history(choices);
    // That it is no history may still show later than at decoding, and as something else.
    let _ = decode(&bytes);
    replay(&bytes)
}

/// A recorded history with something changed: bytes, numbers, words, events or turns. One line per turn.
pub fn mutated_history(choices: &[u8]) -> Vec<u8> {
    let mut choices = Choices::new(choices);
    let recorded = target::record(&mut choices);
    mutation::mutate(recorded, &mut choices)
}

/// A history that [`replay`] has no objections to. One line per turn.
pub fn recorded_history(choices: &[u8]) -> Vec<u8> {
    let recorded = target::record(&mut Choices::new(choices));
    recorded.iter().map(encode_turn).collect::<Vec<_>>().join(&b'\n')
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

/// The code of an error, whose words can be asked for.
fn told<T>(result: Result<T, HistoryError>) -> Result<T, ErrorCode> {
    result.map_err(|error| {
        assert!(error.to_string().starts_with(error.code().prefix()));
        error.code()
    })
}

fn replay_turns(mut turns: Vec<Turn>, choices: &[u8]) -> Reached {
    let first = replay_once(&turns);
    match (&first, replay_once(&turns)) {
        (Ok(_), Ok(_)) => {}
        (Err(first), Err(second)) => assert_eq!(first, &second, "a second replay says something else"),
        (first, second) => panic!("one replay went through: {:?} {:?}", first.is_ok(), second.is_ok()),
    }
    let mut execution = first?;

    let mut ledger = Ledger::default();
    for turn in &turns {
        ledger.apply_turn(turn).expect("what replays is a history");
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
        // From the bytes, so that what is recorded is what they give.
        let bytes: Vec<Vec<u8>> = turns.iter().map(encode_turn).collect();
        let history = decode_history(&bytes).expect("what is recorded is a history");
        assert_eq!(history.turns, turns, "a recorded turn changed in its bytes");
        execution = replay_once(&turns).unwrap_or_else(|code| panic!("a live turn does not replay: {code}"));
    }
    Ok(())
}

/// Replays turns in a fresh execution.
fn replay_once(turns: &[Turn]) -> Result<Execution, ErrorCode> {
    let history = History::from(turns.to_vec());
    let Some(started) = history.started() else {
        let report = Replayer::new(Handlers::default()).replay(target::INSTANCE, &history);
        assert!(matches!(report, ReplayReport::Unusable(_)), "{report:?}");
        return Err(ErrorCode::CorruptHistory);
    };
    let mut execution =
        told(Execution::new(target::INSTANCE, Arc::new(target::orchestration), started.clone(), options()))?;
    for turn in &history {
        execution.replay_turn(turn).map_err(|failure| allowed(&failure))?;
    }
    Ok(execution)
}

fn options() -> ExecutionOptions {
    ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() }
}

/// The code of a failure that a hostile history may lead to. The orchestration itself does nothing wrong.
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

/// The code of a failure that going on after a hostile history may lead to.
fn allowed_live(failure: &TurnFailure) -> ErrorCode {
    match failure {
        TurnFailure::OverLimit { .. } | TurnFailure::History(HistoryError::PayloadMismatch { .. }) => {
            failure.code()
        }
        other => panic!("going on led to {other}"),
    }
}
