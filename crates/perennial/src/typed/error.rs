//! Errors that keep the type of the code's own error.

use std::any::Any;
use std::fmt;

use perennial_core::{NotOfType, Payload};

use crate::error::{ClientError, Error};

/// Why an update returned no answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum UpdateError<E = Payload> {
    /// The update was accepted, and its handler returned an error.
    Failed {
        /// The id of the instance.
        id: String,
        /// The error that the handler returned.
        error: E,
    },
    /// The update was refused. Nothing was recorded.
    Refused {
        /// The id of the instance.
        id: String,
        /// The reason of the refusal, as text.
        reason: String,
        /// The error of the validator, if it was the code that refused.
        error: Option<E>,
    },
    /// The request failed, or the answer could not be decoded.
    Client(ClientError),
}

impl<E> UpdateError<E> {
    /// Decodes the error with the types of the update.
    pub(crate) fn read(
        error: ClientError,
        read_error: fn(Payload) -> Result<E, NotOfType>,
    ) -> UpdateError<E> {
        match error {
            ClientError::UpdateFailed { id, error } => match read_error(error) {
                Ok(error) => UpdateError::Failed { id, error },
                Err(problem) => UpdateError::Client(ClientError::unreadable(&id, &problem)),
            },
            // An input that cannot be decoded is refused with text, whatever the update's error type is.
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
                let prefix = self.code().prefix();
                write!(f, "{prefix}: instance {id:?} accepted the update, and its handler returned: {error}")
            }
            UpdateError::Refused { id, error: Some(error), .. } => {
                write!(f, "{}: instance {id:?}: {error}", self.code().prefix())
            }
            UpdateError::Refused { id, reason, error: None } => {
                write!(f, "{}: instance {id:?}: {reason}", self.code().prefix())
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

/// Keeps the text of the update's error, or the error itself if it is a payload.
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

/// An error of an unknown type as a payload: its text, or the payload that it is.
pub(super) fn words<E: fmt::Display + 'static>(error: &E) -> Payload {
    let payload = (error as &dyn Any).downcast_ref::<Payload>();
    payload.cloned().unwrap_or_else(|| Payload::from(error.to_string()))
}

/// Converts an outcome for calls by name.
pub(super) fn text<F>(
    outcome: Result<Payload, F>,
    words: impl FnOnce(F) -> String,
) -> Result<String, String> {
    outcome.map(|payload| payload.to_text()).map_err(words)
}
