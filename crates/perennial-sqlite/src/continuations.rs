//! When executions were continued as new, and pruning by that time.
//!
//! A row records when an execution other than the first started, which is when the previous one was continued. Rows are
//! kept as long as turns before their execution may be stored, so that a search for old executions finds only those
//! with turns to delete.

use perennial_core::InstanceKey;
use perennial_core::store::Swept;
use rusqlite::{Connection, OptionalExtension, params};

use crate::delete;
use crate::reader::at_most;
use crate::row::{bound, exact};

pub(crate) const NOTE: &str = "INSERT INTO continuations (key, execution, at_ms) VALUES (?1, ?2, ?3) \
     ON CONFLICT (key, execution) DO UPDATE SET at_ms = excluded.at_ms";
pub(crate) const OLDEST: &str = "SELECT key, execution FROM continuations INDEXED BY continuations_by_time \
     WHERE at_ms <= ?1 ORDER BY at_ms LIMIT 1";
pub(crate) const FORGET: &str = "DELETE FROM continuations WHERE key = ?1 AND execution = ?2";
pub(crate) const FORGET_UP_TO: &str = "DELETE FROM continuations WHERE key = ?1 AND execution <= ?2";
/// Those of a deleted instance, a limited number at a time.
pub(crate) const FORGET_SOME: &str = "DELETE FROM continuations WHERE key = ?1 AND execution IN \
     (SELECT execution FROM continuations WHERE key = ?1 LIMIT ?2)";
pub(crate) const ANY_OF: &str = "SELECT 1 FROM continuations WHERE key = ?1 LIMIT 1";

/// Records that an execution started, and the previous one was continued.
pub(crate) fn note(
    connection: &Connection,
    key: InstanceKey,
    execution: u64,
    now_ms: u64,
) -> rusqlite::Result<()> {
    let values = params![key.as_bytes(), exact(execution)?, bound(now_ms)];
    connection.prepare_cached(NOTE)?.execute(values).map(drop)
}

/// Handles that turns before an execution were pruned.
pub(crate) fn pruned(connection: &Connection, key: &[u8], before: i64) -> rusqlite::Result<()> {
    connection.prepare_cached(FORGET_UP_TO)?.execute(params![key, before]).map(drop)
}

/// Deletes some rows of a deleted instance; returns whether there are more.
pub(crate) fn bury(connection: &Connection, key: &[u8], rows: usize) -> rusqlite::Result<bool> {
    connection.prepare_cached(FORGET_SOME)?.execute(params![key, at_most(rows)])?;
    connection.prepare_cached(ANY_OF)?.exists([key])
}

/// Whether an execution was continued so long ago that it is not kept.
pub(crate) fn any_before(connection: &Connection, before_ms: i64) -> rusqlite::Result<bool> {
    connection.prepare_cached(OLDEST)?.exists([before_ms])
}

/// Deletes a limited number of turns of executions that were continued by a time, oldest first.
pub(crate) fn sweep(connection: &Connection, before_ms: i64, rows: usize) -> rusqlite::Result<Swept> {
    let mut swept = Swept::default();
    // Rows without turns are deleted along the way; they count towards the limit, so that many of them do not make the
    // transaction long.
    for _ in 0..=rows {
        let mut oldest = connection.prepare_cached(OLDEST)?;
        let found = oldest.query_row([before_ms], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((key, execution)): Option<(Vec<u8>, i64)> = found else { return Ok(swept) };
        let left = rows - usize::try_from(swept.rows).unwrap_or(rows);
        let pruned = delete::prune(connection, &key, execution, left)?;
        swept.rows += pruned.rows;
        if pruned.more {
            return Ok(Swept { more: true, ..swept });
        }
        // A row for an execution that the instance has not reached would be found again and again.
        connection.prepare_cached(FORGET)?.execute(params![key, execution])?;
    }
    Ok(Swept { more: any_before(connection, before_ms)?, ..swept })
}
