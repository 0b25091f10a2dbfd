//! What comes without a caller: messages from the store, time.

use crate::instance::InstanceKey;
use crate::store::InboxRow;

use super::slot::{Next, Phase, Queued, Slot};
use super::state_machine::Shard;

impl Shard {
    /// A message was read from the inbox. Returns whether it was not known.
    pub fn handle_inbox(&mut self, now_ms: u64, row: InboxRow) -> bool {
        let is_known = |slot: &Slot| slot.knows_inbox(row.number);
        if self.closing
            || self.consumed.contains(row.number)
            || self.slots.get(&row.key).is_some_and(is_known)
        {
            return false;
        }
        // Earlier messages are being read; this one is brought again after them.
        if self.slots.get(&row.key).is_some_and(|slot| slot.is_refreshing) {
            return false;
        }
        if !self.slots.contains_key(&row.key) {
            self.load(row.key, now_ms);
        }
        self.enqueue_inbox(now_ms, row);
        true
    }

    pub(super) fn enqueue_inbox(&mut self, now_ms: u64, row: InboxRow) {
        if let Some(slot) = self.slots.get_mut(&row.key) {
            slot.insert_inbox(&row);
            self.go_on(now_ms, row.key);
        }
    }

    /// A new owner has to look at this instance: it is owed work, or blocked.
    pub fn handle_owed(&mut self, now_ms: u64, key: InstanceKey) {
        if self.closing {
            return;
        }
        self.given_up.remove(&key);
        match self.slots.get_mut(&key).map(|slot| &mut slot.phase) {
            None => self.load(key, now_ms),
            Some(Phase::Blocked) => self.reload(key),
            Some(Phase::Committing(in_flight)) if matches!(in_flight.next, Next::Kept) => {
                in_flight.next = Next::Reloaded;
            }
            Some(_) => {}
        }
    }

    /// A dormant instance wants attention at a time.
    pub fn handle_due(&mut self, key: InstanceKey, wake_at_ms: u64) {
        // An instance that is alive knows better itself; a blocked one may have been made due from outside.
        match self.slots.get(&key).map(|slot| &slot.phase) {
            None | Some(Phase::Blocked | Phase::Delayed) => self.set_wake(key, Some(wake_at_ms)),
            Some(_) => {}
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now_ms: u64) {
        if self.closing {
            return;
        }
        let due = self.wakes.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        for key in due.map(|(_, key)| *key).collect::<Vec<_>>() {
            self.set_wake(key, None);
            match self.slots.get(&key).map(|slot| &slot.phase) {
                Some(Phase::Idle(_)) => self.go_on(now_ms, key),
                Some(Phase::Blocked | Phase::Delayed) => self.reload(key),
                Some(_) => {}
                None => self.load(key, now_ms),
            }
        }
        self.evict_idle(now_ms);
    }

    pub(super) fn enqueue(&mut self, now_ms: u64, key: InstanceKey, queued: Queued) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        slot.push(queued);
        self.go_on(now_ms, key);
    }
}
