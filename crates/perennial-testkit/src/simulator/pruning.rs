//! The pruner: finished instances are deleted while everything goes on, and their ids are used again.

use perennial_core::store::{DeleteOutcome, Store};
use perennial_core::{InstanceKey, ShardId};

use super::Simulation;
use super::store_calls::ask;

impl Simulation {
    pub(super) fn prune_later(&mut self) {
        if self.plan.prune_ms == 0 {
            return;
        }
        let pause_ms = self.chance.between(self.plan.prune_ms / 2, self.plan.prune_ms);
        self.later(pause_ms, "the pruner comes", |this| {
            if !this.is_healed {
                this.prune_later();
                this.prune();
            }
        });
    }

    fn prune(&mut self) {
        let ended: Vec<InstanceKey> = {
            let tables = self.store.tables();
            tables.instances.values().filter(|row| row.status.is_final()).map(|row| row.key).collect()
        };
        if ended.is_empty() {
            return;
        }
        let key = *self.chance.pick(&ended);
        self.delete_ended(key);
    }

    /// Somebody deletes an instance that has ended.
    pub(super) fn delete_ended(&mut self, key: InstanceKey) {
        let id = self.store.tables().instances[&key].id.clone();
        let inbox: Vec<u64> = {
            let tables = self.store.tables();
            let mine = tables.inbox.iter().filter(|(_, message)| message.to == key);
            mine.map(|(number, _)| *number).collect()
        };
        let shard = ShardId::of(&id);
        let outcomes = ask(|reply| self.store.delete(vec![(shard, key)], reply)).expect("the store is open");
        if outcomes != [DeleteOutcome::Deleted] {
            return self.fail(format!("G33: {id} has ended and is not deleted: {outcomes:?}"));
        }
        self.note(|| format!("{id} is deleted"));
        self.count("deleted");
        self.witness.consumed.extend(inbox);
        self.witness.turns.retain(|(owner, _, _), _| *owner != key);
        self.witness.histories.forget(key);
        self.witness.deleted.insert(key);
        *self.witness.deletions.entry(id.clone()).or_default() += 1;
        self.callers.log.deleted(&id);
        if let Some(keys) = self.callers.acknowledged.get_mut(&id) {
            keys.remove(&key);
        }
    }

    /// How often an id was deleted: what a caller began before concerns another instance.
    pub(super) fn deletions(&self, id: &str) -> u64 {
        self.witness.deletions.get(id).copied().unwrap_or_default()
    }
}
