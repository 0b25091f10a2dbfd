//! Tenures: the shards that a lane holds, how many it should hold, and when each needs the time.

use std::collections::BTreeSet;

use crate::flaws::{self, Flaw};
use crate::instance::{SHARDS, ShardId};
use crate::shard::{Shard, Tenure};
use crate::store::{OwnedShard, ShardSet};

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

    fn index(&self) -> usize {
        usize::from(self.shard.id().0)
    }

    fn is_of(&self, tenure: Tenure) -> bool {
        self.tenure == tenure || flaws::is(Flaw::TenureUnchecked)
    }
}

/// The difference between the shards held and those that the session owns according to the store.
pub(super) struct Difference {
    /// Held, but no longer owned, or owned at another epoch.
    pub(super) lost: ShardSet,
    /// Owned, but not held by a continuing tenure.
    pub(super) gained: Vec<OwnedShard>,
}

/// The epoch at which each shard is owned.
fn epochs_of(owned: &[OwnedShard]) -> Vec<Option<u64>> {
    let mut epochs = vec![None; SHARDS];
    for owned in owned {
        epochs[usize::from(owned.shard.0)] = Some(owned.epoch);
    }
    epochs
}

pub(super) struct Tenures {
    held: Vec<Option<Box<Held>>>,
    set: ShardSet,
    wakes: BTreeSet<(u64, ShardId)>,
    leaving: ShardSet,
    /// How many shards the lane should hold.
    target: usize,
    next: u64,
    /// A counter of gains and losses.
    changes: u64,
}

impl Default for Tenures {
    fn default() -> Tenures {
        Tenures {
            held: (0..SHARDS).map(|_| None).collect(),
            set: ShardSet::EMPTY,
            wakes: BTreeSet::new(),
            leaving: ShardSet::EMPTY,
            target: 0,
            next: 0,
            changes: 0,
        }
    }
}

impl Tenures {
    /// The shards held, including those being released.
    pub(super) fn set(&self) -> ShardSet {
        self.set
    }

    /// The shards being released.
    pub(super) fn leaving(&self) -> ShardSet {
        self.leaving
    }

    /// The shards held and not being released.
    pub(super) fn readable(&self) -> ShardSet {
        self.set.without(&self.leaving)
    }

    pub(super) fn target(&self) -> usize {
        self.target
    }

    pub(super) fn set_target(&mut self, target: usize) {
        self.target = target;
    }

    /// Whether fewer shards are held than should be.
    pub(super) fn is_short(&self) -> bool {
        self.set.len() < self.target
    }

    /// Whether more shards are held than should be, including those being released.
    pub(super) fn is_over(&self) -> bool {
        self.set.len() > self.target
    }

    /// The shards being released that have come to rest, unless something of their tenure is still in progress.
    pub(super) fn drained(&self, is_under_way: impl Fn(Tenure) -> bool) -> ShardSet {
        let is_drained = |held: &Held| held.shard.is_drained() && !is_under_way(held.tenure);
        let is_done = |shard: &ShardId| {
            self.get(*shard).is_some_and(|held| is_drained(held) || flaws::is(Flaw::ReleasedUndrained))
        };
        self.leaving.iter().filter(is_done).collect()
    }

    /// The shards to release next, at most this many: the highest ones. Others claim from the lowest on, so that few
    /// move twice.
    pub(super) fn surplus(&self, max: usize) -> ShardSet {
        let stay: Vec<ShardId> = self.readable().iter().collect();
        let count = stay.len().saturating_sub(self.target).min(max);
        stay.into_iter().rev().take(count).collect()
    }

    /// A counter of gains and losses.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn get(&self, shard: ShardId) -> Option<&Held> {
        self.held[usize::from(shard.0)].as_deref()
    }

    pub(super) fn get_mut(&mut self, shard: ShardId) -> Option<&mut Held> {
        self.held[usize::from(shard.0)].as_deref_mut()
    }

    /// Whether a shard has been held since this tenure started.
    pub(super) fn has(&self, shard: ShardId, tenure: Tenure) -> bool {
        self.get(shard).is_some_and(|held| held.is_of(tenure))
    }

    pub(super) fn is_leaving(&self, shard: ShardId) -> bool {
        self.get(shard).is_some_and(|held| held.is_leaving)
    }

    /// Adds a gained shard. `make` creates its memory, which is empty.
    pub(super) fn gain(&mut self, shard: ShardId, epoch: u64, make: impl FnOnce(Tenure) -> Shard) {
        self.next += 1;
        self.changes += 1;
        let tenure = Tenure(self.next);
        let held = Held { shard: make(tenure), tenure, epoch, wake_ms: None, is_leaving: false };
        self.held[usize::from(shard.0)] = Some(Box::new(held));
        self.set.insert(shard);
    }

    /// Removes a shard.
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

    /// Marks a shard as being released.
    pub(super) fn leave(&mut self, shard: ShardId) {
        if let Some(held) = self.get_mut(shard) {
            held.is_leaving = true;
            self.leaving.insert(shard);
        }
    }

    /// Compares with the shards that the session owns according to the store.
    pub(super) fn compare(&self, owned: Vec<OwnedShard>) -> Difference {
        let epochs = epochs_of(&owned);
        let is_kept = |held: &Held, epoch: u64| held.epoch == epoch || flaws::is(Flaw::EpochUnchecked);
        let is_lost = |held: &&Held| !epochs[held.index()].is_some_and(|epoch| is_kept(held, epoch));
        let lost: ShardSet = self.iter().filter(is_lost).map(|held| held.shard.id()).collect();
        self.difference(lost, owned)
    }

    /// Handles that the session was replaced by one that owns these shards. Tenures continue if the epoch is exactly
    /// the next one: nobody owned the shard in between, so its memory is still correct.
    pub(super) fn handle_replaced(&mut self, owned: Vec<OwnedShard>) -> Difference {
        let epochs = epochs_of(&owned);
        let mut lost = ShardSet::EMPTY;
        for held in self.held.iter_mut().flatten() {
            let next = held.epoch + 1;
            match epochs[held.index()].filter(|epoch| *epoch == next || flaws::is(Flaw::EpochUnchecked)) {
                Some(epoch) => held.epoch = epoch,
                None => lost.insert(held.shard.id()),
            }
        }
        self.difference(lost, owned)
    }

    fn difference(&self, lost: ShardSet, owned: Vec<OwnedShard>) -> Difference {
        let kept = self.set.without(&lost);
        let gained = owned.into_iter().filter(|owned| !kept.contains(owned.shard)).collect();
        Difference { lost, gained }
    }

    /// Notes when a shard needs the time. To be called after every input of the shard.
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

    /// When the first shard needs the time.
    pub(super) fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at_ms, _)| *at_ms)
    }

    /// The shards that need the time now.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ShardOptions;

    fn held(epochs: &[(u8, u64)]) -> Tenures {
        let mut tenures = Tenures::default();
        for (shard, epoch) in epochs {
            let shard = ShardId(*shard);
            tenures.gain(shard, *epoch, |tenure| Shard::new(shard, tenure, ShardOptions::default(), 7));
        }
        tenures
    }

    fn owned(epochs: &[(u8, u64)]) -> Vec<OwnedShard> {
        let owned = |(shard, epoch): &(u8, u64)| OwnedShard {
            shard: ShardId(*shard),
            epoch: *epoch,
            unclean_ends: 0,
            note: None,
            gaps: Vec::new(),
        };
        epochs.iter().map(owned).collect()
    }

    fn numbers(shards: impl IntoIterator<Item = ShardId>) -> Vec<u8> {
        shards.into_iter().map(|shard| shard.0).collect()
    }

    #[test]
    fn n10_a_shard_that_is_owned_at_another_epoch_is_lost_and_gained() {
        let tenures = held(&[(1, 5), (2, 5), (3, 5)]);
        let Difference { lost, gained } = tenures.compare(owned(&[(1, 5), (2, 7), (4, 1)]));
        assert_eq!(numbers(lost.iter()), [2, 3]);
        assert_eq!(numbers(gained.iter().map(|owned| owned.shard)), [2, 4]);
    }

    #[test]
    fn n10_under_a_new_session_a_tenure_goes_on_at_exactly_the_next_epoch() {
        let mut tenures = held(&[(1, 5), (2, 5), (3, 5)]);
        let Difference { lost, gained } = tenures.handle_replaced(owned(&[(1, 6), (2, 7), (4, 1)]));
        assert_eq!(numbers(lost.iter()), [2, 3]);
        assert_eq!(numbers(gained.iter().map(|owned| owned.shard)), [2, 4]);
        assert_eq!(tenures.get(ShardId(1)).map(Held::epoch), Some(6));
    }

    #[test]
    fn n7_the_highest_shards_leave_first_and_a_bounded_number_at_a_time() {
        let mut tenures = held(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
        tenures.set_target(1);
        assert!(tenures.is_over() && !tenures.is_short());
        assert_eq!(numbers(tenures.surplus(2).iter()), [3, 4]);
        tenures.leave(ShardId(4));
        assert_eq!(numbers(tenures.surplus(9).iter()), [2, 3]);
        tenures.set_target(9);
        assert!(tenures.is_short() && tenures.surplus(9).is_empty());
    }
}
