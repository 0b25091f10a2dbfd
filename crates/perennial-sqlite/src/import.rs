//! Writes rows of another store.

use perennial_core::store::{
    Imported, MoveMark, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable, SessionRole, TaskChange,
};
use rusqlite::Connection;
use rusqlite::params;

use crate::continuations;
use crate::export::stored;
use crate::requests;
use crate::row::{bound, json};
use crate::send::Stop;
use crate::tables::{Message, Tables};
use crate::tasks;

pub(crate) const RAISE_LAST_NUMBER: &str = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'inbox'";
pub(crate) const SET_LAST_NUMBER: &str = "INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?1)";
pub(crate) const PUT_SHARD: &str = "INSERT INTO shards (shard, epoch, unclean_ends, note, gaps, idle_since_ms) \
     VALUES (?1, 0, ?2, ?3, ?4, ?5) ON CONFLICT (shard) DO UPDATE SET unclean_ends = excluded.unclean_ends, \
     note = excluded.note, gaps = excluded.gaps, idle_since_ms = excluded.idle_since_ms";

/// Refuses sessions of nodes and lanes in a store with the mark of a move.
pub(crate) fn check_not_moved(connection: &Connection, role: SessionRole) -> Result<(), Stop> {
    match requests::read_setting(connection, MoveMark::SETTING)? {
        Some(mark) if role != SessionRole::Maintenance => Err(Stop::Row(MoveMark::refusal(&mark))),
        _ => Ok(()),
    }
}

pub(crate) fn import(tables: &mut Tables<'_>, rows: &[MovedRow]) -> Result<Imported, Stop> {
    let mut imported = Imported::default();
    for row in rows {
        if write(tables, row)? {
            imported.written += 1;
        } else if !is_stored(tables, row)? {
            imported.differs = Some(row.key());
            break;
        }
    }
    // Rows that nobody uses soon.
    tables.forget();
    Ok(imported)
}

fn is_stored(tables: &Tables<'_>, row: &MovedRow) -> Result<bool, Stop> {
    let stored = stored(tables.connection(), row.table(), &row.key())?;
    Ok(match (&stored, row) {
        // Numbers only grow.
        (Some(MovedRow::LastMessage(stored)), MovedRow::LastMessage(last)) => stored >= last,
        _ => stored.as_ref() == Some(row),
    })
}

/// Writes a row; `false` if there is one with its key, id, number or deduplication key.
fn write(tables: &mut Tables<'_>, row: &MovedRow) -> Result<bool, Stop> {
    let connection = tables.connection();
    let exists = |key: &MovedKey, table: MovedTable| Ok::<_, Stop>(stored(connection, table, key)?.is_some());
    match row {
        MovedRow::Instance(row) => Ok(tables.insert_instance(row)?),
        MovedRow::Turn(key, turn) => Ok(tables.insert_turn(*key, turn)?),
        MovedRow::Message(MovedMessage { row, dedupe, parked }) => {
            let message = Message {
                to: row.key,
                shard: row.shard,
                dedupe: dedupe.as_deref(),
                parked: *parked,
                urgent: row.urgent,
                body: &row.body,
            };
            Ok(tables.import_message(row.number, &message, row.arrived_ms)?)
        }
        MovedRow::Task(_) | MovedRow::Continuation(..) | MovedRow::Setting(..)
            if exists(&row.key(), row.table())? =>
        {
            Ok(false)
        }
        MovedRow::Task(row) => {
            tasks::change(connection, &TaskChange::Put(row.clone()))?;
            Ok(true)
        }
        MovedRow::Continuation(key, execution, at_ms) => {
            continuations::note(connection, *key, *execution, *at_ms)?;
            Ok(true)
        }
        MovedRow::Setting(name, value) => {
            requests::write_setting(connection, name, Some(value))?;
            Ok(true)
        }
        MovedRow::Shard(row) => write_shard(connection, row),
        MovedRow::LastMessage(last) => {
            let MovedRow::LastMessage(stored) =
                stored(connection, MovedTable::Counters, &MovedKey::LastMessage)?
                    .unwrap_or(MovedRow::LastMessage(0))
            else {
                return Ok(false);
            };
            if stored >= *last {
                return Ok(false);
            }
            let last = bound(*last);
            if connection.prepare_cached(RAISE_LAST_NUMBER)?.execute([last])? == 0 {
                connection.prepare_cached(SET_LAST_NUMBER)?.execute([last])?;
            }
            Ok(true)
        }
    }
}

/// Writes what is kept about a shard, if no lane has owned it here.
fn write_shard(connection: &Connection, row: &MovedShard) -> Result<bool, Stop> {
    let stored = stored(connection, MovedTable::Shards, &MovedKey::Shard(row.shard))?;
    if stored.is_some_and(|stored| stored != MovedRow::Shard(MovedShard::untouched(row.shard))) {
        return Ok(false);
    }
    let values = params![
        row.shard.0,
        row.unclean_ends,
        row.note.as_deref(),
        json(&row.gaps)?,
        row.idle_since_ms.map(bound)
    ];
    connection.prepare_cached(PUT_SHARD)?.execute(values)?;
    Ok(true)
}
