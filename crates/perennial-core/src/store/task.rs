//! Rows of activities that are not on their first local attempt, and the leases under which other nodes run them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{EventId, Payload, Trail};
use crate::instance::{InstanceKey, ShardId};

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
    /// What its attempts reported last.
    pub details: Option<Payload>,
    /// How many attempts ended with their process.
    pub interruptions: u32,
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
}

impl Served {
    /// Whether an activity can run here.
    pub fn serves(&self, name: &str, tag: Option<&str>) -> bool {
        self.names.contains(name) && tag.is_none_or(|tag| self.tags.contains(tag))
    }
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
