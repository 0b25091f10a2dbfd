//! Graceful stop: the order of the steps, and how long each may take.
//!
//! No more work is taken; running attempts may complete within a grace period, then they are told to stop; the lanes
//! come to rest and end their sessions; the node comes to rest and ends its own. If the store does not reply, the node
//! waits only for the configured time: the next owner continues from what is stored.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lane::Moment;

/// How long the steps of a stop may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopPatience {
    /// How long running attempts may take to complete.
    pub grace: Duration,
    /// How long attempts that were told to stop may take.
    pub last_words: Duration,
    /// How long to wait for the store, counted from the end of the grace period or, if that is later, from the end of
    /// the last attempt.
    pub store: Duration,
}

/// What remained when the stop was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// How many lanes have not written everything and ended their sessions.
    pub lanes: usize,
    /// How many tasks the node holds whose end is not written.
    pub tasks: usize,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    StopAttempts,
    CloseLanes,
    EndNode,
    GiveUp,
}

/// The progress of a node's stop.
#[derive(Debug)]
pub(super) struct Stopping {
    patience: StopPatience,
    grace_until: Moment,
    stage: Stage,
    /// Whether no attempt runs any more.
    is_idle: bool,
    /// The lanes whose sessions have not ended.
    open_lanes: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Attempts may complete.
    Grace,
    /// Attempts were told to stop.
    LastWords {
        until: Moment,
    },
    /// The lanes come to rest and end, then the node comes to rest.
    Closing {
        give_up_at: Moment,
    },
    /// The node's session is being ended.
    Ending {
        give_up_at: Moment,
    },
    Over,
}

impl Stopping {
    pub(super) fn new(now: Moment, patience: StopPatience, lanes: usize) -> Stopping {
        Stopping {
            patience,
            grace_until: now.saturating_add(patience.grace),
            stage: Stage::Grace,
            is_idle: false,
            open_lanes: (0..lanes).collect(),
        }
    }

    /// No attempt runs any more.
    pub(super) fn handle_idle(&mut self) {
        self.is_idle = true;
    }

    pub(super) fn handle_lane_ended(&mut self, lane: usize) {
        self.open_lanes.remove(&lane);
    }

    /// The node's session has ended.
    pub(super) fn handle_ended(&mut self) {
        self.stage = Stage::Over;
    }

    /// How many lanes have not ended.
    pub(super) fn open_lanes(&self) -> usize {
        self.open_lanes.len()
    }

    /// Whether attempts are no longer waited for, although some may run: their leases expire by themselves.
    pub(super) fn has_left_attempts(&self) -> bool {
        !self.is_idle && matches!(self.stage, Stage::Closing { .. } | Stage::Ending { .. } | Stage::Over)
    }

    /// When [`Stopping::next`] may have something to do without another input.
    pub(super) fn next_wake(&self) -> Option<Moment> {
        match self.stage {
            Stage::Grace => Some(self.grace_until),
            Stage::LastWords { until } => Some(until),
            Stage::Closing { give_up_at } | Stage::Ending { give_up_at } => Some(give_up_at),
            Stage::Over => None,
        }
    }

    /// The next step. `rests` tells whether the node itself has nothing left to write.
    pub(super) fn next(&mut self, now: Moment, rests: bool) -> Option<Step> {
        match self.stage {
            Stage::Grace | Stage::LastWords { .. } if self.is_idle => Some(self.close(now)),
            Stage::Grace if now >= self.grace_until => {
                self.stage = Stage::LastWords { until: now.saturating_add(self.patience.last_words) };
                Some(Step::StopAttempts)
            }
            Stage::LastWords { until } if now >= until => Some(self.close(now)),
            Stage::Closing { give_up_at } if self.open_lanes.is_empty() && rests => {
                self.stage = Stage::Ending { give_up_at };
                Some(Step::EndNode)
            }
            Stage::Closing { give_up_at } | Stage::Ending { give_up_at } if now >= give_up_at => {
                self.stage = Stage::Over;
                Some(Step::GiveUp)
            }
            Stage::Grace
            | Stage::LastWords { .. }
            | Stage::Closing { .. }
            | Stage::Ending { .. }
            | Stage::Over => None,
        }
    }

    fn close(&mut self, now: Moment) -> Step {
        let give_up_at = now.max(self.grace_until).saturating_add(self.patience.store);
        self.stage = Stage::Closing { give_up_at };
        Step::CloseLanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    fn stopping() -> Stopping {
        let patience = StopPatience { grace: at(10_000), last_words: at(6_000), store: at(5_000) };
        Stopping::new(at(1_000), patience, 2)
    }

    #[test]
    fn g31_an_idle_node_closes_at_once_and_ends_after_its_lanes() {
        let mut stopping = stopping();
        assert_eq!(stopping.next(at(1_000), true), None, "an attempt may run");
        stopping.handle_idle();
        assert_eq!(stopping.next(at(1_001), true), Some(Step::CloseLanes));
        stopping.handle_lane_ended(1);
        assert_eq!(stopping.next(at(1_002), true), None, "one lane has not ended");
        stopping.handle_lane_ended(0);
        assert_eq!(stopping.next(at(1_003), false), None, "the node has something to write");
        assert_eq!(stopping.next(at(1_004), true), Some(Step::EndNode));
        stopping.handle_ended();
        assert_eq!((stopping.next(at(60_000), true), stopping.next_wake()), (None, None));
    }

    #[test]
    fn g31_attempts_have_the_grace_and_their_last_words() {
        let mut stopping = stopping();
        assert_eq!((stopping.next(at(10_999), true), stopping.next_wake()), (None, Some(at(11_000))));
        assert_eq!(stopping.next(at(11_000), true), Some(Step::StopAttempts));
        assert_eq!((stopping.next(at(16_999), true), stopping.has_left_attempts()), (None, false));
        assert_eq!(stopping.next(at(17_000), true), Some(Step::CloseLanes));
        assert!(stopping.has_left_attempts());
        assert_eq!(stopping.next_wake(), Some(at(22_000)), "the store has its own patience after them");
    }

    #[test]
    fn g31_a_store_that_does_not_answer_is_waited_for_until_the_grace_is_over_and_its_patience() {
        let mut stopping = stopping();
        stopping.handle_idle();
        assert_eq!(stopping.next(at(1_000), false), Some(Step::CloseLanes));
        assert_eq!(stopping.next(at(15_999), false), None);
        assert_eq!(stopping.next(at(16_000), false), Some(Step::GiveUp));
        assert_eq!(stopping.next(at(16_001), false), None, "it is said once");
        assert_eq!(stopping.open_lanes(), 2);
    }
}
