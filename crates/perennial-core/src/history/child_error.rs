//! Why a sub-orchestration has no result.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;

use super::event::present;
use super::{NotOfType, Payload};

/// Why a sub-orchestration has no result. `E` is its own error type; in a history it is a [`Payload`].
///
/// Like [`ActivityError`](super::ActivityError), it is serialisable, and an [`Application`](ChildError::Application)
/// error displays as just the sub-orchestration's own error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub enum ChildError<E = Payload> {
    /// It returned this error.
    Application(E),
    /// It was cancelled.
    Cancelled {
        /// The reason, as text.
        reason: String,
        /// The output passed to `end_cancelled`, if the code called it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Payload>,
    },
    /// It was terminated, or its time limit passed.
    Terminated {
        /// The reason, as text.
        reason: String,
    },
    /// It could not be started, for example because its id is in use.
    NotStarted {
        /// The reason, as text.
        reason: String,
    },
}

impl<E> ChildError<E> {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            ChildError::Application(_) => ErrorCode::ChildFailed,
            ChildError::Cancelled { .. } => ErrorCode::ChildCancelled,
            ChildError::Terminated { .. } => ErrorCode::ChildTerminated,
            ChildError::NotStarted { reason } => {
                ErrorCode::leading(reason).unwrap_or(ErrorCode::ChildNotStarted)
            }
        }
    }
}

crate::error_model!(generic: ChildError);

impl ChildError {
    /// Decodes the sub-orchestration's own error.
    pub fn decode<E: DeserializeOwned>(self) -> Result<ChildError<E>, NotOfType> {
        Ok(match self {
            ChildError::Application(payload) => ChildError::Application(payload.decode_as()?),
            ChildError::Cancelled { reason, output } => ChildError::Cancelled { reason, output },
            ChildError::Terminated { reason } => ChildError::Terminated { reason },
            ChildError::NotStarted { reason } => ChildError::NotStarted { reason },
        })
    }
}

impl<E: fmt::Display> fmt::Display for ChildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildError::Application(error) => error.fmt(f),
            // The reason already begins with a code.
            ChildError::NotStarted { reason } if ErrorCode::leading(reason).is_some() => f.write_str(reason),
            ChildError::Cancelled { reason, .. }
            | ChildError::Terminated { reason }
            | ChildError::NotStarted { reason } => write!(f, "{}: {reason}", self.code().prefix()),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ChildError<E> {}

impl<E: fmt::Display> From<ChildError<E>> for String {
    fn from(error: ChildError<E>) -> String {
        error.to_string()
    }
}
