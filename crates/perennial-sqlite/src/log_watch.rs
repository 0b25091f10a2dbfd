//! Detects whether the write-ahead log was written, at a lower cost than asking SQLite.
//!
//! Every commit, of any process, writes to the log and so changes its modification time. That time is coarse: two
//! writes can have the same one. So it is trusted only if it was already well in the past when SQLite was last asked: a
//! later write has a later time. In case a file system behaves differently, SQLite is still asked now and then.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// No file system has coarser times.
const COARSEST: Duration = Duration::from_secs(3);
/// At most this many checks in a row are skipped.
const LEFT_OUT_AT_MOST: u32 = 50;

pub(crate) struct LogWatch {
    path: PathBuf,
    /// The state of the log before SQLite was last asked, if it can be trusted.
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

    /// Whether the log has not been written since this last returned `false`. After a `false`, SQLite has to be asked.
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

    /// Sets the time of a log to this many seconds ago.
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
