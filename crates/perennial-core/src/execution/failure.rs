//! Why a turn, a query or an update failed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::ErrorCode;
use crate::history::{HistoryError, Payload, UnitId};

use super::divergence::Nondeterminism;
use super::panic_place;

/// Why a turn was not taken. Nothing of it is recorded and the execution cannot be used any more: drop it, and let the
/// next attempt replay.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnFailure {
    /// The code diverged from the history.
    #[error(transparent)]
    Nondeterminism(#[from] Box<Nondeterminism>),
    /// The history cannot be used.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The code panicked.
    #[error("{prefix} in unit {unit}{}: {message}{}", at(.place.as_deref()), tokio_hint(.message), prefix = self.code().prefix())]
    Panicked {
        /// The unit that panicked.
        unit: UnitId,
        /// The panic message.
        message: String,
        /// The location of the panic as `file:line`, if the process records it ([`note_panic`](super::note_panic)).
        place: Option<String>,
    },
    /// The code awaits something that is not recorded.
    #[error("{prefix}: {what}{}", after(.last_call.as_deref()), prefix = self.code().prefix())]
    NonDurableAwait {
        /// What was detected, and what to use instead.
        what: String,
        /// The last context call before it that made a decision, as `file:line`.
        last_call: Option<String>,
    },
    /// The turn exceeded a limit.
    #[error(
        "{prefix}: {what} would be {found}, the limit is {limit}; {remedy}{}",
        after(.last_call.as_deref()), prefix = self.code().prefix())]
    OverLimit {
        /// What is limited.
        what: &'static str,
        /// The amount that was reached.
        found: u64,
        /// The maximum.
        limit: u64,
        /// What to do about it.
        remedy: &'static str,
        /// The context call that exceeded the limit, or the last one before it, as `file:line`.
        last_call: Option<String>,
    },
    /// The turn took too long.
    #[error("{prefix}: the turn took too long; move long computations into activities", prefix = self.code().prefix())]
    DeadlinePassed,
    /// The context was used in a way that is not allowed.
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
    /// The text by which instances with this failure are grouped: one line without ids and payloads.
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

/// Tokio's panics say what is missing, but not what to do about it in an orchestration.
fn tokio_hint(message: &str) -> &'static str {
    if message.contains("no reactor running") || message.contains("Tokio 1.x") {
        "; orchestrations run outside of tokio: use schedule_timer for time, activities for I/O, spawn for units"
    } else {
        ""
    }
}

/// Why a query was not answered. The execution is unchanged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryFailure {
    /// The code has no handler of that name.
    #[error("{prefix}: no handler for {name:?}; add one with on_query", prefix = self.code().prefix())]
    NoHandler {
        /// The requested name.
        name: String,
    },
    /// The handler returned this error.
    #[error("{prefix}: {name:?} was refused by its handler", prefix = self.code().prefix())]
    Refused {
        /// The requested name.
        name: String,
        /// The handler's error.
        error: Payload,
    },
    /// The handler panicked.
    #[error("{prefix}: the handler of {name:?} panicked: {message}", prefix = self.code().prefix())]
    Panicked {
        /// The requested name.
        name: String,
        /// The panic message.
        message: String,
    },
    /// The handler took too long.
    #[error("{prefix}: the handler of query {name:?} took too long", prefix = self.code().prefix())]
    DeadlinePassed {
        /// The requested name.
        name: String,
    },
    /// The handler made a call that is allowed only in a turn.
    #[error("{prefix} in query {name:?}: {what}", prefix = self.code().prefix())]
    Misuse {
        /// The requested name.
        name: String,
        /// The call that was made.
        what: String,
    },
}

/// Why an update was not accepted. Nothing is recorded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefusal {
    /// The code has no handler of that name.
    #[error("{prefix}: no handler for {name:?}; add one with on_update", prefix = self.code().prefix())]
    NoHandler {
        /// The requested name.
        name: String,
    },
    /// The validator returned this error.
    #[error("{prefix}: {name:?} was refused by its validator", prefix = self.code().prefix())]
    Refused {
        /// The requested name.
        name: String,
        /// The validator's error.
        error: Payload,
    },
    /// The validator panicked.
    #[error("{prefix}: the validator of {name:?} panicked: {message}", prefix = self.code().prefix())]
    Panicked {
        /// The requested name.
        name: String,
        /// The panic message.
        message: String,
    },
    /// The validator took too long.
    #[error("{prefix}: the validator of update {name:?} took too long", prefix = self.code().prefix())]
    DeadlinePassed {
        /// The requested name.
        name: String,
    },
    /// The validator made a call that is allowed only in a turn.
    #[error("{prefix} in the validator of {name:?}: {what}", prefix = self.code().prefix())]
    Misuse {
        /// The requested name.
        name: String,
        /// The call that was made.
        what: String,
    },
    /// The instance has not taken its first turn, or has ended.
    #[error("{prefix}: {name:?} arrived while the instance was not running", prefix = self.code().prefix())]
    NotRunning {
        /// The requested name.
        name: String,
    },
}

/// Runs user code; a panic becomes an error with its message.
pub(crate) fn catching<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    // A panic that was caught earlier keeps its location, and one that the user's code catches leaves none.
    let before = panic_place::take();
    let caught = catch_unwind(AssertUnwindSafe(f)).inspect(|_| panic_place::set(before));
    caught.map_err(|panic| {
        let message = panic_message(&*panic);
        let place = panic_place::take();
        // The panic payload may itself panic when it is dropped, and so may that panic's payload.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(panic);
        }
        panic_place::set(place);
        message
    })
}

/// The message of a caught panic.
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
