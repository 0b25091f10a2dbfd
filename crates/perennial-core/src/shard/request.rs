//! What callers ask of an instance, and what they are told.

use serde::{Deserialize, Serialize};

use crate::history::{Ending, Job, Payload, Started};
use crate::instance::InstanceKey;
use crate::store::{AskNumber, Status};

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
    },
    /// Cancel it.
    Cancel {
        /// Why.
        reason: String,
    },
    /// End it without running its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// Try it again, if it is blocked.
    Retry,
    /// Tell how it ended, once it has.
    AwaitEnd,
    /// Answer a query, or carry out an update.
    Ask(Question),
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
pub enum Question {
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
    },
}

/// What is answered to a [`Question`]. It is also what an answer row holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum AskReply {
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
    /// The instance ended before it could answer.
    Ended,
    /// The instance is blocked and cannot answer.
    Blocked {
        /// The stable code of what blocks it.
        code: String,
        /// What blocks it.
        reason: String,
    },
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A caller in this process.
    Request(RequestId),
    /// The writer of a request row.
    Row(AskNumber),
}

/// A question on its way to the code.
#[derive(Clone, Debug)]
pub struct PendingAsk {
    /// Who asks.
    pub asker: Asker,
    /// What is asked.
    pub question: Question,
}

/// What a caller is told. It leaves only when what it says is durable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
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
    /// No instance has this id.
    NotFound,
    /// The instance has too many unread events.
    Full {
        /// How many.
        unread: usize,
    },
    /// The instance is not blocked.
    NotBlocked,
    /// A query or update was answered.
    Asked(AskReply),
    /// Whether it was done is not known.
    Unknown {
        /// What happened.
        reason: String,
    },
}
