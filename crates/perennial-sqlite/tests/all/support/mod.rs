//! A directory with a database in it, and ways to get at it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use perennial_core::store::{Changes, CommitOutcome, Reply, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::{Subject, answer_of, waiting};
use rusqlite::Connection;
use tempfile::TempDir;

/// A database of its own for one test.
pub(crate) struct Place {
    directory: TempDir,
}

#[allow(dead_code, reason = "no test file needs all of it")]
impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("shop.db")
    }

    /// The path of a file beside the database.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("shop.db{suffix}"))
    }

    pub(crate) fn owner(&self) -> Subject {
        Subject::over(self.try_owner().unwrap())
    }

    pub(crate) fn try_owner(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(self.path(), SqliteOptions::default())
    }

    pub(crate) fn guest(&self) -> Subject {
        Subject::over(self.try_guest().unwrap())
    }

    pub(crate) fn try_guest(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_guest(self.path(), SqliteOptions::default())
    }

    /// A connection of somebody who goes behind the store's back.
    pub(crate) fn connection(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

/// The outcome of a member that sends nothing.
#[allow(dead_code, reason = "no test file needs all of it")]
pub(crate) fn durable() -> CommitOutcome {
    CommitOutcome::Durable { sent: vec![] }
}

/// The answer to a call.
#[allow(dead_code, reason = "no test file needs all of it")]
pub(crate) fn answered<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (reply, answer) = waiting();
    call(reply);
    answer_of(&answer)
}

/// Hints of a store, as a channel.
#[allow(dead_code, reason = "no test file needs all of it")]
pub(crate) fn hints(subject: &Subject) -> mpsc::Receiver<Changes> {
    let (sender, hints) = mpsc::channel();
    subject.store().watch(Arc::new(move |changes| sender.send(*changes).unwrap_or_default()));
    hints
}

/// Waits for one.
#[allow(dead_code, reason = "no test file needs all of it")]
pub(crate) fn wait_for(hints: &mpsc::Receiver<Changes>) -> Changes {
    hints.recv_timeout(Duration::from_secs(60)).expect("a hint comes")
}
