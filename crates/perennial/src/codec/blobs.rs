//! Blob stores for large payloads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::Error;

/// Stores bytes outside of the store, under names derived from the bytes. See [`Offload`](super::Offload).
///
/// Names are 64 hexadecimal digits. A blob never changes; the same bytes may be put under the same name
/// repeatedly. All nodes and clients of a store need the same blobs.
pub trait BlobStore: Send + Sync + 'static {
    /// Stores a blob durably. An existing blob gets a new age: the caller is about to refer to it.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Reads a blob. `None` if it does not exist.
    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// The blobs that were last put more than `age` ago.
    fn older_than(&self, age: Duration) -> io::Result<Vec<String>>;

    /// Deletes a blob if it was last put more than `age` ago; returns `false` if it is younger or does not
    /// exist. A blob that is put at the same time is either kept, or deleted before it is put.
    fn delete_older_than(&self, name: &str, age: Duration) -> io::Result<bool>;
}

/// Blobs as files in a directory that all processes share.
#[derive(Debug)]
pub struct BlobDirectory {
    path: PathBuf,
    /// Locked shared to put, and exclusively to delete.
    lock: PathBuf,
}

impl BlobDirectory {
    /// Opens a directory; creates it if it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<BlobDirectory, Error> {
        let path = path.into();
        let lock = path.join("lock");
        let made = fs::create_dir_all(path.join("incoming"));
        let opened = made.and_then(|()| File::options().create(true).append(true).open(&lock));
        opened.map_err(Error::Blobs)?;
        Ok(BlobDirectory { path, lock })
    }

    fn file(&self, name: &str) -> io::Result<PathBuf> {
        let is_name = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_name {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a blob"));
        }
        Ok(self.path.join(&name[..2]).join(name))
    }

    fn lock(&self) -> io::Result<File> {
        File::options().append(true).open(&self.lock)
    }

    /// Writes to a temporary file and renames it, so that a file under a blob's name is always complete.
    fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let incoming = self.path.join("incoming").join(uuid::Uuid::new_v4().simple().to_string());
        let mut created = File::create_new(&incoming)?;
        let written = created.write_all(bytes).and_then(|()| created.sync_all());
        let directory = file.parent().expect("it is in a directory");
        let renamed =
            written.and_then(|()| fs::create_dir_all(directory)).and_then(|()| fs::rename(&incoming, file));
        renamed.inspect_err(|_| {
            // Failed writes must not fill up a disk that is full. A sweep removes files that cannot be
            // deleted here.
            let _ = fs::remove_file(&incoming);
        })
    }
}

impl BlobStore for BlobDirectory {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(name)?;
        let lock = self.lock()?;
        lock.lock_shared()?;
        // A damaged blob is written again, since the caller relies on its existence afterwards.
        if self.get(name)?.is_some_and(|existing| existing == bytes) {
            File::options().append(true).open(&file)?.set_modified(SystemTime::now())?;
        } else {
            self.write(&file, bytes)?;
        }
        // Even if the file existed: the process that renamed it may have crashed before this step.
        sync(file.parent().expect("it is in a directory"))?;
        sync(&self.path)
    }

    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.file(name)?) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn older_than(&self, age: Duration) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for directory in fs::read_dir(&self.path)? {
            let directory = directory?;
            if !directory.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(directory.path())? {
                let file = file?;
                let name = file.file_name().to_string_lossy().into_owned();
                if !is_older(&file.path(), age)? {
                    continue;
                }
                if directory.file_name() == "incoming" {
                    // Left by a process that ended during a write.
                    fs::remove_file(file.path())?;
                } else if self.file(&name).is_ok() {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn delete_older_than(&self, name: &str, age: Duration) -> io::Result<bool> {
        let file = self.file(name)?;
        let lock = self.lock()?;
        lock.lock()?;
        if !is_older(&file, age)? {
            return Ok(false);
        }
        fs::remove_file(&file)?;
        Ok(true)
    }
}

/// Whether a file was last put more than `age` ago. A time in the future counts as young, as does a missing
/// file.
fn is_older(file: &Path, age: Duration) -> io::Result<bool> {
    match fs::metadata(file) {
        Ok(metadata) => Ok(metadata.modified()?.elapsed().is_ok_and(|elapsed| elapsed > age)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the entries of a directory durable, where directories can be synced.
fn sync(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
