//! When instances need attention: at most one wake time for each, in memory or not.

use std::collections::{BTreeMap, BTreeSet};

use crate::instance::InstanceKey;

#[derive(Default)]
pub(super) struct Wakes {
    by_time: BTreeSet<(u64, InstanceKey)>,
    of_key: BTreeMap<InstanceKey, u64>,
}

impl Wakes {
    /// Replaces the wake time of an instance, or removes it.
    pub(super) fn set(&mut self, key: InstanceKey, at_ms: Option<u64>) {
        let old = match at_ms {
            Some(at_ms) => self.of_key.insert(key, at_ms),
            None => self.of_key.remove(&key),
        };
        if old == at_ms {
            return;
        }
        if let Some(old) = old {
            self.by_time.remove(&(old, key));
        }
        if let Some(at_ms) = at_ms {
            self.by_time.insert((at_ms, key));
        }
    }

    pub(super) fn of(&self, key: InstanceKey) -> Option<u64> {
        self.of_key.get(&key).copied()
    }

    /// The earliest wake time.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Removes the wake times that have passed, and returns their instances, in order.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<InstanceKey> {
        let mut due = Vec::new();
        while let Some((at_ms, key)) = self.by_time.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.by_time.remove(&(at_ms, key));
            self.of_key.remove(&key);
            due.push(key);
        }
        due
    }

    pub(super) fn clear(&mut self) {
        self.by_time.clear();
        self.of_key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    #[test]
    fn n5_an_instance_has_one_wake_which_the_next_replaces() {
        let mut wakes = Wakes::default();
        wakes.set(key(1), Some(30));
        wakes.set(key(1), Some(20));
        wakes.set(key(2), Some(25));
        assert_eq!((wakes.of(key(1)), wakes.next_ms()), (Some(20), Some(20)));
        wakes.set(key(1), None);
        assert_eq!((wakes.of(key(1)), wakes.next_ms()), (None, Some(25)));
    }

    #[test]
    fn n5_due_wakes_are_taken_once_and_in_order() {
        let mut wakes = Wakes::default();
        for (number, at_ms) in [(1, 30), (2, 10), (3, 20), (4, 31)] {
            wakes.set(key(number), Some(at_ms));
        }
        assert_eq!(wakes.take_due(30), [key(2), key(3), key(1)]);
        assert!(wakes.take_due(30).is_empty());
        assert_eq!((wakes.of(key(3)), wakes.of(key(4))), (None, Some(31)));
    }
}
