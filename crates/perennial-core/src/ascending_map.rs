//! A map whose keys are inserted in ascending order, such as event ids and stamps.
//!
//! A lookup is one step in a contiguous block of memory, or a binary search if the ids have gaps; an insertion is an
//! append. A removed entry leaves a hole, which is dropped when it reaches the front or when holes outnumber entries,
//! so that memory is proportional to the number of entries.

use std::collections::VecDeque;

use crate::history::EventId;

#[derive(Clone, Debug)]
pub(crate) struct AscendingMap<T, K = EventId> {
    slots: VecDeque<(K, Option<T>)>,
    live: usize,
}

/// A key with an integer position.
pub(crate) trait Counting: Copy + Ord {
    fn number(self) -> u64;
}

impl Counting for EventId {
    fn number(self) -> u64 {
        self.0
    }
}

impl Counting for u64 {
    fn number(self) -> u64 {
        self
    }
}

impl<T, K> Default for AscendingMap<T, K> {
    fn default() -> AscendingMap<T, K> {
        AscendingMap { slots: VecDeque::new(), live: 0 }
    }
}

impl<T, K: Counting> AscendingMap<T, K> {
    /// Appends an entry. Its key must be greater than all others.
    pub(crate) fn insert(&mut self, id: K, value: T) {
        assert!(self.slots.back().is_none_or(|(last, _)| *last < id), "ids are inserted in ascending order");
        self.slots.push_back((id, Some(value)));
        self.live += 1;
    }

    pub(crate) fn get(&self, id: K) -> Option<&T> {
        self.slots[self.position(id)?].1.as_ref()
    }

    pub(crate) fn remove(&mut self, id: K) -> Option<T> {
        let position = self.position(id)?;
        let value = self.slots[position].1.take()?;
        self.live -= 1;
        while self.slots.front().is_some_and(|(_, value)| value.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.len() > 2 * self.live + 8 {
            self.slots.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The entries in ascending order. There are no holes before the first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }

    /// The index of an id. Without gaps it is the distance from the first id; gaps only make it smaller.
    fn position(&self, id: K) -> Option<usize> {
        let distance = usize::try_from(id.number().checked_sub(self.slots.front()?.0.number())?).ok()?;
        match self.slots.get(distance) {
            Some((found, _)) if *found == id => Some(distance),
            _ => self.slots.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_until_removed_and_memory_follows_them() {
        let mut map = AscendingMap::default();
        (1..=1_000).for_each(|id| map.insert(EventId(id), id));
        for id in (1..=1_000).filter(|id| id % 10 != 0) {
            assert_eq!(map.remove(EventId(id)), Some(id));
            assert_eq!(map.get(EventId(id)), None);
            assert_eq!(map.remove(EventId(id)), None);
        }
        assert!(map.slots.len() <= 2 * 100 + 8, "holes go");
        assert_eq!(
            map.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
            (1..=100).map(|n| n * 10).collect::<Vec<_>>()
        );
        assert_eq!(map.get(EventId(500)), Some(&500));
    }

    #[test]
    fn removing_in_order_leaves_nothing_behind() {
        let mut map = AscendingMap::default();
        for id in 1..=100 {
            map.insert(EventId(id), ());
            assert_eq!(map.remove(EventId(id)), Some(()));
        }
        assert!(map.slots.is_empty());
    }
}
