//! Requests of callers to an instance, and the responses.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::flaws::{self, Flaw};
use crate::history::{Ending, EventId, Job, Payload, Started, TraceContext, Why};
use crate::instance::InstanceKey;
use crate::store::{InstanceRow, Pause, RequestNumber, Skippable, Status, TaskRow};

use super::envelope::{self, BodyError, BodyKind};
use super::token::TokenSecret;

/// Identifies a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request to the instance with an id.
#[derive(Clone, Debug)]
pub enum Request {
    /// Start it. Refused if the id exists.
    Start(Box<StartRequest>),
    /// Raise an event.
    Raise {
        /// The event's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// A deduplication key.
        key: Option<String>,
        /// The caller's trace context.
        trace: Option<Box<TraceContext>>,
    },
    /// Cancel it.
    Cancel {
        /// The reason, as text.
        reason: String,
        /// How long code that took over cancellation may clean up; `None` for the engine's default.
        grace_ms: Option<u64>,
    },
    /// End it without running its code.
    Terminate {
        /// The reason, as text.
        reason: String,
    },
    /// Retry it, if it is blocked.
    Retry,
    /// Retry it, if it is blocked, without an event that its code cannot read or a message that cannot be read.
    Skip(Skippable),
    /// Take no turns until resumed.
    Pause(Pause),
    /// Take turns again, if paused.
    Resume(Why),
    /// Wait for its end, and return how it ended.
    AwaitEnd,
    /// Run a query, an update or another call with a reply.
    Call(InstanceCall),
    /// Apply this only to the instance with this key, not to another one that has its id now.
    Bound {
        /// The addressed instance.
        key: InstanceKey,
        /// The request as the caller sent it.
        request: Box<Request>,
    },
}

impl Request {
    /// Whether it may be applied to the instance with this key.
    pub(super) fn is_meant_for(&self, instance: InstanceKey) -> bool {
        !matches!(self, Request::Bound { key, .. } if *key != instance) || flaws::is(Flaw::IdsConfused)
    }

    /// Whether it only asks the instance to end.
    pub fn is_for_the_end(&self) -> bool {
        match self {
            Request::Cancel { .. } | Request::Terminate { .. } => true,
            Request::Bound { request, .. } => request.is_for_the_end(),
            _ => false,
        }
    }

    /// The request itself, once the instance is known.
    pub(super) fn unbound(self) -> Request {
        match self {
            Request::Bound { request, .. } => *request,
            request => request,
        }
    }
}

/// A start, with all values that have to be generated or resolved beforehand.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The new instance's key.
    pub key: InstanceKey,
    /// How it starts.
    pub started: Started,
    /// Events that come with the start.
    pub jobs: Vec<Job>,
}

/// A call to an instance that has a reply: it is also the body of a request row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum InstanceCall {
    /// Run a read-only query handler.
    Query {
        /// The handler's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
    },
    /// Run an update handler, if the code's validator accepts.
    Update {
        /// The handler's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// A deduplication key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The caller's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// Deliver an event, and report whether the instance ended without reading it.
    Raise {
        /// The event's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// A deduplication key.
        key: String,
        /// The caller's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// Apply a call with the token of an attempt. The code is not involved.
    Token(Box<TokenCall>),
    /// Name the handlers of the code. Nothing is recorded.
    Handlers,
    /// Make the attempt of an activity that waits for its pause now.
    RetryActivity {
        /// The number of the execution, from 1.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
    },
    /// Start a new execution with turns of this one. It needs no code, and also applies to ended instances.
    Reset {
        /// The execution that the caller saw. Another execution refuses, unless it is the result of this very request.
        execution: u64,
        /// The last turn to keep; `None` for the last one before the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_turn: Option<u64>,
        /// The version to continue with, if not the one that it is pinned to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The reason, and who gave it.
        why: Why,
    },
}

/// A call with the token of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenCall {
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// The number of the attempt.
    pub attempt: u32,
    /// Proves that the token was handed out.
    pub secret: TokenSecret,
    /// What the call reports.
    pub said: Said,
}

/// A report about an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Said {
    /// It completed with this result.
    Completed(Payload),
    /// It failed with this error.
    Failed(Payload),
    /// It is in progress, with these details.
    UnderWay(Payload),
}

impl Said {
    /// The content, as JSON.
    pub fn payload(&self) -> &Payload {
        match self {
            Said::Completed(payload) | Said::Failed(payload) | Said::UnderWay(payload) => payload,
        }
    }
}

impl InstanceCall {
    /// Whether it needs no code and also applies to blocked and ended instances.
    pub(super) fn is_reset(&self) -> bool {
        matches!(self, InstanceCall::Reset { .. })
    }

    /// Whether it only reads, and also applies to ended instances.
    pub(super) fn is_query(&self) -> bool {
        matches!(self, InstanceCall::Query { .. } | InstanceCall::Handlers)
    }

    /// The activity whose row determines its effect.
    pub(super) fn activity(&self) -> Option<EventId> {
        match self {
            InstanceCall::Token(call) => Some(call.event),
            InstanceCall::RetryActivity { event, .. } => Some(*event),
            _ => None,
        }
    }

    /// Encodes the call as the body of a request row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Request, self)
    }

    /// Decodes the body of a request row.
    pub fn decode(body: &[u8]) -> Result<InstanceCall, BodyError> {
        envelope::open_decoded(BodyKind::Request, body)
    }
}

/// The reply to an [`InstanceCall`]: it is also the body of a reply row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum CallReply {
    /// The handler returned this.
    Answered(Payload),
    /// The handler of an accepted update returned this error.
    Failed(Payload),
    /// It was not accepted. Nothing was recorded.
    Refused {
        /// The reason, as text.
        reason: String,
        /// The error returned by the code, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Payload>,
    },
    /// An event or update with its key was accepted before, and this execution does not know its outcome.
    KeyTaken,
    /// The instance had ended before the call reached it. Nothing was recorded.
    Ended,
    /// The activity is no longer open.
    NotOpen,
    /// The attempt is over, and another one has replaced it.
    Outdated {
        /// The current attempt.
        attempt: u32,
    },
    /// It was accepted, but its execution ended or continued as new before it replied.
    Unanswered,
    /// The instance is blocked and cannot reply.
    Blocked {
        /// The error code of what blocks it.
        code: String,
        /// What blocks it.
        reason: String,
    },
}

impl CallReply {
    /// Encodes the reply as the body of a reply row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Reply, self)
    }

    /// Decodes the body of a reply row.
    pub fn decode(body: &[u8]) -> Result<CallReply, BodyError> {
        envelope::open_decoded(BodyKind::Reply, body)
    }
}

/// Where a reply goes.
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

/// A call that has not been made yet.
#[derive(Clone, Debug)]
pub struct PendingCall {
    /// Where its reply goes.
    pub reply_to: ReplyTo,
    /// The query, update or other call that is made.
    pub call: InstanceCall,
    /// Its position among the messages of the instance: those before it are delivered first.
    pub place: u64,
    /// For a call about an activity: its row when the call is made.
    pub(super) row: Option<Box<OpenRow>>,
}

/// A task's row, and the values that its owner generates in case another attempt follows.
#[derive(Clone, Debug)]
pub(super) struct OpenRow {
    pub(super) row: TaskRow,
    pub(super) draw: u64,
    pub(super) next_secret: TokenSecret,
}

/// The response to a caller. It is sent only once everything that it reports is durable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Response {
    /// The instance exists now.
    Started(InstanceKey),
    /// An instance with this id already exists.
    AlreadyExists(Status),
    /// The request is durable and will be carried out.
    Accepted,
    /// The instance has ended like this.
    Ended(Box<Ending>),
    /// The instance had ended before the request reached it.
    EndedBefore,
    /// The same for a caller that waits for the end, with the row, so that the caller can read how it ended.
    EndedRow(Box<InstanceRow>),
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
    /// The instance is blocked, but not by what was to be skipped.
    NotBlockedBy {
        /// What could be skipped.
        blocking: Option<Skippable>,
    },
    /// All instances of its orchestration are paused; it is resumed with them.
    OrchestrationPaused,
    /// The code that waits for the event cannot decode its payload. It was not recorded.
    Unreadable {
        /// The event's name.
        event: String,
        /// The type that the code expects.
        type_name: &'static str,
        /// Why the payload cannot be decoded.
        problem: String,
    },
    /// The reply to a call.
    Reply(CallReply),
    /// Another session owns the shard, or may own it: repeat the request there, or through the store. It may have been
    /// carried out.
    Moved {
        /// The instance that had the id, if it was found: the request must be repeated for that one. If `None`, nothing
        /// was done.
        key: Option<InstanceKey>,
    },
    /// It is not known whether the request was carried out.
    Unknown {
        /// What happened.
        reason: String,
    },
}
