//! The stable code of each error.

use perennial_core::{ErrorCode, error_model};

use crate::error::{ClientError, Error, MoveError, OrchestrationError, StartError};
use crate::typed::{RunError, UpdateError};

impl Error {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Start(error) => error.code(),
            Error::Client(error) => error.code(),
            Error::Orchestration(error) => error.code(),
            Error::Store(error) => error.code(),
            Error::Move(error) => error.code(),
            Error::Blobs(_) => ErrorCode::BlobStoreFailed,
        }
    }
}

impl StartError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            StartError::UnknownUrl { .. } | StartError::UrlOptions { .. } => ErrorCode::UnknownStore,
            StartError::NoStore { .. } => ErrorCode::NoStore,
            StartError::RegisteredTwice { .. } => ErrorCode::RegisteredTwice,
            StartError::MissingState { .. } => ErrorCode::MissingState,
            StartError::Missing { .. } => ErrorCode::NotRegistered,
            StartError::Version { .. } => ErrorCode::BadVersion,
            StartError::Pattern { source, .. } => source.code(),
            StartError::Name { source, .. } => source.code(),
            StartError::Store(error) => error.code(),
            StartError::NoTokio => ErrorCode::NoTokio,
        }
    }
}

impl ClientError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            ClientError::NotFound { .. } => ErrorCode::NotFound,
            ClientError::AnotherInstance { .. } => ErrorCode::AnotherInstance,
            ClientError::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            ClientError::Ended { .. } => ErrorCode::Ended,
            ClientError::Unanswered { .. } => ErrorCode::Unanswered,
            ClientError::BadInput { .. } => ErrorCode::BadInput,
            ClientError::InvalidName { source, .. } => source.code(),
            ClientError::NotRegistered { .. } => ErrorCode::NotRegistered,
            ClientError::BadVersion { .. } => ErrorCode::BadVersion,
            ClientError::Encoded { .. } => ErrorCode::PayloadUndecodable,
            ClientError::TooLarge { .. } => ErrorCode::TooLarge,
            ClientError::Full { .. } => ErrorCode::Full,
            ClientError::NotBlocked { .. } => ErrorCode::NotBlocked,
            ClientError::NotWaiting { .. } => ErrorCode::NotWaiting,
            ClientError::NotBlockedBy { .. } => ErrorCode::NotBlockedBy,
            ClientError::NotReset { .. } => ErrorCode::NotReset,
            ClientError::OrchestrationPaused { .. } => ErrorCode::OrchestrationPaused,
            ClientError::BadEvent { .. } => ErrorCode::BadEvent,
            ClientError::NoExecution { .. } => ErrorCode::NoExecution,
            ClientError::Store { source, .. } => source.code(),
            ClientError::Unknown { .. } => ErrorCode::OutcomeUnknown,
            ClientError::Stopped { .. } => ErrorCode::Stopped,
            ClientError::Unwritable { .. } => ErrorCode::Unwritable,
            ClientError::Unreadable { .. } => ErrorCode::Unreadable,
            ClientError::NotEnded { .. } => ErrorCode::NotEnded,
            ClientError::OutcomeDeleted { .. } => ErrorCode::OutcomeDeleted,
            ClientError::Refused { .. } => ErrorCode::Refused,
            ClientError::UpdateFailed { .. } => ErrorCode::UpdateFailed,
            ClientError::Elapsed { .. } => ErrorCode::Elapsed,
            ClientError::Blocked { .. } => ErrorCode::Blocked,
            ClientError::NotAnswered { .. } => ErrorCode::NotAnswered,
            ClientError::BadToken { .. } => ErrorCode::BadToken,
            ClientError::AttemptOver { .. } => ErrorCode::AttemptOver,
            ClientError::ActivityOver { .. } => ErrorCode::ActivityOver,
            ClientError::ActivityCancelled { .. } => ErrorCode::ActivityAbandoned,
            ClientError::NotHere { .. } => ErrorCode::NotHere,
        }
    }
}

impl MoveError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            MoveError::Refused { .. } => ErrorCode::MoveRefused,
            MoveError::Mismatch { .. } => ErrorCode::MoveMismatch,
            MoveError::Start(error) => error.code(),
            MoveError::Store { source, .. } => source.code(),
        }
    }
}

impl OrchestrationError {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            OrchestrationError::Failed { .. } => ErrorCode::Failed,
            OrchestrationError::Cancelled { .. } => ErrorCode::Cancelled,
            OrchestrationError::Terminated { .. } => ErrorCode::Terminated,
        }
    }
}

impl<E> RunError<E> {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            RunError::Failed { .. } => ErrorCode::Failed,
            RunError::Cancelled { .. } => ErrorCode::Cancelled,
            RunError::Ended(error) => error.code(),
            RunError::Client(error) => error.code(),
        }
    }
}

impl<E> UpdateError<E> {
    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            UpdateError::Failed { .. } => ErrorCode::UpdateFailed,
            UpdateError::Refused { .. } => ErrorCode::Refused,
            UpdateError::Client(error) => error.code(),
        }
    }
}

error_model!(Error, StartError, ClientError, MoveError, OrchestrationError);
error_model!(generic: RunError, UpdateError);

/// The text of an error that is quoted in another one, without the code that both begin with.
pub(crate) fn words(code: ErrorCode, source: &impl ToString) -> String {
    let text = source.to_string();
    let words = text.strip_prefix(code.prefix()).and_then(|rest| rest.strip_prefix(": "));
    words.map_or(text.clone(), str::to_owned)
}
