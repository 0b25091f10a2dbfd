//! A directory with a database in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial::InstanceKey;
use perennial::history::EventId;
use perennial_core::store::{Store, TaskId};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::invariants::{Snapshot, StoredRows, StoredTask};
use tempfile::TempDir;

use crate::support::{PATIENCE, milliseconds, now_ms};

pub(super) struct File {
    directory: TempDir,
    copies: AtomicUsize,
}

impl File {
    pub(super) fn new() -> File {
        File { directory: tempfile::tempdir().unwrap(), copies: AtomicUsize::new(0) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    pub(super) fn make(&self) {
        drop(SqliteStore::open(self.path(), SqliteOptions::default().relaxed(true)).unwrap());
    }

    pub(super) fn store(&self, now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Arc<dyn Store> {
        let options = SqliteOptions::default().relaxed(true).clock(now_ms);
        Arc::new(SqliteStore::open(self.path(), options).unwrap())
    }

    /// All rows of a copy, read by somebody else than who wrote them.
    pub(super) fn snapshot(&self) -> Snapshot {
        let copy = self.copy();
        let guest = SqliteStore::open_guest(&copy, SqliteOptions::default()).unwrap();
        let rows = stored_rows(&rusqlite::Connection::open(&copy).unwrap()).unwrap();
        Snapshot { rows: Some(rows), ..Snapshot::read(&guest).unwrap() }
    }

    /// All files of the directory: the database and its log.
    pub(super) fn stored_text(&self) -> String {
        let files = fs::read_dir(self.directory.path()).unwrap();
        let read = files.map(|file| fs::read(file.unwrap().path()).unwrap_or_default());
        read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
    }

    /// A copy of the database as it is at one moment.
    fn copy(&self) -> PathBuf {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let copy = self.directory.path().join(format!("copy-{number}.db"));
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        copy
    }

    pub(super) fn owned_until_ms(&self) -> u64 {
        let lock: &Path = &self.directory.path().join("shop.db-lock");
        let Ok(lock) = fs::File::open(lock) else { return 0 };
        match lock.try_lock() {
            Ok(()) => milliseconds(lock.metadata().unwrap().modified().unwrap()),
            Err(_) => now_ms(),
        }
    }
}

/// The rows beside the instances, of every table that names instances by their key.
fn stored_rows(connection: &rusqlite::Connection) -> rusqlite::Result<StoredRows> {
    let key = |row: &rusqlite::Row<'_>| row.get(0).map(InstanceKey::from_bytes);
    let number = |row: &rusqlite::Row<'_>, column| row.get(column).map(i64::cast_unsigned);
    let mut turns = connection.prepare("SELECT key, execution, number FROM turns")?;
    let turns = turns
        .query_map([], |row| Ok((key(row)?, number(row, 1)?, number(row, 2)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut inbox = connection.prepare("SELECT key, body FROM inbox")?;
    let inbox = inbox
        .query_map([], |row| Ok((key(row)?, Arc::from(row.get::<_, Vec<u8>>(1)?))))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut tables = connection.prepare(
        "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c ON c.name = 'key' \
         WHERE t.type = 'table' AND t.name NOT IN ('instances', 'turns', 'inbox', 'tasks')",
    )?;
    let tables = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let mut others = Vec::new();
    for table in tables {
        let mut keys = connection.prepare(&format!("SELECT key FROM {table}"))?;
        for found in keys.query_map([], key)? {
            others.push((table.clone(), found?));
        }
    }
    let mut tasks = connection.prepare(
        "SELECT key, execution, event, state = 1 AND cancelled = 1 AND due_ms IS NOT NULL FROM tasks",
    )?;
    let tasks = tasks
        .query_map([], |row| {
            let id = TaskId { key: key(row)?, execution: number(row, 1)?, event: EventId(number(row, 2)?) };
            Ok(StoredTask { id, is_marked: row.get(3)? })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut deadlines =
        connection.prepare("SELECT deadline_ms FROM requests UNION ALL SELECT deadline_ms FROM replies")?;
    let request_deadlines_ms =
        deadlines.query_map([], |row| number(row, 0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(StoredRows { turns, inbox, tasks, request_deadlines_ms, others })
}
