//! Counters of events that are not visible anywhere else.

/// Counters of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Completions and messages that nothing waited for.
    pub stale: u64,
    /// Turns that failed.
    pub failed_turns: u64,
    /// Commits that conflicted with stored rows.
    pub conflicts: u64,
    /// Executions that were evicted from memory.
    pub evictions: u64,
    /// Executions that were hydrated from their history.
    pub hydrations: u64,
    /// Messages to other instances that did not exist or had ended.
    pub undelivered: u64,
    /// Attempts that waited too long for a free slot and were queued for other nodes.
    pub spilled: u64,
    /// External events that were recorded.
    pub events_applied: u64,
    /// External events whose key was known.
    pub events_duplicate: u64,
    /// External events that were refused: the instance had too many unread ones, or had ended.
    pub events_refused: u64,
}

impl Counters {
    /// Adds two sets of counters.
    #[must_use]
    pub fn plus(&self, other: &Counters) -> Counters {
        Counters {
            stale: self.stale + other.stale,
            failed_turns: self.failed_turns + other.failed_turns,
            conflicts: self.conflicts + other.conflicts,
            evictions: self.evictions + other.evictions,
            hydrations: self.hydrations + other.hydrations,
            undelivered: self.undelivered + other.undelivered,
            spilled: self.spilled + other.spilled,
            events_applied: self.events_applied + other.events_applied,
            events_duplicate: self.events_duplicate + other.events_duplicate,
            events_refused: self.events_refused + other.events_refused,
        }
    }
}
