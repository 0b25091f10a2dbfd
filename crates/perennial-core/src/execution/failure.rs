//! Why a turn, a query or an update did not go through.

use std::panic::{AssertUnwindSafe, catch_unwind};

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
    #[error("PER-0201 panic in unit {unit}: {message}{}", tokio_hint(.message))]
    Panicked {
        /// The unit that panicked.
        unit: UnitId,
        /// What it said.
        message: String,
        /// Where it was, as `file:line`, if the process notes that ([`note_panic`](super::note_panic)).
        place: Option<String>,
    },
    /// The code waits for something that is not recorded.
    #[error("PER-0202 non-durable await: {what}")]
    NonDurableAwait {
        /// What was noticed, and what to use instead.
        what: String,
    },
    /// The turn went over a limit.
    #[error("PER-0204 limit: {what} would be {found}, allowed are {limit}; {remedy}")]
    OverLimit {
        /// What is limited.
        what: &'static str,
        /// How much there would be.
        found: u64,
        /// How much there may be.
        limit: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The turn took too long.
    #[error("PER-0205 deadline: the turn took too long; move long computations into activities")]
    DeadlinePassed,
    /// The context was used where it must not be.
    #[error("PER-0206 misuse: {what}")]
    Misuse {
        /// What was done, and what to do instead.
        what: String,
    },
}

impl TurnFailure {
    /// The stable code of this failure.
    pub fn code(&self) -> &'static str {
        match self {
            TurnFailure::Nondeterminism(_) => Nondeterminism::CODE,
            TurnFailure::History(error) => error.code(),
            TurnFailure::Panicked { .. } => "PER-0201",
            TurnFailure::NonDurableAwait { .. } => "PER-0202",
            TurnFailure::OverLimit { .. } => "PER-0204",
            TurnFailure::DeadlinePassed => "PER-0205",
            TurnFailure::Misuse { .. } => "PER-0206",
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
    #[error("PER-0207 query: no handler for {name:?}; the code adds one with on_query")]
    NoHandler {
        /// The name asked for.
        name: String,
    },
    /// The handler returned this error.
    #[error("PER-0207 query: {name:?} was refused by its handler")]
    Refused {
        /// The name asked for.
        name: String,
        /// The handler's error.
        error: Payload,
    },
    /// The handler panicked.
    #[error("PER-0207 query: the handler of {name:?} panicked: {message}")]
    Panicked {
        /// The name asked for.
        name: String,
        /// What it said.
        message: String,
    },
    /// The handler took too long.
    #[error("PER-0205 deadline: the handler of query {name:?} took too long")]
    DeadlinePassed {
        /// The name asked for.
        name: String,
    },
    /// The handler did what only a turn may do.
    #[error("PER-0206 misuse in query {name:?}: {what}")]
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
    #[error("PER-0208 update: no handler for {name:?}; the code adds one with on_update")]
    NoHandler {
        /// The name asked for.
        name: String,
    },
    /// The validator returned this error.
    #[error("PER-0208 update: {name:?} was refused by its validator")]
    Refused {
        /// The name asked for.
        name: String,
        /// The validator's error.
        error: Payload,
    },
    /// The validator panicked.
    #[error("PER-0208 update: the validator of {name:?} panicked: {message}")]
    Panicked {
        /// The name asked for.
        name: String,
        /// What it said.
        message: String,
    },
    /// The validator took too long.
    #[error("PER-0205 deadline: the validator of update {name:?} took too long")]
    DeadlinePassed {
        /// The name asked for.
        name: String,
    },
    /// The validator did what only a turn may do.
    #[error("PER-0206 misuse in the validator of {name:?}: {what}")]
    Misuse {
        /// The name asked for.
        name: String,
        /// What was done.
        what: String,
    },
    /// The instance has not taken its first turn, or has ended.
    #[error("PER-0208 update: {name:?} came when the instance was not running")]
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
