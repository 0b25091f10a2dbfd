//! Requests of a shard to its driver.

use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{ActivityOptions, EventId, Payload, TraceContext, Trail};
use crate::instance::InstanceKey;
use crate::store::{Commit, SessionId, TaskId};

use super::request::{RequestId, Response};
use super::tenure::Tenure;
use super::token::TokenSecret;
use super::turn_task::TurnTask;

/// One request, to be carried out outside of any lock.
#[derive(Debug)]
pub enum Output {
    /// Look up an id and pass the row to [`Shard::handle_found`](super::Shard::handle_found).
    Find {
        /// The request that needs it.
        request: RequestId,
        /// The id of the instance.
        id: Arc<str>,
    },
    /// Load an instance and pass it to [`Shard::handle_loaded`](super::Shard::handle_loaded).
    Load {
        /// The key of the instance.
        key: InstanceKey,
    },
    /// Read the tasks and messages of an instance and pass them to
    /// [`Shard::handle_refreshed`](super::Shard::handle_refreshed), then read the inbox; its turns are not needed.
    Refresh {
        /// The key of the instance.
        key: InstanceKey,
    },
    /// Run this on a turn thread and pass the outcome to [`Shard::handle_turn_done`](super::Shard::handle_turn_done).
    TakeTurn(Box<TurnTask>),
    /// Commit this and pass the outcome to [`Shard::handle_committed`](super::Shard::handle_committed). Once it is
    /// durable and has sent messages, the inbox has to be read.
    Commit(Box<Commit>),
    /// Run an activity and pass its result to [`Shard::handle_activity_done`](super::Shard::handle_activity_done).
    RunActivity(Box<ActivityTask>),
    /// An activity that was interrupted repeatedly needs a quarantine slot: call
    /// [`Shard::handle_slot_granted`](super::Shard::handle_slot_granted) when few enough other
    /// suspects run on this node. It may turn out not to run after all.
    WantQuarantineSlot {
        /// How many times its process ended.
        interruptions: u32,
        /// The activity.
        task: TaskId,
    },
    /// Cancel a running activity.
    CancelActivity {
        /// The key of the instance.
        key: InstanceKey,
        /// The execution: the next one may have an activity with the same event.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// Whether the instance waits for its outcome.
        is_awaited: bool,
    },
    /// A running activity has become a task row, leased to this node's own session: its result goes there.
    HandOver(Box<ActivityTask>),
    /// An instance continued as new and now runs this execution.
    Continued {
        /// The key of the instance.
        key: InstanceKey,
        /// The number of the execution, from 1.
        execution: u64,
    },
    /// Reply to a caller.
    Reply {
        /// The request that is answered.
        request: RequestId,
        /// The response.
        answer: Response,
        /// The instance that the request was for, if it was found. [`Shard::take_outputs`](super::Shard::take_outputs)
        /// sets it.
        key: Option<InstanceKey>,
    },
    /// Drop this where user code may run.
    Drop(Box<Execution>),
}

impl Output {
    pub(super) fn reply(request: RequestId, answer: Response) -> Output {
        Output::Reply { request, answer, key: None }
    }
}

/// One attempt of an activity.
#[derive(Clone, Debug)]
pub struct ActivityTask {
    /// The owner's tenure of the instance's shard, or the node's own counter for a task that was taken from the store.
    pub tenure: Tenure,
    /// The key of the instance.
    pub key: InstanceKey,
    /// The instance's id.
    pub instance: Arc<str>,
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// How many times in a row its process ended.
    pub interruptions: u32,
    /// The node that notes the start of the attempt before it runs, because a process ended under the activity before.
    pub begun: Option<SessionId>,
    /// The last heartbeat details of earlier attempts, [`quoted`](crate::codec::quoted).
    pub details: Option<Payload>,
    /// When it could have started.
    pub queued_ms: u64,
    /// The attempts that failed.
    pub past: Trail,
    /// When its total timeout ends.
    pub deadline_ms: Option<u64>,
    /// The activity.
    pub name: String,
    /// The id that the code gave it.
    pub activity_id: Option<String>,
    /// The input, as JSON.
    pub input: Payload,
    /// How it is run.
    pub options: Option<Box<ActivityOptions>>,
    /// The secret of the token that this attempt can hand out, if it may be completed from outside.
    pub secret: Option<TokenSecret>,
    /// The trace context of the turn that scheduled it.
    pub trace: Option<Box<TraceContext>>,
}
