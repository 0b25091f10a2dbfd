//! Periods in which the shard had no owner. The grace period of a cancel request does not run meanwhile.

use crate::history::CancelRequest;
use crate::store::{Gap, OwnedShard};

/// A grace period: its start and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grace {
    pub(super) from_ms: u64,
    pub(super) grace_ms: u64,
}

impl Grace {
    /// The grace period of a delivered request.
    pub(super) fn of(cancel: &CancelRequest) -> Grace {
        Grace { from_ms: cancel.delivered_ms, grace_ms: cancel.grace_ms }
    }
}

/// The known gaps, oldest first; if there are too many, the most recent ones.
#[derive(Default)]
pub(super) struct Gaps {
    all: Vec<Gap>,
}

impl Gaps {
    pub(super) fn new(all: Vec<Gap>) -> Gaps {
        let mut gaps = Gaps::default();
        all.into_iter().for_each(|gap| gaps.add(gap));
        gaps
    }

    /// Adds a period in which the owner could not act. Overlaps with known gaps count once.
    pub(super) fn add(&mut self, gap: Gap) {
        let place = self.all.partition_point(|known| known.until_ms < gap.from_ms);
        let count = self.all[place..].iter().take_while(|known| known.from_ms <= gap.until_ms).count();
        let merged = self.all[place..place + count].iter().fold(gap, |sum, known| Gap {
            from_ms: sum.from_ms.min(known.from_ms),
            until_ms: sum.until_ms.max(known.until_ms),
        });
        self.all.splice(place..place + count, [merged]);
        let surplus = self.all.len().saturating_sub(OwnedShard::MAX_GAPS);
        self.all.drain(..surplus);
    }

    /// When a grace period ends, extended by the gaps in it.
    pub(super) fn end_of(&self, grace: Grace) -> u64 {
        let mut end_ms = grace.from_ms.saturating_add(grace.grace_ms);
        for gap in &self.all {
            if gap.until_ms > grace.from_ms && gap.from_ms < end_ms {
                end_ms = end_ms.saturating_add(gap.until_ms - gap.from_ms.max(grace.from_ms));
            }
        }
        end_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e23_a_grace_does_not_run_while_nobody_owns_the_shard() {
        let gap = |from_ms, until_ms| Gap { from_ms, until_ms };
        let gaps = Gaps::new(vec![gap(0, 90), gap(110, 150), gap(160, 170), gap(300, 400)]);
        let end_of = |from_ms, grace_ms| gaps.end_of(Grace { from_ms, grace_ms });
        assert_eq!(end_of(100, 5), 105, "over before the next gap");
        assert_eq!(end_of(100, 30), 180, "two gaps, one of which it reaches through the other");
        assert_eq!(end_of(80, 10), 100, "what is left of a gap");
        assert_eq!(end_of(120, 10), 160, "a grace that begins in a gap");
        assert_eq!(end_of(500, 10), 510);
        assert_eq!(end_of(500, u64::MAX), u64::MAX);
    }

    #[test]
    fn e23_gaps_that_touch_are_one_and_the_latest_are_kept() {
        let gap = |from_ms, until_ms| Gap { from_ms, until_ms };
        let mut gaps = Gaps::new(vec![gap(10, 20), gap(40, 50)]);
        gaps.add(gap(15, 30));
        gaps.add(gap(60, 70));
        assert_eq!(gaps.all, [gap(10, 30), gap(40, 50), gap(60, 70)]);
        gaps.add(gap(25, 65));
        assert_eq!(gaps.all, [gap(10, 70)]);
        for number in 1..=100 {
            gaps.add(gap(100 * number, 100 * number + 1));
        }
        assert_eq!(gaps.all.len(), OwnedShard::MAX_GAPS);
        assert_eq!(gaps.all.last(), Some(&gap(10_000, 10_001)));
    }
}
