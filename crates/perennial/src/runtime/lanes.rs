//! Lanes: the lanes of this process, each with its lock and what others read without it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use perennial_core::lane::{Lane, Moment};
use perennial_core::node::Node;
use perennial_core::store::ShardSet;
use perennial_core::{SHARDS, ShardId};
use tokio::sync::Notify;

/// The index of a lane in its node.
pub(super) type LaneIndex = usize;

/// More lanes than this would have hardly any shards each.
pub(super) const MAX_LANES: usize = 64;

/// The lanes of this process; none if it only works on tasks of others.
pub(super) struct Lanes {
    lanes: Box<[LaneCell]>,
    /// The lane that accepts requests for each shard. Requests for a shard that no lane here owns go to any lane, which
    /// says so.
    routes: Box<[AtomicU8; SHARDS]>,
}

/// A lane and the values last read from it.
pub(super) struct LaneCell {
    pub(super) lane: Mutex<Lane>,
    pub(super) seen: Seen,
}

/// Values last read from a lane or the node, for readers that must not wait for its lock.
#[derive(Default)]
pub(super) struct Seen {
    /// Until when it may act, in microseconds of the steady clock; 0 if it may not.
    deadline_us: AtomicU64,
    /// Turn time less the steady clock, in microseconds.
    offset_us: AtomicI64,
    queued_commits: AtomicUsize,
    /// Notified when it may act for longer than was known.
    acting: Notify,
}

impl Lanes {
    pub(super) fn new(lanes: impl IntoIterator<Item = Lane>) -> Lanes {
        let cells = lanes.into_iter().map(|lane| LaneCell { lane: Mutex::new(lane), seen: Seen::default() });
        Lanes { lanes: cells.collect(), routes: Box::new([const { AtomicU8::new(0) }; SHARDS]) }
    }

    pub(super) fn indices(&self) -> std::ops::Range<LaneIndex> {
        0..self.lanes.len()
    }

    pub(super) fn get(&self, index: LaneIndex) -> &LaneCell {
        &self.lanes[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LaneCell> {
        self.lanes.iter()
    }

    /// Where requests for an instance go; `None` if this process has no lanes.
    pub(super) fn route(&self, id: &str) -> Option<LaneIndex> {
        let route = self.routes[usize::from(ShardId::of(id).0)].load(Ordering::Acquire);
        (!self.lanes.is_empty()).then_some(usize::from(route))
    }

    /// A lane accepts requests for these shards from now on. One that has lost a shard keeps its route until another lane
    /// has it: it knows that the shard is elsewhere.
    pub(super) fn note_gained(&self, index: LaneIndex, shards: &ShardSet) {
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        shards.iter().for_each(|shard| self.routes[usize::from(shard.0)].store(index, Ordering::Release));
    }
}

impl Seen {
    pub(super) fn note_lane(&self, lane: &Lane) {
        self.offset_us.store(lane.turn_clock().offset_us(), Ordering::Relaxed);
        self.queued_commits.store(lane.queued_commits(), Ordering::Relaxed);
        self.note_deadline(lane.deadline());
    }

    pub(super) fn note_node(&self, node: &Node) {
        self.offset_us.store(node.turn_clock().offset_us(), Ordering::Relaxed);
        self.note_deadline(node.deadline());
    }

    pub(super) fn note_deadline(&self, deadline: Moment) {
        let deadline_us = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        if self.deadline_us.swap(deadline_us, Ordering::AcqRel) < deadline_us {
            self.acting.notify_waiters();
        }
    }

    /// Whether it may act now. Late outputs are held back.
    pub(super) fn may_act(&self, now: Moment) -> bool {
        now < Duration::from_micros(self.deadline_us.load(Ordering::Acquire))
    }

    /// How long it may still act if nothing is renewed.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        Duration::from_micros(self.deadline_us.load(Ordering::Acquire)).saturating_sub(now)
    }

    /// Resolves when the deadline has moved. To be created before [`Seen::may_act`] is asked.
    pub(super) fn renewed(&self) -> tokio::sync::futures::Notified<'_> {
        self.acting.notified()
    }

    /// How many commits wait to be written.
    pub(super) fn queued_commits(&self) -> usize {
        self.queued_commits.load(Ordering::Relaxed)
    }

    /// The turn time.
    pub(super) fn now_ms(&self, now: Moment) -> u64 {
        let running_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let now_us = running_us.saturating_add(self.offset_us.load(Ordering::Relaxed));
        u64::try_from(now_us / 1_000).unwrap_or(0)
    }
}
