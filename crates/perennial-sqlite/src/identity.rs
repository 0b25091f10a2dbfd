//! Whether the paths of a store still lead to the files that it has opened.
//!
//! A file that was deleted or replaced can still be written: everything would be acknowledged and lost. A file with a
//! second name has a second log under that name, and the two would damage each other. So a store compares its paths with
//! its files before it acknowledges anything, and refuses such files when it opens them.

use std::fs;
use std::path::{Path, PathBuf};

use perennial_core::store::StoreError;

use crate::open::beside;

/// The files of an open store.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    files: Vec<(PathBuf, FileId)>,
}

impl Identity {
    /// The files of a store that has just opened them.
    pub(crate) fn of(database: &Path, is_owner: bool) -> Identity {
        let suffixes: &[&str] = if is_owner { &["", "-wal", "-lock"] } else { &["", "-wal"] };
        let paths = suffixes.iter().map(|suffix| beside(database, suffix));
        Identity { files: paths.filter_map(|path| FileId::at(&path).map(|id| (path, id))).collect() }
    }

    /// Fails if a path does not lead to its file, or the database has another name.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (place, (path, id)) in self.files.iter().enumerate() {
            let name = path.display();
            let advice = "nothing after that was acknowledged; put it back as it was, or restore a backup as the guide \
                          describes, then start again";
            let why = match FileId::at(path) {
                None => format!("{name} is gone: it was deleted or moved while in use; {advice}"),
                Some(other) if !other.is_same(*id) => {
                    format!("{name} is another file now: it was replaced while in use; {advice}")
                }
                Some(now) if place == 0 && now.names > 1 => {
                    format!("{}, then start again", has_names(path, now.names))
                }
                Some(_) => continue,
            };
            return Err(StoreError::Failed(why));
        }
        Ok(())
    }
}

/// Refuses a file that has a second name, or is a mount itself.
pub(crate) fn refuse_second_names(database: &Path) -> Result<(), StoreError> {
    if let Some(FileId { names: 2.., .. }) = FileId::at(database) {
        let names = FileId::at(database).map_or(2, |id| id.names);
        return Err(StoreError::CannotOpen(has_names(database, names)));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if is_mount(&mounts, database) {
        return Err(StoreError::CannotOpen(format!(
            "{}: the file itself is mounted here, so that its log would be another one than under its own path; mount its \
             directory instead",
            database.display()
        )));
    }
    Ok(())
}

fn has_names(database: &Path, names: u64) -> String {
    format!(
        "{} has {names} names (a hard link was made), and under each it would have another log; remove the others, for \
         example after copying the file with SQLite's own tools",
        database.display()
    )
}

/// Whether a path is a mount point, by the kernel's list of mounts.
fn is_mount(mountinfo: &str, path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let escaped =
        path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    mountinfo.lines().any(|line| line.split(' ').nth(4) == Some(escaped.as_str()))
}

/// What tells one file from another.
#[derive(Clone, Copy, Debug)]
struct FileId {
    device: u64,
    number: u64,
    /// How many names it has.
    names: u64,
}

impl FileId {
    /// The file of a path; a symbolic link is a file of its own here.
    #[cfg(unix)]
    fn at(path: &Path) -> Option<FileId> {
        use std::os::unix::fs::MetadataExt;

        let metadata = fs::symlink_metadata(path).ok()?;
        Some(FileId { device: metadata.dev(), number: metadata.ino(), names: metadata.nlink() })
    }

    /// On other platforms a file in use cannot be deleted or replaced.
    #[cfg(not(unix))]
    fn at(_: &Path) -> Option<FileId> {
        None
    }

    fn is_same(self, other: FileId) -> bool {
        (self.device, self.number) == (other.device, other.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_a_file_that_is_a_mount_is_found_in_the_kernels_list() {
        let mounts = "24 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      90 24 254:0 /host/shop.db /data/my\\040shop.db rw - ext4 /dev/vda rw\n";
        assert!(is_mount(mounts, Path::new("/data/my shop.db")));
        assert!(!is_mount(mounts, Path::new("/data/shop.db")));
        assert!(!is_mount(mounts, Path::new("/host/shop.db")));
    }
}
