//! Rows on their way from one store to another.
//!
//! A move reads every row of a stopped store with [`export_rows`](super::Store::export_rows) and writes it to another
//! store with [`import_rows`](super::Store::import_rows). Requests and their replies are not moved: their callers wait
//! for an answer of the old store. Sessions are not moved either, and rows that belong to no instance are left behind.
//! Everything that a store derives from these rows, such as the index over attributes, the importing store derives
//! again.

use std::fmt;
use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::commit::{InboxNumber, InboxRow};
use super::row::InstanceRow;
use super::session::Gap;
use super::task::{TaskId, TaskRow};
use super::turn::TurnRow;

/// A kind of rows that is moved. Each call exports or imports rows of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MovedTable {
    /// One row for each instance.
    Instances,
    /// The turns of all executions.
    Turns,
    /// Unread messages, and starts that are parked until their time.
    Messages,
    /// Activities that have a row: see [`TaskRow`].
    Tasks,
    /// When executions were continued as new.
    Continuations,
    /// What is kept about shards without an owner.
    Shards,
    /// Settings, without the mark of a move and settings that are private to a store.
    Settings,
    /// The last number that a message got.
    Counters,
}

impl MovedTable {
    /// All kinds, in the order in which they are moved: nothing is imported before the instance that it belongs to.
    pub const ALL: [MovedTable; 8] = [
        MovedTable::Instances,
        MovedTable::Turns,
        MovedTable::Messages,
        MovedTable::Tasks,
        MovedTable::Continuations,
        MovedTable::Shards,
        MovedTable::Settings,
        MovedTable::Counters,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            MovedTable::Instances => "instances",
            MovedTable::Turns => "turns",
            MovedTable::Messages => "messages",
            MovedTable::Tasks => "tasks",
            MovedTable::Continuations => "continuations",
            MovedTable::Shards => "shards",
            MovedTable::Settings => "settings",
            MovedTable::Counters => "counters",
        }
    }
}

/// A row that is moved.
#[derive(Clone, Debug, PartialEq)]
pub enum MovedRow {
    /// With all columns; the index over attributes is derived from it.
    Instance(Box<InstanceRow>),
    /// With the key of its instance.
    Turn(InstanceKey, TurnRow),
    /// Unread, or parked.
    Message(MovedMessage),
    /// Leased ones with their holder, whose session the other store does not have.
    Task(Box<TaskRow>),
    /// The time at which the execution before this one was continued as new.
    Continuation(InstanceKey, u64, u64),
    /// Only of shards that a lane has owned.
    Shard(MovedShard),
    /// Its name and its value.
    Setting(String, Arc<[u8]>),
    /// The last number that a message got, so that no number is used again.
    LastMessage(InboxNumber),
}

/// A message that is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedMessage {
    /// The message as its owner reads it.
    pub row: InboxRow,
    /// Its deduplication key.
    pub dedupe: Option<String>,
    /// Whether only a load returns it, because its instance starts later.
    pub parked: bool,
}

/// What is kept about a shard, whoever owns it next. Epochs belong to a store and are not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedShard {
    /// Which one.
    pub shard: ShardId,
    /// How many owners in a row ended without releasing it.
    pub unclean_ends: u32,
    /// The note of its last owner.
    pub note: Option<Arc<[u8]>>,
    /// The most recent periods without an owner.
    pub gaps: Vec<Gap>,
    /// Since when no lane has owned it.
    pub idle_since_ms: Option<u64>,
}

impl MovedShard {
    /// A shard that no lane has ever owned.
    pub fn untouched(shard: ShardId) -> MovedShard {
        MovedShard { shard, unclean_ends: 0, note: None, gaps: Vec::new(), idle_since_ms: None }
    }

    /// Whether no lane has ever owned it. Such shards are not exported.
    pub fn is_untouched(&self) -> bool {
        *self == MovedShard::untouched(self.shard)
    }
}

/// Identifies a row that is moved. An export continues after the last row of the previous page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MovedKey {
    /// By its key.
    Instance(InstanceKey),
    /// By instance, execution and number.
    Turn(InstanceKey, u64, u64),
    /// By the shard of its instance and its number; the key of the instance tells whose it is.
    Message(ShardId, InboxNumber, InstanceKey),
    /// By instance, execution and schedule event.
    Task(TaskId),
    /// The beginning of an execution.
    Continuation(InstanceKey, u64),
    /// By its number.
    Shard(ShardId),
    /// By its name.
    Setting(String),
    /// There is only one.
    LastMessage,
}

impl MovedKey {
    /// The instance that the row belongs to.
    pub fn instance(&self) -> Option<InstanceKey> {
        match self {
            MovedKey::Instance(key)
            | MovedKey::Turn(key, ..)
            | MovedKey::Message(_, _, key)
            | MovedKey::Task(TaskId { key, .. })
            | MovedKey::Continuation(key, _) => Some(*key),
            MovedKey::Shard(_) | MovedKey::Setting(_) | MovedKey::LastMessage => None,
        }
    }
}

/// Names the row without its instance.
impl fmt::Display for MovedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MovedKey::Instance(_) => write!(f, "the row"),
            MovedKey::Turn(_, execution, number) => write!(f, "turn {number} of execution {execution}"),
            MovedKey::Message(_, number, _) => write!(f, "message {number}"),
            MovedKey::Task(id) => write!(f, "the task of event {} of execution {}", id.event.0, id.execution),
            MovedKey::Continuation(_, execution) => write!(f, "the beginning of execution {execution}"),
            MovedKey::Shard(shard) => write!(f, "shard {}", shard.0),
            MovedKey::Setting(name) => write!(f, "the setting {name:?}"),
            MovedKey::LastMessage => write!(f, "the last number of a message"),
        }
    }
}

impl MovedRow {
    /// The kind of rows that it belongs to.
    pub fn table(&self) -> MovedTable {
        match self {
            MovedRow::Instance(_) => MovedTable::Instances,
            MovedRow::Turn(..) => MovedTable::Turns,
            MovedRow::Message(_) => MovedTable::Messages,
            MovedRow::Task(_) => MovedTable::Tasks,
            MovedRow::Continuation(..) => MovedTable::Continuations,
            MovedRow::Shard(_) => MovedTable::Shards,
            MovedRow::Setting(..) => MovedTable::Settings,
            MovedRow::LastMessage(_) => MovedTable::Counters,
        }
    }

    /// What identifies the row.
    pub fn key(&self) -> MovedKey {
        match self {
            MovedRow::Instance(row) => MovedKey::Instance(row.key),
            MovedRow::Turn(key, turn) => MovedKey::Turn(*key, turn.execution, turn.number),
            MovedRow::Message(MovedMessage { row, .. }) => MovedKey::Message(row.shard, row.number, row.key),
            MovedRow::Task(row) => MovedKey::Task(row.id),
            MovedRow::Continuation(key, execution, _) => MovedKey::Continuation(*key, *execution),
            MovedRow::Shard(row) => MovedKey::Shard(row.shard),
            MovedRow::Setting(name, _) => MovedKey::Setting(name.clone()),
            MovedRow::LastMessage(_) => MovedKey::LastMessage,
        }
    }

    /// The approximate number of bytes of the row, which limits the size of a page.
    pub fn weight(&self) -> usize {
        const ROW: usize = 100;
        let body = match self {
            MovedRow::Instance(row) => {
                let attributes = row.attributes.iter().map(|(name, value)| name.len() + value.size());
                row.published.as_ref().map_or(0, |published| published.size()) + attributes.sum::<usize>()
            }
            MovedRow::Turn(_, turn) => turn.bytes.len(),
            MovedRow::Message(message) => message.row.body.len(),
            MovedRow::Task(row) => {
                let details = row.details.as_ref().map_or(0, |details| details.size());
                row.work.as_ref().map_or(0, |work| work.len()) + details + row.past.size()
            }
            MovedRow::Shard(row) => row.note.as_ref().map_or(0, |note| note.len()),
            MovedRow::Setting(_, value) => value.len(),
            MovedRow::Continuation(..) | MovedRow::LastMessage(_) => 0,
        };
        ROW + body
    }
}

/// The result of importing rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// How many rows were written. The others were there already, with the same content.
    pub written: usize,
    /// A row that is there with another content, or whose id, number or deduplication key another row has. It was not
    /// changed; some of the other rows may have been written.
    pub differs: Option<MovedKey>,
}
