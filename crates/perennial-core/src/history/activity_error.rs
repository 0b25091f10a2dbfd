//! Why an activity has no result.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;

use super::{NotOfType, Payload};

/// Why an activity has no result. `E` is the activity's own error type; in a history it is a [`Payload`].
///
/// It is serialisable, so it can be part of an orchestration's own error:
///
/// ```
/// use perennial_core::{ActivityError, ChildError};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Serialize, Deserialize)]
/// enum OrderError {
///     NotPaid(ActivityError<String>),
///     NotShipped(ChildError<String>),
/// }
///
/// impl From<ActivityError<String>> for OrderError {
///     fn from(error: ActivityError<String>) -> OrderError {
///         OrderError::NotPaid(error) // or `#[from]`, with thiserror
///     }
/// }
/// ```
///
/// An [`Application`](ActivityError::Application) error displays as just the activity's own error, so that `?` into a
/// `String` keeps its message; all others begin with their [code](ActivityError::code).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub enum ActivityError<E = Payload> {
    /// The activity returned this error.
    Application(E),
    /// One of its timeouts ran out.
    Timeout(TimeoutKind),
    /// It was cancelled before it had a result.
    Cancelled,
    /// The process ended too many times while it ran.
    Poisoned,
    /// The activity did not return an error of its own: it panicked, or its input or output could not be used. A
    /// history records this as the text of an `Application` error; it becomes this variant where `E` cannot be decoded
    /// from a text.
    Broken {
        /// The text that was recorded.
        message: String,
    },
}

/// Which timeout of an activity ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeoutKind {
    /// No worker started it in time.
    Queue,
    /// One attempt ran too long.
    Attempt,
    /// All attempts together took too long.
    Total,
    /// An attempt sent no heartbeat in time.
    Heartbeat,
}

impl<E> ActivityError<E> {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            ActivityError::Application(_) => ErrorCode::ActivityFailed,
            ActivityError::Timeout(_) => ErrorCode::ActivityTimeout,
            ActivityError::Cancelled => ErrorCode::ActivityCancelled,
            ActivityError::Poisoned => ErrorCode::Poisoned,
            ActivityError::Broken { message } => {
                ErrorCode::leading(message).unwrap_or(ErrorCode::ActivityBroken)
            }
        }
    }
}

crate::error_model!(generic: ActivityError);

impl ActivityError {
    /// Decodes the activity's own error.
    pub fn decode<E: DeserializeOwned>(self) -> Result<ActivityError<E>, NotOfType> {
        Ok(match self {
            ActivityError::Application(payload) => match (payload.decode_as(), payload.decode::<String>()) {
                (Ok(error), _) => ActivityError::Application(error),
                // The engine records panics as text, whatever the error type of the activity.
                (Err(_), Ok(message)) => ActivityError::Broken { message },
                (Err(error), Err(_)) => return Err(error),
            },
            ActivityError::Timeout(kind) => ActivityError::Timeout(kind),
            ActivityError::Cancelled => ActivityError::Cancelled,
            ActivityError::Poisoned => ActivityError::Poisoned,
            ActivityError::Broken { message } => ActivityError::Broken { message },
        })
    }
}

impl<E> ActivityError<E> {
    /// The kind of the failure, for logs and traces. The error of the activity itself is a payload, and is not shown there.
    pub fn kind(&self) -> &'static str {
        match self {
            ActivityError::Application(_) | ActivityError::Broken { .. } => "error",
            ActivityError::Timeout(TimeoutKind::Queue) => "queue timeout",
            ActivityError::Timeout(TimeoutKind::Attempt) => "attempt timeout",
            ActivityError::Timeout(TimeoutKind::Total) => "total timeout",
            ActivityError::Timeout(TimeoutKind::Heartbeat) => "heartbeat timeout",
            ActivityError::Cancelled => "cancelled",
            ActivityError::Poisoned => "poisoned",
        }
    }
}

impl<E: fmt::Display> fmt::Display for ActivityError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            ActivityError::Application(error) => return error.fmt(f),
            ActivityError::Broken { message } => return f.write_str(message),
            ActivityError::Timeout(TimeoutKind::Queue) => "no worker started the activity in time",
            ActivityError::Timeout(TimeoutKind::Attempt) => "an attempt of the activity ran too long",
            ActivityError::Timeout(TimeoutKind::Total) => {
                "all attempts of the activity together took too long"
            }
            ActivityError::Timeout(TimeoutKind::Heartbeat) => {
                "an attempt of the activity sent no heartbeat in time"
            }
            ActivityError::Cancelled => "the activity was cancelled",
            ActivityError::Poisoned => "the process ended too often while the activity ran",
        };
        write!(f, "{}: {words}", self.code().prefix())
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ActivityError<E> {}

impl<E: fmt::Display> From<ActivityError<E>> for String {
    fn from(error: ActivityError<E>) -> String {
        error.to_string()
    }
}
