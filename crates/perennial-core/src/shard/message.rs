//! Messages to an instance through the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Codecs, PayloadContext};
use crate::history::{ActivityError, EventId, Job, Payload, Started, TraceContext, Trail, Why};
use crate::store::{InboxNumber, Pause, Skippable};

use super::envelope::{self, BodyError, BodyKind};
use super::request::TokenCall;
use super::token::TokenSecret;

/// A message to an instance, as written into the inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Message {
    /// Start an execution of the instance.
    Start(Box<Start>),
    /// Deliver this job: an event, a skipped event, or a cancel request.
    Job(Job),
    /// Deliver these jobs, which were carried over to an execution and not delivered in its first turn, before all
    /// others.
    Carried {
        /// The execution that they were carried over to.
        execution: u64,
        /// At most as many as one turn takes.
        jobs: Vec<Job>,
        /// The row that these jobs were part of, if a turn took only the jobs before them. They keep its place among the
        /// jobs that were carried over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_place_of: Option<InboxNumber>,
    },
    /// Deliver the outcome of something that an execution waits for.
    Outcome {
        /// The number of the execution, from 1.
        execution: u64,
        /// The outcome.
        job: Job,
    },
    /// An attempt of an activity on another node has ended.
    Attempt {
        /// The number of the execution, from 1.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// The number of the attempt.
        attempt: u32,
        /// The outcome.
        result: Result<Payload, ActivityError>,
        /// Its last heartbeat details.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Payload>,
        /// When and where it ran, and the attempts before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran: Option<Box<RanElsewhere>>,
    },
    /// The code of an attempt on another node has returned, and the holder of its token completes it.
    LeftOpen(Box<LeftOpen>),
    /// A call with the token of an attempt, sent while nobody owns the instance or the instance is blocked.
    Token(Box<TokenCall>),
    /// Another node took a task that it cannot read and deleted its row: write the row again from the history.
    Requeue {
        /// The number of the execution, from 1.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// The number of the attempt to make.
        attempt: u32,
        /// The attempts that failed.
        #[serde(default, skip_serializing_if = "Trail::is_empty")]
        past: Trail,
    },
    /// End without running code.
    Terminate {
        /// The reason, as text.
        reason: String,
    },
    /// Retry a blocked instance.
    Retry,
    /// Take no turns until resumed.
    Pause(Pause),
    /// Take turns again, if paused.
    Resume(Why),
    /// Continue without a message that cannot be read.
    SkipMessage {
        /// Its number in the inbox.
        number: InboxNumber,
    },
    /// A row that cannot be read. It blocks its instance, and is never written.
    #[serde(skip)]
    Unreadable {
        /// Its number in the inbox.
        number: u64,
        /// What is wrong with it.
        error: BodyError,
    },
}

/// An attempt on another node whose code has returned without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOpen {
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// The number of the attempt.
    pub attempt: u32,
    /// The secret of its token.
    pub secret: TokenSecret,
    /// How long its code ran.
    pub ran_ms: u64,
    /// Its last heartbeat details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Payload>,
    /// When and where it ran, and the attempts before it.
    pub ran: RanElsewhere,
}

/// Where an attempt on another node ran. It is sent with the result because the result deletes the task's row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RanElsewhere {
    /// The name of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When it could have started.
    pub queued_ms: u64,
    /// How long the node held it. Its start time follows from the arrival of the result, by the store's clock.
    pub took_ms: u64,
    /// The attempts before it.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub past: Trail,
}

/// How an execution starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Its first event. An empty version is resolved to the latest one when the first turn is taken.
    pub started: Started,
    /// Its first jobs: what was unread in the previous execution, or an event that comes with the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// When it starts, if not immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
}

impl Start {
    /// An immediate start without jobs.
    pub fn new(started: Started) -> Start {
        Start { started, jobs: Vec::new(), not_before_ms: None }
    }

    /// Adds a trace context, also to the first events.
    #[must_use]
    pub fn traced(mut self, context: Option<&TraceContext>) -> Start {
        let context = context.cloned().map(Box::new);
        self.started.trace.clone_from(&context);
        for job in &mut self.jobs {
            if let Job::ExternalEvent { trace, .. } = job {
                trace.clone_from(&context);
            }
        }
        self
    }

    /// The cancel request among its jobs, if there is one: the reason and the grace period.
    pub(super) fn cancel(&self) -> Option<(&str, u64)> {
        self.jobs.iter().find_map(|job| match job {
            Job::OrchestrationCancelRequested { reason, grace_ms } => Some((reason.as_str(), *grace_ms)),
            _ => None,
        })
    }
}

impl Message {
    /// Encodes the message as the body of an inbox row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Message, self)
    }

    /// Decodes the body of an inbox row. Encoded payloads are left in their stored form.
    pub fn decode(body: &[u8]) -> Result<Message, BodyError> {
        envelope::open(BodyKind::Message, body)
    }

    /// Decodes the body of an inbox row and its payloads.
    pub fn decode_with(codecs: &Codecs, body: &[u8]) -> Result<Message, BodyError> {
        envelope::open_with(codecs, PayloadContext::default(), BodyKind::Message, body)
    }

    /// The message of a row; `Unreadable` if it cannot be decoded.
    pub(super) fn read(number: u64, bytes: &[u8]) -> Message {
        envelope::open_decoded(BodyKind::Message, bytes)
            .unwrap_or_else(|error| Message::Unreadable { number, error })
    }

    /// Whether a blocked instance must examine it immediately, because it may unblock or end the instance.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Message::Retry
                | Message::Pause(_)
                | Message::Resume(_)
                | Message::SkipMessage { .. }
                | Message::Terminate { .. }
                | Message::Job(Job::OrchestrationCancelRequested { .. } | Job::ExternalEventSkipped { .. })
        )
    }

    /// Whether it skips an event that the code cannot read.
    pub(super) fn is_skip(&self) -> bool {
        matches!(self, Message::Job(Job::ExternalEventSkipped { .. }))
    }

    /// What it asks to skip, if it is such a request.
    pub(super) fn skipped(&self) -> Option<Skippable> {
        match self {
            Message::Job(Job::ExternalEventSkipped { event_id }) => Some(Skippable::Event(*event_id)),
            Message::SkipMessage { number } => Some(Skippable::Message(*number)),
            _ => None,
        }
    }

    /// The deduplication key of the message.
    pub fn dedupe(&self) -> Option<&str> {
        match self {
            Message::Job(job) => job.key(),
            _ => None,
        }
    }
}
