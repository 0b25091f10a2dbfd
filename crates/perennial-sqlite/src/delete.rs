//! Deletes ended instances, and rows that are no longer needed.
//!
//! An instance with many turns disappears immediately: its row, its id, its messages, tasks and requests. Its turns are
//! left to sweeps, each of which deletes a limited number; until then its key is in `graves`, where reads and writes of
//! turns look it up.

use std::collections::VecDeque;

use perennial_core::InstanceKey;
use perennial_core::store::{DeleteOutcome, Outgoing, Swept};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::attributes;
use crate::calls::Sweep;
use crate::continuations;
use crate::reader::{at_most, by_key};
use crate::requests::{SWEEP_REPLIES, SWEEP_REQUESTS, any_past_deadline};
use crate::row::{bound, read_instance};

/// With more turns than this, the others are left to sweeps.
const TURNS_AT_ONCE: usize = 1_000;

/// The status is checked in the same statement, so that nothing can come in between.
pub(crate) const DELETE_ENDED: &str = "DELETE FROM instances WHERE key = ?1 AND status >= 2";
pub(crate) const DELETE_DAMAGED: &str = "DELETE FROM instances WHERE key = ?1";
pub(crate) const ENDED_CHILDREN: &str = "SELECT key FROM instances INDEXED BY instances_by_parent \
     WHERE parent_key = ?1 AND parent_key IS NOT NULL AND status >= 2 ORDER BY key LIMIT ?2";
/// The rows of an instance besides its own row and its turns. Replies belong to their readers, and are swept.
pub(crate) const DELETE_ROWS: [&str; 4] = [
    "DELETE FROM inbox WHERE key = ?1",
    "DELETE FROM tasks WHERE key = ?1",
    "DELETE FROM requests WHERE key = ?1",
    attributes::DELETE,
];
pub(crate) const DELETE_TURNS: &str = "DELETE FROM turns WHERE rowid IN (SELECT rowid FROM turns \
     WHERE key = ?1 AND execution < ?2 ORDER BY execution, number LIMIT ?3)";
pub(crate) const ANY_TURN: &str = "SELECT 1 FROM turns WHERE key = ?1 AND execution < ?2 LIMIT 1";
pub(crate) const EXECUTION: &str = "SELECT execution FROM instances WHERE key = ?1";
pub(crate) const BURY: &str = "INSERT INTO graves (key) VALUES (?1) ON CONFLICT (key) DO NOTHING";
pub(crate) const IS_BURIED: &str = "SELECT 1 FROM graves WHERE key = ?1";
pub(crate) const ANY_GRAVE: &str = "SELECT key FROM graves LIMIT 1";
pub(crate) const CLOSE_GRAVE: &str = "DELETE FROM graves WHERE key = ?1";

pub(crate) fn delete(connection: &Connection, key: InstanceKey) -> rusqlite::Result<DeleteOutcome> {
    let bytes = key.as_bytes();
    if connection.prepare_cached(DELETE_ENDED)?.execute([bytes])? == 0 {
        let mut row = connection.prepare_cached(&by_key())?;
        let is_sound = |row: &Row<'_>| Ok(read_instance(row).is_ok_and(|row| row.is_sound()));
        match row.query_row([bytes], is_sound).optional()? {
            None => return Ok(DeleteOutcome::Gone),
            Some(true) => return Ok(DeleteOutcome::NotEnded),
            Some(false) => connection.prepare_cached(DELETE_DAMAGED)?.execute([bytes])?,
        };
    }
    for sql in DELETE_ROWS {
        connection.prepare_cached(sql)?.execute([bytes])?;
    }
    delete_turns(connection, bytes, i64::MAX, TURNS_AT_ONCE)?;
    let has_continuations = continuations::bury(connection, bytes, TURNS_AT_ONCE)?;
    if has_continuations || any_turn(connection, bytes, i64::MAX)? {
        connection.prepare_cached(BURY)?.execute([bytes])?;
    }
    Ok(DeleteOutcome::Deleted)
}

/// Deletes an ended instance and its ended descendants, up to a limit.
pub(crate) fn delete_family(connection: &Connection, key: InstanceKey) -> rusqlite::Result<()> {
    if delete(connection, key)? != DeleteOutcome::Deleted {
        return Ok(());
    }
    let (mut parents, mut left) = (VecDeque::from([key]), Outgoing::CHILDREN_DELETED);
    while let Some(parent) = parents.pop_front() {
        let mut ended = connection.prepare_cached(ENDED_CHILDREN)?;
        let keys = ended.query_map(params![parent.to_string(), at_most(left)], |row| row.get(0))?;
        let children = keys.map(|key| key.map(InstanceKey::from_bytes));
        let children = children.collect::<rusqlite::Result<Vec<InstanceKey>>>()?;
        left -= children.len();
        for child in children {
            delete(connection, child)?;
            parents.push_back(child);
        }
    }
    Ok(())
}

/// Deletes turns of executions before one, but never of the current one.
pub(crate) fn prune(
    connection: &Connection,
    key: &[u8],
    execution: i64,
    rows: usize,
) -> rusqlite::Result<Swept> {
    let current = connection.prepare_cached(EXECUTION)?.query_row([key], |row| row.get(0)).optional()?;
    let Some(current) = current else { return Ok(Swept::default()) };
    let before = execution.min(current);
    let rows = delete_turns(connection, key, before, rows)?;
    let more = any_turn(connection, key, before)?;
    if !more {
        continuations::pruned(connection, key, before)?;
    }
    Ok(Swept { rows: rows as u64, more })
}

/// Whether a sweep would find something.
pub(crate) fn any_to_sweep(connection: &Connection, sweep: &Sweep, now_ms: u64) -> rusqlite::Result<bool> {
    let is_old = |by_ms| continuations::any_before(connection, by_ms);
    Ok(any_past_deadline(connection, now_ms)?
        || any_grave(connection)?
        || sweep.continued_by(now_ms).map_or(Ok(false), is_old)?)
}

/// Whether a deleted instance has turns left.
pub(crate) fn any_grave(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached(ANY_GRAVE)?.exists([])
}

pub(crate) fn is_buried(connection: &Connection, key: InstanceKey) -> rusqlite::Result<bool> {
    connection.prepare_cached(IS_BURIED)?.exists([key.as_bytes()])
}

/// Deletes a limited number of rows that are no longer needed.
pub(crate) fn sweep(connection: &Connection, sweep: &Sweep, now_ms: u64) -> rusqlite::Result<Swept> {
    let mut left = sweep.rows;
    for sql in [SWEEP_REQUESTS, SWEEP_REPLIES] {
        left -= connection.prepare_cached(sql)?.execute(params![bound(now_ms), at_most(left)])?;
    }
    while left > 0 {
        let mut graves = connection.prepare_cached(ANY_GRAVE)?;
        let grave: Option<Vec<u8>> = graves.query_row([], |row| row.get(0)).optional()?;
        let Some(key) = grave else { break };
        left -= delete_turns(connection, &key, i64::MAX, left)?;
        let has_continuations = continuations::bury(connection, &key, TURNS_AT_ONCE)?;
        if has_continuations {
            break;
        }
        if !any_turn(connection, &key, i64::MAX)? {
            connection.prepare_cached(CLOSE_GRAVE)?.execute([key])?;
        }
    }
    let mut more = any_past_deadline(connection, now_ms)? || any_grave(connection)?;
    if let Some(by_ms) = sweep.continued_by(now_ms) {
        let executions = continuations::sweep(connection, by_ms, left)?;
        left -= usize::try_from(executions.rows).unwrap_or(left);
        more |= executions.more;
    }
    Ok(Swept { rows: (sweep.rows - left) as u64, more })
}

fn delete_turns(connection: &Connection, key: &[u8], before: i64, rows: usize) -> rusqlite::Result<usize> {
    connection.prepare_cached(DELETE_TURNS)?.execute(params![key, before, at_most(rows)])
}

fn any_turn(connection: &Connection, key: &[u8], before: i64) -> rusqlite::Result<bool> {
    connection.prepare_cached(ANY_TURN)?.exists(params![key, before])
}
