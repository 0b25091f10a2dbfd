//! Instances that have nothing to do: when they were used last, and how many bytes their histories have. What is evicted
//! from memory is decided here (G11).
//!
//! A blocked instance that is being tried again may still be in here: whoever evicts looks whether it is at rest.

use std::collections::BTreeMap;

use crate::instance::InstanceKey;

#[derive(Default)]
pub(super) struct Residents {
    by_use: BTreeMap<(u64, InstanceKey), u64>,
    last_used: BTreeMap<InstanceKey, u64>,
    bytes: u64,
}

impl Residents {
    /// An instance has nothing to do, and was used just now.
    pub(super) fn enter(&mut self, now_ms: u64, key: InstanceKey, bytes: u64) {
        self.leave(key);
        self.last_used.insert(key, now_ms);
        self.by_use.insert((now_ms, key), bytes);
        self.bytes += bytes;
    }

    /// An instance has something to do, or is no longer in memory.
    pub(super) fn leave(&mut self, key: InstanceKey) {
        if let Some(used_ms) = self.last_used.remove(&key)
            && let Some(bytes) = self.by_use.remove(&(used_ms, key))
        {
            self.bytes -= bytes;
        }
    }

    /// The least recently used of them, if it was not used since a time.
    pub(super) fn unused_since(&self, since_ms: u64) -> Option<InstanceKey> {
        let (used_ms, key) = *self.by_use.first_key_value()?.0;
        (used_ms < since_ms).then_some(key)
    }

    /// The least recently used of them, if there are more than the limits allow. A single one may have more bytes than
    /// the limit: it would be replayed at each of its turns otherwise.
    pub(super) fn surplus(&self, max_count: usize, max_bytes: u64) -> Option<InstanceKey> {
        let count = self.by_use.len();
        let is_over = count > max_count || (self.bytes > max_bytes && count > 1);
        self.by_use.first_key_value().filter(|_| is_over).map(|((_, key), _)| *key)
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
        let mut residents = Residents::default();
        residents.enter(1, key(1), 10);
        residents.enter(2, key(2), 10);
        residents.enter(3, key(1), 10);
        assert_eq!(residents.surplus(1, 100), Some(key(2)));
        assert_eq!(residents.surplus(2, 15), Some(key(2)), "by bytes");
        assert_eq!(residents.surplus(2, 20), None);
        residents.leave(key(2));
        assert_eq!(residents.surplus(1, 5), None, "one alone may be large");
        assert_eq!(residents.surplus(0, 100), Some(key(1)));
    }

    #[test]
    fn g11_entering_again_and_leaving_twice_keep_the_bytes_right() {
        let mut residents = Residents::default();
        for now_ms in 1..10 {
            residents.enter(now_ms, key(1), now_ms);
            residents.enter(now_ms, key(2), 1);
        }
        assert_eq!(residents.bytes, 10);
        residents.leave(key(1));
        residents.leave(key(1));
        assert_eq!((residents.bytes, residents.by_use.len(), residents.last_used.len()), (1, 1, 1));
        assert_eq!(residents.unused_since(9), None, "used at that time");
        assert_eq!(residents.unused_since(10), Some(key(2)));
    }
}
