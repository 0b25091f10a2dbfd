//! Where the replies to accepted updates go.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::history::EventId;
use crate::instance::InstanceKey;
use crate::store::RequestNumber;

use super::request::{ReplyTo, RequestId};

/// At most this many request rows are remembered. A row that is forgotten and still wanted is read again, and finds its
/// update by its key.
const MAX_ROWS: usize = 1_000;

#[derive(Default)]
pub(super) struct Updates {
    waiting: BTreeMap<(InstanceKey, EventId), Vec<ReplyTo>>,
    /// The callers of this process, and the update that each waits for.
    callers: BTreeMap<RequestId, (InstanceKey, EventId)>,
    /// The request rows, and the update that each waits for.
    rows: BTreeMap<RequestNumber, (InstanceKey, EventId)>,
}

impl Updates {
    /// Registers a destination for the reply to the update recorded by an event.
    pub(super) fn add(&mut self, key: InstanceKey, event: EventId, reply_to: ReplyTo) {
        match reply_to {
            ReplyTo::Request(request) => drop(self.callers.insert(request, (key, event))),
            ReplyTo::Row(number) => drop(self.rows.insert(number, (key, event))),
        }
        self.waiting.entry((key, event)).or_default().push(reply_to);
        // The writer of the oldest row is the most likely to have stopped waiting.
        if self.rows.len() > MAX_ROWS
            && let Some((number, place)) = self.rows.pop_first()
        {
            self.forget(place, ReplyTo::Row(number));
        }
    }

    /// A caller no longer waits.
    pub(super) fn handle_caller_gone(&mut self, request: RequestId) {
        if let Some(place) = self.callers.remove(&request) {
            self.forget(place, ReplyTo::Request(request));
        }
    }

    fn forget(&mut self, place: (InstanceKey, EventId), reply_to: ReplyTo) {
        if let Entry::Occupied(mut waiting) = self.waiting.entry(place) {
            waiting.get_mut().retain(|other| *other != reply_to);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
    }

    pub(super) fn waiting(&self, key: InstanceKey, event: EventId) -> &[ReplyTo] {
        self.waiting.get(&(key, event)).map_or(&[], Vec::as_slice)
    }

    /// The updates of an instance that somebody waits for, with the destinations of their replies.
    pub(super) fn of(&self, key: InstanceKey) -> impl Iterator<Item = (EventId, &[ReplyTo])> {
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        self.waiting.range(all).map(|((_, event), waiting)| (*event, waiting.as_slice()))
    }

    /// Removes an update that was answered, or that another execution will answer. Returns the destinations of its
    /// reply.
    pub(super) fn take(&mut self, key: InstanceKey, event: EventId) -> Vec<ReplyTo> {
        let waiting = self.waiting.remove(&(key, event)).unwrap_or_default();
        for reply_to in &waiting {
            match reply_to {
                ReplyTo::Request(request) => drop(self.callers.remove(request)),
                ReplyTo::Row(number) => drop(self.rows.remove(number)),
            }
        }
        waiting
    }

    /// Whether the writer of a request row waits for an update.
    pub(super) fn awaits_row(&self, number: RequestNumber) -> bool {
        self.rows.contains_key(&number)
    }

    /// Removes all entries, and returns the callers of this process among them. The next owner replies to request rows.
    pub(super) fn take_callers(&mut self) -> Vec<RequestId> {
        std::mem::take(self).callers.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_a_request_row_is_known_until_its_update_is_answered() {
        let (mut updates, key) = (Updates::default(), InstanceKey::new(1, 1));
        updates.add(key, EventId(3), ReplyTo::Row(8));
        updates.add(key, EventId(3), ReplyTo::Request(RequestId(1)));
        updates.add(InstanceKey::new(1, 2), EventId(3), ReplyTo::Row(9));
        assert!(updates.awaits_row(8) && updates.awaits_row(9) && !updates.awaits_row(10));
        assert_eq!(updates.waiting(key, EventId(3)).len(), 2);
        assert_eq!(updates.of(key).count(), 1);
        assert_eq!(updates.take(key, EventId(3)).len(), 2);
        assert!(!updates.awaits_row(8) && updates.waiting(key, EventId(3)).is_empty());
        updates.add(key, EventId(4), ReplyTo::Request(RequestId(2)));
        assert_eq!(updates.take_callers(), [RequestId(2)]);
        assert!(!updates.awaits_row(9));
    }
    #[test]
    fn g17_a_caller_that_is_gone_waits_for_no_update() {
        let (mut updates, key) = (Updates::default(), InstanceKey::new(1, 1));
        for number in 1..=100 {
            updates.add(key, EventId(3), ReplyTo::Request(RequestId(number)));
            updates.handle_caller_gone(RequestId(number));
        }
        assert!(updates.waiting.is_empty() && updates.callers.is_empty());
        updates.add(key, EventId(3), ReplyTo::Request(RequestId(1)));
        updates.add(key, EventId(3), ReplyTo::Request(RequestId(2)));
        updates.handle_caller_gone(RequestId(1));
        assert_eq!(updates.take(key, EventId(3)), [ReplyTo::Request(RequestId(2))]);
        assert!(updates.callers.is_empty());
    }

    #[test]
    fn i19_only_so_many_request_rows_are_remembered_and_the_oldest_go_first() {
        let (mut updates, key) = (Updates::default(), InstanceKey::new(1, 1));
        for number in 0..2 * MAX_ROWS as u64 {
            updates.add(key, EventId(3), ReplyTo::Row(number));
        }
        assert_eq!((updates.rows.len(), updates.waiting(key, EventId(3)).len()), (MAX_ROWS, MAX_ROWS));
        assert!(!updates.awaits_row(MAX_ROWS as u64 - 1) && updates.awaits_row(MAX_ROWS as u64));
    }
}
