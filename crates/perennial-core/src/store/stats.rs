//! Row counts, for operators of a store.

use std::collections::BTreeMap;
use std::time::Duration;

use super::row::Status;

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

/// What takes longer to find out than [`StoreStats`], for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreDetails {
    /// Blocked instances by the code of what blocks them, ordered by code.
    pub blocked: Vec<(String, Count)>,
    /// The parts of the store on disk and their sizes in bytes. Empty if the store does not know them.
    pub bytes: Vec<(&'static str, u64)>,
    /// The earliest due time of each shard's instances that are not blocked, ordered by shard. Of the whole store, only the
    /// first [`EARLIEST`](StoreDetails::EARLIEST) due times are looked at; other shards are not in it.
    pub earliest: Vec<(u8, u64)>,
}

impl StoreDetails {
    /// How many due times are looked at to find the earliest ones of shards.
    pub const EARLIEST: u64 = 4_096;

    /// The most that a store has to read of a stored [`Blocked`](super::Blocked) for its code.
    pub const CODE_TEXT: u64 = 32;

    /// Counts blocked instances by the begins of their stored [`Blocked`](super::Blocked), of which at most one more than
    /// [`Count::EXACT`] is passed. A damaged one counts as blocked with the code `unknown`.
    pub fn count_blocked<'a>(stored: impl IntoIterator<Item = &'a str>) -> Vec<(String, Count)> {
        let (mut codes, mut rows) = (BTreeMap::<&str, u64>::new(), 0);
        for text in stored {
            rows += 1;
            let code = text.strip_prefix("{\"code\":\"").and_then(|rest| rest.split_once('"'));
            let code = code.map(|(code, _)| code).filter(|code| code.starts_with("PER-"));
            *codes.entry(code.unwrap_or("unknown")).or_default() += 1;
        }
        let more = rows > Count::EXACT;
        codes
            .into_iter()
            .map(|(code, rows)| (code.to_owned(), Count { rows: rows.min(Count::EXACT), more }))
            .collect()
    }

    /// The earliest of due times by shard.
    pub fn earliest_of(due: impl IntoIterator<Item = (u8, u64)>) -> Vec<(u8, u64)> {
        let mut earliest = BTreeMap::new();
        for (shard, due_ms) in due {
            earliest.entry(shard).and_modify(|first: &mut u64| *first = due_ms.min(*first)).or_insert(due_ms);
        }
        earliest.into_iter().collect()
    }
}
