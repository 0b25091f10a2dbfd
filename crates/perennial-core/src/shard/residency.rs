//! What stays in memory, and when it is looked at.
//!
//! Two kinds of instances rest here and can be put away: those whose execution waits, and blocked ones, of which the
//! store knows all there is to know. What is put away and due soon keeps its wake.

use crate::history::EventId;
use crate::instance::InstanceKey;

use super::options::ShardOptions;
use super::output::Output;
use super::request::{Answer, RequestId};
use super::slot::{Phase, Slot};
use super::state_machine::Shard;

impl Shard {
    pub(super) fn remove_slot(&mut self, key: InstanceKey) -> Option<Slot> {
        self.leave_idle(key);
        let slot = self.slots.remove(&key)?;
        if self.by_id.get(&slot.id) == Some(&key) {
            self.by_id.remove(&slot.id);
        }
        self.set_wake(key, None);
        Some(slot)
    }

    pub(super) fn set_wake(&mut self, key: InstanceKey, at_ms: Option<u64>) {
        let old = match at_ms {
            Some(at_ms) => self.wake_of.insert(key, at_ms),
            None => self.wake_of.remove(&key),
        };
        if let Some(old) = old {
            self.wakes.remove(&(old, key));
        }
        if let Some(at_ms) = at_ms {
            self.wakes.insert((at_ms, key));
        }
    }

    /// An instance has nothing to do for now, and was used just now.
    pub(super) fn enter_idle(&mut self, now_ms: u64, key: InstanceKey) {
        self.leave_idle(key);
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let bytes = match &slot.phase {
            Phase::Idle(execution) => execution.ledger().bytes(),
            Phase::Blocked | Phase::Delayed => 0,
            Phase::Loading | Phase::Turning(..) | Phase::Committing(_) => return,
        };
        slot.last_used_ms = now_ms;
        self.idle.insert((now_ms, key), bytes);
        self.idle_bytes += bytes;
    }

    /// An instance is no longer idle, or gone.
    pub(super) fn leave_idle(&mut self, key: InstanceKey) {
        if let Some(slot) = self.slots.get(&key)
            && let Some(bytes) = self.idle.remove(&(slot.last_used_ms, key))
        {
            self.idle_bytes -= bytes;
        }
    }

    pub(super) fn evict_idle(&mut self, now_ms: u64) {
        let idle_since = now_ms.saturating_sub(self.options.idle_ms);
        while let Some(key) = self.least_recently_used(|used_ms| used_ms < idle_since) {
            self.evict(now_ms, key);
        }
    }

    /// Keeps what is in memory within its limits, least recently used first.
    pub(super) fn evict_surplus(&mut self, now_ms: u64) {
        let ShardOptions { max_resident, max_resident_bytes, .. } = self.options;
        // A lone execution over the limit would be replayed at each of its turns.
        while (self.idle.len() > max_resident
            || (self.idle_bytes > max_resident_bytes && self.idle.len() > 1))
            && let Some(key) = self.least_recently_used(|_| true)
        {
            self.evict(now_ms, key);
        }
    }

    fn least_recently_used(&self, is_meant: impl Fn(u64) -> bool) -> Option<InstanceKey> {
        self.idle.keys().next().filter(|(used_ms, _)| is_meant(*used_ms)).map(|(_, key)| *key)
    }

    fn evict(&mut self, now_ms: u64, key: InstanceKey) {
        self.leave_idle(key);
        let is_restful = match self.slots.get(&key).map(|slot| &slot.phase) {
            // Somebody waits for its messages to be read.
            _ if self.slots.get(&key).is_some_and(|slot| !slot.behind.is_empty()) => false,
            Some(Phase::Idle(_) | Phase::Delayed) => true,
            // The result of an attempt that runs would bring it back, and have it tried before its time.
            Some(Phase::Blocked) => !self.has_attempts(key),
            // It was idle, and is being tried again.
            _ => false,
        };
        if !is_restful {
            return;
        }
        let wake = self.wake_of.get(&key).copied();
        let Some(slot) = self.remove_slot(key) else { return };
        if let Phase::Idle(execution) = slot.phase {
            self.outputs.push(Output::Drop(execution));
            self.counters.evictions += 1;
        }
        self.set_wake(key, wake.filter(|at_ms| *at_ms < now_ms + self.options.lookahead_ms));
    }

    fn has_attempts(&self, key: InstanceKey) -> bool {
        self.attempts.range((key, EventId(0))..=(key, EventId(u64::MAX))).next().is_some()
    }

    pub(super) fn reply(&mut self, request: RequestId, answer: Answer) {
        self.outputs.push(Output::Reply(request, answer));
    }
}
