//! The lock that makes one runtime the owner of a file.
//!
//! It is an advisory lock on a file next to the database, held as long as that file is open; the operating system
//! releases it when the process dies, however it dies. The file is never deleted: otherwise two processes could lock
//! two different files of the same name.
//!
//! The file contains the owner's process id, and the number of the log (`log_number`). An owner that closes the store
//! empties it. What an owner that died has left is kept until the next one has checked the database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
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
    left: Option<Note>,
    is_signed: bool,
}

/// What the owner of a database, or one that died, has written into its lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) process: u32,
    /// The number of the log that it wrote last; `None` if it did not say.
    pub(crate) log_number: Option<u64>,
}

impl Note {
    pub(crate) fn parse(text: &str) -> Option<Note> {
        let mut words = text.split_whitespace();
        let process = words.next()?.parse().ok()?;
        Some(Note { process, log_number: words.next().and_then(|word| word.parse().ok()) })
    }
}

impl OwnerLock {
    /// Takes the lock of a database, or reports who has it. Nothing is written into its file.
    pub(crate) fn take(database: &Path) -> Result<OwnerLock, StoreError> {
        let path = beside(database, "-lock");
        let cannot = |error: &dyn std::fmt::Display| {
            StoreError::CannotOpen(format!("the lock file {} cannot be used: {error}", path.display()))
        };
        let mut file = open(&path).map_err(|error| cannot(&error))?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(database, &path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(cannot(&error)),
        }
        // A file whose content cannot be read as text says nothing.
        let mut text = String::new();
        let left = file.read_to_string(&mut text).ok().and_then(|_| Note::parse(&text));
        Ok(OwnerLock { file, left, is_signed: false })
    }

    /// What an owner that died has left.
    pub(crate) fn left(&self) -> Option<Note> {
        self.left
    }

    /// Writes this process and the number of the log into the file.
    pub(crate) fn sign(&mut self, log_number: Option<u64>) -> io::Result<()> {
        if !self.is_signed {
            make_private(&self.file)?;
            self.file.set_len(0)?;
            self.is_signed = true;
        }
        let log_number = log_number.map(|number| format!(" {number}")).unwrap_or_default();
        self.file.seek(SeekFrom::Start(0))?;
        // In one write: another process may be reading. The number only grows, so it covers what was there.
        self.file.write_all(format!("{}{log_number}\n", process::id()).as_bytes())
    }

    /// Leaves what was written, as if the process had died: the next owner has to check the database.
    pub(crate) fn leave_signed(&mut self) {
        self.is_signed = false;
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        if self.is_signed {
            // Otherwise the next owner checks more than it would have to.
            let _ = self.file.set_len(0);
        }
    }
}

/// Opens the file, and creates it if necessary. A symbolic link is not followed: it could lead to a file of somebody
/// else, which would be overwritten.
fn open(path: &Path) -> io::Result<File> {
    let is_link = || fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let refused = || io::Error::other("it is a symbolic link, which is not followed; remove it");
    if is_link() {
        return Err(refused());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match options.create_new(true).open(path) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    OpenOptions::new().read(true).write(true).open(path)
                }
                made => made,
            }
        }
        opened => opened,
    }?;
    // The link may have been made in between.
    if is_link() { Err(refused()) } else { Ok(file) }
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

fn in_use(database: &Path, lock: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let note = file.read_to_string(&mut text).ok().and_then(|_| Note::parse(&text));
    let owner = match note {
        Some(note) => format!("process {}", note.process),
        None => "another process".to_owned(),
    };
    StoreError::InUse(format!(
        "{} is owned by a runtime in {owner} (lock file {}); stop that runtime first, or open the file with `Client::open` to \
         look and send",
        database.display(),
        lock.display()
    ))
}
