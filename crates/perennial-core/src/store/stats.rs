//! Row counts, for operators of a store.

use super::row::Status;
use std::time::Duration;

/// A number of rows, counted up to a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many were counted.
    pub rows: u64,
    /// Whether there are more than were counted.
    pub more: bool,
}

impl Count {
    /// Rows are counted exactly up to this many.
    pub const EXACT: u64 = 10_000;

    /// A count of rows, of which at most one more than the bound was counted.
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
    /// Messages that have not been applied.
    pub inbox: Count,
    /// Tasks that no node has taken.
    pub tasks_queued: Count,
    /// Tasks that are running.
    pub tasks_leased: Count,
    /// Tasks that wait until they are due.
    pub tasks_waiting: Count,
    /// Requests without a reply.
    pub requests: Count,
    /// How late the most overdue instance is; 0 if none is late.
    pub lag_ms: u64,
}

impl StoreStats {
    /// How late the most overdue instance is.
    pub fn lag(&self) -> Duration {
        Duration::from_millis(self.lag_ms)
    }
}
