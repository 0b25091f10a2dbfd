//! Commits: what is written together, and what became of it.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::page::PageLimit;
use super::request::RequestReply;
use super::row::{InstanceRow, NewInstance, RowChange};
use super::shard_set::ShardSet;
use super::task::TaskChange;
use super::turn::TurnRow;

/// The number of a message. Numbers count up within a store and are never given twice; they may become visible out of
/// order.
pub type InboxNumber = u64;

/// One member of a batch: all of it is written, or nothing.
///
/// With a turn, everything else follows from the turn's insertion: turn n > 1 is inserted only where n - 1 is stored.
/// Where the same turn is stored already, the member is durable and nothing is written again.
///
/// The parts of a member are applied in the order of the fields, and each part sees what the ones before it wrote: a
/// message to an instance that the same member started is delivered, one to an instance that it ended is not. Members
/// of one batch see each other in the order of the batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The instance.
    pub key: InstanceKey,
    /// Its shard, which the session has to own.
    pub shard: ShardId,
    /// The epoch at which the session has to own the shard.
    pub epoch: u64,
    /// A row to insert: the instance starts here. Its id must be free.
    pub insert: Option<Box<NewInstance>>,
    /// A turn to insert.
    pub turn: Option<TurnRow>,
    /// Turns that follow that one in its execution, inserted with it. An execution that was reset begins with the turns
    /// that it keeps.
    pub more_turns: Vec<TurnRow>,
    /// Changes of the row.
    pub change: RowChange,
    /// The latest due time of a timer that the turn fires: if a message of the instance that the member does not consume
    /// arrived before it, the member conflicts ([`Conflict::EarlierMessage`]).
    pub fired_ms: Option<u64>,
    /// Messages that were applied, to be deleted. Each has to be there still.
    pub consumed: Vec<InboxNumber>,
    /// Urgent messages that were looked at and are kept: they are no longer urgent.
    pub seen: Vec<InboxNumber>,
    /// Changes of the instance's tasks, in order.
    pub tasks: Vec<TaskChange>,
    /// Replies to requests; each request is deleted. A request that is gone gets no reply.
    pub replies: Vec<RequestReply>,
    /// Messages to be appended, in order.
    pub send: Vec<Outgoing>,
}

impl Commit {
    /// One that writes nothing. The lane sets the epoch when it submits the commit.
    pub fn empty(key: InstanceKey, shard: ShardId) -> Commit {
        Commit {
            key,
            shard,
            epoch: 0,
            insert: None,
            turn: None,
            more_turns: Vec::new(),
            change: RowChange::default(),
            fired_ms: None,
            consumed: Vec::new(),
            seen: Vec::new(),
            tasks: Vec::new(),
            replies: Vec::new(),
            send: Vec::new(),
        }
    }

    /// Whether nothing would be written.
    pub fn is_empty(&self) -> bool {
        self.insert.is_none()
            && self.turn.is_none()
            && self.change.is_empty()
            && self.consumed.is_empty()
            && self.seen.is_empty()
            && self.tasks.is_empty()
            && self.replies.is_empty()
            && self.send.is_empty()
    }

    /// About how many bytes it writes: what bounds a batch.
    pub fn weight(&self) -> u64 {
        const ROW: usize = 100;
        let turns = self.turn.iter().chain(&self.more_turns);
        let turn: usize = turns.map(|turn| ROW + turn.bytes.len()).sum();
        let row = if self.insert.is_some() || !self.change.is_empty() { 3 * ROW } else { 0 };
        let send: usize = self.send.iter().map(|message| 2 * ROW + message.body().len()).sum();
        let tasks: usize = self.tasks.iter().map(|task| ROW + task.weight()).sum();
        let replies: usize = self.replies.iter().map(|reply| ROW + reply.body.len()).sum();
        (turn + row + send + tasks + replies + self.consumed.len() * 10) as u64
    }
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
        /// Whether a blocked instance is to look at it at once. If a message with its key waits, that one becomes
        /// urgent again.
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
        /// Whether a blocked instance is to look at it at once.
        urgent: bool,
        /// What it says.
        body: Arc<[u8]>,
        /// What the sender is sent about it, if it wants to know.
        report: Option<Box<DeliveryReport>>,
    },
    /// A new instance, pending, and the message that starts it.
    Start {
        /// The row. One with a time to wake has its message parked until then.
        row: Box<NewInstance>,
        /// The message.
        body: Arc<[u8]>,
        /// What the sender is sent instead if the id is another instance's.
        otherwise: Option<Arc<[u8]>>,
        /// Whether an instance that has ended and has the id is deleted first, with all its rows. Its children that have
        /// ended are deleted with it, and theirs, level by level in the order of keys, up to
        /// [`Outgoing::CHILDREN_DELETED`]. Those that have not ended stay, with all of theirs.
        replaces_ended: bool,
        /// What the sender is sent if the instance is new.
        started: Option<Arc<[u8]>>,
    },
}

/// What a sender that has not ended finds in its inbox, by what became of a message to an id. It is written with the
/// message.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryReport {
    /// The message is in the instance's inbox.
    pub delivered: Arc<[u8]>,
    /// No instance has the id.
    pub not_found: Arc<[u8]>,
    /// The instance with the id has ended.
    pub ended: Arc<[u8]>,
}

impl Outgoing {
    /// How many children, and children of children, are deleted with an instance that is replaced. A commit is to stay
    /// short: more of them stay, as those of an instance that is pruned do.
    pub const CHILDREN_DELETED: usize = 1_000;

    /// Whether the sender may be sent something about it.
    pub fn may_come_back(&self) -> bool {
        match self {
            Outgoing::ToKey { .. } => false,
            Outgoing::ToId { report, .. } => report.is_some(),
            Outgoing::Start { otherwise, started, .. } => otherwise.is_some() || started.is_some(),
        }
    }

    /// Whether an instance may be deleted with it.
    pub fn may_delete(&self) -> bool {
        matches!(self, Outgoing::Start { replaces_ended: true, .. })
    }

    /// What it says.
    pub fn body(&self) -> &Arc<[u8]> {
        match self {
            Outgoing::ToKey { body, .. } | Outgoing::ToId { body, .. } | Outgoing::Start { body, .. } => body,
        }
    }
}

/// What became of a member.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitOutcome {
    /// It is on disk.
    Durable {
        /// The numbers of the messages it sent, in order; none for those that were not sent.
        sent: Vec<Option<InboxNumber>>,
    },
    /// The session is gone, or does not own the shard at this epoch. Nothing was written.
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
    /// A message that it did not apply arrived before a timer that it fires was due.
    EarlierMessage,
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
    /// When it was inserted, by the store's clock.
    pub arrived_ms: u64,
    /// Whether a blocked instance has to look at it at once. See [`Commit::seen`].
    pub urgent: bool,
    /// What it says.
    pub body: Arc<[u8]>,
}

/// What a pass over the inbox wants.
#[derive(Clone, Debug)]
pub struct InboxQuery {
    /// The shards, all of which the session has to own.
    pub shards: ShardSet,
    /// The lowest number to look at.
    pub from: InboxNumber,
    /// Numbers, in ascending order, that are in memory already and are left out.
    pub known: Arc<[InboxNumber]>,
    /// How much to return at most.
    pub limit: PageLimit,
}

/// A page of the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// The rows, by number.
    pub rows: Vec<InboxRow>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<InboxNumber>,
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
        /// The key that the instance must have, if the sender knows it. Another one answers `NoInstance`.
        key: Option<InstanceKey>,
        /// A key against duplicates.
        dedupe: Option<String>,
        /// Whether a blocked instance is to look at it at once. If a message with its key waits, that one becomes
        /// urgent again.
        urgent: bool,
        /// The message.
        body: Arc<[u8]>,
    },
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum SendOutcome {
    /// It is on disk.
    Sent(InboxNumber),
    /// A message with its deduplication key waits already, under this number; that one counts.
    Duplicate(InboxNumber),
    /// The id of a start is taken.
    IdTaken(Box<InstanceRow>),
    /// No instance has this id.
    NoInstance,
    /// The instance has ended.
    Ended(Box<InstanceRow>),
    /// The instance takes no more messages: its owner said so, or this many wait unread.
    Full(usize),
}

/// What became of deleting an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone. Rows of a large one are deleted by the sweeps that follow.
    Deleted,
    /// It has not ended, and nothing was touched.
    NotEnded,
    /// There is no such instance.
    Gone,
}
