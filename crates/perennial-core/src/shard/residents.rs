//! Idle instances in memory: when they were last used, and the size of their histories. Decides what is evicted (G11).
//!
//! A blocked instance that is being retried may still be listed: the code that evicts checks whether it is idle.

use crate::ascending_map::AscendingMap;
use crate::instance::InstanceKey;

#[derive(Default)]
pub(super) struct Residents {
    by_use: AscendingMap<Resident, u64>,
    next: u64,
    bytes: u64,
}

struct Resident {
    key: InstanceKey,
    used_ms: u64,
    bytes: u64,
}

/// An instance's entry among the idle ones, if it has one. Stored with the instance.
#[derive(Default)]
pub(super) struct Stay(Option<u64>);

impl Residents {
    /// Adds an instance that became idle just now.
    pub(super) fn enter(&mut self, stay: &mut Stay, now_ms: u64, key: InstanceKey, bytes: u64) {
        self.leave(stay);
        *stay = Stay(Some(self.next));
        self.by_use.insert(self.next, Resident { key, used_ms: now_ms, bytes });
        self.next += 1;
        self.bytes += bytes;
    }

    /// Removes an instance that has work to do, or is no longer in memory.
    pub(super) fn leave(&mut self, stay: &mut Stay) {
        if let Some(resident) = stay.0.take().and_then(|place| self.by_use.remove(place)) {
            self.bytes -= resident.bytes;
        }
    }

    /// The size of the histories.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The least recently used instance, if it was not used since a time.
    pub(super) fn unused_since(&self, since_ms: u64) -> Option<InstanceKey> {
        let (_, first) = self.by_use.iter().next()?;
        (first.used_ms < since_ms).then_some(first.key)
    }

    /// The least recently used instance, if there are more than the limits allow. A single instance may exceed the
    /// limit in bytes: otherwise it would be replayed for each of its turns.
    pub(super) fn surplus(&self, max_count: usize, max_bytes: u64) -> Option<InstanceKey> {
        let count = self.by_use.len();
        let is_over = count > max_count || (self.bytes > max_bytes && count > 1);
        self.by_use.iter().next().filter(|_| is_over).map(|(_, first)| first.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    #[test]
    fn g11_the_least_recently_used_is_over_the_limit_first() {
        let (mut residents, mut one, mut two) = (Residents::default(), Stay::default(), Stay::default());
        residents.enter(&mut one, 1, key(1), 10);
        residents.enter(&mut two, 2, key(2), 10);
        residents.enter(&mut one, 3, key(1), 10);
        assert_eq!(residents.surplus(1, 100), Some(key(2)));
        assert_eq!(residents.surplus(2, 15), Some(key(2)), "by bytes");
        assert_eq!(residents.surplus(2, 20), None);
        residents.leave(&mut two);
        assert_eq!(residents.surplus(1, 5), None, "one alone may be large");
        assert_eq!(residents.surplus(0, 100), Some(key(1)));
    }

    #[test]
    fn g11_entering_again_and_leaving_twice_keep_the_bytes_right() {
        let (mut residents, mut one, mut two) = (Residents::default(), Stay::default(), Stay::default());
        for now_ms in 1..10 {
            residents.enter(&mut one, now_ms, key(1), now_ms);
            residents.enter(&mut two, now_ms, key(2), 1);
        }
        assert_eq!(residents.bytes, 10);
        residents.leave(&mut one);
        residents.leave(&mut one);
        assert_eq!((residents.bytes, residents.by_use.len()), (1, 1));
        assert_eq!(residents.unused_since(9), None, "used at that time");
        assert_eq!(residents.unused_since(10), Some(key(2)));
    }
}
