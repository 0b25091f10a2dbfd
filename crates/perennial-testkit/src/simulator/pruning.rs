//! The pruner: ended instances are deleted while others run, and their ids are reused.

use perennial_core::store::{Commit, DeleteOutcome, InboxNumber, InstanceRow, Outgoing, Store};
use perennial_core::{InstanceKey, ShardId};

use super::Simulation;
use super::store_calls::wait_for;

/// An instance whose id a commit gives to another one, if it has ended.
pub(super) struct Replaceable {
    id: String,
    key: InstanceKey,
    inbox: Vec<InboxNumber>,
}

impl Simulation {
    pub(super) fn prune_later(&mut self) {
        if self.plan.prune_ms == 0 {
            return;
        }
        let pause_ms = self.rng.between(self.plan.prune_ms / 2, self.plan.prune_ms);
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
        let key = *self.rng.pick(&ended);
        self.delete_ended(key);
    }

    /// Deletes an instance that has ended.
    pub(super) fn delete_ended(&mut self, key: InstanceKey) {
        let id = self.store.tables().instances[&key].id.clone();
        let inbox = self.inbox_of(key);
        let shard = ShardId::of(&id);
        let outcomes =
            wait_for(|reply| self.store.delete(vec![(shard, key)], reply)).expect("the store is open");
        if outcomes != [DeleteOutcome::Deleted] {
            return self.fail(format!("G33: {id} has ended and is not deleted: {outcomes:?}"));
        }
        self.note(|| format!("{id} is deleted"));
        self.count("deleted");
        self.witness_deleted(key, id, inbox);
    }

    /// Records a deleted instance, with its inbox.
    fn witness_deleted(&mut self, key: InstanceKey, id: String, inbox: Vec<InboxNumber>) {
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

    fn inbox_of(&self, key: InstanceKey) -> Vec<InboxNumber> {
        let tables = self.store.tables();
        let mine = tables.inbox.iter().filter(|(_, message)| message.to == key);
        mine.map(|(number, _)| *number).collect()
    }

    /// The instance with an id that a commit gives to a child, if the child may replace it, with all its
    /// descendants.
    pub(super) fn replaceable(&self, commit: &Commit) -> Vec<Replaceable> {
        let tables = self.store.tables();
        let key_of = |sent: &Outgoing| match sent {
            Outgoing::Start { row, replaces_ended: true, .. } => {
                Some((row.id.clone(), *tables.ids.get(&row.id)?)).filter(|(_, key)| *key != row.key)
            }
            _ => None,
        };
        let mut found: Vec<(String, InstanceKey)> = commit.send.iter().filter_map(key_of).collect();
        let mut looked_at = 0;
        while let Some((_, parent)) = found.get(looked_at) {
            let parent = parent.to_string();
            let is_child = |row: &&InstanceRow| row.parent.as_ref().is_some_and(|link| link.key == parent);
            let children = tables.instances.values().filter(is_child);
            found.extend(children.map(|row| (row.id.clone(), row.key)));
            looked_at += 1;
        }
        drop(tables);
        found.into_iter().map(|(id, key)| Replaceable { id, key, inbox: self.inbox_of(key) }).collect()
    }

    /// G36: a child replaces only an instance that has ended.
    pub(super) fn witness_replaced(&mut self, before: &[Replaceable]) {
        for Replaceable { id, key, inbox } in before {
            if self.store.tables().instances.contains_key(key) || self.witness.deleted.contains(key) {
                continue;
            }
            if !self.has_ended_before(*key) && !self.damaged.0.contains(key) {
                return self.fail(format!("G36: {id} had not ended, and is replaced by a child"));
            }
            self.count("ended instance replaced by a child");
            self.note(|| format!("{id} is replaced"));
            self.witness_deleted(*key, id.clone(), inbox.clone());
        }
    }

    /// The number of deletions of an id: requests from before concern another instance.
    pub(super) fn deletions(&self, id: &str) -> u64 {
        self.witness.deletions.get(id).copied().unwrap_or_default()
    }
}
