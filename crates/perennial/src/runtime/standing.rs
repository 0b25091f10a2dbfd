//! The phase of a runtime, and why it stopped without a request.

use perennial_core::node::Unfinished;
use perennial_core::store::{ShardSet, StoreError};

/// The phase of the driver between start and stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The shards that its lanes have gained since the start, including those that were lost again.
    pub(super) gained: ShardSet,
    /// Whether the node knows of other nodes that own shards, or owns none itself.
    pub(super) shares: bool,
    pub(super) is_stopping: bool,
    pub(super) has_ended: bool,
    /// The work that was left because the store did not respond in time.
    pub(super) unfinished: Option<Unfinished>,
    pub(super) failure: Option<Failure>,
}

impl Standing {
    /// Whether starting has finished: every lane has its shards, or other nodes have some, which may take longer.
    pub(super) fn is_settled(&self) -> bool {
        self.gained.len() == perennial_core::SHARDS || self.shares || self.failure.is_some()
    }

    /// Whether stopping has finished.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended || self.unfinished.is_some() || self.failure.is_some()
    }
}

/// Why the runtime stopped without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Store(StoreError),
    /// Somebody dropped the [`Runtime`](super::Runtime) instead of shutting it down.
    Dropped,
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Store(error) => error.fmt(f),
            Failure::Dropped => f.write_str("the runtime was dropped"),
            Failure::Other(reason) => f.write_str(reason),
        }
    }
}
