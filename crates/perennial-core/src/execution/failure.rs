//! Why a turn, a query or an update did not go through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::ErrorCode;
use crate::history::{HistoryError, Payload, UnitId};

use super::divergence::Nondeterminism;
use super::panic_place;

/// A turn that was not taken. Nothing of it is recorded and the execution is of no further use: drop it, and let the
/// next attempt replay.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnFailure {
    /// The code does not do what the record says.
    #[error(transparent)]
    Nondeterminism(#[from] Box<Nondeterminism>),
    /// The record cannot be used.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The code panicked.
    #[error("{prefix} in unit {unit}{}: {message}{}", at(.place.as_deref()), tokio_hint(.message), prefix = self.code().prefix())]
    Panicked {
        /// The unit that panicked.
        unit: UnitId,
        /// What it said.
        message: String,
        /// Where it was, as `file:line`, if the process notes that ([`note_panic`](super::note_panic)).
        place: Option<String>,
    },
    /// The code waits for something that is not recorded.
    #[error("{prefix}: {what}{}", after(.last_call.as_deref()), prefix = self.code().prefix())]
    NonDurableAwait {
        /// What was noticed, and what to use instead.
        what: String,
        /// The last call of the context before it that decided something, as `file:line`.
        last_call: Option<String>,
    },
    /// The turn went over a limit.
    #[error("{prefix}: {what} would be {found}, allowed are {limit}; {remedy}{}", after(.last_call.as_deref()), prefix = self.code().prefix())]
    OverLimit {
        /// What is limited.
        what: &'static str,
        /// How much there would be.
        found: u64,
        /// How much there may be.
        limit: u64,
        /// What to do about it.
        remedy: &'static str,
        /// The call of the context that went over the limit, or the last one before it, as `file:line`.
        last_call: Option<String>,
    },
    /// The turn took too long.
    #[error("{prefix}: the turn took too long; move long computations into activities", prefix = self.code().prefix())]
    DeadlinePassed,
    /// The context was used where it must not be.
    #[error("{prefix}: {what}", prefix = self.code().prefix())]
    Misuse {
        /// What was done, and what to do instead.
        what: String,
    },
}

impl TurnFailure {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            TurnFailure::Nondeterminism(divergence) => divergence.code(),
            TurnFailure::History(error) => error.code(),
            TurnFailure::Panicked { .. } => ErrorCode::Panic,
            TurnFailure::NonDurableAwait { .. } => ErrorCode::NonDurableAwait,
            TurnFailure::OverLimit { .. } => ErrorCode::Limit,
            TurnFailure::DeadlinePassed => ErrorCode::Deadline,
            TurnFailure::Misuse { .. } => ErrorCode::Misuse,
        }
    }
}

impl TurnFailure {
    /// What instances that fail like this are grouped by: a line without ids and payloads.
    pub fn cause(&self) -> String {
        match self {
            TurnFailure::Nondeterminism(divergence) => divergence.cause(),
            TurnFailure::History(HistoryError::Corrupt(_)) => "corrupt history".to_owned(),
            TurnFailure::History(HistoryError::NewerEngine { what, found, .. }) => {
                format!("newer engine: {what} {found}")
            }
            TurnFailure::History(HistoryError::PayloadMismatch { type_name, .. }) => {
                format!("payload does not decode as {type_name}")
            }
            TurnFailure::History(HistoryError::Undecodable { cause, .. }) => {
                format!("payload cannot be decoded: {cause}")
            }
            TurnFailure::Panicked { place: Some(place), .. } => format!("panic at {place}"),
            TurnFailure::Panicked { place: None, .. } => "panic".to_owned(),
            TurnFailure::NonDurableAwait { .. } => "non-durable await".to_owned(),
            TurnFailure::OverLimit { what, .. } => format!("limit: {what}"),
            TurnFailure::DeadlinePassed => "turn past its deadline".to_owned(),
            TurnFailure::Misuse { .. } => "misuse of the context".to_owned(),
        }
    }
}

fn at(place: Option<&str>) -> String {
    place.map_or_else(String::new, |place| format!(" at {place}"))
}

fn after(last_call: Option<&str>) -> String {
    match last_call {
        Some(place) => format!(" (last call of the context: {place})"),
        None => " (before the first call of the context)".to_owned(),
    }
}

/// Tokio's panics say what is missing, not what to do about it in an orchestration.
fn tokio_hint(message: &str) -> &'static str {
    if message.contains("no reactor running") || message.contains("Tokio 1.x") {
        "; orchestrations run outside of tokio: use schedule_timer for time, activities for I/O, spawn for units"
    } else {
        ""
    }
}

/// A query that was not answered. The execution is as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// The code has no handler of that name.
    #[error("{prefix}: no handler for {name:?}; the code adds one with on_query", prefix = self.code().prefix())]
    NoHandler {
        /// The name asked for.
        name: String,
    },
    /// The handler returned this error.
    #[error("{prefix}: {name:?} was refused by its handler", prefix = self.code().prefix())]
    Refused {
        /// The name asked for.
        name: String,
        /// The handler's error.
        error: Payload,
    },
    /// The handler panicked.
    #[error("{prefix}: the handler of {name:?} panicked: {message}", prefix = self.code().prefix())]
    Panicked {
        /// The name asked for.
        name: String,
        /// What it said.
        message: String,
    },
    /// The handler took too long.
    #[error("{prefix}: the handler of query {name:?} took too long", prefix = self.code().prefix())]
    DeadlinePassed {
        /// The name asked for.
        name: String,
    },
    /// The handler did what only a turn may do.
    #[error("{prefix} in query {name:?}: {what}", prefix = self.code().prefix())]
    Misuse {
        /// The name asked for.
        name: String,
        /// What was done.
        what: String,
    },
}

/// An update that was not accepted. It leaves no trace in the history.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefusal {
    /// The code has no handler of that name.
    #[error("{prefix}: no handler for {name:?}; the code adds one with on_update", prefix = self.code().prefix())]
    NoHandler {
        /// The name asked for.
        name: String,
    },
    /// The validator returned this error.
    #[error("{prefix}: {name:?} was refused by its validator", prefix = self.code().prefix())]
    Refused {
        /// The name asked for.
        name: String,
        /// The validator's error.
        error: Payload,
    },
    /// The validator panicked.
    #[error("{prefix}: the validator of {name:?} panicked: {message}", prefix = self.code().prefix())]
    Panicked {
        /// The name asked for.
        name: String,
        /// What it said.
        message: String,
    },
    /// The validator took too long.
    #[error("{prefix}: the validator of update {name:?} took too long", prefix = self.code().prefix())]
    DeadlinePassed {
        /// The name asked for.
        name: String,
    },
    /// The validator did what only a turn may do.
    #[error("{prefix} in the validator of {name:?}: {what}", prefix = self.code().prefix())]
    Misuse {
        /// The name asked for.
        name: String,
        /// What was done.
        what: String,
    },
    /// The instance has not taken its first turn, or has ended.
    #[error("{prefix}: {name:?} came when the instance was not running", prefix = self.code().prefix())]
    NotRunning {
        /// The name asked for.
        name: String,
    },
}

/// Runs code of the user's; of a panic its words are left.
pub(crate) fn catching<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    // A panic that was caught before keeps its place, and one that the user's code catches leaves none.
    let before = panic_place::take();
    let caught = catch_unwind(AssertUnwindSafe(f)).inspect(|_| panic_place::set(before));
    caught.map_err(|panic| {
        let message = panic_message(&*panic);
        let place = panic_place::take();
        // What was thrown may itself panic when it is dropped, and what that throws, too.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(panic);
        }
        panic_place::set(place);
        message
    })
}

/// The words of a caught panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

impl QueryFailure {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            QueryFailure::NoHandler { .. } | QueryFailure::Refused { .. } | QueryFailure::Panicked { .. } => {
                ErrorCode::QueryRefused
            }
            QueryFailure::DeadlinePassed { .. } => ErrorCode::Deadline,
            QueryFailure::Misuse { .. } => ErrorCode::Misuse,
        }
    }
}

impl UpdateRefusal {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            UpdateRefusal::NoHandler { .. }
            | UpdateRefusal::Refused { .. }
            | UpdateRefusal::Panicked { .. }
            | UpdateRefusal::NotRunning { .. } => ErrorCode::UpdateRefused,
            UpdateRefusal::DeadlinePassed { .. } => ErrorCode::Deadline,
            UpdateRefusal::Misuse { .. } => ErrorCode::Misuse,
        }
    }
}

crate::error_model!(TurnFailure, QueryFailure, UpdateRefusal);
