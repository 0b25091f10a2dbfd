//! What is written together, and what came of it.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::ask::AskAnswer;
use super::row::{InstanceRow, NewInstance, RowChange};
use super::task::TaskChange;

/// The number of a message, counting up within a store.
pub type InboxNumber = u64;

/// One member of a batch: all of it is written, or nothing.
///
/// With a turn, everything else follows from the turn's insertion: turn n > 1 goes in only where n - 1 is; where the
/// same bytes are already, the member is durable and nothing is written again.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The instance.
    pub key: InstanceKey,
    /// Its shard, which the session has to own.
    pub shard: ShardId,
    /// A row to insert: the instance starts here. Its id must be free.
    pub insert: Option<Box<NewInstance>>,
    /// A turn to insert.
    pub turn: Option<TurnRow>,
    /// Changes of the row.
    pub change: RowChange,
    /// Messages that were applied, to be deleted. Each has to be there still.
    pub consumed: Vec<InboxNumber>,
    /// Messages to be appended, in order.
    pub send: Vec<Outgoing>,
    /// Changes of the instance's tasks, in order.
    pub tasks: Vec<TaskChange>,
    /// Answers to requests; each request goes. One that is gone gets none.
    pub answers: Vec<AskAnswer>,
}

impl Commit {
    /// One that writes nothing.
    pub fn empty(key: InstanceKey, shard: ShardId) -> Commit {
        Commit {
            key,
            shard,
            insert: None,
            turn: None,
            change: RowChange::default(),
            consumed: Vec::new(),
            send: Vec::new(),
            tasks: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Whether nothing would be written.
    pub fn is_empty(&self) -> bool {
        self.insert.is_none()
            && self.turn.is_none()
            && self.change.is_empty()
            && self.consumed.is_empty()
            && self.send.is_empty()
            && self.tasks.is_empty()
            && self.answers.is_empty()
    }
}

/// A turn as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The execution.
    pub execution: u64,
    /// The turn's number in it.
    pub number: u64,
    /// The encoded turn.
    pub bytes: Arc<[u8]>,
}

/// A message on its way to an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    /// To the instance of a key. Nothing is sent if it does not exist or has ended.
    ToKey {
        /// The instance it is bound to.
        to: InstanceKey,
        /// The instance's shard.
        shard: ShardId,
        /// A key against duplicates, unique among the instance's messages.
        dedupe: Option<String>,
        /// Whether a blocked instance is to look at it at once: it is then due now.
        urgent: bool,
        /// What it says.
        body: Arc<[u8]>,
    },
    /// To whichever instance has an id. Nothing is sent if there is none or it has ended.
    ToId {
        /// The instance's id.
        id: String,
        /// A key against duplicates, unique among the instance's messages.
        dedupe: Option<String>,
        /// What it says.
        body: Arc<[u8]>,
    },
    /// A new instance, pending, and the message that starts it.
    Start {
        /// The row. One with a time to wake has its message parked until then.
        row: Box<NewInstance>,
        /// The message.
        body: Arc<[u8]>,
        /// What the sender is sent instead if the id is another instance's.
        otherwise: Option<Arc<[u8]>>,
    },
}

/// What came of a member.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitOutcome {
    /// It is on disk.
    Durable {
        /// The numbers of the messages it sent, in order; none for those that were not sent.
        sent: Vec<Option<InboxNumber>>,
    },
    /// The session does not own the shard, or is gone. Nothing was written.
    Fenced,
    /// It contradicts what is stored. Nothing was written.
    Conflict(Conflict),
    /// It cannot be written, now or later. Nothing was written.
    Rejected(String),
}

/// How a member contradicts what is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Conflict {
    /// An instance with this id exists.
    IdTaken(Box<InstanceRow>),
    /// Another turn of this number is stored.
    OtherTurn,
    /// The turn before is not stored.
    MissingTurn,
    /// The instance does not exist.
    NoInstance,
    /// A message that it applied is gone: it was applied before.
    MessageGone,
}

/// A message in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its number.
    pub number: InboxNumber,
    /// The instance it is bound to.
    pub key: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// What it says.
    pub body: Arc<[u8]>,
}

/// A message from outside of the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum SendRequest {
    /// A new instance, pending, and the message that starts it.
    Start {
        /// The row. One with a time to wake has its message parked until then.
        row: Box<NewInstance>,
        /// The message.
        body: Arc<[u8]>,
    },
    /// A message to the instance that has this id now.
    Message {
        /// The instance's id.
        id: String,
        /// A key against duplicates.
        dedupe: Option<String>,
        /// Whether a blocked instance is to look at it at once: it is then due now.
        urgent: bool,
        /// The message.
        body: Arc<[u8]>,
    },
}

/// What came of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum SendOutcome {
    /// It is on disk.
    Sent(InboxNumber),
    /// A message with its key waits already; that one counts.
    Duplicate,
    /// The id of a start is taken.
    IdTaken(Box<InstanceRow>),
    /// No instance has this id.
    NoInstance,
    /// The instance has ended.
    Ended(Box<InstanceRow>),
    /// The instance has this many unread messages and takes no more.
    Full(usize),
}

/// What came of deleting an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone, with all its rows.
    Deleted,
    /// It has not ended, and nothing was touched.
    NotEnded,
    /// There is no such instance.
    Gone,
}
