//! Counts over all rows, for people who operate a store.

use super::row::Status;
use std::time::Duration;

/// How many rows there are, up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many were counted.
    pub rows: u64,
    /// Whether there are more.
    pub more: bool,
}

impl Count {
    /// Rows are counted exactly up to this many.
    pub const EXACT: u64 = 10_000;

    /// A count of rows, of which at most one over the bound were looked at.
    pub fn bounded(rows: u64, bound: u64) -> Count {
        Count { rows: rows.min(bound), more: rows > bound }
    }
}

/// Row counts and scheduling lag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Instances by status.
    pub instances: Vec<(Status, Count)>,
    /// Instances that are blocked.
    pub blocked: Count,
    /// Messages that were not applied.
    pub inbox: Count,
    /// Tasks that no node has taken.
    pub tasks_queued: Count,
    /// Tasks that somebody runs.
    pub tasks_leased: Count,
    /// Tasks that wait for their time.
    pub tasks_waiting: Count,
    /// Requests without a reply.
    pub requests: Count,
    /// How late the earliest instance is that wants attention; 0 if none is late.
    pub lag_ms: u64,
}

impl StoreStats {
    /// How late the oldest due instance is.
    pub fn lag(&self) -> Duration {
        Duration::from_millis(self.lag_ms)
    }
}
