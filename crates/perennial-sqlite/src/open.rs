//! Prepares a path: checks it, creates the file with private permissions, and opens connections.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perennial_core::log;
use perennial_core::store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::checkpoint::{lay_out_log, move_log};
use crate::clock::{Mark, StoreClock};
use crate::connection::{begin_immediate, wait_out};
use crate::identity::{Identity, refuse_second_names};
use crate::inspect::{self, Owner};
use crate::log_number;
use crate::options::SqliteOptions;
use crate::owner_lock::OwnerLock;
use crate::row::readable_key;
use crate::schema::{self, Standing};
use crate::sessions;
use crate::tables::DATA_VERSION;

/// The path of a database in memory.
pub(crate) const IN_MEMORY: &str = ":memory:";

/// The log is cut to this size when it is begun again: a reader that kept it from being moved may have let it grow.
const LOG_BYTES_KEPT: u64 = 16 << 20;

/// Room for all statements that a connection prepares when it first needs them.
const PREPARED_STATEMENTS: usize = 64;

/// The parts of an opened store, for its threads.
pub(crate) struct Opened {
    /// The database's real path.
    pub(crate) path: PathBuf,
    /// The connection that writes.
    pub(crate) writer: Connection,
    /// The writer's data version: later changes are news.
    pub(crate) data_version: i64,
    /// Connections that read; none in memory, where the only connection does both.
    pub(crate) readers: Vec<Connection>,
    /// The owner's lock.
    pub(crate) lock: Option<OwnerLock>,
    /// The number of the log, if it is noted in the lock file.
    pub(crate) log_number: Option<u64>,
    /// The opened files; none in memory and for reading.
    pub(crate) identity: Identity,
    /// The clock of everybody who uses the store.
    pub(crate) clock: StoreClock,
    /// The time written in the file.
    pub(crate) mark: Option<Mark>,
}

/// Opens the file as its owner.
pub(crate) fn owner(path: &Path, options: &SqliteOptions) -> Result<Opened, StoreError> {
    let path = existing_file(path, options.create)?;
    refuse_second_names(&path)?;
    refuse_foreign(&path)?;
    let mut lock = OwnerLock::take(&path)?;
    if let Some(noted) = lock.left().and_then(|note| note.log_number) {
        log_number::check(&path, noted)?;
    }
    let writer = writer(&path, options, schema::Role::Owner)?;
    // The sync of the last commits may have failed: they can be read, and would be lost with the power.
    let patience = lock.left().map_or(Duration::ZERO, |_| options.busy_patience);
    let is_moved = move_log(&writer, patience).map_err(|error| cannot_open(&path, &error))?;
    if !is_moved && lock.left().is_some() {
        let why = "another process reads an old state of the file, so that what the last owner left in the log cannot be \
                   made durable; end that process";
        return Err(StoreError::CannotOpen(format!("{}: {why}", path.display())));
    }
    let log_number = log_number::read(&writer).map_err(|error| cannot_open(&path, &error))?;
    let log_number = (!options.relaxed).then_some(log_number);
    lock.sign(log_number).map_err(|error| {
        StoreError::CannotOpen(format!("the lock file of {} cannot be written: {error}", path.display()))
    })?;
    end_sessions(&writer, options.busy_patience).map_err(|error| cannot_open(&path, &error))?;
    name_odd_rows(&writer).map_err(|error| cannot_open(&path, &error))?;
    if options.relaxed {
        let path = path.display();
        tracing::warn!(
            target: log::STORE,
            %path,
            "store opened as relaxed: a power failure may lose the last acknowledged commits"
        );
    } else {
        lay_out_log(&writer, &beside(&path, "-wal"), options.busy_patience)
            .map_err(|error| cannot_open(&path, &error))?;
    }
    let readers = vec![reader(&path)?, reader(&path)?];
    let data_version = data_version(&path, &writer)?;
    let mark = Mark::read(&writer).map_err(|error| cannot_open(&path, &error))?;
    let clock = StoreClock::of_owner(options, &path, mark);
    let identity = Identity::of(&path, true);
    Ok(Opened { path, writer, data_version, readers, lock: Some(lock), log_number, identity, clock, mark })
}

/// Refuses a file of another program before a lock file is created next to it. A file that cannot be judged without
/// writing, such as one whose creation was interrupted by a crash, is judged once the lock is held.
fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    match schema::standing(&look(path)?) {
        Ok(standing) => standing.check(path),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(cannot_open(path, &error))
        }
        Err(_) => Ok(()),
    }
}

/// The holder of the lock knows that the sessions of earlier owners are dead.
fn end_sessions(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    begin_immediate(connection, patience)?;
    let ended = sessions::end_all(connection);
    connection.execute_batch(if ended.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    ended
}

/// Replaces keys that are damaged beyond reading with the key that lists show for them. The checksum does not cover
/// that key, so each such instance is blocked as damaged, and can be terminated and deleted.
fn name_odd_rows(connection: &Connection) -> rusqlite::Result<()> {
    let odd = "SELECT rowid, key FROM instances INDEXED BY instances_odd WHERE length(key) <> 16";
    let mut odd = connection.prepare(odd)?;
    let rows = odd.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    for (rowid, key) in rows.collect::<rusqlite::Result<Vec<_>>>()? {
        let named = "UPDATE OR IGNORE instances SET key = ?2, owed = 1 WHERE rowid = ?1";
        connection.execute(named, rusqlite::params![rowid, readable_key(&key).as_bytes()])?;
        tracing::error!(target: log::STORE, rowid, "key of an instance is damaged");
    }
    Ok(())
}

/// Opens the file as a guest, which reads and sends messages beside its owner.
pub(crate) fn guest(path: &Path, options: &SqliteOptions) -> Result<Opened, StoreError> {
    let path = existing_file(path, options.create)?;
    refuse_second_names(&path)?;
    if let (Some(note), false) = inspect::last_owner(&path)
        && let Some(noted) = note.log_number
    {
        log_number::check(&path, noted)?;
    }
    let writer = writer(&path, options, schema::Role::Guest)?;
    let readers = vec![reader(&path)?, reader(&path)?];
    let data_version = data_version(&path, &writer)?;
    let mark = Mark::read(&writer).map_err(|error| cannot_open(&path, &error))?;
    let clock = StoreClock::of_guest(options, &path, mark);
    let identity = Identity::of(&path, false);
    Ok(Opened { path, writer, data_version, readers, lock: None, log_number: None, identity, clock, mark })
}

/// Opens the file read-only. Nothing is written to it, and no file is created next to it unless SQLite has to recover a
/// log after a crash. A file without a log is read as it is: if an owner starts meanwhile, its writes are not seen, so
/// this is for short reads.
pub(crate) fn read_only(path: &Path, options: &SqliteOptions) -> Result<Opened, StoreError> {
    let path = existing_file(path, false)?;
    let writer = look(&path)?;
    let standing = schema::standing(&writer).map_err(|error| cannot_open(&path, &error))?;
    standing.check(&path)?;
    if standing != Standing::Current {
        let why = "its tables are missing or of an older version; start a runtime on it first";
        return Err(StoreError::CannotOpen(format!("{}: {why}", path.display())));
    }
    let readers = vec![look(&path)?, look(&path)?];
    let data_version = data_version(&path, &writer)?;
    let mark = Mark::read(&writer).map_err(|error| cannot_open(&path, &error))?;
    let clock = StoreClock::of_guest(options, &path, mark);
    let (log_number, identity) = (None, Identity::default());
    Ok(Opened { path, writer, data_version, readers, lock: None, log_number, identity, clock, mark })
}

/// A connection that cannot write. SQLite would create the files that it shares with others; if nobody else uses the
/// database and its log is empty, it is told that there is nothing to share.
pub(crate) fn look(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let log_bytes = fs::metadata(beside(path, "-wal")).map_or(0, |metadata| metadata.len());
    if log_bytes == 0 && !matches!(inspect::owner(path), Owner::Alive(_)) && path.to_str().is_some() {
        return alone(path);
    }
    let connection = Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, &error))?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    Ok(connection)
}

/// A connection that reads the file without its log.
pub(crate) fn alone(path: &Path) -> Result<Connection, StoreError> {
    let Some(name) = path.to_str() else {
        return Err(StoreError::CannotOpen(format!("{}: the path is not UTF-8", path.display())));
    };
    let escaped = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let opened = Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags);
    let connection = opened.map_err(|error| cannot_open(path, &error))?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    Ok(connection)
}

/// Opens a database that exists only as long as its connection.
pub(crate) fn in_memory(options: &SqliteOptions) -> Result<Opened, StoreError> {
    let path = PathBuf::from(IN_MEMORY);
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_in_memory()?;
        connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
        configure(&connection, options)?;
        schema::create(&connection)?;
        Ok(connection)
    };
    let writer = open().map_err(|error| cannot_open(&path, &error))?;
    let data_version = data_version(&path, &writer)?;
    let clock = StoreClock::of_owner(options, &path, None);
    let (readers, identity) = (Vec::new(), Identity::default());
    Ok(Opened {
        path,
        writer,
        data_version,
        readers,
        lock: None,
        log_number: None,
        identity,
        clock,
        mark: None,
    })
}

fn data_version(path: &Path, writer: &Connection) -> Result<i64, StoreError> {
    writer.query_row(DATA_VERSION, [], |row| row.get(0)).map_err(|error| cannot_open(path, &error))
}

/// The path of a file next to the database.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(suffix);
    PathBuf::from(path)
}

/// Makes a file that this program created accessible to its user only, regardless of the umask.
#[cfg(unix)]
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

/// On other platforms files inherit their permissions.
#[cfg(not(unix))]
pub(crate) fn make_private(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Ensures that the file exists, and returns its canonical path: two names of one file must lead to one lock.
///
/// An existing file is never opened here: closing it would silently release the locks that SQLite holds on it for other
/// connections of this process. So that a file that is being created is not in use yet, one thread creates files at a
/// time.
fn existing_file(path: &Path, create: bool) -> Result<PathBuf, StoreError> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let refuse = |why: String| Err(StoreError::CannotOpen(format!("{}: {why}", path.display())));
    if path.as_os_str().is_empty() {
        return refuse("the path is empty".to_owned());
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return refuse("this is a directory, not a file".to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => match make_file(path) {
            Ok(()) => {}
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return refuse(why_not_made(path, &error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refuse("there is no such file".to_owned());
        }
        Err(error) => return refuse(format!("the file cannot be reached: {error}")),
    }
    fs::canonicalize(path).or_else(|error| refuse(format!("the path cannot be resolved: {error}")))
}

fn make_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    make_private(&options.open(path)?)
}

fn why_not_made(path: &Path, error: &io::Error) -> String {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.exists() => {
            format!("the directory {} does not exist; create it first", directory.display())
        }
        _ => format!("the file cannot be created: {error}"),
    }
}

fn writer(path: &Path, options: &SqliteOptions, role: schema::Role) -> Result<Connection, StoreError> {
    let connection = connect(path)?;
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(|error| cannot_open(path, &error))? {
        let why = "the file cannot be written by this user; check its permissions";
        return Err(StoreError::CannotOpen(format!("{}: {why}", path.display())));
    }
    let standing = schema::standing(&connection).map_err(|error| cannot_open(path, &error))?;
    standing.check(path)?;
    configure(&connection, options).map_err(|error| cannot_open(path, &error))?;
    use_wal(&connection, path, options.busy_patience)?;
    if standing != Standing::Current {
        schema::migrate(&connection, path, role, options.busy_patience)?;
    }
    if !options.relaxed && (role == schema::Role::Owner || standing != Standing::Current) {
        sync_directory(path)?;
    }
    // From here on this program does its own waiting, with constant pauses.
    connection.busy_timeout(Duration::ZERO).map_err(|error| cannot_open(path, &error))?;
    Ok(connection)
}

/// Makes the names of the files durable: that of a new database, and that the journal of its creation is gone. SQLite deletes
/// that journal without a sync of the directory; if it came back after a power failure, the whole database would be rolled
/// back to its creation.
#[cfg(unix)]
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let Some(directory) = path.parent() else { return Ok(()) };
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // A file system without syncs of directories.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced.map_err(|error| {
            let why = format!("its directory cannot be synced: {error}; check the disk");
            StoreError::CannotOpen(format!("{}: {why}", path.display()))
        }),
    }
}

/// On other platforms names are durable with their files.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> Result<(), StoreError> {
    Ok(())
}

fn reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path)?;
    connection
        .execute_batch("PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192")
        .map_err(|error| cannot_open(path, &error))?;
    Ok(connection)
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    // Not as a URI: a path is taken literally, whatever characters it contains.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, &error))?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    Ok(connection)
}

fn configure(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let synchronous = if options.relaxed { "NORMAL" } else { "FULL" };
    connection.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=0; PRAGMA temp_store=MEMORY; \
         PRAGMA cache_size=-32768; PRAGMA trusted_schema=OFF; PRAGMA journal_size_limit={LOG_BYTES_KEPT}"
    ))?;
    if let Some(pages) = options.max_pages {
        connection.execute_batch(&format!("PRAGMA max_page_count={pages}"))?;
    }
    Ok(())
}

/// Switches to a write-ahead log. SQLite does not wait for others that switch at the same moment, so this does.
fn use_wal(connection: &Connection, path: &Path, patience: Duration) -> Result<(), StoreError> {
    let switch = || -> rusqlite::Result<String> {
        let mut statement = connection.prepare("PRAGMA journal_mode=WAL")?;
        let mut rows = statement.query([])?;
        // The switch is committed after its row was returned: whoever reads only the row does not learn that it failed.
        while rows.next()?.is_some() {}
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))
    };
    match wait_out(patience, switch) {
        Ok(mode) if mode == "wal" => Ok(()),
        Ok(mode) => Err(StoreError::CannotOpen(format!(
            "{}: a write-ahead log is not possible on this file system (journal mode {mode})",
            path.display()
        ))),
        Err(error) => Err(cannot_open(path, &error)),
    }
}

/// Explains why a file could not be opened, and what to do if that is known.
pub(crate) fn cannot_open(path: &Path, error: &rusqlite::Error) -> StoreError {
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => "this is not a SQLite database; choose another path".to_owned(),
        Some(ErrorCode::DatabaseBusy) => format!("another process keeps the file locked ({error})"),
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("the file is damaged ({error}); restore it from a backup")
        }
        Some(ErrorCode::DiskFull) => format!("the disk is full ({error}); free some space first"),
        _ => error.to_string(),
    };
    StoreError::CannotOpen(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pragma(connection: &Connection, name: &str) -> String {
        connection
            .query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
            .map(|value| match value {
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            })
            .unwrap()
    }

    #[test]
    fn g5_every_commit_is_synced_unless_the_store_is_relaxed() {
        let directory = tempfile::tempdir().unwrap();
        let full = owner(&directory.path().join("full.db"), &SqliteOptions::default()).unwrap();
        assert_eq!(pragma(&full.writer, "synchronous"), "2");
        assert_eq!(pragma(&full.writer, "journal_mode"), "wal");
        assert_eq!(pragma(&full.writer, "wal_autocheckpoint"), "0", "checkpoints never run inside a commit");
        assert_eq!(full.readers.len(), 2);
        assert!(full.readers.iter().all(|reader| pragma(reader, "query_only") == "1"));
        let options = SqliteOptions::default().relaxed(true);
        let relaxed = owner(&directory.path().join("relaxed.db"), &options).unwrap();
        assert_eq!(pragma(&relaxed.writer, "synchronous"), "1");
        let guest = guest(&directory.path().join("relaxed.db"), &SqliteOptions::default()).unwrap();
        assert_eq!(pragma(&guest.writer, "synchronous"), "2", "a guest's messages are synced all the same");
    }
}
