//! Detects that the write-ahead log was removed, or belongs to another file, after an owner died.
//!
//! Whenever the log was moved into the database completely, the next commit writes the next number into the database, and
//! so at first into the log alone. Once that is durable, the number is also noted in the lock file. The owner that comes
//! after a crash therefore knows which number it has to find: together with its log, the database has at least the noted
//! one, and without its log, at least the one before.
//!
//! The note is not synced: after a power failure it may be older, and proves less. A relaxed store has none, because its
//! database may be older than its lock file after a power failure.

use std::path::Path;

use perennial_core::store::StoreError;
use rusqlite::{Connection, ErrorCode, OptionalExtension};

use crate::open::{alone, beside, cannot_open, look};
use crate::requests::{READ_SETTING, write_setting};

/// The setting with the number.
pub(crate) const SETTING: &str = "perennial.log";

/// Reads the number; 0 if there is none yet.
pub(crate) fn read(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare(READ_SETTING)?;
    let written = statement.query_row([SETTING], |row| row.get::<_, Vec<u8>>(0)).optional()?;
    let number = written.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    Ok(number.unwrap_or(0))
}

pub(crate) fn write(connection: &Connection, number: u64) -> rusqlite::Result<()> {
    write_setting(connection, SETTING, Some(&number.to_le_bytes()))
}

/// Checks that a database and its log are those that the last owner noted. Nobody may own the database meanwhile.
pub(crate) fn check(database: &Path, noted: u64) -> Result<(), StoreError> {
    let log = beside(database, "-wal");
    let (name, log_name, files) = (database.display(), log.display(), names_of_files(database));
    let has_log = log.metadata().is_ok_and(|metadata| metadata.len() > 0);
    // A checkpoint that was interrupted may have left a file that cannot be read without its log.
    let in_file = alone(database).ok().and_then(|connection| read(&connection).ok());
    let with_log = read(&look(database)?);
    let is_damaged_by_log = matches!(&with_log, Err(error)
        if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)));
    if has_log && in_file.is_some_and(|number| number + 1 < noted || is_damaged_by_log) {
        return Err(StoreError::CannotOpen(format!(
            "{log_name} does not belong to {name}: the file is older than its log, and would be damaged by it. If it is a \
             backup that was restored, delete {files} and start again; everything since the backup was made happens again"
        )));
    }
    if with_log.map_err(|error| cannot_open(database, &error))? < noted {
        return Err(StoreError::CannotOpen(format!(
            "the log {log_name}, which the last owner left when it ended, is missing or not the one it wrote, and \
             acknowledged work is in it; put it back. If it is lost, or a backup was restored, delete {files} and start \
             again; everything that was in the log happens again"
        )));
    }
    Ok(())
}

fn names_of_files(database: &Path) -> String {
    let [log, index, lock] = ["-wal", "-shm", "-lock"].map(|suffix| beside(database, suffix));
    format!("{}, {} and {}", log.display(), index.display(), lock.display())
}
