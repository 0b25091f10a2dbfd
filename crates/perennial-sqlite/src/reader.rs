//! The reader threads, and what they read.
//!
//! Each has its own connection and keeps a transaction no longer than one reply takes. They see every commit that was
//! acknowledged before the call arrived.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perennial_core::InstanceKey;
use perennial_core::log;
use perennial_core::store::{InstanceRow, LoadedInstance, PageFill, PageLimit, StoreError, TurnRow};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use crate::calls::ReadCall;
use crate::check;
use crate::directory;
use crate::export;
use crate::failure::unavailable;
use crate::list;
use crate::passes;
use crate::read_queue::Takes;
use crate::requests;
use crate::row::{COLUMNS, bound, read_instance, read_number};
use crate::shards;
use crate::stats;
use crate::store::Shared;
use crate::tasks;
use crate::watchers::calling;

/// A deleted instance has no turns, even if some are not swept yet.
pub(crate) const TURNS: &str = "SELECT number, body, checksum FROM turns \
     WHERE key = ?1 AND execution = ?2 AND number > ?3 \
     AND NOT EXISTS (SELECT 1 FROM graves WHERE graves.key = ?1) ORDER BY number";

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
    /// Serves calls until the store is closed.
    pub(crate) fn run(self) {
        while let Some(request) = self.shared.reads.take(self.takes) {
            calling("a reply", || answer(&self.connection, &self.path, &self.shared, request));
        }
    }
}

/// Serves one call.
pub(crate) fn answer(connection: &Connection, path: &Path, shared: &Shared, request: ReadCall) {
    if let Err(failure) = shared.health.check() {
        return request.refuse(failure);
    }
    let told = |fault: Fault| fault.explain(path);
    match request {
        ReadCall::Inbox { session, query, reply } => {
            reply.give(passes::inbox(connection, session, &query).map_err(told));
        }
        ReadCall::Due { session, shards, before_ms, after, limit, reply } => {
            reply.give(passes::due(connection, session, &shards, before_ms, after, limit).map_err(told));
        }
        ReadCall::Owed { session, shards, after, limit, reply } => {
            reply.give(passes::owed(connection, session, &shards, after, limit).map_err(told));
        }
        ReadCall::Blocked { session, shards, after, limit, reply } => {
            reply.give(passes::blocked(connection, session, &shards, after, limit).map_err(told));
        }
        ReadCall::Find { id, reply } => reply.give(find(connection, &id).map_err(told)),
        ReadCall::Load { key, after_turn, inbox, reply } => {
            let loaded = load(connection, key, after_turn, inbox);
            reply.give(loaded.map_err(|fault| fault.of_instance(key)).map_err(told));
        }
        ReadCall::Turns { key, execution, after_turn, limit, reply } => {
            let turns = turns(connection, key, execution, after_turn, limit);
            reply.give(turns.map_err(|fault| fault.of_instance(key)).map_err(told));
        }
        ReadCall::HeldTasks { holder, reply } => reply.give(tasks::held(connection, holder).map_err(told)),
        ReadCall::ShardOwner { shard, reply } => reply.give(shards::owner(connection, shard).map_err(told)),
        ReadCall::ListTasks { after, limit, reply } => {
            reply.give(tasks::list(connection, after, limit).map_err(told));
        }
        ReadCall::Directory { reply } => {
            reply.give(directory::read(connection, path, &shared.clock).map_err(told));
        }
        ReadCall::List { filter, after, limit, reply } => {
            reply.give(list::list(connection, &filter, after, limit).map_err(told));
        }
        ReadCall::Count { filter, at_most, reply } => {
            reply.give(list::count(connection, &filter, at_most).map_err(told));
        }
        ReadCall::Stats { reply } => {
            reply.give(stats::stats(connection, shared.clock.now_ms()).map_err(told));
        }
        ReadCall::Details { reply } => {
            reply.give(stats::details(connection, path).map_err(told));
        }
        ReadCall::Check { after, rows, reply } => {
            reply.give(check::check(connection, after, rows).map_err(told));
        }
        ReadCall::Requests { session, shards, from, limit, reply } => {
            let now_ms = shared.clock.now_ms();
            reply.give(requests::read(connection, session, &shards, from, limit, now_ms).map_err(told));
        }
        ReadCall::ReplyTo { number, reply } => {
            reply.give(requests::read_reply(connection, number).map_err(told));
        }
        ReadCall::Setting { name, reply } => {
            reply.give(requests::read_setting(connection, &name).map_err(told));
        }
        ReadCall::ExportRows { table, after, limit, reply } => {
            reply.give(export::export(connection, table, after.as_ref(), limit).map_err(told));
        }
    }
}

/// What happens with a damaged row among others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// The whole read fails.
    Refused,
    LeftOut,
}

/// Why a read failed.
pub(crate) enum Fault {
    /// A row contains invalid data.
    Row(StoreError),
    /// An error of SQLite.
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

    /// Attributes damage found while reading one instance to that instance.
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
        // A column contains a value of the wrong type.
        None => true,
    }
}

fn find(connection: &Connection, id: &str) -> Result<Option<InstanceRow>, Fault> {
    let mut statement = connection.prepare_cached(&by_id())?;
    // A damaged row is shown as such, so that it can be examined and ended.
    Ok(statement.query_row([id], |row| Ok(list::shown(row))).optional()?)
}

fn load(
    connection: &Connection,
    key: InstanceKey,
    after_turn: u64,
    inbox: PageLimit,
) -> Result<Option<LoadedInstance>, Fault> {
    // Several statements that must see the same snapshot.
    let transaction = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(&by_key())?;
    let row = statement.query_row([key.as_bytes()], |row| Ok(read_instance(row))).optional()?;
    let Some(row) = row.transpose()? else {
        return Ok(None);
    };
    let turns = turns(connection, key, row.execution, after_turn, PageLimit::rows(usize::MAX))?;
    // An ended instance takes no turns with its remaining rows. If damage in them failed the load, nobody would learn
    // that the instance has ended, and it would be blocked.
    let damaged = if row.status.is_final() { Damaged::LeftOut } else { Damaged::Refused };
    let inbox = passes::messages(connection, key, inbox, damaged)?;
    let tasks = match tasks::load(connection, key, row.execution).map_err(|fault| fault.of_instance(key)) {
        Err(Fault::Row(error)) if damaged == Damaged::LeftOut => {
            tracing::error!(target: log::STORE, %key, %error, "tasks of an ended instance cannot be read");
            Vec::new()
        }
        loaded => loaded?,
    };
    transaction.finish()?;
    Ok(Some(LoadedInstance { row, turns, inbox, tasks }))
}

fn turns(
    connection: &Connection,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
    limit: PageLimit,
) -> Result<Vec<TurnRow>, Fault> {
    let mut statement = connection.prepare_cached(TURNS)?;
    let mut rows = statement.query(params![key.as_bytes(), bound(execution), bound(after_turn)])?;
    let mut fill = PageFill::new(limit);
    let mut turns = Vec::new();
    while let Some(row) = rows.next()? {
        let bytes = bytes(row, 1)?;
        if !fill.admits(bytes.len()) {
            break;
        }
        turns.push(TurnRow { execution, number: read_number(row, 0)?, bytes, checksum: row.get(2)? });
    }
    Ok(turns)
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

/// The rows of a page. A damaged row is skipped, because nothing else may depend on it.
pub(crate) fn readable<T, E: Into<Fault>>(
    table: &str,
    row: &Row<'_>,
    rowid_column: usize,
    read: Result<T, E>,
) -> Option<T> {
    let fault = match read {
        Ok(value) => return Some(value),
        Err(fault) => fault.into(),
    };
    let reason = match fault {
        Fault::Row(error) => error.to_string(),
        Fault::Sqlite(error) => error.to_string(),
    };
    let rowid = row.get::<_, i64>(rowid_column).unwrap_or_default();
    tracing::error!(target: log::STORE, table, rowid, reason, "row cannot be read and is left out");
    None
}

/// A limit as SQLite takes it.
pub(crate) fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
