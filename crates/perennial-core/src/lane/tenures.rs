//! Tenures: the shards that a lane holds, and when each wants the time.

use std::collections::BTreeSet;

use crate::flaws::{self, Flaw};
use crate::instance::{SHARDS, ShardId};
use crate::shard::{Shard, Tenure};
use crate::store::ShardSet;

use super::committer::Epochs;

/// A shard that the lane holds.
pub(super) struct Held {
    pub(super) shard: Shard,
    tenure: Tenure,
    epoch: u64,
    wake_ms: Option<u64>,
    is_leaving: bool,
}

impl Held {
    pub(super) fn tenure(&self) -> Tenure {
        self.tenure
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    fn is_of(&self, tenure: Tenure) -> bool {
        self.tenure == tenure || flaws::is(Flaw::TenureUnchecked)
    }
}

pub(super) struct Tenures {
    held: Vec<Option<Box<Held>>>,
    set: ShardSet,
    wakes: BTreeSet<(u64, ShardId)>,
    leaving: ShardSet,
    next: u64,
    /// Counts gains and losses.
    changes: u64,
}

impl Default for Tenures {
    fn default() -> Tenures {
        Tenures {
            held: (0..SHARDS).map(|_| None).collect(),
            set: ShardSet::EMPTY,
            wakes: BTreeSet::new(),
            leaving: ShardSet::EMPTY,
            next: 0,
            changes: 0,
        }
    }
}

impl Tenures {
    /// The shards that are held, leaving ones included.
    pub(super) fn set(&self) -> ShardSet {
        self.set
    }

    /// The shards that are being given up.
    pub(super) fn leaving(&self) -> ShardSet {
        self.leaving
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn get(&self, shard: ShardId) -> Option<&Held> {
        self.held[usize::from(shard.0)].as_deref()
    }

    pub(super) fn get_mut(&mut self, shard: ShardId) -> Option<&mut Held> {
        self.held[usize::from(shard.0)].as_deref_mut()
    }

    /// Whether a shard is held since this tenure began.
    pub(super) fn has(&self, shard: ShardId, tenure: Tenure) -> bool {
        self.get(shard).is_some_and(|held| held.is_of(tenure))
    }

    pub(super) fn is_leaving(&self, shard: ShardId) -> bool {
        self.get(shard).is_some_and(|held| held.is_leaving)
    }

    /// A shard was gained. `make` builds its memory, which is empty.
    pub(super) fn gain(&mut self, shard: ShardId, epoch: u64, make: impl FnOnce(Tenure) -> Shard) {
        self.next += 1;
        self.changes += 1;
        let tenure = Tenure(self.next);
        let held = Held { shard: make(tenure), tenure, epoch, wake_ms: None, is_leaving: false };
        self.held[usize::from(shard.0)] = Some(Box::new(held));
        self.set.insert(shard);
    }

    /// A shard is held no more.
    pub(super) fn lose(&mut self, shard: ShardId) -> Option<Box<Held>> {
        let held = self.held[usize::from(shard.0)].take()?;
        self.changes += 1;
        self.set.remove(shard);
        self.leaving.remove(shard);
        if let Some(wake_ms) = held.wake_ms {
            self.wakes.remove(&(wake_ms, shard));
        }
        Some(held)
    }

    /// A shard is being given up.
    pub(super) fn leave(&mut self, shard: ShardId) {
        if let Some(held) = self.get_mut(shard) {
            held.is_leaving = true;
            self.leaving.insert(shard);
        }
    }

    /// The epoch at which a shard is held.
    pub(super) fn epoch_of(&self, shard: ShardId) -> Option<u64> {
        self.get(shard).map(|held| held.epoch)
    }

    /// The session was replaced: the tenure goes on at the next epoch.
    pub(super) fn go_on_at(&mut self, shard: ShardId, epoch: u64) {
        if let Some(held) = self.get_mut(shard) {
            held.epoch = epoch;
        }
    }

    /// Notes when a shard wants the time. To be called after every input of the shard.
    pub(super) fn note_wake(&mut self, shard: ShardId) {
        let Some(held) = self.held[usize::from(shard.0)].as_deref_mut() else { return };
        let wake_ms = held.shard.next_wake_ms();
        if wake_ms == held.wake_ms {
            return;
        }
        if let Some(old_ms) = std::mem::replace(&mut held.wake_ms, wake_ms) {
            self.wakes.remove(&(old_ms, shard));
        }
        if let Some(wake_ms) = wake_ms {
            self.wakes.insert((wake_ms, shard));
        }
    }

    /// When the first shard wants the time.
    pub(super) fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at_ms, _)| *at_ms)
    }

    /// The shards that want the time by now.
    pub(super) fn due(&self, now_ms: u64) -> Vec<ShardId> {
        self.wakes.iter().take_while(|(at_ms, _)| *at_ms <= now_ms).map(|(_, shard)| *shard).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.held.iter().flatten().map(|held| &**held)
    }
}

impl Epochs for Tenures {
    fn epoch(&self, shard: ShardId, tenure: Tenure) -> Option<u64> {
        self.get(shard).filter(|held| held.is_of(tenure)).map(|held| held.epoch)
    }
}
