//! Probation: instances whose turns did not end in earlier processes are tried one at a time, and only a few of them.
//!
//! A turn that does not end occupies its thread for the life of the process, and too many of them stop the node. Each
//! process tries such instances again, because its code may be different; so however many there are, a process loses
//! only a few threads to them. The others stay blocked until the next process, or until a retry is requested.

use std::collections::VecDeque;

use crate::instance::{InstanceKey, ShardId};
use crate::shard::TurnTask;

use super::suspects::Waiting;

/// After this many lost turns, no more are tried in this process.
const MAX_LOST: u32 = 2;

#[derive(Default)]
pub(super) struct Probation {
    waiting: VecDeque<Waiting>,
    current: Option<(ShardId, InstanceKey)>,
    lost: u32,
}

/// What happens to a turn on probation.
pub(super) enum Verdict {
    Take(Box<TurnTask>),
    /// It is not tried in this process.
    Refuse(Box<TurnTask>),
}

impl Probation {
    pub(super) fn admit(&mut self, task: Box<TurnTask>) {
        self.waiting.push_back(task);
    }

    /// The next turn to decide about.
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

    /// Notes that a turn ended, or was abandoned.
    pub(super) fn handle_settled(&mut self, key: InstanceKey, is_lost: bool) {
        if self.current.is_some_and(|(_, current)| current == key) {
            self.current = None;
            self.lost += u32::from(is_lost);
        }
    }

    /// Handles the loss of a shard. Returns the turns that waited.
    pub(super) fn handle_lost(&mut self, shard: ShardId) -> Vec<Waiting> {
        self.current = self.current.filter(|(of, _)| *of != shard);
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|task| task.shard == shard);
        self.waiting = left.into();
        gone
    }
}
