//! Inspects a database from outside: nothing is created, migrated, locked for long or written.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

use perennial_core::shard::{BodyError, Message};
use perennial_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension};

use crate::check;
use crate::clock::Mark;
use crate::open::{beside, cannot_open, look};
use crate::owner_lock::Note;
use crate::reader::Fault;
use crate::schema::{self, CURRENT, Standing};

/// How many messages are checked.
const TRIED_MESSAGES: i64 = 10_000;
/// How many findings of a kind are listed.
const NAMED: usize = 20;

/// The result of inspecting a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The version of its schema; 0 if it is empty.
    pub schema: u32,
    /// The schema version that this build creates and requires.
    pub known_schema: u32,
    /// Who owns it.
    pub owner: Owner,
    /// The size of the database file in bytes.
    pub database_bytes: u64,
    /// The size of its write-ahead log in bytes.
    pub log_bytes: u64,
    /// Files that users other than the owner may read or write, with their permissions.
    pub open_files: Vec<(PathBuf, u32)>,
    /// Its content, if this build knows its schema.
    pub content: Option<Content>,
}

/// The owner of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A runtime, in the process with this id if it is known.
    Alive(Option<u32>),
    /// Nobody. The last owner, a runtime in the process with this id, did not shut down.
    Died(u32),
    /// Nobody.
    Nobody,
}

/// The content of a database that is not visible through the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// The id of the most overdue instance, and since when it is due.
    pub oldest_overdue: Option<(String, u64)>,
    /// Messages that cannot be read, up to a limit.
    pub unreadable: Vec<UnreadableMessage>,
    /// Damaged messages, tasks, requests and replies that belong to no instance, each with a description of the
    /// problem. Only the first rows of each table are examined.
    pub strays: Vec<(String, String)>,
    /// How many instances have an activity to run.
    pub owed: u64,
    /// Activities that wait for a process that can run them: name, tag and number, up to a limit.
    pub queued: Vec<(String, Option<String>, u64)>,
    /// How many messages a runtime would take immediately, without those of blocked instances and delayed starts.
    pub waiting: u64,
    /// The latest time that was written, by the store's clock, and how far that clock was ahead of the machine's then.
    pub clock: Option<(u64, u64)>,
}

/// A message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableMessage {
    /// Its number in the inbox.
    pub number: u64,
    /// The id of its instance; empty if there is no such instance.
    pub instance: String,
    /// Whether a newer engine wrote it, in which case it is intact.
    pub is_newer: bool,
}

/// Inspects a database from outside. It may be in use.
///
/// ```
/// use perennial_sqlite::{Owner, SqliteOptions, SqliteStore, inspect};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("shop.db");
/// let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
/// let found = inspect(&path, 0).unwrap();
/// assert_eq!(found.schema, found.known_schema);
/// assert_eq!(found.owner, Owner::Alive(Some(std::process::id())));
/// ```
pub fn inspect(path: &Path, now_ms: u64) -> Result<Inspection, StoreError> {
    let cannot = |why: String| StoreError::CannotOpen(format!("{}: {why}", path.display()));
    let path = fs::canonicalize(path).map_err(|error| cannot(format!("it cannot be found: {error}")))?;
    let log_bytes = bytes(&beside(&path, "-wal"));
    let connection = look(&path)?;
    let standing = schema::standing(&connection).map_err(|error| cannot_open(&path, &error))?;
    standing.check(&path)?;
    let schema = match standing {
        Standing::Older(version) => version,
        Standing::Current => CURRENT,
        _ => 0,
    };
    let content = (standing == Standing::Current).then(|| content(&connection, now_ms)).transpose();
    Ok(Inspection {
        schema: schema as u32,
        known_schema: CURRENT as u32,
        owner: owner(&path),
        database_bytes: bytes(&path),
        log_bytes,
        open_files: ["", "-wal", "-shm", "-lock"]
            .iter()
            .filter_map(|end| open_file(beside(&path, end)))
            .collect(),
        content: content.map_err(|error| cannot_open(&path, &error))?,
    })
}

fn content(connection: &Connection, now_ms: u64) -> rusqlite::Result<Content> {
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let oldest_overdue = connection
        .query_row(
            "SELECT id, wake_at_ms FROM instances INDEXED BY instances_due \
             WHERE wake_at_ms < ?1 AND status < 2 AND blocked IS NULL ORDER BY wake_at_ms LIMIT 1",
            [now_ms],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned())),
        )
        .optional()?;
    let owed: i64 = connection.query_row(
        "SELECT count(*) FROM instances INDEXED BY instances_owed WHERE owed = 1 AND status < 2",
        [],
        |row| row.get(0),
    )?;
    let mut tasks = connection.prepare(
        "SELECT name, tag, count(*) FROM tasks INDEXED BY tasks_by_state WHERE state = 0 GROUP BY name, tag LIMIT ?1",
    )?;
    let queued = tasks.query_map([NAMED as i64], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.cast_unsigned()))
    })?;
    let queued = queued.collect::<rusqlite::Result<Vec<_>>>()?;
    let waiting: i64 = connection.query_row(
        "SELECT count(*) FROM (SELECT 1 FROM inbox JOIN instances ON instances.key = inbox.key \
         WHERE blocked IS NULL AND NOT (status = 0 AND wake_at_ms IS NOT NULL AND wake_at_ms > ?1) LIMIT ?2)",
        [now_ms, TRIED_MESSAGES],
        |row| row.get(0),
    )?;
    let mut messages = connection.prepare(
        "SELECT number, coalesce((SELECT id FROM instances WHERE instances.key = inbox.key), ''), body \
         FROM inbox ORDER BY number LIMIT ?1",
    )?;
    let mut rows = messages.query([TRIED_MESSAGES])?;
    let mut unreadable = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| unreadable.len() < NAMED) {
        if let Err(error) = Message::decode(row.get_ref(2)?.as_blob()?) {
            unreadable.push(UnreadableMessage {
                number: row.get::<_, i64>(0)?.cast_unsigned(),
                instance: row.get(1)?,
                is_newer: matches!(error, BodyError::NewerEngine { .. }),
            });
        }
    }
    Ok(Content {
        oldest_overdue,
        unreadable,
        strays: strays(connection)?,
        queued,
        owed: owed.cast_unsigned(),
        waiting: waiting.cast_unsigned(),
        clock: Mark::read(connection)?.map(|mark| (mark.at_ms, mark.ahead_ms)),
    })
}

fn strays(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    match check::strays(connection, TRIED_MESSAGES.cast_unsigned() as usize) {
        Ok(found) => Ok(found.into_iter().map(|row| (row.what, row.problem)).take(NAMED).collect()),
        Err(Fault::Sqlite(error)) => Err(error),
        // Rows that cannot be read are part of the findings.
        Err(Fault::Row(_)) => Ok(Vec::new()),
    }
}

/// Who owns a database.
pub(crate) fn owner(path: &Path) -> Owner {
    let (note, is_alive) = last_owner(path);
    let process = note.map(|note| note.process);
    match (is_alive, process) {
        (true, process) => Owner::Alive(process),
        (false, Some(process)) => Owner::Died(process),
        (false, None) => Owner::Nobody,
    }
}

/// What the last owner wrote into the lock file, and whether it is alive. A runtime that shuts down empties the file, so
/// the lock itself is tested only if a runtime may be alive.
pub(crate) fn last_owner(path: &Path) -> (Option<Note>, bool) {
    let Ok(mut lock) = File::open(beside(path, "-lock")) else { return (None, false) };
    let mut text = String::new();
    if lock.read_to_string(&mut text).is_err() || text.trim().is_empty() {
        return (None, false);
    }
    (Note::parse(&text), matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[cfg(unix)]
fn open_file(path: PathBuf) -> Option<(PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some((path, mode))
}

#[cfg(not(unix))]
fn open_file(_: PathBuf) -> Option<(PathBuf, u32)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteOptions, SqliteStore};

    #[test]
    fn s9_a_look_finds_any_path_and_leaves_its_directory_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("50% of?what#ever.db");
        drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let names = || {
            let entries = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
            entries.collect::<std::collections::BTreeSet<_>>()
        };
        let (before, bytes) = (names(), fs::read(&path).unwrap());
        let found = inspect(&path, 0).unwrap();
        assert_eq!((found.schema, found.owner), (CURRENT as u32, Owner::Nobody));
        assert_eq!((names(), fs::read(&path).unwrap() == bytes), (before, true));
    }

    #[test]
    fn s9_a_look_reads_what_is_only_in_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute("INSERT INTO inbox (key, shard, body) VALUES (x'00', 0, x'00')", []).unwrap();
        let found = inspect(&path, 0).unwrap();
        assert!(found.log_bytes > 0);
        let damaged = UnreadableMessage { number: 1, instance: String::new(), is_newer: false };
        assert_eq!(found.content.unwrap().unreadable, [damaged]);
        drop(store);
    }
}
