//! Rows on their way from one store to another.
//!
//! A move reads every row of a stopped store with [`export_rows`](super::Store::export_rows) and writes it to another
//! store with [`import_rows`](super::Store::import_rows). Requests and their replies are not moved: their callers wait
//! for an answer of the old store. Sessions are not moved either, and rows that belong to no instance are left behind.
//! Everything that a store derives from these rows, such as the index over attributes, the importing store derives
//! again.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::instance::{InstanceKey, ShardId};

use super::commit::{InboxNumber, InboxRow};
use super::error::StoreError;
use super::row::InstanceRow;
use super::session::Gap;
use super::task::{TaskId, TaskRow, TaskState};
use super::turn::TurnRow;

/// A kind of rows that is moved. Each call exports or imports rows of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MovedTable {
    /// The rows of instances.
    Instances,
    /// The turns of all executions.
    Turns,
    /// The messages in the inboxes.
    Messages,
    /// The tasks.
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
    /// An instance.
    Instance(Box<InstanceRow>),
    /// A turn of an instance.
    Turn(InstanceKey, TurnRow),
    /// A message.
    Message(MovedMessage),
    /// A task.
    Task(Box<TaskRow>),
    /// The time at which the execution before this one was continued as new.
    Continuation(InstanceKey, u64, u64),
    /// A shard.
    Shard(MovedShard),
    /// A setting and its value.
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
    /// The shard.
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
    /// An instance.
    Instance(InstanceKey),
    /// The turn of an execution.
    Turn(InstanceKey, u64, u64),
    /// A message, with the shard and the key of its instance.
    Message(ShardId, InboxNumber, InstanceKey),
    /// A task.
    Task(TaskId),
    /// The beginning of an execution.
    Continuation(InstanceKey, u64),
    /// A shard.
    Shard(ShardId),
    /// A setting.
    Setting(String),
    /// The last number of a message.
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
    /// The table of the row.
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

/// A count and a hash of rows, independent of their order: stores page through their rows in different orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDigest {
    /// How many rows.
    pub rows: u64,
    /// The sum of the hashes of all rows.
    hash: u128,
}

impl RowDigest {
    /// Adds a row.
    pub fn add(&mut self, row: &MovedRow) {
        self.rows += 1;
        self.hash = self.hash.wrapping_add(hash(&canonical(row)));
    }
}

/// The hash as hexadecimal digits.
impl fmt::Display for RowDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.hash)
    }
}

/// FNV-1a, 128 bits. It detects accidents, not attacks.
fn hash(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// A row as bytes that are the same whichever store it comes from.
fn canonical(row: &MovedRow) -> Vec<u8> {
    let mut bytes = Canonical(Vec::with_capacity(row.weight() + 64));
    bytes.number(row.table() as u64);
    match row {
        MovedRow::Instance(row) => bytes.instance(row),
        MovedRow::Turn(key, turn) => {
            bytes.bytes(key.as_bytes());
            bytes.number(turn.execution);
            bytes.number(turn.number);
            bytes.bytes(&turn.bytes);
            bytes.number(turn.checksum.into());
        }
        MovedRow::Message(MovedMessage { row, dedupe, parked }) => {
            bytes.number(row.number);
            bytes.bytes(row.key.as_bytes());
            bytes.number(row.shard.0.into());
            bytes.number(row.arrived_ms);
            bytes.number(u64::from(row.urgent) << 1 | u64::from(*parked));
            bytes.bytes(&row.body);
            bytes.maybe_bytes(dedupe.as_ref().map(|dedupe| dedupe.as_bytes()));
        }
        MovedRow::Task(row) => bytes.task(row),
        MovedRow::Continuation(key, execution, at_ms) => {
            bytes.bytes(key.as_bytes());
            bytes.number(*execution);
            bytes.number(*at_ms);
        }
        MovedRow::Shard(row) => {
            bytes.number(row.shard.0.into());
            bytes.number(row.unclean_ends.into());
            bytes.maybe_bytes(row.note.as_deref());
            bytes.number(row.gaps.len() as u64);
            for gap in &row.gaps {
                bytes.number(gap.from_ms);
                bytes.number(gap.until_ms);
            }
            bytes.maybe_number(row.idle_since_ms);
        }
        MovedRow::Setting(name, value) => {
            bytes.bytes(name.as_bytes());
            bytes.bytes(value);
        }
        MovedRow::LastMessage(number) => bytes.number(*number),
    }
    bytes.0
}

/// Bytes with lengths, so that moving bytes from one field to the next changes the hash.
struct Canonical(Vec<u8>);

impl Canonical {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn maybe_number(&mut self, number: Option<u64>) {
        self.number(number.is_some().into());
        self.number(number.unwrap_or_default());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn maybe_bytes(&mut self, bytes: Option<&[u8]>) {
        self.number(bytes.is_some().into());
        self.bytes(bytes.unwrap_or_default());
    }

    fn json(&mut self, value: Option<&impl Serialize>) {
        let text = value.map(|value| serde_json::to_vec(value).expect("columns of a row encode as JSON"));
        self.maybe_bytes(text.as_deref());
    }

    fn instance(&mut self, row: &InstanceRow) {
        self.bytes(row.key.as_bytes());
        self.bytes(row.id.as_bytes());
        self.number(row.shard.0.into());
        self.bytes(row.name.as_bytes());
        self.bytes(row.version.as_bytes());
        self.bytes(row.status.name().as_bytes());
        self.number(row.execution);
        self.number(u64::from(row.owed) << 1 | u64::from(row.full));
        self.maybe_number(row.wake_at_ms);
        self.json(row.blocked.as_ref());
        self.json(Some(&row.attributes));
        self.maybe_bytes(row.published.as_ref().map(|published| published.as_json().as_bytes()));
        self.json(row.parent.as_ref());
        self.number(row.created_ms);
        self.maybe_number(row.ended_ms);
        self.number(row.checksum.into());
    }

    fn task(&mut self, row: &TaskRow) {
        self.bytes(row.id.key.as_bytes());
        self.number(row.id.execution);
        self.number(row.id.event.0);
        self.number(row.shard.0.into());
        self.number(row.attempt.into());
        self.bytes(row.state.name().as_bytes());
        if let TaskState::Leased { holder, cancelled } = row.state {
            self.bytes(&holder.0.to_le_bytes());
            self.number(cancelled.into());
        }
        self.maybe_number(row.due_ms);
        self.maybe_number(row.since_ms);
        self.maybe_number(row.heard_ms);
        self.maybe_bytes(row.details.as_ref().map(|details| details.as_json().as_bytes()));
        self.number(row.interruptions.into());
        self.maybe_bytes(row.begun.map(|begun| begun.0.to_le_bytes()).as_ref().map(|begun| &begun[..]));
        self.json(Some(&row.past));
        self.bytes(row.name.as_bytes());
        self.maybe_bytes(row.tag.as_ref().map(|tag| tag.as_bytes()));
        self.maybe_bytes(row.work.as_deref());
    }
}

/// The mark that a move leaves in both stores, as a setting. While a store has it, no node and no lane can open a
/// session: nobody continues in both stores, or in one that has half of the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveMark {
    /// Identifies the move in both stores.
    pub id: String,
    /// Which of the two stores this is.
    pub side: MoveSide,
    /// The other store, as it may be shown: without a password.
    pub other: String,
    /// Whether all rows were moved and checked.
    pub is_done: bool,
}

/// A side of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveSide {
    /// The store that is moved.
    Source,
    /// The store that it is moved to.
    Target,
}

impl MoveMark {
    /// The name of the setting.
    pub const SETTING: &'static str = "move";

    /// Decodes the setting's value.
    pub fn decode(value: &[u8]) -> Result<MoveMark, StoreError> {
        let corrupt = |error| StoreError::CorruptRow(format!("the setting {:?}: {error}", MoveMark::SETTING));
        serde_json::from_slice(value).map_err(corrupt)
    }

    /// The setting's value.
    pub fn encode(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).expect("texts encode as JSON").into()
    }

    /// The error with which a store with this mark refuses to be used.
    pub fn refusal(value: &[u8]) -> StoreError {
        match MoveMark::decode(value) {
            Ok(mark) => StoreError::CannotOpen(mark.to_string()),
            Err(error) => error,
        }
    }
}

/// Says what happened to the store, and what to do.
impl fmt::Display for MoveMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = &self.other;
        match (self.side, self.is_done) {
            (MoveSide::Source, true) => write!(
                f,
                "this store was moved to {other}; use that one, or run `perennial move --reopen` to go on with this one"
            ),
            (MoveSide::Source, false) => write!(
                f,
                "this store is being moved to {other}; run the same `perennial move` again to finish, or `perennial move \
                 --reopen` to go on with this one"
            ),
            (MoveSide::Target, _) => write!(
                f,
                "this store has only a part of the rows of {other}, which is being moved here; run the same `perennial \
                 move` again to finish"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Payload, Started};

    fn digest<'r>(rows: impl IntoIterator<Item = &'r MovedRow>) -> RowDigest {
        let mut digest = RowDigest::default();
        rows.into_iter().for_each(|row| digest.add(row));
        digest
    }

    fn instance(id: &str) -> InstanceRow {
        let started = Started::new("n", "1.0.0", Payload::null(), 7);
        InstanceRow::pending(InstanceKey::new(1, 1), id, &started, 5)
    }

    #[test]
    fn n19_a_digest_is_the_same_in_any_order_and_changes_with_every_column() {
        let key = InstanceKey::new(1, 1);
        let turn = |number: u64, text: &str, checksum: u32| {
            MovedRow::Turn(key, TurnRow { execution: 1, number, bytes: text.as_bytes().into(), checksum })
        };
        let rows = [turn(1, "a", 1), turn(2, "b", 2), MovedRow::Instance(Box::new(instance("i")))];
        assert_eq!(digest(&rows), digest(rows.iter().rev()));
        assert_eq!(digest(&rows).rows, 3);
        for other in [turn(2, "b", 3), turn(2, "c", 2), turn(3, "b", 2)] {
            assert_ne!(digest([&rows[0], &other, &rows[2]]), digest(&rows));
        }
        let base = instance("i");
        let changed = [
            InstanceRow { owed: true, ..base.clone() },
            InstanceRow { full: true, ..base.clone() },
            InstanceRow { wake_at_ms: Some(0), ..base.clone() },
            InstanceRow { ended_ms: Some(0), ..base.clone() },
            InstanceRow { published: Some(Payload::null()), ..base.clone() },
            InstanceRow { version: "2".to_owned(), ..base.clone() },
            InstanceRow { execution: 2, ..base.clone() },
            InstanceRow { checksum: base.checksum ^ 1, ..base.clone() },
        ];
        let base = MovedRow::Instance(Box::new(base));
        for row in changed {
            assert_ne!(digest([&MovedRow::Instance(Box::new(row.clone()))]), digest([&base]), "{row:?}");
        }
    }
}
