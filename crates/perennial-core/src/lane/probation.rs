//! Probation: instances whose turns did not end in earlier processes are tried one at a time, and only a few of them.
//!
//! A turn that does not end keeps its thread for as long as the process lives, and too many of them stop the node. Each
//! process tries such instances again, since its code may be another; so however many there are, a process loses no more
//! than a few threads to them. What is not tried stays blocked until the next process, or until somebody asks.

use std::collections::VecDeque;

use crate::instance::{InstanceKey, ShardId};
use crate::shard::TurnTask;

use super::suspects::Waiting;

/// After so many of their turns were lost, no more are tried in this process.
const MAX_LOST: u32 = 2;

#[derive(Default)]
pub(super) struct Probation {
    waiting: VecDeque<Waiting>,
    current: Option<(ShardId, InstanceKey)>,
    lost: u32,
}

/// What comes of a turn on probation.
pub(super) enum Verdict {
    Take(Box<TurnTask>),
    /// It is not tried in this process.
    Refuse(Box<TurnTask>),
}

impl Probation {
    pub(super) fn admit(&mut self, task: Box<TurnTask>) {
        self.waiting.push_back(task);
    }

    /// The next turn that something is to be done about.
    pub(super) fn take(&mut self) -> Option<Verdict> {
        if self.lost >= MAX_LOST {
            return self.waiting.pop_front().map(Verdict::Refuse);
        }
        if self.current.is_some() {
            return None;
        }
        let task = self.waiting.pop_front()?;
        self.current = Some((task.shard, task.key));
        Some(Verdict::Take(task))
    }

    /// A turn was taken, or given up.
    pub(super) fn handle_settled(&mut self, key: InstanceKey, is_lost: bool) {
        if self.current.is_some_and(|(_, current)| current == key) {
            self.current = None;
            self.lost += u32::from(is_lost);
        }
    }

    /// A shard was lost. Returns the turns that waited.
    pub(super) fn handle_lost(&mut self, shard: ShardId) -> Vec<Waiting> {
        self.current = self.current.filter(|(of, _)| *of != shard);
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|task| task.shard == shard);
        self.waiting = left.into();
        gone
    }
}
