//! Tells from outside whether the write-ahead log was written, which costs less than to ask SQLite.
//!
//! Every commit, of whatever process, writes to the log and so moves the time of its last change. That time is coarse:
//! two writes can bear the same one. So it is trusted only if it was long past already when SQLite was asked last: a
//! write since then bears a later one. As a file system may be stranger than that, SQLite is asked now and then
//! nonetheless.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// No file system's times are coarser.
const COARSEST: Duration = Duration::from_secs(3);
/// At most so many looks in a row are left out.
const LEFT_OUT_AT_MOST: u32 = 50;

pub(crate) struct LogWatch {
    path: PathBuf,
    /// What the log looked like before SQLite was asked last, if it can be trusted.
    known: Option<Stamp>,
    left_out: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
}

impl LogWatch {
    pub(crate) fn new(path: PathBuf) -> LogWatch {
        LogWatch { path, known: None, left_out: 0 }
    }

    /// Whether nobody has written to the log since this gave no the last time. After a no, SQLite has to be asked.
    pub(crate) fn is_still(&mut self) -> bool {
        let stamp = self.stamp();
        if stamp.is_some() && stamp == self.known && self.left_out < LEFT_OUT_AT_MOST {
            self.left_out += 1;
            return true;
        }
        self.left_out = 0;
        self.known = stamp.filter(|stamp| stamp.modified.elapsed().is_ok_and(|since| since > COARSEST));
        false
    }

    fn stamp(&self) -> Option<Stamp> {
        let metadata = self.path.metadata().ok()?;
        Some(Stamp { modified: metadata.modified().ok()?, bytes: metadata.len() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A log that was written so many seconds ago.
    fn written_ago(log: &File, seconds: u64) {
        log.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    fn watched() -> (tempfile::NamedTempFile, LogWatch) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let watch = LogWatch::new(log.path().to_owned());
        (log, watch)
    }

    #[test]
    fn g10_sqlite_is_not_asked_while_the_log_is_still() {
        let (log, mut watch) = watched();
        written_ago(log.as_file(), 10);
        assert!(!watch.is_still(), "at first nothing is known");
        assert!(watch.is_still() && watch.is_still());
        written_ago(log.as_file(), 9);
        assert!(!watch.is_still(), "it was written");
        assert!(watch.is_still());
        log.as_file().set_len(1).unwrap();
        written_ago(log.as_file(), 9);
        assert!(!watch.is_still(), "it was written");
    }

    #[test]
    fn s8_a_log_that_was_written_just_now_is_not_trusted() {
        let (log, mut watch) = watched();
        written_ago(log.as_file(), 1);
        assert!((0..5).all(|_| !watch.is_still()), "a second write may bear the same time");
    }

    #[test]
    fn s8_sqlite_is_asked_now_and_then_whatever_the_log_looks_like() {
        let (log, mut watch) = watched();
        written_ago(log.as_file(), 10);
        let asked = (0..500).filter(|_| !watch.is_still()).count();
        assert_eq!(asked, 10, "once in 51 looks");
    }

    #[test]
    fn s8_without_a_log_sqlite_is_asked() {
        let (log, mut watch) = watched();
        drop(log);
        assert!(!watch.is_still() && !watch.is_still());
    }
}
