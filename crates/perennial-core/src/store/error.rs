//! What can go wrong with a store as a whole.

/// A store could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It will probably work later. Nothing was written.
    #[error("PER-0501 store unavailable: {0}")]
    Unavailable(String),
    /// Whether it was written is not known.
    #[error("PER-0502 outcome unknown: {0}")]
    Unknown(String),
    /// A batch cannot be written as a whole, now or later. Nothing was written; its halves may fare better.
    #[error("PER-0509 batch refused: {0}")]
    BatchRefused(String),
    /// What is on disk can no longer be known, or nothing more fits on it. The node has to stop.
    #[error("PER-0503 store failed: {0}")]
    Failed(String),
    /// The session has ended.
    #[error("PER-0504 session gone: another node may own its shards now")]
    SessionGone,
    /// The store was closed.
    #[error("PER-0505 store closed")]
    Closed,
    /// The store cannot be opened as it is.
    #[error("PER-0506 cannot open the store: {0}")]
    CannotOpen(String),
    /// Somebody else owns the store.
    #[error("PER-0507 store in use: {0}")]
    InUse(String),
    /// A row does not hold what it must.
    #[error("PER-0508 corrupt row: {0}")]
    CorruptRow(String),
}

impl StoreError {
    /// The stable code of this failure.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Unavailable(_) => "PER-0501",
            StoreError::Unknown(_) => "PER-0502",
            StoreError::Failed(_) => "PER-0503",
            StoreError::SessionGone => "PER-0504",
            StoreError::Closed => "PER-0505",
            StoreError::CannotOpen(_) => "PER-0506",
            StoreError::InUse(_) => "PER-0507",
            StoreError::CorruptRow(_) => "PER-0508",
            StoreError::BatchRefused(_) => "PER-0509",
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }
}
