//! A set of shards as a bitmap of 256 bits, used by hints and reads.

use std::fmt;

use crate::instance::ShardId;

/// Some of the 256 shards.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardSet([u64; 4]);

impl ShardSet {
    /// No shard.
    pub const EMPTY: ShardSet = ShardSet([0; 4]);
    /// All shards.
    pub const ALL: ShardSet = ShardSet([u64::MAX; 4]);

    /// Adds a shard.
    pub fn insert(&mut self, shard: ShardId) {
        self.0[usize::from(shard.0 / 64)] |= 1 << (shard.0 % 64);
    }

    /// Removes a shard.
    pub fn remove(&mut self, shard: ShardId) {
        self.0[usize::from(shard.0 / 64)] &= !(1 << (shard.0 % 64));
    }

    /// Whether a shard is in the set.
    pub fn contains(&self, shard: ShardId) -> bool {
        self.0[usize::from(shard.0 / 64)] & (1 << (shard.0 % 64)) != 0
    }

    /// Whether no shard is in the set.
    pub fn is_empty(&self) -> bool {
        *self == ShardSet::EMPTY
    }

    /// How many shards are in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Adds all shards of another set.
    pub fn extend_from(&mut self, other: &ShardSet) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// The shards that are in both sets.
    #[must_use]
    pub fn and(&self, other: &ShardSet) -> ShardSet {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(other.0) {
            *word &= other;
        }
        both
    }

    /// The shards that are not in another set.
    #[must_use]
    pub fn without(&self, other: &ShardSet) -> ShardSet {
        let mut rest = *self;
        for (word, other) in rest.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        rest
    }

    /// The shards, in order.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> + '_ {
        ShardId::all().filter(|shard| self.contains(*shard))
    }

    /// The bitmap as 32 bytes, lowest shard first, least significant bit first.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl FromIterator<ShardId> for ShardSet {
    fn from_iter<I: IntoIterator<Item = ShardId>>(shards: I) -> ShardSet {
        let mut set = ShardSet::EMPTY;
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ShardSet::ALL {
            return f.write_str("ShardSet(all)");
        }
        f.debug_set().entries(self.iter().map(|shard| shard.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_inserted_and_nothing_else() {
        let mut set: ShardSet = [0, 63, 64, 255].map(ShardId).into_iter().collect();
        assert_eq!(set.len(), 4);
        assert_eq!(set.iter().map(|shard| shard.0).collect::<Vec<_>>(), [0, 63, 64, 255]);
        set.remove(ShardId(64));
        assert!(!set.contains(ShardId(64)) && set.contains(ShardId(255)));
        assert_eq!(ShardSet::ALL.len(), 256);
        assert_eq!(ShardSet::ALL.and(&set), set);
        assert_eq!(set.to_bytes()[31], 0x80);
    }
}
