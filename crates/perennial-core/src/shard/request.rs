//! What callers ask of an instance, and what they are told.

use crate::history::{Ending, Payload, Started};
use crate::instance::InstanceKey;
use crate::store::Status;

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
}

/// A start, with everything that has to be drawn or resolved beforehand.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The new instance's key.
    pub key: InstanceKey,
    /// How it starts.
    pub started: Started,
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
    /// Whether it was done is not known.
    Unknown {
        /// What happened.
        reason: String,
    },
}
