//! Rows of activities that are not on their first local attempt, and the leases under which other nodes run them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{EventId, Payload, Trail};
use crate::instance::{InstanceKey, ShardId};
use crate::pattern;

use super::session::SessionId;

/// Names an activity of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The instance.
    pub key: InstanceKey,
    /// Its execution.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
}

/// An activity as a store keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// Which activity.
    pub id: TaskId,
    /// The instance's shard.
    pub shard: ShardId,
    /// The attempt that runs or is next, from 1.
    pub attempt: u32,
    /// Where it stands.
    pub state: TaskState,
    /// When a waiting task is to run, a queued one is given up, a leased one's lease ends; by state. What the owner
    /// runs itself is leased without an end.
    pub due_ms: Option<u64>,
    /// Since when it is in its state, by the store's clock: queued, with its holder, or waiting. `None` if an older
    /// version wrote the row.
    pub since_ms: Option<u64>,
    /// What its attempts reported last, [`quoted`](crate::codec::quoted).
    pub details: Option<Payload>,
    /// When the current attempt last reported, by the store's clock; `None` if it has not.
    pub heard_ms: Option<u64>,
    /// How many attempts ended with their process, one after the other.
    pub interruptions: u32,
    /// The node that began the attempt with care, written before the attempt runs: a process ended under the activity
    /// before, and nothing has cleared it since. [`SessionId::NOBODY`] if the next holder is the first to write it, and
    /// nothing for an activity that nobody suspects.
    pub begun: Option<SessionId>,
    /// The attempts that failed.
    pub past: Trail,
    /// The activity's registered name.
    pub name: String,
    /// Only nodes that serve this tag run it.
    pub tag: Option<String>,
    /// All that another node needs to run it; nothing if it is the owner's to run.
    pub work: Option<Arc<[u8]>>,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Any node that can may take it.
    Queued,
    /// Somebody runs it.
    Leased {
        /// Who.
        holder: SessionId,
        /// Whether nobody waits for it any more.
        cancelled: bool,
    },
    /// The owner runs it when it is due.
    Waiting,
}

impl TaskRow {
    /// Whether a process ended under the activity, and nothing has cleared it since.
    pub fn is_suspect(&self) -> bool {
        self.begun.is_some() || self.interruptions > 0
    }

    /// The activity is cleared of all suspicion.
    pub fn clear(&mut self) {
        self.begun = None;
        self.interruptions = 0;
    }

    /// Queues a task again whose lease has run out. That its holder is gone counts only if the holder had noted before
    /// that it begins the attempt; the first time it only makes the next holder do so.
    pub fn queue_after_lease(&mut self, now_ms: u64, is_live: impl FnOnce(SessionId) -> bool) {
        if let TaskState::Leased { holder, .. } = self.state
            && !is_live(holder)
        {
            self.interruptions = self.interruptions.saturating_add(u32::from(self.begun == Some(holder)));
            self.begun = Some(SessionId::NOBODY);
        }
        self.queue_again(now_ms);
    }

    /// Lets any node take the task from now on.
    pub fn queue_again(&mut self, now_ms: u64) {
        self.state = TaskState::Queued;
        (self.due_ms, self.since_ms, self.heard_ms) = (None, Some(now_ms), None);
    }

    /// Leases the task to a holder until a time.
    pub fn lease(&mut self, holder: SessionId, now_ms: u64, until_ms: u64) {
        self.state = TaskState::Leased { holder, cancelled: false };
        (self.due_ms, self.since_ms, self.heard_ms) = (Some(until_ms), Some(now_ms), None);
    }
}

impl TaskState {
    /// Its name in rows and lists.
    pub fn name(self) -> &'static str {
        match self {
            TaskState::Queued => "queued",
            TaskState::Leased { .. } => "leased",
            TaskState::Waiting => "waiting",
        }
    }
}

/// A change of a task within a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskChange {
    /// Write the row, over an older one.
    Put(Box<TaskRow>),
    /// Nobody waits for it: the row is deleted, or marked if it is leased until a time, which the owner's own are not.
    Cancel(TaskId),
}

impl TaskChange {
    /// About how many bytes it writes.
    pub fn weight(&self) -> usize {
        match self {
            TaskChange::Put(row) => {
                let work = row.work.as_ref().map_or(0, |work| work.len());
                work + row.details.as_ref().map_or(0, Payload::size) + row.past.size()
            }
            TaskChange::Cancel(_) => 0,
        }
    }
}

/// What a node can run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The registered names.
    pub names: BTreeSet<String>,
    /// The tags. What has no tag runs anywhere.
    pub tags: BTreeSet<String>,
    /// How names begin that are served besides the registered ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub prefixes: BTreeSet<String>,
}

impl Served {
    /// Whether nothing can run here.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether an activity can run here.
    pub fn serves(&self, name: &str, tag: Option<&str>) -> bool {
        let is_served = self.names.contains(name) || pattern::covers(&self.prefixes, name);
        is_served && tag.is_none_or(|tag| self.tags.contains(tag))
    }
}

/// What a holder has to say about a task when it renews the lease.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The task.
    pub task: TaskId,
    /// What its attempt reported; nothing leaves what was reported before.
    pub details: Option<Payload>,
    /// What is known of it that counts for or against it.
    pub evidence: Option<Evidence>,
}

impl TaskReport {
    /// Only the lease is renewed.
    pub fn of(task: TaskId) -> TaskReport {
        TaskReport { task, details: None, evidence: None }
    }

    /// Makes the changes of a renewal in a row, its lease aside.
    pub fn apply(&self, row: &mut TaskRow, holder: SessionId, now_ms: u64) {
        if let Some(details) = &self.details {
            (row.details, row.heard_ms) = (Some(details.clone()), Some(now_ms));
        }
        match self.evidence {
            Some(Evidence::Begins) => row.begun = Some(holder),
            Some(Evidence::Healthy) => row.clear(),
            None => {}
        }
    }
}

/// What counts for or against an activity under which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its attempt begins once this is written.
    Begins,
    /// Its attempt has sent a heartbeat, or has run for long enough to be cleared.
    Healthy,
}

/// What the renewal of a task's lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRenewal {
    /// Go on.
    Kept,
    /// Nobody waits for it any more.
    Cancelled,
    /// It is no longer the holder's.
    Gone,
}
