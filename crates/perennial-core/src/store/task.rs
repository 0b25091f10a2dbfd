//! Rows of activities beyond their first local attempt, and the leases under which other nodes run them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{EventId, Payload, Trail};
use crate::instance::{InstanceKey, ShardId};
use crate::pattern;

use super::session::SessionId;

/// Identifies an activity of one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The key of the instance.
    pub key: InstanceKey,
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
}

/// The stored row of an activity.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    /// Which activity.
    pub id: TaskId,
    /// The instance's shard.
    pub shard: ShardId,
    /// The attempt that runs or is next, counted from 1.
    pub attempt: u32,
    /// Where it stands.
    pub state: TaskState,
    /// By state: when a waiting task is to run, when a queued one times out, when the lease of a leased one ends. A
    /// task that the owner runs itself is leased without an end.
    pub due_ms: Option<u64>,
    /// When it entered its state, by the store's clock. `None` if an older version wrote the row.
    pub since_ms: Option<u64>,
    /// The last heartbeat details of its attempts, [`quoted`](crate::codec::quoted).
    pub details: Option<Payload>,
    /// When the current attempt last reported, by the store's clock; `None` if it has not.
    pub heard_ms: Option<u64>,
    /// How many attempts in a row ended with their process.
    pub interruptions: u32,
    /// The node that noted, before running it, that it starts the attempt. Used after a process ended under the
    /// activity, until it is cleared. [`SessionId::NOBODY`] if the next holder has to write the note first; `None` for
    /// an activity that is not suspect.
    pub begun: Option<SessionId>,
    /// The attempts that failed.
    pub past: Trail,
    /// The activity's registered name.
    pub name: String,
    /// If set, only nodes that serve this tag run it.
    pub tag: Option<String>,
    /// Everything that another node needs to run it; `None` if only the owner runs it.
    pub work: Option<Arc<[u8]>>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Any node that serves it may take it.
    Queued,
    /// A node is running it.
    Leased {
        /// The session of that node.
        holder: SessionId,
        /// Whether its result is no longer wanted.
        cancelled: bool,
    },
    /// The owner runs it when it is due.
    Waiting,
}

impl TaskRow {
    /// Whether a process ended under the activity and it has not been cleared since.
    pub fn is_suspect(&self) -> bool {
        self.begun.is_some() || self.interruptions > 0
    }

    /// Clears the activity of suspicion.
    pub fn clear(&mut self) {
        self.begun = None;
        self.interruptions = 0;
    }

    /// Queues a task again after its lease has expired. The end of the holder's session counts as an interruption only
    /// if the holder had noted the start of the attempt; otherwise it only requires the next holder to write that note.
    pub fn queue_after_lease(&mut self, now_ms: u64, is_live: impl FnOnce(SessionId) -> bool) {
        if let TaskState::Leased { holder, .. } = self.state
            && !is_live(holder)
        {
            self.interruptions = self.interruptions.saturating_add(u32::from(self.begun == Some(holder)));
            self.begun = Some(SessionId::NOBODY);
        }
        self.queue_again(now_ms);
    }

    /// Lets any node take the task.
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
    /// Write the row, replacing an older one.
    Put(Box<TaskRow>),
    /// The result is no longer wanted: the row is deleted, or marked as cancelled if its lease has an end, which the
    /// owner's own leases do not have.
    Cancel(TaskId),
}

impl TaskChange {
    /// The approximate number of bytes that it writes.
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

/// The activities that a node can run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The registered names.
    pub names: BTreeSet<String>,
    /// The tags. Activities without a tag run on any node.
    pub tags: BTreeSet<String>,
    /// Prefixes of names that are served in addition to the registered names.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub prefixes: BTreeSet<String>,
}

impl Served {
    /// Whether no activity can run here.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether an activity can run here.
    pub fn serves(&self, name: &str, tag: Option<&str>) -> bool {
        let is_served = self.names.contains(name) || pattern::covers(&self.prefixes, name);
        is_served && tag.is_none_or(|tag| self.tags.contains(tag))
    }
}

/// A holder's report about a task when it renews the lease.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The activity that this is about.
    pub task: TaskId,
    /// The heartbeat details of its attempt; `None` keeps the earlier ones.
    pub details: Option<Payload>,
    /// Evidence for or against the activity.
    pub evidence: Option<Evidence>,
}

impl TaskReport {
    /// Renews only the lease.
    pub fn of(task: TaskId) -> TaskReport {
        TaskReport { task, details: None, evidence: None }
    }

    /// Applies a renewal to a row, except for the lease itself.
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

/// Evidence about an activity under which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its attempt starts once this is durable.
    Begins,
    /// Its attempt has sent a heartbeat, or has run long enough to be cleared.
    Healthy,
}

/// The outcome of renewing a task's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRenewal {
    /// The lease is renewed.
    Kept,
    /// The result is no longer wanted.
    Cancelled,
    /// The holder no longer has the task.
    Gone,
}
