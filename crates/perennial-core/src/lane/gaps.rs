//! The periods in which the lane itself could not act, with the shards that it held then. Nobody took those shards
//! over, so the store does not know these gaps; if the lane loses a shard and claims it again, the gaps are applied
//! again.

use crate::instance::ShardId;
use crate::store::{Gap, OwnedShard, ShardSet};

#[derive(Debug, Default)]
pub(super) struct OwnGaps {
    /// Oldest first, at most as many as a store keeps for a shard.
    all: Vec<(Gap, ShardSet)>,
}

impl OwnGaps {
    /// Adds a period in which the lane could not act although it holds these shards.
    pub(super) fn add(&mut self, gap: Gap, held: ShardSet) {
        self.all.push((gap, held));
        let surplus = self.all.len().saturating_sub(OwnedShard::MAX_GAPS);
        self.all.drain(..surplus);
    }

    /// The gaps of a shard that was claimed again.
    pub(super) fn of(&self, shard: ShardId) -> impl Iterator<Item = Gap> {
        self.all.iter().filter(move |(_, held)| held.contains(shard)).map(|(gap, _)| *gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e23_a_gap_concerns_the_shards_that_were_held_then_and_the_latest_are_kept() {
        let mut gaps = OwnGaps::default();
        let gap = |from_ms| Gap { from_ms, until_ms: from_ms + 1 };
        gaps.add(gap(1), [ShardId(1)].into_iter().collect());
        gaps.add(gap(2), ShardSet::ALL);
        assert_eq!(gaps.of(ShardId(1)).collect::<Vec<_>>(), [gap(1), gap(2)]);
        assert_eq!(gaps.of(ShardId(2)).collect::<Vec<_>>(), [gap(2)]);
        (3..100).for_each(|from_ms| gaps.add(gap(from_ms), ShardSet::ALL));
        assert_eq!(
            (gaps.of(ShardId(2)).count(), gaps.of(ShardId(2)).last()),
            (OwnedShard::MAX_GAPS, Some(gap(99)))
        );
    }
}
