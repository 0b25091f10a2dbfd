//! The lock that makes one runtime the owner of a file.
//!
//! It is an advisory lock on a file next to the database, held as long as that file is open; the operating system
//! releases it when the process dies, however it dies. The file is never deleted: otherwise two processes could lock
//! two different files of the same name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use perennial_core::store::StoreError;

use crate::open::{beside, make_private};

/// How many milliseconds a process that only checks the lock may hold it.
const LOOKS_WAITED_OUT: u32 = 20;

/// The lock, held by the owner.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    file: File,
}

impl OwnerLock {
    /// Takes the lock of a database, or reports who has it.
    pub(crate) fn take(database: &Path) -> Result<OwnerLock, StoreError> {
        let path = beside(database, "-lock");
        let cannot = |error: &dyn std::fmt::Display| {
            StoreError::CannotOpen(format!("the lock file {} cannot be used: {error}", path.display()))
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(|error| cannot(&error))?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(database, &path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot(&error)),
        }
        make_private(&file).and_then(|()| write_process_id(&mut file)).map_err(|error| cannot(&error))?;
        Ok(OwnerLock { file })
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // The process id is only for the error message of others; without it they are told less.
        let _ = self.file.set_len(0);
    }
}

/// Tries to lock the file. A process that checks whether the owner is alive holds the lock for a moment; that is waited
/// out.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKS_WAITED_OUT {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    file.try_lock()
}

fn write_process_id(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", process::id())
}

fn in_use(database: &Path, lock: &Path, file: &mut File) -> StoreError {
    let mut owner = String::new();
    let owner = match file.read_to_string(&mut owner) {
        Ok(_) if !owner.trim().is_empty() => format!("process {}", owner.trim()),
        _ => "another process".to_owned(),
    };
    StoreError::InUse(format!(
        "{} is owned by a runtime in {owner} (lock file {}); stop that runtime first, or open the file with `Client::open` to \
         look and send",
        database.display(),
        lock.display()
    ))
}
