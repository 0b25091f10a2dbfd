//! How many unread messages an instance has at most, so that few sends have to count them.
//!
//! A bound only grows: what is consumed lowers the truth, not the bound. When the bound reaches the limit, the rows are
//! counted again. Other processes append, too; when one did, all bounds are forgotten.

use std::collections::HashMap;

use perennial_core::InstanceKey;

/// More bounds than this are not kept.
const MOST_BOUNDS: usize = 4_096;

#[derive(Default)]
pub(crate) struct Unread {
    bounds: HashMap<InstanceKey, usize>,
}

impl Unread {
    /// At most so many messages of the instance are unread, if that is known.
    pub(crate) fn bound(&self, key: InstanceKey) -> Option<usize> {
        self.bounds.get(&key).copied()
    }

    /// So many were counted.
    pub(crate) fn counted(&mut self, key: InstanceKey, count: usize) {
        if self.bounds.len() >= MOST_BOUNDS {
            self.bounds.clear();
        }
        self.bounds.insert(key, count);
    }

    /// One was appended.
    pub(crate) fn appended(&mut self, key: InstanceKey) {
        if let Some(bound) = self.bounds.get_mut(&key) {
            *bound += 1;
        }
    }

    /// Others may have appended.
    pub(crate) fn forget(&mut self) {
        self.bounds.clear();
    }
}
