//! Errors that come back as themselves.

use std::any::Any;
use std::fmt;

use perennial_core::{ActivityFailure, ChildFailure, NotOfType, Payload, TimeoutKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{ClientError, Error};

/// Why an activity gave no result.
///
/// It can be written into a history itself, hence be part of an orchestration's own error:
///
/// ```
/// use perennial::prelude::*;
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ActivityError<E> {
    /// It returned this error.
    Application(E),
    /// One of its timeouts ran out.
    Timeout(TimeoutKind),
    /// It was cancelled before it had a result.
    Cancelled,
    /// It took its process down too often.
    Poisoned,
    /// It did not return an error of its own: it panicked, or what it was given or returned could not be used.
    Broken {
        /// What happened.
        message: String,
    },
}

impl<E: DeserializeOwned> ActivityError<E> {
    pub(super) fn read(failure: ActivityFailure) -> Result<ActivityError<E>, NotOfType> {
        Ok(match failure {
            ActivityFailure::Application(payload) => {
                match (payload.decode_as(), payload.decode::<String>()) {
                    (Ok(error), _) => ActivityError::Application(error),
                    // A panic is told in words, whatever the activity's own error is.
                    (Err(_), Ok(message)) => ActivityError::Broken { message },
                    (Err(error), Err(_)) => return Err(error),
                }
            }
            ActivityFailure::Timeout(kind) => ActivityError::Timeout(kind),
            ActivityFailure::Cancelled => ActivityError::Cancelled,
            ActivityFailure::Poisoned => ActivityError::Poisoned,
        })
    }
}

impl<E: fmt::Display> fmt::Display for ActivityError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActivityError::Application(error) => error.fmt(f),
            ActivityError::Timeout(kind) => write!(f, "PER-0402 timeout: {}", timeout_words(*kind)),
            ActivityError::Cancelled => {
                f.write_str("PER-0403 cancelled: nobody waited for the activity any more")
            }
            ActivityError::Broken { message } => f.write_str(message),
            ActivityError::Poisoned => {
                f.write_str("PER-0404 poisoned: the process ended too often while the activity ran")
            }
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ActivityError<E> {}

impl<E: fmt::Display> From<ActivityError<E>> for String {
    fn from(error: ActivityError<E>) -> String {
        error.to_string()
    }
}

/// A failure in words, as calls by name get it.
pub(super) fn activity_failure_text(failure: ActivityFailure) -> String {
    match failure {
        ActivityFailure::Application(payload) => payload.to_text(),
        ActivityFailure::Timeout(kind) => ActivityError::<String>::Timeout(kind).to_string(),
        ActivityFailure::Cancelled => ActivityError::<String>::Cancelled.to_string(),
        ActivityFailure::Poisoned => ActivityError::<String>::Poisoned.to_string(),
    }
}

fn timeout_words(kind: TimeoutKind) -> &'static str {
    match kind {
        TimeoutKind::Queue => "no worker took the activity in time",
        TimeoutKind::Attempt => "an attempt of the activity ran too long",
        TimeoutKind::Total => "all attempts of the activity together took too long",
        TimeoutKind::Heartbeat => "an attempt of the activity was silent for too long",
    }
}

/// Why a sub-orchestration gave no result. Like [`ActivityError`], it can be part of an orchestration's own error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChildError<E> {
    /// It returned this error.
    Application(E),
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
        /// What its code left behind when it ended as cancelled by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Payload>,
    },
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
    /// It could not be started, for instance because its id is taken.
    NotStarted {
        /// Why.
        reason: String,
    },
}

impl<E: DeserializeOwned> ChildError<E> {
    pub(super) fn read(failure: ChildFailure) -> Result<ChildError<E>, NotOfType> {
        Ok(match failure {
            ChildFailure::Application(payload) => ChildError::Application(payload.decode_as()?),
            ChildFailure::Cancelled { reason, output } => ChildError::Cancelled { reason, output },
            ChildFailure::Terminated { reason } => ChildError::Terminated { reason },
            ChildFailure::NotStarted { reason } => ChildError::NotStarted { reason },
        })
    }
}

impl<E: fmt::Display> fmt::Display for ChildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildError::Application(error) => error.fmt(f),
            ChildError::Cancelled { reason, .. } => {
                write!(f, "the sub-orchestration was cancelled: {reason}")
            }
            ChildError::Terminated { reason } => write!(f, "the sub-orchestration was terminated: {reason}"),
            ChildError::NotStarted { reason } => write!(f, "the sub-orchestration was not started: {reason}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ChildError<E> {}

impl<E: fmt::Display> From<ChildError<E>> for String {
    fn from(error: ChildError<E>) -> String {
        error.to_string()
    }
}

/// Why an update gave no answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum UpdateError<E = Payload> {
    /// It was accepted, and its handler returned this error.
    Failed {
        /// The instance.
        id: String,
        /// The error.
        error: E,
    },
    /// It was refused, and left no trace.
    Refused {
        /// The instance.
        id: String,
        /// Why.
        reason: String,
        /// What the code said, if it was the code that refused.
        error: Option<E>,
    },
    /// The instance could not be asked, or what it answered could not be read.
    Client(ClientError),
}

impl<E> UpdateError<E> {
    /// The error with the types of the update.
    pub(crate) fn read(
        error: ClientError,
        read_error: fn(Payload) -> Result<E, NotOfType>,
    ) -> UpdateError<E> {
        match error {
            ClientError::UpdateFailed { id, error } => match read_error(error) {
                Ok(error) => UpdateError::Failed { id, error },
                Err(problem) => UpdateError::Client(ClientError::unreadable(&id, &problem)),
            },
            // What the code cannot read it refuses in words, whatever its own error is.
            ClientError::Refused { id, reason, error } => {
                UpdateError::Refused { id, reason, error: error.and_then(|error| read_error(error).ok()) }
            }
            error => UpdateError::Client(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for UpdateError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::Failed { id, error } => {
                write!(
                    f,
                    "PER-0622 update failed: instance {id:?} accepted it, and its handler returned: {error}"
                )
            }
            UpdateError::Refused { id, error: Some(error), .. } => {
                write!(f, "PER-0621 refused: instance {id:?}: {error}")
            }
            UpdateError::Refused { id, reason, error: None } => {
                write!(f, "PER-0621 refused: instance {id:?}: {reason}")
            }
            UpdateError::Client(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for UpdateError<E> {}

impl<E> From<ClientError> for UpdateError<E> {
    fn from(error: ClientError) -> UpdateError<E> {
        UpdateError::Client(error)
    }
}

/// The update's own error is kept in its words; one that is a payload, as it is.
impl<E: fmt::Display + 'static> From<UpdateError<E>> for Error {
    fn from(error: UpdateError<E>) -> Error {
        Error::Client(match error {
            UpdateError::Failed { id, error } => ClientError::UpdateFailed { id, error: words(&error) },
            UpdateError::Refused { id, reason, error } => {
                ClientError::Refused { id, reason, error: error.as_ref().map(words) }
            }
            UpdateError::Client(error) => error,
        })
    }
}

/// Somebody's own error where its type is not known any more.
pub(super) fn words<E: fmt::Display + 'static>(error: &E) -> Payload {
    let payload = (error as &dyn Any).downcast_ref::<Payload>();
    payload.cloned().unwrap_or_else(|| Payload::from(error.to_string()))
}

/// An outcome as calls by name get it.
pub(super) fn text<F>(
    outcome: Result<Payload, F>,
    words: impl FnOnce(F) -> String,
) -> Result<String, String> {
    outcome.map(|payload| payload.to_text()).map_err(words)
}
