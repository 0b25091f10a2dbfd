//! The times in which nobody owned the shard: the grace of a cancel does not run meanwhile.

use crate::history::CancelRequest;
use crate::store::Gap;

/// How long code may clean up, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grace {
    pub(super) from_ms: u64,
    pub(super) grace_ms: u64,
}

impl Grace {
    /// The grace of a request that was delivered.
    pub(super) fn of(cancel: &CancelRequest) -> Grace {
        Grace { from_ms: cancel.delivered_ms, grace_ms: cancel.grace_ms }
    }
}

/// The gaps that are known, oldest first.
#[derive(Default)]
pub(super) struct Gaps {
    all: Vec<Gap>,
}

impl Gaps {
    pub(super) fn new(all: Vec<Gap>) -> Gaps {
        Gaps { all }
    }

    /// The owner could not act for a while.
    pub(super) fn add(&mut self, gap: Gap) {
        self.all.push(gap);
    }

    /// When a grace ends: the gaps in it are added to it.
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
}
