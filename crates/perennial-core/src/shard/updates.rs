//! Who waits for the answers of accepted updates.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::EventId;
use crate::instance::InstanceKey;
use crate::store::RequestNumber;

use super::request::{Asker, RequestId};

#[derive(Default)]
pub(super) struct Updates {
    askers: BTreeMap<(InstanceKey, EventId), Vec<Asker>>,
    /// The request rows among the askers.
    rows: BTreeSet<RequestNumber>,
}

impl Updates {
    /// Somebody waits for the update that an event records.
    pub(super) fn add(&mut self, key: InstanceKey, event: EventId, asker: Asker) {
        if let Asker::Row(number) = asker {
            self.rows.insert(number);
        }
        self.askers.entry((key, event)).or_default().push(asker);
    }

    pub(super) fn askers(&self, key: InstanceKey, event: EventId) -> &[Asker] {
        self.askers.get(&(key, event)).map_or(&[], Vec::as_slice)
    }

    /// The updates of an instance that somebody waits for, and who.
    pub(super) fn of(&self, key: InstanceKey) -> impl Iterator<Item = (EventId, &[Asker])> {
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        self.askers.range(all).map(|((_, event), askers)| (*event, askers.as_slice()))
    }

    /// An update was answered, or is somebody else's to answer. Returns who waited for it.
    pub(super) fn take(&mut self, key: InstanceKey, event: EventId) -> Vec<Asker> {
        let askers = self.askers.remove(&(key, event)).unwrap_or_default();
        for number in askers.iter().filter_map(|asker| asker.row()) {
            self.rows.remove(&number);
        }
        askers
    }

    /// Whether the writer of a request row waits for an update.
    pub(super) fn awaits_row(&self, number: RequestNumber) -> bool {
        self.rows.contains(&number)
    }

    /// Removes everybody, and returns the callers of this process among them. The writers of request rows are answered
    /// by the next owner.
    pub(super) fn take_callers(&mut self) -> Vec<RequestId> {
        self.rows.clear();
        let askers = std::mem::take(&mut self.askers).into_values().flatten();
        askers.filter_map(|asker| asker.caller()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_a_request_row_is_known_until_its_update_is_answered() {
        let (mut updates, key) = (Updates::default(), InstanceKey::new(1, 1));
        updates.add(key, EventId(3), Asker::Row(8));
        updates.add(key, EventId(3), Asker::Request(RequestId(1)));
        updates.add(InstanceKey::new(1, 2), EventId(3), Asker::Row(9));
        assert!(updates.awaits_row(8) && updates.awaits_row(9) && !updates.awaits_row(10));
        assert_eq!(updates.askers(key, EventId(3)).len(), 2);
        assert_eq!(updates.of(key).count(), 1);
        assert_eq!(updates.take(key, EventId(3)).len(), 2);
        assert!(!updates.awaits_row(8) && updates.askers(key, EventId(3)).is_empty());
        updates.add(key, EventId(4), Asker::Request(RequestId(2)));
        assert_eq!(updates.take_callers(), [RequestId(2)]);
        assert!(!updates.awaits_row(9));
    }
}
