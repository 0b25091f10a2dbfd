//! The threads that read, and what they read.
//!
//! Each has a connection of its own and keeps no transaction longer than one answer takes. They see every commit that
//! was answered before the question came.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perennial_core::store::{
    DueInstance, InboxNumber, InboxRow, InstanceRow, LoadedInstance, SessionId, StoreError,
};
use perennial_core::{InstanceKey, ShardId};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use crate::asks;
use crate::failure::unavailable;
use crate::list;
use crate::read_queue::Takes;
use crate::request::ReadRequest;
use crate::row::{COLUMNS, bound, read_instance, read_key, read_number, read_shard};
use crate::stats;
use crate::store::Shared;
use crate::tasks;
use crate::watchers::calling;

/// Messages of a session's shards, without those of blocked instances and without parked ones.
pub(crate) const INBOX: &str = "SELECT number, key, shard, body FROM inbox INDEXED BY inbox_unparked \
     WHERE parked = 0 AND number >= ?2 \
     AND EXISTS (SELECT 1 FROM shards WHERE shards.shard = inbox.shard AND session = ?1) \
     AND NOT EXISTS (SELECT 1 FROM instances INDEXED BY instances_blocked \
                     WHERE instances.key = inbox.key AND blocked IS NOT NULL) \
     ORDER BY number LIMIT ?3";
pub(crate) const DUE: &str = "SELECT key, shard, wake_at_ms FROM instances INDEXED BY instances_due \
     WHERE wake_at_ms < ?2 AND status < 2 AND (wake_at_ms, key) > (?3, ?4) \
     AND EXISTS (SELECT 1 FROM shards WHERE shards.shard = instances.shard AND session = ?1) \
     ORDER BY wake_at_ms, key LIMIT ?5";
pub(crate) const OWED: &str = "SELECT key, shard FROM instances INDEXED BY instances_owed \
     WHERE owed = 1 AND status < 2 AND key > ?2 \
     AND EXISTS (SELECT 1 FROM shards WHERE shards.shard = instances.shard AND session = ?1) \
     ORDER BY key LIMIT ?3";
pub(crate) const TURNS: &str =
    "SELECT body FROM turns WHERE key = ?1 AND execution = ?2 AND number > ?3 ORDER BY number LIMIT ?4";
pub(crate) const MESSAGES: &str = "SELECT number, key, shard, body FROM inbox WHERE key = ?1 ORDER BY number";

/// The row of an id.
pub(crate) fn by_id() -> String {
    format!("SELECT {COLUMNS} FROM instances WHERE id = ?1")
}

/// The row of a key.
pub(crate) fn by_key() -> String {
    format!("SELECT {COLUMNS} FROM instances WHERE key = ?1")
}

pub(crate) struct Reader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    pub(crate) takes: Takes,
}

impl Reader {
    /// Answers until the store is closed.
    pub(crate) fn run(self) {
        while let Some(request) = self.shared.reads.take(self.takes) {
            calling("a reply", || answer(&self.connection, &self.path, &self.shared, request));
        }
    }
}

/// Answers one question.
pub(crate) fn answer(connection: &Connection, path: &Path, shared: &Shared, request: ReadRequest) {
    if let Err(failure) = shared.health.check() {
        return request.refuse(failure);
    }
    let told = |fault: Fault| fault.explain(path);
    match request {
        ReadRequest::Inbox { session, from, limit, reply } => {
            reply.give(inbox(connection, session, from, limit).map_err(told));
        }
        ReadRequest::Due { session, before_ms, after, limit, reply } => {
            reply.give(due(connection, session, before_ms, after, limit).map_err(told));
        }
        ReadRequest::Owed { session, after, limit, reply } => {
            reply.give(owed(connection, session, after, limit).map_err(told));
        }
        ReadRequest::Find { id, reply } => reply.give(find(connection, &id).map_err(told)),
        ReadRequest::Load { key, after_turn, reply } => {
            reply.give(
                load(connection, key, after_turn).map_err(|fault| fault.of_instance(key)).map_err(told),
            );
        }
        ReadRequest::Turns { key, execution, after_turn, limit, reply } => {
            let turns = turns(connection, key, execution, after_turn, limit);
            reply.give(turns.map_err(|fault| fault.of_instance(key)).map_err(told));
        }
        ReadRequest::List { filter, after, limit, reply } => {
            reply.give(list::list(connection, &filter, after, limit).map_err(told));
        }
        ReadRequest::Count { filter, at_most, reply } => {
            reply.give(list::count(connection, &filter, at_most).map_err(told));
        }
        ReadRequest::Stats { reply } => {
            reply.give(stats::stats(connection, (shared.clock)()).map_err(told));
        }
        ReadRequest::Asks { session, from, limit, reply } => {
            reply.give(asks::read(connection, session, from, limit, (shared.clock)()).map_err(told));
        }
        ReadRequest::AnswerTo { number, reply } => {
            reply.give(asks::read_answer(connection, number).map_err(told));
        }
        ReadRequest::Note { name, reply } => reply.give(asks::read_note(connection, &name).map_err(told)),
    }
}

/// Why a question has no answer.
pub(crate) enum Fault {
    /// A row does not hold what it must.
    Row(StoreError),
    /// SQLite said so.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sqlite(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Row(error)
    }
}

impl Fault {
    pub(crate) fn corrupt(reason: String) -> Fault {
        Fault::Row(StoreError::CorruptRow(reason))
    }

    /// Damage that was met in reading one instance is that instance's.
    fn of_instance(self, key: InstanceKey) -> Fault {
        match self {
            Fault::Sqlite(error) if is_damage(&error) => {
                Fault::Row(StoreError::CorruptRow(format!("instance with key {key}: {error}")))
            }
            other => other,
        }
    }

    fn explain(self, path: &Path) -> StoreError {
        match self {
            Fault::Row(error) => error,
            Fault::Sqlite(error) if is_damage(&error) => StoreError::CorruptRow(error.to_string()),
            Fault::Sqlite(error) => unavailable(path, &error),
        }
    }
}

/// Whether the stored bytes are at fault.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
        // A column holds another type than it must.
        None => true,
    }
}

fn inbox(
    connection: &Connection,
    session: SessionId,
    from: InboxNumber,
    limit: usize,
) -> Result<Vec<InboxRow>, Fault> {
    let mut statement = connection.prepare_cached(INBOX)?;
    let rows = statement.query(params![session.0.to_be_bytes(), bound(from), at_most(limit)])?;
    collect(rows, message)
}

fn due(
    connection: &Connection,
    session: SessionId,
    before_ms: u64,
    after: Option<(u64, InstanceKey)>,
    limit: usize,
) -> Result<Vec<DueInstance>, Fault> {
    let mut statement = connection.prepare_cached(DUE)?;
    let (after_ms, after_key) = match &after {
        Some((after_ms, key)) => (bound(*after_ms), &key.as_bytes()[..]),
        None => (-1, &[][..]),
    };
    let rows = statement.query(params![
        session.0.to_be_bytes(),
        bound(before_ms),
        after_ms,
        after_key,
        at_most(limit)
    ])?;
    collect(rows, |row| {
        Ok(DueInstance {
            key: read_key(row, 0)?,
            shard: read_shard(row, 1)?,
            wake_at_ms: read_number(row, 2)?,
        })
    })
}

fn owed(
    connection: &Connection,
    session: SessionId,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, Fault> {
    let mut statement = connection.prepare_cached(OWED)?;
    let after: &[u8] = after.as_ref().map_or(&[], |after| after.as_bytes());
    let rows = statement.query(params![session.0.to_be_bytes(), after, at_most(limit)])?;
    collect(rows, |row| Ok((read_key(row, 0)?, read_shard(row, 1)?)))
}

fn find(connection: &Connection, id: &str) -> Result<Option<InstanceRow>, Fault> {
    let mut statement = connection.prepare_cached(&by_id())?;
    let row = statement.query_row([id], |row| Ok(read_instance(row))).optional()?;
    Ok(row.transpose()?)
}

fn load(connection: &Connection, key: InstanceKey, after_turn: u64) -> Result<Option<LoadedInstance>, Fault> {
    // Four statements that must see the same moment.
    let transaction = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(&by_key())?;
    let row = statement.query_row([key.as_bytes()], |row| Ok(read_instance(row))).optional()?;
    let Some(row) = row.transpose()? else {
        return Ok(None);
    };
    let turns = turns(connection, key, row.execution, after_turn, usize::MAX)?;
    let mut messages = connection.prepare_cached(MESSAGES)?;
    let inbox = collect(messages.query([key.as_bytes()])?, message)?;
    let tasks = tasks::load(connection, key, row.execution)?;
    transaction.finish()?;
    Ok(Some(LoadedInstance { row, turns, inbox, tasks }))
}

fn turns(
    connection: &Connection,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
    limit: usize,
) -> Result<Vec<Arc<[u8]>>, Fault> {
    let mut statement = connection.prepare_cached(TURNS)?;
    let rows =
        statement.query(params![key.as_bytes(), bound(execution), bound(after_turn), at_most(limit)])?;
    collect(rows, |row| bytes(row, 0))
}

fn message(row: &Row<'_>) -> Result<InboxRow, Fault> {
    Ok(InboxRow {
        number: read_number(row, 0)?,
        key: read_key(row, 1)?,
        shard: read_shard(row, 2)?,
        body: bytes(row, 3)?,
    })
}

pub(crate) fn bytes(row: &Row<'_>, column: usize) -> Result<Arc<[u8]>, Fault> {
    let bytes = row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(Arc::from(bytes))
}

pub(crate) fn collect<T>(
    mut rows: rusqlite::Rows<'_>,
    read: impl Fn(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut collected = Vec::new();
    while let Some(row) = rows.next()? {
        collected.push(read(row)?);
    }
    Ok(collected)
}

/// A limit as SQLite takes it.
pub(crate) fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
