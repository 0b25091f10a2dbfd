//! What a shard wants done.

use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{ActivityOptions, EventId, Payload};
use crate::instance::InstanceKey;
use crate::store::Commit;

use super::request::{Answer, RequestId};
use super::turn_task::TurnTask;

/// One thing to be done by the driver, outside of any lock.
#[derive(Debug)]
pub enum Output {
    /// Look an id up and bring the row with [`Shard::handle_found`](super::Shard::handle_found).
    Find {
        /// The request that needs it.
        request: RequestId,
        /// The id.
        id: Arc<str>,
    },
    /// Load an instance and bring it with [`Shard::handle_loaded`](super::Shard::handle_loaded).
    Load {
        /// The instance.
        key: InstanceKey,
    },
    /// Read the rows of an instance's tasks and bring them with
    /// [`Shard::handle_refreshed`](super::Shard::handle_refreshed); its turns are not wanted.
    Refresh {
        /// The instance.
        key: InstanceKey,
    },
    /// Run this on a turn thread and bring the outcome with
    /// [`Shard::handle_turn_done`](super::Shard::handle_turn_done).
    TakeTurn(Box<TurnTask>),
    /// Commit this and bring the outcome with [`Shard::handle_committed`](super::Shard::handle_committed). Once it is
    /// durable and sent messages, the inbox is to be read.
    Commit(Box<Commit>),
    /// Run an activity and bring its result with
    /// [`Shard::handle_activity_done`](super::Shard::handle_activity_done).
    RunActivity(Box<ActivityTask>),
    /// Tell a running activity that nobody waits for it.
    CancelActivity {
        /// The instance.
        key: InstanceKey,
        /// The execution: the next one may have an activity with the same event.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
    },
    /// Answer a caller.
    Reply(RequestId, Answer),
    /// Drop these, where user code may run.
    Drop(Box<Execution>),
}

/// One attempt of an activity.
#[derive(Clone, Debug)]
pub struct ActivityTask {
    /// The instance.
    pub key: InstanceKey,
    /// The instance's id.
    pub instance: Arc<str>,
    /// The execution.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// How many times it ended with its process.
    pub interruptions: u32,
    /// What earlier attempts reported last.
    pub details: Option<Payload>,
    /// When all attempts together have taken too long.
    pub deadline_ms: Option<u64>,
    /// The activity.
    pub name: String,
    /// What it is given.
    pub input: Payload,
    /// How it is to be run.
    pub options: Option<Box<ActivityOptions>>,
}
