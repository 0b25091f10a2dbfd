//! What can go wrong with a store as a whole.

use crate::code::ErrorCode;

/// A store could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It will probably work later. Nothing was written.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Unavailable(String),
    /// Whether it was written is not known.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Unknown(String),
    /// A batch cannot be written as a whole, now or later. Nothing was written; its halves may fare better.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    BatchRefused(String),
    /// What is on disk can no longer be known, or nothing more fits on it. The node has to stop.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    Failed(String),
    /// The session has ended.
    #[error("{prefix}: another node may own its shards now", prefix = self.code().prefix())]
    SessionGone,
    /// The store was closed.
    #[error("{prefix}", prefix = self.code().prefix())]
    Closed,
    /// The store cannot be opened as it is.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    CannotOpen(String),
    /// Somebody else owns the store.
    #[error("{prefix}: {0}", prefix = self.code().prefix())]
    InUse(String),
    /// A row does not hold what it must.
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
