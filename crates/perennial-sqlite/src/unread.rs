//! Upper bounds for the number of unread messages of instances, so that few sends have to count them.
//!
//! A bound only grows: consuming messages lowers the real number, not the bound. When a bound reaches the limit, the
//! rows are counted again. Other processes append messages, too; when one did, all bounds are forgotten.

use std::collections::HashMap;

use perennial_core::InstanceKey;

/// The maximum number of bounds.
const MOST_BOUNDS: usize = 4_096;

#[derive(Default)]
pub(crate) struct Unread {
    bounds: HashMap<InstanceKey, usize>,
}

impl Unread {
    /// The upper bound of an instance's unread messages, if it is known.
    pub(crate) fn bound(&self, key: InstanceKey) -> Option<usize> {
        self.bounds.get(&key).copied()
    }

    /// Sets a bound after counting.
    pub(crate) fn counted(&mut self, key: InstanceKey, count: usize) {
        if self.bounds.len() >= MOST_BOUNDS {
            self.bounds.clear();
        }
        self.bounds.insert(key, count);
    }

    /// Increments a bound after appending.
    pub(crate) fn appended(&mut self, key: InstanceKey) {
        if let Some(bound) = self.bounds.get_mut(&key) {
            *bound += 1;
        }
    }

    /// Forgets all bounds, because others may have appended.
    pub(crate) fn forget(&mut self) {
        self.bounds.clear();
    }
}
