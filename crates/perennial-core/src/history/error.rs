//! What can be wrong with a recorded history. Each of these blocks one instance and nothing else.

use crate::code::ErrorCode;
use crate::codec::Undecodable;

use super::EventId;

/// A history that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The record contradicts itself or cannot be read.
    #[error(transparent)]
    Corrupt(#[from] CorruptHistory),
    /// A newer engine wrote this. Nothing is wrong with it.
    #[error(
        "{prefix}: turn {turn} has {what} {found}, this engine knows up to {known}; \
         run the instance with the newer engine", prefix = self.code().prefix())]
    NewerEngine {
        /// The turn that says so.
        turn: u64,
        /// Which number: `format` or `semantics`.
        what: &'static str,
        /// The number found.
        found: u32,
        /// The highest number that this engine knows.
        known: u32,
    },
    /// A recorded payload is not of the type that the code expects.
    #[error("{prefix}: event {event} as {type_name}: {problem}", prefix = self.code().prefix())]
    PayloadMismatch {
        /// The event that carries the payload.
        event: EventId,
        /// The type that was asked for.
        type_name: &'static str,
        /// What the decoder said.
        problem: String,
        /// What the payload came with.
        came_with: PayloadSource,
    },
    /// A recorded payload was encoded by a codec that cannot decode it now.
    #[error(
        "{prefix}: turn {turn}, {}: {cause}; configure the codec or key that it was written \
         with, and it is tried again",
        place(*.event), prefix = self.code().prefix())]
    Undecodable {
        /// The turn.
        turn: u64,
        /// The event that carries the payload, if that is known.
        event: Option<EventId>,
        /// What could not be done.
        cause: Undecodable,
    },
}

/// What a payload came with that the code cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PayloadSource {
    /// An input, a result or an update.
    #[default]
    Other,
    /// An external event that an earlier turn recorded.
    RecordedEvent,
    /// An external event that is not recorded yet: the turn that was to record it failed.
    NewEvent {
        /// The event's key against duplicates, by which its sender is found.
        key: Option<String>,
    },
    /// The result or error of an activity that is not recorded yet: the turn that was to record it failed.
    NewResult {
        /// The activity's schedule event.
        activity: EventId,
    },
}

impl HistoryError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            HistoryError::Corrupt(_) => ErrorCode::CorruptHistory,
            HistoryError::NewerEngine { .. } => ErrorCode::NewerEngine,
            HistoryError::PayloadMismatch { .. } => ErrorCode::PayloadMismatch,
            HistoryError::Undecodable { .. } => ErrorCode::PayloadUndecodable,
        }
    }
}

/// A record that contradicts itself or cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{prefix}: turn {turn}, {}: {problem}", place(*.event), prefix = self.code().prefix())]
pub struct CorruptHistory {
    /// The turn in question, as counted from 1.
    pub turn: u64,
    /// The event in question, unless the turn as a whole is unreadable.
    pub event: Option<EventId>,
    /// What is wrong.
    pub problem: String,
}

impl CorruptHistory {
    pub(crate) fn at(turn: u64, event: EventId, problem: impl Into<String>) -> CorruptHistory {
        CorruptHistory { turn, event: Some(event), problem: problem.into() }
    }

    pub(crate) fn turn(turn: u64, problem: impl Into<String>) -> CorruptHistory {
        CorruptHistory { turn, event: None, problem: problem.into() }
    }
}

fn place(event: Option<EventId>) -> String {
    event.map_or_else(|| "as a whole".to_owned(), |id| format!("event {id}"))
}

impl CorruptHistory {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::CorruptHistory
    }
}

crate::error_model!(HistoryError, CorruptHistory);
