//! Messages and tasks of instances that do not exist.
//!
//! Deleting an instance deletes them with it, so there are none unless the file was damaged. Nobody would ever take
//! them; each sweep examines some rows and deletes the orphans among them.

use perennial_core::log;
use rusqlite::{Connection, Row, params};

use crate::passes::{self, MESSAGE_COLUMNS};
use crate::tasks;

/// How many rows one sweep examines.
const WINDOW: i64 = 1_000;

/// Where the next sweep continues, by table.
#[derive(Default)]
pub(crate) struct Orphans {
    messages_after: i64,
    tasks_after: i64,
}

/// The next rows of a table, whether each has an instance, and the columns that tell whether it is intact.
fn next_rows(table: &str, row: &str, columns: &str) -> String {
    format!(
        "SELECT {columns}, {row} AS place, EXISTS (SELECT 1 FROM instances WHERE instances.key = {table}.key) AS owned \
         FROM {table} WHERE {row} > ?1 ORDER BY {row} LIMIT ?2"
    )
}

impl Orphans {
    /// Examines the next rows of both tables; returns the orphaned messages and tasks.
    pub(crate) fn look(&mut self, connection: &Connection) -> rusqlite::Result<(Vec<i64>, Vec<i64>)> {
        let messages = next_rows("inbox", "number", MESSAGE_COLUMNS);
        let messages =
            look(connection, &messages, &mut self.messages_after, |row| passes::message(row).is_ok())?;
        let tasks = next_rows("tasks", "rowid", tasks::COLUMNS);
        let tasks = look(connection, &tasks, &mut self.tasks_after, |row| tasks::read(row).is_ok())?;
        Ok((messages, tasks))
    }
}

/// The orphans among the next rows. A damaged row may belong to somebody: it is left for people to examine.
fn look(
    connection: &Connection,
    sql: &str,
    after: &mut i64,
    is_sound: impl Fn(&Row<'_>) -> bool,
) -> rusqlite::Result<Vec<i64>> {
    let mut next = connection.prepare_cached(sql)?;
    let mut next = next.query([*after, WINDOW])?;
    let (mut seen, mut last, mut orphans) = (0, 0, Vec::new());
    while let Some(row) = next.next()? {
        (seen, last) = (seen + 1, row.get("place")?);
        if !row.get::<_, bool>("owned")? && is_sound(row) {
            orphans.push(last);
        }
    }
    // A short page is the last; the next sweep starts from the beginning.
    *after = if seen < WINDOW { 0 } else { last };
    Ok(orphans)
}

/// Deletes orphans.
pub(crate) fn delete(connection: &Connection, messages: &[i64], tasks: &[i64]) -> rusqlite::Result<u64> {
    let mut deleted = 0;
    let of_nobody = "NOT EXISTS (SELECT 1 FROM instances WHERE instances.key =";
    for (rows, sql) in [
        (messages, format!("DELETE FROM inbox WHERE number = ?1 AND {of_nobody} inbox.key)")),
        (tasks, format!("DELETE FROM tasks WHERE rowid = ?1 AND {of_nobody} tasks.key)")),
    ] {
        for row in rows {
            deleted += connection.prepare_cached(&sql)?.execute(params![row])? as u64;
        }
    }
    if deleted > 0 {
        tracing::error!(target: log::STORE, deleted, "messages and tasks without an instance deleted");
    }
    Ok(deleted)
}
