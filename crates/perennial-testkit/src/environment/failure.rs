//! Why a run under test gave no result.

use std::fmt;

use perennial_core::Payload;

/// Why an orchestration under test gave no result.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Failure<E> {
    /// It returned this error.
    Failed(E),
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
        /// What its code left behind when it ended as cancelled by itself.
        output: Option<Payload>,
    },
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
    /// An instance cannot take its next turn: its code panicked, decided otherwise on replay, or is missing.
    Blocked {
        /// The instance.
        id: String,
        /// The whole report.
        report: String,
    },
    /// Nothing can happen any more, and it has not ended.
    Stuck {
        /// What is being waited for.
        waiting_for: String,
    },
    /// It ended, but what it returned is not of the expected type.
    Unreadable {
        /// Why.
        problem: String,
    },
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |error, f| error.fmt(f))
    }
}

/// Reads like the message, so that `unwrap` in a test shows reports as they are meant.
impl<E: fmt::Debug> fmt::Debug for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |error, f| write!(f, "Failed({error:?})"))
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Failure<E> {}

impl<E> Failure<E> {
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        own: impl FnOnce(&E, &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self {
            Failure::Failed(error) => own(error, f),
            Failure::Cancelled { reason, .. } => write!(f, "cancelled: {reason}"),
            Failure::Terminated { reason } => write!(f, "terminated: {reason}"),
            Failure::Blocked { id, report } => write!(f, "{id:?} is blocked: {report}"),
            Failure::Stuck { waiting_for } => {
                write!(f, "nothing can happen any more; still waiting for {waiting_for}")
            }
            Failure::Unreadable { problem } => {
                write!(f, "it ended, but what it returned cannot be read: {problem}")
            }
        }
    }
}
