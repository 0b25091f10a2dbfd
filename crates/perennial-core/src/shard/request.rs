//! What callers ask of an instance, and what they are told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{Ending, EventId, Job, Payload, Started, TraceContext, Why};
use crate::instance::InstanceKey;
use crate::store::{Pause, RequestNumber, Skippable, Status, TaskRow};

use super::envelope::{self, BodyError, BodyKind};
use super::token::TokenSecret;

/// Tells one caller's request from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a caller asks of the instance with an id.
#[derive(Clone, Debug)]
pub enum Request {
    /// Start it. Refused if the id exists.
    Start(Box<StartRequest>),
    /// Raise an event.
    Raise {
        /// The event's name.
        name: String,
        /// What goes with it.
        payload: Payload,
        /// A key against duplicates.
        key: Option<String>,
        /// The caller's trace context.
        trace: Option<Box<TraceContext>>,
    },
    /// Cancel it.
    Cancel {
        /// Why.
        reason: String,
        /// For how long code that took cancellation over may clean up; the engine's default if none.
        grace_ms: Option<u64>,
    },
    /// End it without running its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// Try it again, if it is blocked.
    Retry,
    /// Try it again, if it is blocked, without an event that its code cannot read, or a message that nobody can read.
    Skip(Skippable),
    /// Take no turn until resumed.
    Pause(Pause),
    /// Take turns again, if it is paused.
    Resume(Why),
    /// Tell how it ended, once it has.
    AwaitEnd,
    /// Answer a query, or carry out an update.
    Call(InstanceCall),
    /// Do this to the instance with this key, and not to another one that has its id by now.
    Bound {
        /// The instance that is meant.
        key: InstanceKey,
        /// What is asked of it.
        request: Box<Request>,
    },
}

impl Request {
    /// Whether it may be asked of the instance with this key.
    pub(super) fn is_meant_for(&self, instance: InstanceKey) -> bool {
        !matches!(self, Request::Bound { key, .. } if *key != instance)
    }

    /// Whether it asks for no more than that the instance ends.
    pub fn is_for_the_end(&self) -> bool {
        match self {
            Request::Cancel { .. } | Request::Terminate { .. } => true,
            Request::Bound { request, .. } => request.is_for_the_end(),
            _ => false,
        }
    }

    /// What is asked, once it is known of whom.
    pub(super) fn unbound(self) -> Request {
        match self {
            Request::Bound { request, .. } => *request,
            request => request,
        }
    }
}

/// A start, with everything that has to be drawn or resolved beforehand.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The new instance's key.
    pub key: InstanceKey,
    /// How it starts.
    pub started: Started,
    /// Events that come with the start.
    pub jobs: Vec<Job>,
}

/// What is asked of an instance's code. It is also what a request row holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InstanceCall {
    /// Look, and decide nothing.
    Query {
        /// The handler's name.
        name: String,
        /// What goes with it.
        payload: Payload,
    },
    /// Change something, if the code's validator accepts.
    Update {
        /// The handler's name.
        name: String,
        /// What goes with it.
        payload: Payload,
        /// A key against duplicates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The caller's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// Take an event, and tell whether the instance ended without reading it.
    Raise {
        /// The event's name.
        name: String,
        /// What goes with it.
        payload: Payload,
        /// A key against duplicates.
        key: String,
        /// The caller's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// Take what somebody says about an attempt of an activity. The code has no part in it.
    Token(Box<TokenCall>),
    /// Begin another execution with turns of this one. It needs no code, and ended instances take it too.
    Reset {
        /// The execution that was seen. Another one refuses, unless it is what came of this very request.
        execution: u64,
        /// The last turn to keep; if none, the last before the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_turn: Option<u64>,
        /// The version to go on with, if not the one that it is pinned to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// Why, and by whom.
        why: Why,
    },
}

/// What somebody who has the token of an attempt says about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenCall {
    /// The execution.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// Which attempt.
    pub attempt: u32,
    /// That the token was handed out.
    pub secret: TokenSecret,
    /// What is said.
    pub said: Said,
}

/// What can be said about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Said {
    /// This is its result.
    Completed(Payload),
    /// It failed, with this error.
    Failed(Payload),
    /// It is under way, and this far.
    UnderWay(Payload),
}

impl Said {
    /// What goes with it.
    pub fn payload(&self) -> &Payload {
        match self {
            Said::Completed(payload) | Said::Failed(payload) | Said::UnderWay(payload) => payload,
        }
    }
}

impl InstanceCall {
    /// Whether it needs no code and is put to instances that are blocked or have ended, too.
    pub(super) fn is_reset(&self) -> bool {
        matches!(self, InstanceCall::Reset { .. })
    }

    /// The question as the body of a request row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Request, self)
    }

    /// The question of a request row's body.
    pub fn decode(body: &[u8]) -> Result<InstanceCall, BodyError> {
        envelope::open_decoded(BodyKind::Request, body)
    }
}

/// What is answered to a [`InstanceCall`]. It is also what an answer row holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum CallReply {
    /// The handler returned this.
    Answered(Payload),
    /// The handler of an accepted update returned this error.
    Failed(Payload),
    /// It was not accepted, and left no trace.
    Refused {
        /// Why.
        reason: String,
        /// What the code said, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Payload>,
    },
    /// An event or update with its key was taken before, and this execution does not know what came of it.
    KeyTaken,
    /// The instance had ended before it reached it, and left no trace.
    Ended,
    /// Nobody waits for the activity any more.
    NotOpen,
    /// The attempt is over, and another one has taken its place.
    Outdated {
        /// The current attempt.
        attempt: u32,
    },
    /// It was accepted, and its execution ended or continued as new before it answered.
    Unanswered,
    /// The instance is blocked and cannot answer.
    Blocked {
        /// The stable code of what blocks it.
        code: String,
        /// What blocks it.
        reason: String,
    },
}

impl CallReply {
    /// The reply as the body of a reply row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Reply, self)
    }

    /// The reply of a reply row's body.
    pub fn decode(body: &[u8]) -> Result<CallReply, BodyError> {
        envelope::open_decoded(BodyKind::Reply, body)
    }
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplyTo {
    /// A caller in this process.
    Request(RequestId),
    /// The writer of a request row.
    Row(RequestNumber),
}

impl ReplyTo {
    pub(super) fn caller(self) -> Option<RequestId> {
        match self {
            ReplyTo::Request(request) => Some(request),
            ReplyTo::Row(_) => None,
        }
    }

    pub(super) fn row(self) -> Option<RequestNumber> {
        match self {
            ReplyTo::Row(number) => Some(number),
            ReplyTo::Request(_) => None,
        }
    }
}

/// A question on its way to the code.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// Who asks.
    pub reply_to: ReplyTo,
    /// What is asked.
    pub call: InstanceCall,
    /// Its place among the messages of the instance: those before it are delivered first.
    pub place: u64,
    /// The row of the attempt that is spoken about, as it is when the question is put.
    pub(super) row: Option<Box<OpenRow>>,
}

/// A task's row and what its owner draws in case that another attempt follows.
#[derive(Clone, Debug)]
pub(super) struct OpenRow {
    pub(super) row: TaskRow,
    pub(super) draw: u64,
    pub(super) next_secret: TokenSecret,
}

/// What a caller is told. It leaves only when what it says is durable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Response {
    /// The instance exists now.
    Started(InstanceKey),
    /// The id was taken before.
    AlreadyExists(Status),
    /// What was asked is on disk and will be done.
    Accepted,
    /// The instance has ended, this way.
    Ended(Box<Ending>),
    /// The instance had ended before the request reached it.
    EndedBefore,
    /// The event came with the turn that ended the instance, which did not read it.
    TooLate,
    /// No instance has this id.
    NotFound,
    /// The instance has too many unread events.
    Full {
        /// How many.
        unread: usize,
    },
    /// The instance is not blocked.
    NotBlocked,
    /// The instance is blocked by something else than what was to be skipped.
    NotBlockedBy {
        /// What could be skipped.
        blocking: Option<Skippable>,
    },
    /// All instances of its orchestration are paused; it goes on with them.
    OrchestrationPaused,
    /// The code that waits for the event cannot read what came with it. It was not recorded.
    Unreadable {
        /// The event's name.
        event: String,
        /// What the code takes.
        type_name: &'static str,
        /// Why that cannot be read.
        problem: String,
    },
    /// A query or update was answered.
    Reply(CallReply),
    /// The shard is, or may be, another owner's: ask there, or through the store. What was asked may have been done.
    Moved {
        /// The instance that had the id when it was asked, if that was found out: it is settled with that one. Nothing
        /// was done if it was not.
        key: Option<InstanceKey>,
    },
    /// Whether it was done is not known.
    Unknown {
        /// What happened.
        reason: String,
    },
}
