//! Errors in a recorded history. Each of them blocks one instance and nothing else.

use crate::code::ErrorCode;
use crate::codec::Undecodable;

use super::EventId;

/// Why a history cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The history contradicts itself or cannot be read.
    #[error(transparent)]
    Corrupt(#[from] CorruptHistory),
    /// A newer engine wrote this turn. The history is intact.
    #[error(
        "{prefix}: turn {turn} has {what} {found}, this engine knows up to {known}; \
         run the instance with the newer engine", prefix = self.code().prefix())]
    NewerEngine {
        /// The turn with the newer number.
        turn: u64,
        /// Which number: `format` or `semantics`.
        what: &'static str,
        /// The number found.
        found: u32,
        /// The highest number that this engine knows.
        known: u32,
    },
    /// A recorded payload does not have the type that the code expects.
    #[error("{prefix}: {} as {type_name}: {problem}", carrier(*.event), prefix = self.code().prefix())]
    PayloadMismatch {
        /// The event that carries the payload.
        event: EventId,
        /// The expected type.
        type_name: &'static str,
        /// The decoder's message.
        problem: String,
        /// Where the payload came from.
        came_with: PayloadSource,
    },
    /// A recorded payload was encoded by a codec that cannot decode it now.
    #[error(
        "{prefix}: turn {turn}, {}: {cause}; configure the codec or key that it was written \
         with, and it is tried again",
        place(*.event), prefix = self.code().prefix())]
    Undecodable {
        /// The number of the turn, from 1.
        turn: u64,
        /// The event that carries the payload, if it is known.
        event: Option<EventId>,
        /// What could not be done.
        cause: Undecodable,
    },
}

/// The origin of a payload that the code cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PayloadSource {
    /// An input, a result or an update.
    #[default]
    Other,
    /// An external event that an earlier turn recorded.
    RecordedEvent,
    /// An external event that is not recorded because the turn that would have recorded it failed.
    NewEvent {
        /// The event's deduplication key, which identifies its sender.
        key: Option<String>,
    },
    /// The result or error of an activity that is not recorded because the turn that would have recorded it failed.
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

/// Names an event with a payload. The first one carries the input, which a user would not look for by its number.
fn carrier(event: EventId) -> String {
    if event == EventId(1) { "event 1, the input,".to_owned() } else { format!("event {event}") }
}

/// A history that contradicts itself or cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{prefix}: turn {turn}, {}: {problem}", place(*.event), prefix = self.code().prefix())]
pub struct CorruptHistory {
    /// The turn at fault, counted from 1.
    pub turn: u64,
    /// The event at fault, unless the turn as a whole is unreadable.
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
