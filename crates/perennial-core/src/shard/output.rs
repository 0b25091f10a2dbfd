//! What a shard wants done.

use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{ActivityOptions, EventId, Payload, Trail};
use crate::instance::InstanceKey;
use crate::store::{Commit, SessionId, TaskId};

use super::request::{Answer, RequestId};
use super::tenure::Tenure;
use super::token::TokenSecret;
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
    /// Read the tasks and messages of an instance and bring them with
    /// [`Shard::handle_refreshed`](super::Shard::handle_refreshed), then read the inbox; its turns are not wanted.
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
    /// An activity that was interrupted often wants to run: call
    /// [`Shard::handle_lone_granted`](super::Shard::handle_lone_granted) when few enough others of its kind run on this
    /// node. It may turn out not to run after all.
    WantLone {
        /// How many times it ended with its process.
        interruptions: u32,
        /// Which one.
        task: TaskId,
    },
    /// Tell a running activity that nobody waits for it.
    CancelActivity {
        /// The instance.
        key: InstanceKey,
        /// The execution: the next one may have an activity with the same event.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// Whether the instance waits for what comes of it.
        is_awaited: bool,
    },
    /// A running activity is a row now, leased to this node's own session: its result goes there.
    HandOver(Box<ActivityTask>),
    /// An instance continued as new and runs this execution now.
    Continued {
        /// The instance.
        key: InstanceKey,
        /// The execution.
        execution: u64,
    },
    /// Answer a caller.
    Reply {
        /// Whom.
        request: RequestId,
        /// With what.
        answer: Answer,
        /// The instance that was asked, if it was found. [`Shard::take_outputs`](super::Shard::take_outputs) sets it.
        key: Option<InstanceKey>,
    },
    /// Drop these, where user code may run.
    Drop(Box<Execution>),
}

impl Output {
    pub(super) fn reply(request: RequestId, answer: Answer) -> Output {
        Output::Reply { request, answer, key: None }
    }
}

/// One attempt of an activity.
#[derive(Clone, Debug)]
pub struct ActivityTask {
    /// The owner's tenure of the instance's shard, or the node's own count for a task that was taken from the store.
    pub tenure: Tenure,
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
    /// How many times it ended with its process, one after the other.
    pub interruptions: u32,
    /// The node that begins it with care, because a process ended under it before.
    pub begun: Option<SessionId>,
    /// What earlier attempts reported last, [`quoted`](crate::codec::quoted).
    pub details: Option<Payload>,
    /// When it could have begun.
    pub queued_ms: u64,
    /// The attempts that failed.
    pub past: Trail,
    /// When all attempts together have taken too long.
    pub deadline_ms: Option<u64>,
    /// The activity.
    pub name: String,
    /// The id that the code gave it.
    pub activity_id: Option<String>,
    /// What it is given.
    pub input: Payload,
    /// How it is to be run.
    pub options: Option<Box<ActivityOptions>>,
    /// What is secret about the token that this attempt can hand out, if it may be completed from outside.
    pub secret: Option<TokenSecret>,
}
