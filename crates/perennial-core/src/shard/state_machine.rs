//! The shard itself: what it does about each input.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};

use super::options::ShardOptions;
use super::output::Output;
use super::request::{Request, RequestId};
use super::slot::{Phase, Slot};

/// The instances of one shard, as far as they are not dormant.
pub struct Shard {
    pub(super) id: ShardId,
    pub(super) options: ShardOptions,
    pub(super) slots: BTreeMap<InstanceKey, Slot>,
    pub(super) by_id: BTreeMap<Arc<str>, InstanceKey>,
    pub(super) wakes: BTreeSet<(u64, InstanceKey)>,
    pub(super) wake_of: BTreeMap<InstanceKey, u64>,
    /// Attempts of activities that run on this node.
    pub(super) attempts: BTreeMap<(InstanceKey, EventId), u64>,
    /// Requests whose id is being looked up.
    pub(super) lookups: BTreeMap<RequestId, Request>,
    /// Who waits for an instance to end.
    pub(super) waiters: BTreeMap<InstanceKey, Vec<RequestId>>,
    /// Idle executions by when they were used last.
    pub(super) idle: BTreeSet<(u64, InstanceKey)>,
    pub(super) counters: Counters,
    pub(super) outputs: Vec<Output>,
}

/// What a shard has seen that leaves no other trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Completions and messages that nothing waited for.
    pub stale: u64,
    /// Turns that failed.
    pub failed_turns: u64,
    /// Commits that contradicted what was stored.
    pub conflicts: u64,
    /// Executions that were dropped from memory and will grow back.
    pub evictions: u64,
    /// Executions that grew back from their history.
    pub hydrations: u64,
}

impl Shard {
    /// A shard that was just taken over: everything is dormant.
    pub fn new(id: ShardId, options: ShardOptions) -> Shard {
        Shard {
            id,
            options,
            slots: BTreeMap::new(),
            by_id: BTreeMap::new(),
            wakes: BTreeSet::new(),
            wake_of: BTreeMap::new(),
            attempts: BTreeMap::new(),
            lookups: BTreeMap::new(),
            waiters: BTreeMap::new(),
            idle: BTreeSet::new(),
            counters: Counters::default(),
            outputs: Vec::new(),
        }
    }

    /// What is to be done now. To be taken after every input.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        mem::take(&mut self.outputs)
    }

    /// When [`Shard::handle_time`] is wanted next.
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at_ms, _)| *at_ms)
    }

    /// What leaves no other trace.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many instances are in memory.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is under way: no turn, no load, no commit.
    pub fn is_quiet(&self) -> bool {
        self.slots.values().all(|slot| matches!(slot.phase, Phase::Idle(_) | Phase::Blocked))
    }
}
