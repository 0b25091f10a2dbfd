//! Loads: a bounded number of instances is read at the same time, however many are due or owed together.

use std::collections::VecDeque;

use crate::instance::{InstanceKey, ShardId};
use crate::shard::Tenure;

/// An instance to load.
pub(super) type Wanted = (Tenure, ShardId, InstanceKey);

#[derive(Debug)]
pub(super) struct Loads {
    queue: VecDeque<Wanted>,
    open: usize,
    max: usize,
}

impl Loads {
    pub(super) fn new(max: usize) -> Loads {
        Loads { queue: VecDeque::new(), open: 0, max: max.max(1) }
    }

    pub(super) fn add(&mut self, wanted: Wanted) {
        self.queue.push_back(wanted);
    }

    /// The next one to read, if it may begin now.
    pub(super) fn take(&mut self) -> Option<Wanted> {
        if self.open >= self.max {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.open += 1;
        Some(next)
    }

    /// One was read, or is no longer wanted.
    pub(super) fn handle_done(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.open = 0;
    }
}
