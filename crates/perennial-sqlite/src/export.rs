//! Reads all rows of the store, for another one.
//!
//! Rows that belong to no instance stay behind: turns of deleted instances that are not swept yet, and damage.

use perennial_core::store::{
    MoveMark, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable, PageFill, PageLimit, TurnRow,
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql};

use crate::clock;
use crate::log_number;
use crate::passes::message;
use crate::reader::{Fault, bytes};
use crate::row::{self, bound, read_instance, read_key, read_number, read_shard};
use crate::shards::{maybe_bytes, read_gaps};
use crate::tasks;

pub(crate) const TURN_COLUMNS: &str = "key, execution, number, body, checksum";
pub(crate) const MESSAGE_COLUMNS: &str =
    "number, key, shard, arrived_ms, body, dedupe, parked, checksum, urgent";
const SHARD_COLUMNS: &str = "shard, unclean_ends, note, gaps, idle_since_ms";

/// The rows of a table after one.
pub(crate) fn after_sql(table: MovedTable) -> String {
    let of_instance =
        |table: &str| format!("EXISTS (SELECT 1 FROM instances WHERE instances.key = {table}.key)");
    match table {
        MovedTable::Instances => {
            format!("SELECT {} FROM instances WHERE key > ?1 ORDER BY key", row::COLUMNS)
        }
        MovedTable::Turns => format!(
            "SELECT {TURN_COLUMNS} FROM turns INDEXED BY turns_by_number WHERE (key, execution, number) > (?1, ?2, ?3) \
             AND {} ORDER BY key, execution, number",
            of_instance("turns")
        ),
        MovedTable::Messages => format!(
            "SELECT {MESSAGE_COLUMNS} FROM inbox WHERE number > ?1 AND {} ORDER BY number",
            of_instance("inbox")
        ),
        MovedTable::Tasks => format!(
            "SELECT {} FROM tasks INDEXED BY tasks_by_event WHERE (key, execution, event) > (?1, ?2, ?3) AND {} \
             ORDER BY key, execution, event",
            tasks::COLUMNS,
            of_instance("tasks")
        ),
        MovedTable::Continuations => format!(
            "SELECT key, execution, at_ms FROM continuations WHERE (key, execution) > (?1, ?2) AND {} \
             ORDER BY key, execution",
            of_instance("continuations")
        ),
        MovedTable::Shards => format!("SELECT {SHARD_COLUMNS} FROM shards WHERE shard > ?1 ORDER BY shard"),
        MovedTable::Settings => "SELECT name, value FROM settings WHERE name > ?1 ORDER BY name".to_owned(),
        MovedTable::Counters => {
            "SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'inbox'), 0)".to_owned()
        }
    }
}

/// One row of a table.
fn one_sql(key: &MovedKey) -> String {
    match key {
        MovedKey::Instance(_) => format!("SELECT {} FROM instances WHERE key = ?1", row::COLUMNS),
        MovedKey::Turn(..) => {
            format!("SELECT {TURN_COLUMNS} FROM turns WHERE key = ?1 AND execution = ?2 AND number = ?3")
        }
        MovedKey::Message(..) => format!("SELECT {MESSAGE_COLUMNS} FROM inbox WHERE number = ?1"),
        MovedKey::Task(_) => tasks::of_event(),
        MovedKey::Continuation(..) => {
            "SELECT key, execution, at_ms FROM continuations WHERE key = ?1 AND execution = ?2".to_owned()
        }
        MovedKey::Shard(_) => format!("SELECT {SHARD_COLUMNS} FROM shards WHERE shard = ?1"),
        MovedKey::Setting(_) => "SELECT name, value FROM settings WHERE name = ?1".to_owned(),
        MovedKey::LastMessage => after_sql(MovedTable::Counters),
    }
}

/// The parameters of both kinds of statements.
fn values(key: &MovedKey) -> Vec<Box<dyn ToSql>> {
    let number = |number: u64| -> Box<dyn ToSql> { Box::new(bound(number)) };
    match key {
        MovedKey::Instance(key) => vec![Box::new(*key.as_bytes())],
        MovedKey::Turn(key, execution, turn) => {
            vec![Box::new(*key.as_bytes()), number(*execution), number(*turn)]
        }
        MovedKey::Message(_, message, _) => vec![number(*message)],
        MovedKey::Task(id) => {
            vec![Box::new(*id.key.as_bytes()), number(id.execution), number(id.event.0)]
        }
        MovedKey::Continuation(key, execution) => vec![Box::new(*key.as_bytes()), number(*execution)],
        MovedKey::Shard(shard) => vec![Box::new(shard.0)],
        MovedKey::Setting(name) => vec![Box::new(name.clone())],
        MovedKey::LastMessage => Vec::new(),
    }
}

/// The parameters of a first page.
fn beginning(table: MovedTable) -> Vec<Box<dyn ToSql>> {
    let key = || -> Box<dyn ToSql> { Box::new(Vec::<u8>::new()) };
    match table {
        MovedTable::Instances => vec![key()],
        MovedTable::Turns | MovedTable::Tasks => vec![key(), Box::new(-1), Box::new(-1)],
        MovedTable::Messages | MovedTable::Shards => vec![Box::new(-1)],
        MovedTable::Continuations => vec![key(), Box::new(-1)],
        MovedTable::Settings => vec![Box::new("")],
        MovedTable::Counters => Vec::new(),
    }
}

pub(crate) fn export(
    connection: &Connection,
    table: MovedTable,
    after: Option<&MovedKey>,
    limit: PageLimit,
) -> Result<Vec<MovedRow>, Fault> {
    if after == Some(&MovedKey::LastMessage) {
        return Ok(Vec::new());
    }
    let values = after.map_or_else(|| beginning(table), values);
    let mut statement = connection.prepare_cached(&after_sql(table))?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut fill = PageFill::new(limit);
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let row = read(table, row)?;
        if is_private(&row) {
            continue;
        }
        if !fill.admits(row.weight()) {
            break;
        }
        page.push(row);
    }
    Ok(page)
}

/// The stored row with a key.
pub(crate) fn stored(
    connection: &Connection,
    table: MovedTable,
    key: &MovedKey,
) -> Result<Option<MovedRow>, Fault> {
    let mut statement = connection.prepare_cached(&one_sql(key))?;
    let found = statement.query_row(rusqlite::params_from_iter(values(key)), |row| Ok(read(table, row)));
    found.optional()?.transpose()
}

/// Rows that mean nothing to another store.
fn is_private(row: &MovedRow) -> bool {
    match row {
        MovedRow::Setting(name, _) => {
            [MoveMark::SETTING, clock::SETTING, log_number::SETTING].contains(&name.as_str())
        }
        MovedRow::Shard(row) => row.is_untouched(),
        _ => false,
    }
}

fn read(table: MovedTable, row: &Row<'_>) -> Result<MovedRow, Fault> {
    Ok(match table {
        MovedTable::Instances => MovedRow::Instance(Box::new(read_instance(row)?)),
        MovedTable::Turns => MovedRow::Turn(
            read_key(row, 0)?,
            TurnRow {
                execution: read_number(row, 1)?,
                number: read_number(row, 2)?,
                bytes: bytes(row, 3)?,
                checksum: row.get(4)?,
            },
        ),
        MovedTable::Messages => {
            MovedRow::Message(MovedMessage { row: message(row)?, dedupe: row.get(5)?, parked: row.get(6)? })
        }
        MovedTable::Tasks => MovedRow::Task(Box::new(tasks::read(row)?)),
        MovedTable::Continuations => {
            MovedRow::Continuation(read_key(row, 0)?, read_number(row, 1)?, read_number(row, 2)?)
        }
        MovedTable::Shards => MovedRow::Shard(MovedShard {
            shard: read_shard(row, 0)?,
            unclean_ends: u32::try_from(row.get::<_, i64>(1)?.max(0)).unwrap_or(u32::MAX),
            note: maybe_bytes(row, 2)?,
            gaps: read_gaps(row, 3)?,
            idle_since_ms: row::read_maybe_number(row, 4)?,
        }),
        MovedTable::Settings => MovedRow::Setting(row.get(0)?, bytes(row, 1)?),
        MovedTable::Counters => MovedRow::LastMessage(read_number(row, 0)?),
    })
}
