//! What stays in memory, and when it is looked at.

use crate::instance::InstanceKey;

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

    /// An execution is no longer idle, or gone.
    pub(super) fn leave_idle(&mut self, key: InstanceKey) {
        if let Some(slot) = self.slots.get(&key) {
            self.idle.remove(&(slot.last_used_ms, key));
        }
    }

    pub(super) fn evict_idle(&mut self, now_ms: u64) {
        let idle_since = now_ms.saturating_sub(self.options.idle_ms);
        while let Some((_, key)) = self.idle.first().copied().filter(|(used_ms, _)| *used_ms < idle_since) {
            self.evict(now_ms, key);
        }
    }

    /// Keeps the number of executions in memory within its limit, least recently used first.
    pub(super) fn evict_surplus(&mut self, now_ms: u64) {
        while self.idle.len() > self.options.max_resident
            && let Some((_, key)) = self.idle.first().copied()
        {
            self.evict(now_ms, key);
        }
    }

    pub(super) fn evict(&mut self, now_ms: u64, key: InstanceKey) {
        let wake = self.wake_of.get(&key).copied();
        let Some(slot) = self.remove_slot(key) else { return };
        if let Phase::Idle(execution) = slot.phase {
            self.outputs.push(Output::Drop(execution));
            self.counters.evictions += 1;
        }
        self.set_wake(key, wake.filter(|at_ms| *at_ms < now_ms + self.options.lookahead_ms));
    }

    pub(super) fn reply(&mut self, request: RequestId, answer: Answer) {
        self.outputs.push(Output::Reply(request, answer));
    }
}
