//! What travels to an instance through the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::{Codecs, PayloadContext};
use crate::history::{ActivityFailure, EventId, Job, Payload, Started, TraceContext, Trail, Why};
use crate::store::{InboxNumber, Pause, Skippable};

use super::envelope::{self, BodyError, BodyKind};
use super::request::TokenCall;
use super::token::TokenSecret;

/// A message to an instance, as it is written into the inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Message {
    /// Begin.
    Start(Box<Start>),
    /// Take this job: an event, a skipped event, or a cancel request.
    Job(Job),
    /// Take these jobs, which crossed to an execution and were not delivered in its first turn, before all others.
    Carried {
        /// The execution that they crossed to.
        execution: u64,
        /// As many as a turn takes.
        jobs: Vec<Job>,
        /// The row that they were part of, if a turn took the jobs before them alone: they have its place among what
        /// crossed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_place_of: Option<InboxNumber>,
    },
    /// Take what came of something that an execution waits for.
    Outcome {
        /// The execution.
        execution: u64,
        /// What came of it.
        job: Job,
    },
    /// Another node's attempt of an activity ended.
    Attempt {
        /// The execution.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// Which attempt.
        attempt: u32,
        /// What came of it.
        result: Result<Payload, ActivityFailure>,
        /// What it had reported last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        details: Option<Payload>,
        /// When and where it ran, and the attempts before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ran: Option<Box<RanElsewhere>>,
    },
    /// The code of another node's attempt has returned, and whoever has its token completes it.
    LeftOpen(Box<LeftOpen>),
    /// Somebody who has the token of an attempt says something about it, while nobody owns the instance or it is blocked.
    Token(Box<TokenCall>),
    /// Another node took a task that it cannot read, and its row is deleted: write it again from the history.
    Requeue {
        /// The execution.
        execution: u64,
        /// The activity's schedule event.
        event: EventId,
        /// Which attempt is to be made.
        attempt: u32,
        /// The attempts that failed.
        #[serde(default, skip_serializing_if = "Trail::is_empty")]
        past: Trail,
    },
    /// End without running code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// Try a blocked instance again.
    Retry,
    /// Take no turn until resumed.
    Pause(Pause),
    /// Take turns again, if it is paused.
    Resume(Why),
    /// Go on without a message that cannot be read.
    SkipMessage {
        /// Its number in the inbox.
        number: InboxNumber,
    },
    /// A row that cannot be read. It blocks its instance, and is never written.
    #[serde(skip)]
    Unreadable {
        /// Its number in the inbox.
        number: u64,
        /// Why.
        error: BodyError,
    },
}

/// An attempt of another node's whose code has returned without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOpen {
    /// The execution.
    pub execution: u64,
    /// The activity's schedule event.
    pub event: EventId,
    /// Which attempt.
    pub attempt: u32,
    /// What is secret about its token.
    pub secret: TokenSecret,
    /// For how long its code ran.
    pub ran_ms: u64,
    /// What it had reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Payload>,
    /// When and where it ran, and the attempts before it.
    pub ran: RanElsewhere,
}

/// Where another node's attempt ran. It goes with the result because the task's row is deleted by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RanElsewhere {
    /// The name of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// When it could have begun.
    pub queued_ms: u64,
    /// How long the node had it. When it began follows from when the result arrived, by the store's clock.
    pub took_ms: u64,
    /// The attempts before it.
    #[serde(default, skip_serializing_if = "Trail::is_empty")]
    pub past: Trail,
}

/// How an execution begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Its first event. A version that is empty is resolved to the latest one when the first turn is taken.
    pub started: Started,
    /// Its first jobs: what nobody read in the execution before, or an event that comes with the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// When it begins, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
}

impl Start {
    /// A start at once, with nothing waiting.
    pub fn new(started: Started) -> Start {
        Start { started, jobs: Vec::new(), not_before_ms: None }
    }

    /// The start with a trace context, which its first events carry too.
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

    /// The cancel request that comes with it, if one does: why, and for how long it may clean up.
    pub(super) fn cancel(&self) -> Option<(&str, u64)> {
        self.jobs.iter().find_map(|job| match job {
            Job::OrchestrationCancelRequested { reason, grace_ms } => Some((reason.as_str(), *grace_ms)),
            _ => None,
        })
    }
}

impl Message {
    /// The message as the body of an inbox row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Message, self)
    }

    /// The message of an inbox row's body. Encoded payloads are left as they are stored.
    pub fn decode(body: &[u8]) -> Result<Message, BodyError> {
        envelope::open(BodyKind::Message, body)
    }

    /// The message of an inbox row's body, with its payloads decoded.
    pub fn decode_with(codecs: &Codecs, body: &[u8]) -> Result<Message, BodyError> {
        envelope::open_with(codecs, PayloadContext::default(), BodyKind::Message, body)
    }

    /// The message of a row, whatever it holds.
    pub(super) fn read(number: u64, bytes: &[u8]) -> Message {
        envelope::open_decoded(BodyKind::Message, bytes)
            .unwrap_or_else(|error| Message::Unreadable { number, error })
    }

    /// Whether a blocked instance has to look at it at once: it may cure or end it.
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

    /// Whether it takes an event out that the code cannot read.
    pub(super) fn is_skip(&self) -> bool {
        matches!(self, Message::Job(Job::ExternalEventSkipped { .. }))
    }

    /// What it asks to go on without, if it asks for that.
    pub(super) fn skipped(&self) -> Option<Skippable> {
        match self {
            Message::Job(Job::ExternalEventSkipped { event_id }) => Some(Skippable::Event(*event_id)),
            Message::SkipMessage { number } => Some(Skippable::Message(*number)),
            _ => None,
        }
    }

    /// The key against duplicates that the message brings.
    pub fn dedupe(&self) -> Option<&str> {
        match self {
            Message::Job(job) => job.key(),
            _ => None,
        }
    }
}
