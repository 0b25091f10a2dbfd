//! A map whose keys are inserted in ascending order, as event ids are.
//!
//! Looking up is a step in one block of memory, or a binary search where ids have gaps; inserting is an append. A removed entry leaves a hole, which goes
//! when it reaches the front or when holes outnumber entries, so that memory follows what is in the map.

use std::collections::VecDeque;

use crate::history::EventId;

#[derive(Clone, Debug)]
pub(crate) struct AscendingMap<T> {
    slots: VecDeque<(EventId, Option<T>)>,
    live: usize,
}

impl<T> Default for AscendingMap<T> {
    fn default() -> AscendingMap<T> {
        AscendingMap { slots: VecDeque::new(), live: 0 }
    }
}

impl<T> AscendingMap<T> {
    /// Adds an entry behind all others.
    pub(crate) fn insert(&mut self, id: EventId, value: T) {
        assert!(self.slots.back().is_none_or(|(last, _)| *last < id), "ids are inserted in ascending order");
        self.slots.push_back((id, Some(value)));
        self.live += 1;
    }

    pub(crate) fn get(&self, id: EventId) -> Option<&T> {
        self.slots[self.position(id)?].1.as_ref()
    }

    pub(crate) fn remove(&mut self, id: EventId) -> Option<T> {
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

    /// The entries in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EventId, &T)> {
        self.slots.iter().filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }

    /// Where an id stands. Without gaps that is its distance from the first; gaps only bring it nearer.
    fn position(&self, id: EventId) -> Option<usize> {
        let distance = usize::try_from(id.0.checked_sub(self.slots.front()?.0.0)?).ok()?;
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
