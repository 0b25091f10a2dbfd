//! Commits: what is written together, and its outcome.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::page::PageLimit;
use super::request::RequestReply;
use super::row::{InstanceRow, NewInstance, RowChange};
use super::shard_set::ShardSet;
use super::task::TaskChange;
use super::turn::TurnRow;

/// The number of a message. Numbers increase within a store and are never reused; they may become visible out of order.
pub type InboxNumber = u64;

/// One member of a batch. It is written as a whole or not at all.
///
/// If it contains a turn, everything else depends on inserting that turn: turn n > 1 is inserted only if turn n - 1 is
/// stored. If the same turn is already stored, the member is durable and nothing is written again.
///
/// The parts of a member are applied in the order of the fields, and each part sees what the previous parts wrote: a
/// message to an instance started by the same member is delivered, a message to an instance ended by it is not. Members
/// of one batch see each other in batch order.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The key of the instance.
    pub key: InstanceKey,
    /// Its shard, which the session must own.
    pub shard: ShardId,
    /// The epoch at which the session must own the shard.
    pub epoch: u64,
    /// The row to insert if the instance starts here. Its id must not exist.
    pub insert: Option<Box<NewInstance>>,
    /// A turn to insert.
    pub turn: Option<TurnRow>,
    /// Turns that follow that one in its execution, inserted with it. An execution created by a reset begins with the
    /// turns that it keeps.
    pub more_turns: Vec<TurnRow>,
    /// Changes to the row.
    pub change: RowChange,
    /// The latest due time of the timers that the turn fires. If a message of the instance that the member does not
    /// consume arrived earlier, the member conflicts ([`Conflict::EarlierMessage`]).
    pub fired_ms: Option<u64>,
    /// Messages that were applied, to be deleted. Each must still exist.
    pub consumed: Vec<InboxNumber>,
    /// Urgent messages that were examined and are kept; they stop being urgent.
    pub seen: Vec<InboxNumber>,
    /// Changes to the instance's tasks, in order.
    pub tasks: Vec<TaskChange>,
    /// Replies to requests; each request is deleted. A request that no longer exists gets no reply.
    pub replies: Vec<RequestReply>,
    /// Messages to append, in order.
    pub send: Vec<Outgoing>,
}

impl Commit {
    /// A commit that writes nothing. The lane sets the epoch when it submits the commit.
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

    /// The approximate number of bytes that it writes, which limits the size of a batch.
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

/// A message to an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    /// To the instance with a key. Nothing is sent if it does not exist or has ended.
    ToKey {
        /// The receiving instance.
        to: InstanceKey,
        /// The instance's shard.
        shard: ShardId,
        /// A deduplication key, unique among the instance's messages.
        dedupe: Option<String>,
        /// Whether a blocked instance must examine it immediately. If a message with the same deduplication key is
        /// waiting, that message becomes urgent again.
        urgent: bool,
        /// The encoded message.
        body: Arc<[u8]>,
    },
    /// To the instance that currently has an id. Nothing is sent if there is none or it has ended.
    ToId {
        /// The instance's id.
        id: String,
        /// A deduplication key, unique among the instance's messages.
        dedupe: Option<String>,
        /// Whether a blocked instance must examine it immediately.
        urgent: bool,
        /// The encoded message.
        body: Arc<[u8]>,
        /// The report for the sender, if it asked for one.
        report: Option<Box<DeliveryReport>>,
    },
    /// A new, pending instance and the message that starts it.
    Start {
        /// The row. If it has a wake time, its message is parked until then.
        row: Box<NewInstance>,
        /// The message.
        body: Arc<[u8]>,
        /// The message for the sender if another instance has the id.
        otherwise: Option<Arc<[u8]>>,
        /// Whether an ended instance with the id is deleted first, with all its rows. Its ended children are deleted
        /// with it, and theirs, level by level in key order, up to [`Outgoing::CHILDREN_DELETED`]. Children that have
        /// not ended are kept, with all their descendants.
        replaces_ended: bool,
        /// The message for the sender if the instance was created.
        started: Option<Arc<[u8]>>,
    },
}

/// The possible reports to a sender about a message to an id. The one that applies is written together with the
/// message, unless the sender has ended.
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
    /// How many descendants are deleted with a replaced instance. The limit keeps the commit short; the others are
    /// kept, like those of a pruned instance.
    pub const CHILDREN_DELETED: usize = 1_000;

    /// Whether a report to the sender may be written.
    pub fn may_come_back(&self) -> bool {
        match self {
            Outgoing::ToKey { .. } => false,
            Outgoing::ToId { report, .. } => report.is_some(),
            Outgoing::Start { otherwise, started, .. } => otherwise.is_some() || started.is_some(),
        }
    }

    /// Whether an instance may be deleted by it.
    pub fn may_delete(&self) -> bool {
        matches!(self, Outgoing::Start { replaces_ended: true, .. })
    }

    /// The encoded message.
    pub fn body(&self) -> &Arc<[u8]> {
        match self {
            Outgoing::ToKey { body, .. } | Outgoing::ToId { body, .. } | Outgoing::Start { body, .. } => body,
        }
    }
}

/// The outcome of a member.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitOutcome {
    /// It is durable.
    Durable {
        /// The numbers of the messages it sent, in order; `None` for those that were not sent.
        sent: Vec<Option<InboxNumber>>,
    },
    /// The session has ended, or does not own the shard at this epoch. Nothing was written.
    Fenced,
    /// It contradicts what is stored. Nothing was written.
    Conflict(Conflict),
    /// It can never be written. Nothing was written.
    Rejected(String),
}

/// How a member contradicts what is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Conflict {
    /// An instance with this id already exists.
    IdTaken(Box<InstanceRow>),
    /// A different turn with this number is stored.
    OtherTurn,
    /// The previous turn is not stored.
    MissingTurn,
    /// The instance does not exist.
    NoInstance,
    /// A message that it applies no longer exists: it was applied before.
    MessageGone,
    /// A message that it does not apply arrived before a timer that it fires was due.
    EarlierMessage,
}

/// A message in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place in the order of arrival.
    pub number: InboxNumber,
    /// The receiving instance.
    pub key: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// When it was inserted, by the store's clock.
    pub arrived_ms: u64,
    /// Whether a blocked instance must examine it immediately. See [`Commit::seen`].
    pub urgent: bool,
    /// The encoded message.
    pub body: Arc<[u8]>,
}

/// The parameters of a read of the inbox.
#[derive(Clone, Debug)]
pub struct InboxQuery {
    /// The shards, all of which the session must own.
    pub shards: ShardSet,
    /// The lowest number to return.
    pub from: InboxNumber,
    /// Numbers that are already in memory and are skipped, in ascending order.
    pub known: Arc<[InboxNumber]>,
    /// The maximum size of the page.
    pub limit: PageLimit,
}

/// A page of the inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// The rows, ordered by number.
    pub rows: Vec<InboxRow>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<InboxNumber>,
}

/// A message from a process that does not own the instance.
#[derive(Clone, Debug, PartialEq)]
pub enum SendRequest {
    /// A new, pending instance and the message that starts it.
    Start {
        /// The row. If it has a wake time, its message is parked until then.
        row: Box<NewInstance>,
        /// The message.
        body: Arc<[u8]>,
    },
    /// A message to the instance that currently has this id.
    Message {
        /// The instance's id.
        id: String,
        /// The key that the instance must have, if the sender knows it; otherwise the outcome is `NoInstance`.
        key: Option<InstanceKey>,
        /// A deduplication key.
        dedupe: Option<String>,
        /// Whether a blocked instance must examine it immediately. If a message with the same deduplication key is
        /// waiting, that message becomes urgent again.
        urgent: bool,
        /// The message.
        body: Arc<[u8]>,
    },
}

/// The outcome of sending a message.
#[derive(Clone, Debug, PartialEq)]
pub enum SendOutcome {
    /// It is durable.
    Sent(InboxNumber),
    /// A message with the same deduplication key is already waiting under this number; this one was not written.
    Duplicate(InboxNumber),
    /// Another instance has the id of a start.
    IdTaken(Box<InstanceRow>),
    /// No instance has this id.
    NoInstance,
    /// The instance has ended.
    Ended(Box<InstanceRow>),
    /// The instance accepts no more messages: its owner marked it as full, or this many are waiting unread.
    Full(usize),
}

/// The outcome of deleting an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is deleted. Remaining rows of a large instance are deleted by later sweeps.
    Deleted,
    /// It has not ended. Nothing was changed.
    NotEnded,
    /// There is no such instance.
    Gone,
}
