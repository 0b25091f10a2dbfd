//! Errors that come back as themselves.

use std::any::Any;
use std::fmt;

use perennial_core::{NotOfType, Payload};

use crate::error::{ClientError, Error};

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
                let prefix = self.code().prefix();
                write!(f, "{prefix}: instance {id:?} accepted it, and its handler returned: {error}")
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
