//! Random numbers that replay: one stream per unit, all derived from the recorded seed.

use crate::fnv::Fnv1a;
use crate::history::{EventId, Segment, Started, UnitId};
use crate::instance::ShardId;

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The stream of a unit: SplitMix64 seeded with FNV-1a over seed and unit id.
    pub(crate) fn of_unit(seed: u64, unit: &UnitId) -> Stream {
        let mut hash = Fnv1a::default();
        hash.write(&seed.to_le_bytes());
        for segment in unit.segments() {
            let (kind, number) = match segment {
                Segment::Parallel(number) => (b'p', number),
                Segment::Handler(number) => (b'h', number),
            };
            hash.write(&[kind]);
            hash.write(&number.to_le_bytes());
        }
        Stream(hash.finish())
    }

    /// The seed of what an event of an execution starts: a child, a detached start, the next execution. If a turn is
    /// taken again after a crash, it derives the same seeds.
    pub(crate) fn derived_seed(started: &Started, event: EventId) -> u64 {
        let mut hash = Fnv1a::default();
        for part in [started.seed, started.execution, event.0] {
            hash.write(&part.to_le_bytes());
        }
        Stream(hash.finish()).draw()
    }

    /// The stream of a lane or node, for ids that it generates.
    pub(crate) fn of_seed(seed: u64) -> Stream {
        Stream(seed)
    }

    /// The stream of a shard's owner, for values that are drawn once and recorded.
    pub(crate) fn of_shard(nonce: u128, shard: ShardId) -> Stream {
        let mut hash = Fnv1a::default();
        hash.write(&nonce.to_le_bytes());
        hash.write(&[shard.0]);
        Stream(hash.finish())
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Sixteen random bytes as a version 4 UUID.
pub(crate) fn uuid4_text(high: u64, low: u64) -> String {
    let high = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e17_streams_are_splitmix64_over_fnv1a() {
        // The first outputs of SplitMix64 for seed 1234567, as published by its author.
        let mut stream = Stream(1_234_567);
        assert_eq!([stream.draw(), stream.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn e17_uuids_carry_version_and_variant() {
        assert_eq!(uuid4_text(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid4_text(0, 0), "00000000-0000-4000-8000-000000000000");
    }
}
