//! Deletes instances that have ended, with everything that is theirs.

use perennial_core::InstanceKey;
use perennial_core::store::DeleteOutcome;
use rusqlite::Connection;

use crate::attributes;
use crate::tables::INSTANCE_EXISTS;

/// Whether it has ended is asked here, where nothing can come between.
pub(crate) const DELETE_ENDED: &str = "DELETE FROM instances WHERE key = ?1 AND status >= 2";
/// What an instance has beside its row. Answers are their askers', and swept.
pub(crate) const DELETE_ROWS: [&str; 5] = [
    "DELETE FROM turns WHERE key = ?1",
    "DELETE FROM inbox WHERE key = ?1",
    "DELETE FROM tasks WHERE key = ?1",
    "DELETE FROM asks WHERE key = ?1",
    attributes::DELETE,
];

pub(crate) fn delete(connection: &Connection, key: InstanceKey) -> rusqlite::Result<DeleteOutcome> {
    let key = key.as_bytes();
    if connection.prepare_cached(DELETE_ENDED)?.execute([key])? == 0 {
        let exists = connection.prepare_cached(INSTANCE_EXISTS)?.exists([key])?;
        return Ok(if exists { DeleteOutcome::NotEnded } else { DeleteOutcome::Gone });
    }
    for sql in DELETE_ROWS {
        connection.prepare_cached(sql)?.execute([key])?;
    }
    Ok(DeleteOutcome::Deleted)
}
