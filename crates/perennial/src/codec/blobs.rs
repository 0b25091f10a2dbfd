//! Where large payloads are kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::Error;

/// Keeps bytes under names that follow from them, outside of the store. See [`Offload`](super::Offload).
///
/// Names are 64 hexadecimal digits. A blob is never changed; the same bytes are put under the same name again and again.
/// All nodes and clients of a store need the same blobs.
pub trait BlobStore: Send + Sync + 'static {
    /// Keeps a blob, durably when it returns. One that exists is young again: whoever puts it is about to refer to it.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Reads a blob. `None` if it does not exist.
    fn get(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// The blobs that were last put longer ago than `age`.
    fn older_than(&self, age: Duration) -> io::Result<Vec<String>>;

    /// Deletes a blob if it was last put longer ago than `age`; `false` if it was not, or is gone. A blob that somebody puts
    /// at the same time is either kept, or deleted before it is put.
    fn delete_older_than(&self, name: &str, age: Duration) -> io::Result<bool>;
}

/// Blobs as files of a directory, which all processes share.
#[derive(Debug)]
pub struct BlobDirectory {
    path: PathBuf,
    /// Held shared to put, and exclusively to delete.
    lock: PathBuf,
}

impl BlobDirectory {
    /// Opens a directory, and makes it if there is none.
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

    /// Renamed once it is complete: a file under its name is the blob, whatever happened meanwhile.
    fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let incoming = self.path.join("incoming").join(uuid::Uuid::new_v4().simple().to_string());
        let mut created = File::create_new(&incoming)?;
        let written = created.write_all(bytes).and_then(|()| created.sync_all());
        let directory = file.parent().expect("it is in a directory");
        let renamed =
            written.and_then(|()| fs::create_dir_all(directory)).and_then(|()| fs::rename(&incoming, file));
        renamed.inspect_err(|_| {
            // A disk that is full must not be filled by what was tried in vain. What cannot be deleted, a sweep finds.
            let _ = fs::remove_file(&incoming);
        })
    }
}

impl BlobStore for BlobDirectory {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(name)?;
        let lock = self.lock()?;
        lock.lock_shared()?;
        // One that was damaged is written again: whoever puts it is told that it is there.
        if self.get(name)?.is_some_and(|existing| existing == bytes) {
            File::options().append(true).open(&file)?.set_modified(SystemTime::now())?;
        } else {
            self.write(&file, bytes)?;
        }
        // Also if it existed: who renamed it may not have come that far.
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
                    // Left by a process that ended while it wrote.
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

/// Whether a file was last put longer ago than this. One from the future is young, and one that is gone.
fn is_older(file: &Path, age: Duration) -> io::Result<bool> {
    match fs::metadata(file) {
        Ok(metadata) => Ok(metadata.modified()?.elapsed().is_ok_and(|elapsed| elapsed > age)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the names in a directory durable, where a directory can be synced.
fn sync(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
