//! Errors of a store.

use crate::code::ErrorCode;

/// Why a store call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The call will probably succeed later. Nothing was written.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Unavailable(String),
    /// It is not known whether it was written.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Unknown(String),
    /// The batch as a whole can never be written. Nothing was written; its halves may succeed.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    BatchRefused(String),
    /// The state of the disk is unknown, or the disk is full. The node has to stop.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Failed(String),
    /// The session has ended.
    #[error("{prefix}: another node may own its shards now", prefix = self.code().prefix())]
    SessionGone,
    /// The store was closed.
    #[error("{prefix}", prefix = self.code().prefix())]
    Closed,
    /// The store cannot be opened in its current state.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    CannotOpen(String),
    /// Another process owns the store.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    InUse(String),
    /// A row contains invalid data.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    CorruptRow(String),
}

impl StoreError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            StoreError::Unavailable(_) => ErrorCode::StoreUnavailable,
            StoreError::Unknown(_) => ErrorCode::StoreOutcomeUnknown,
            StoreError::Failed(_) => ErrorCode::StoreFailed,
            StoreError::SessionGone => ErrorCode::SessionGone,
            StoreError::Closed => ErrorCode::StoreClosed,
            StoreError::CannotOpen(_) => ErrorCode::CannotOpenStore,
            StoreError::InUse(_) => ErrorCode::StoreInUse,
            StoreError::CorruptRow(_) => ErrorCode::CorruptRow,
            StoreError::BatchRefused(_) => ErrorCode::BatchRefused,
        }
    }
}

crate::error_model!(StoreError);
