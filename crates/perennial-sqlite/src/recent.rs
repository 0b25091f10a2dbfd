//! What the writer thread remembers about the instances that it wrote recently.
//!
//! The next turn of such an instance need not look up its row, nor whether the previous turn is stored. This is valid
//! as long as only this thread changes the file; if another process did, or a transaction was rolled back, everything
//! is forgotten.

use perennial_core::InstanceKey;
use rustc_hash::FxHashMap;

/// The maximum number of remembered instances.
const MOST: usize = 16_384;

#[derive(Default)]
pub(crate) struct Recent {
    instances: FxHashMap<InstanceKey, Instance>,
}

#[derive(Clone, Copy, Default)]
struct Instance {
    /// The row id in `instances`.
    row: Option<i64>,
    /// Execution and number of the last turn.
    turn: Option<(u64, u64)>,
}

impl Recent {
    /// Notes that the row of an instance was inserted.
    pub(crate) fn inserted(&mut self, key: InstanceKey, row: i64) {
        self.entry(key).row = Some(row);
    }

    /// Notes that a turn of an instance was inserted.
    pub(crate) fn took_turn(&mut self, key: InstanceKey, execution: u64, number: u64) {
        self.entry(key).turn = Some((execution, number));
    }

    /// The row id of an instance, if it is known.
    pub(crate) fn row(&self, key: InstanceKey) -> Option<i64> {
        self.instances.get(&key)?.row
    }

    /// Whether a turn is known to be stored.
    pub(crate) fn has_turn(&self, key: InstanceKey, execution: u64, number: u64) -> bool {
        self.instances.get(&key).is_some_and(|known| known.turn == Some((execution, number)))
    }

    /// Forgets an instance that ended: nothing follows.
    pub(crate) fn ended(&mut self, key: InstanceKey) {
        self.instances.remove(&key);
    }

    /// Forgets everything, because rows may have been deleted or added.
    pub(crate) fn forget(&mut self) {
        self.instances.clear();
    }

    fn entry(&mut self, key: InstanceKey) -> &mut Instance {
        if self.instances.len() >= MOST && !self.instances.contains_key(&key) {
            self.instances.clear();
        }
        self.instances.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_what_is_forgotten_is_looked_up_again() {
        let mut recent = Recent::default();
        let key = InstanceKey::from_bytes([7; 16]);
        recent.inserted(key, 3);
        recent.took_turn(key, 1, 4);
        assert_eq!(recent.row(key), Some(3));
        assert!(recent.has_turn(key, 1, 4) && !recent.has_turn(key, 1, 3) && !recent.has_turn(key, 2, 4));
        recent.forget();
        assert!(recent.row(key).is_none() && !recent.has_turn(key, 1, 4));
    }

    #[test]
    fn s2_so_many_instances_are_remembered_and_no_more() {
        let mut recent = Recent::default();
        for number in 0..3 * MOST as u128 {
            recent.inserted(InstanceKey::from_bytes(number.to_be_bytes()), 1);
            assert!(recent.instances.len() <= MOST);
        }
    }
}
