//! What an SQLite error means for the call that caused it, and for the store.

use std::path::Path;

use perennial_core::store::StoreError;
use rusqlite::{Error, ErrorCode, ffi};

/// How to handle an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Another process holds the file: wait.
    Busy,
    /// These values can never be stored; others can.
    Refused,
    /// It may succeed later. Nothing was written.
    Passing,
    /// The state of the disk is unknown, or the disk is full.
    Lasting,
}

impl Trouble {
    pub(crate) fn of(error: &Error) -> Trouble {
        let Error::SqliteFailure(failure, _) = error else {
            // A value that cannot be converted for storage.
            return Trouble::Refused;
        };
        match failure.code {
            ErrorCode::DatabaseBusy => Trouble::Busy,
            ErrorCode::ConstraintViolation
            | ErrorCode::TooBig
            | ErrorCode::TypeMismatch
            | ErrorCode::ParameterOutOfRange => Trouble::Refused,
            ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged => Trouble::Passing,
            _ => Trouble::Lasting,
        }
    }
}

/// Whether a row was not inserted because another one has its key.
pub(crate) fn is_constraint(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// Whether there is no room left.
pub(crate) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// The error of a store that cannot continue.
pub(crate) fn failed(path: &Path, error: &Error) -> StoreError {
    let path = path.display();
    StoreError::Failed(match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            format!("no room left for {path} ({}); free some space, then start again", described(error))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            format!("{path} is damaged ({}); restore it from a backup", described(error))
        }
        _ => format!(
            "{path} could not be written ({}), and what the last batch left on disk is not known; check the disk, \
             then start again",
            described(error)
        ),
    })
}

/// The error of a call that may succeed later.
pub(crate) fn unavailable(path: &Path, error: &Error) -> StoreError {
    let path = path.display();
    StoreError::Unavailable(match Trouble::of(error) {
        Trouble::Busy => format!("another process keeps {path} locked ({})", described(error)),
        _ => format!("{path}: {}", described(error)),
    })
}

/// The error with its SQLite code, by which it can be looked up.
fn described(error: &Error) -> String {
    let Error::SqliteFailure(failure, message) = error else {
        return error.to_string();
    };
    let message = message.as_deref().unwrap_or(ffi::code_to_str(failure.extended_code));
    format!("{message}, SQLite error {}", failure.extended_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn g32_a_failed_sync_and_a_full_disk_are_lasting_and_say_what_to_do() {
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_FULL, ffi::SQLITE_CORRUPT]
        {
            assert_eq!(Trouble::of(&error(code)), Trouble::Lasting, "{code}");
        }
        let path = Path::new("/data/shop.db");
        assert_eq!(
            failed(path, &error(ffi::SQLITE_FULL)).to_string(),
            "PER-0503 store failed: no room left for /data/shop.db (database or disk is full, SQLite error 13); free \
             some space, then start again"
        );
        assert_eq!(
            failed(path, &error(ffi::SQLITE_IOERR_FSYNC)).to_string(),
            "PER-0503 store failed: /data/shop.db could not be written (disk I/O error, SQLite error 1034), and what \
             the last batch left on disk is not known; check the disk, then start again"
        );
    }

    #[test]
    fn g32_busy_is_waited_for_and_lack_of_memory_passes() {
        assert_eq!(Trouble::of(&error(ffi::SQLITE_BUSY)), Trouble::Busy);
        assert_eq!(Trouble::of(&error(ffi::SQLITE_NOMEM)), Trouble::Passing);
        assert_eq!(Trouble::of(&error(ffi::SQLITE_TOOBIG)), Trouble::Refused);
    }
}
