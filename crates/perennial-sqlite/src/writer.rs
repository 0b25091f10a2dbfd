//! The writer thread.
//!
//! It owns the write connection and the lock, commits everything that has accumulated as one transaction, and replies
//! when that is durable. Between transactions it makes checkpoints and looks for changes of other processes. After a
//! failure that leaves the state of the disk unknown, it replies to everything with that failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perennial_core::log;
use perennial_core::store::{Changes, StoreError};
use rusqlite::Connection;

use crate::calls::{ReplyGuard, Work, WriteCall};
use crate::checkpoint::Checkpoints;
use crate::clock::Mark;
use crate::failure::{Trouble, failed, is_full, unavailable};
use crate::identity::Identity;
use crate::log_watch::LogWatch;
use crate::open::beside;
use crate::options::SqliteOptions;
use crate::owner_lock::OwnerLock;
use crate::queue::Taken;
use crate::reader;
use crate::store::Shared;
use crate::transaction::{BY_OTHERS, Halt, WriteConnection};
use crate::watchers::calling;

/// How often an idle owner looks for changes of others.
const OWNER_LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How often a guest looks for changes, at first and finally.
const GUEST_LOOKS_EVERY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How often an idle store checks that its paths lead to its files.
const FILES_CHECKED_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    pub(crate) data_version: i64,
    pub(crate) mark: Option<Mark>,
    pub(crate) options: SqliteOptions,
    pub(crate) lock: Option<OwnerLock>,
    pub(crate) log_number: Option<u64>,
    pub(crate) identity: Identity,
    pub(crate) readers: Vec<JoinHandle<()>>,
}

impl Writer {
    /// Runs until the store is closed.
    pub(crate) fn run(self) {
        let Writer { shared, path, connection, data_version, mark, options, mut lock, readers, .. } = self;
        let (log_number, identity) = (self.log_number, self.identity);
        let is_file = lock.is_some();
        let marks = is_file.then_some(mark);
        let closing =
            match WriteConnection::new(&connection, data_version, &options, &shared.clock, marks, log_number)
            {
                Ok(write_connection) => {
                    let mut writer_loop = WriterLoop {
                        shared: &shared,
                        write_connection,
                        checkpoints: is_file.then(Checkpoints::new),
                        log_watch: is_file.then(|| LogWatch::new(beside(&path, "-wal"))),
                        lock: lock.as_mut(),
                        noted: log_number,
                        identity,
                        identity_checked: Instant::now(),
                        path,
                        looks_every: if shared.is_guest { GUEST_LOOKS_EVERY.0 } else { OWNER_LOOKS_EVERY },
                    };
                    catch_unwind(AssertUnwindSafe(|| writer_loop.work())).unwrap_or_else(|_| {
                        let reason = "the writer thread panicked; this is a bug in Perennial";
                        shared.health.fail(StoreError::Failed(reason.to_owned()));
                        refuse_until_closed(&shared)
                    })
                }
                Err(error) => {
                    shared.health.fail(failed(&path, &error));
                    refuse_until_closed(&shared)
                }
            };
        for reader in readers {
            // A reader that panicked has sent no wrong reply.
            let _ = reader.join();
        }
        shared.watchers.clear();
        if let Err((_, error)) = connection.close() {
            tracing::warn!(target: log::STORE, %error, "database did not close cleanly");
        }
        if let Some(lock) = lock.as_mut().filter(|_| shared.health.check().is_err()) {
            lock.leave_signed();
        }
        drop(lock);
        calling("a reply", || closing.give(Ok(())));
    }
}

/// Replies to everything with the failure; returns the reply of the call that closes the store.
fn refuse_until_closed(shared: &Shared) -> ReplyGuard<()> {
    loop {
        let Taken::Items(items) = shared.queue.take(None) else {
            continue;
        };
        for work in items {
            match work {
                Work::Close(reply) => return reply,
                other => other.refuse(shared.health.check().err().unwrap_or(StoreError::Closed)),
            }
        }
    }
}

/// The state of the thread.
struct WriterLoop<'c> {
    shared: &'c Shared,
    path: PathBuf,
    write_connection: WriteConnection<'c>,
    /// The owner of a file makes checkpoints.
    checkpoints: Option<Checkpoints>,
    /// The owner looks for changes so often that a cheap check pays off.
    log_watch: Option<LogWatch>,
    lock: Option<&'c mut OwnerLock>,
    /// The number of the log in the lock file.
    noted: Option<u64>,
    identity: Identity,
    identity_checked: Instant,
    looks_every: Duration,
}

impl WriterLoop<'_> {
    /// Runs until the store is closed; returns the reply of the call that closed it.
    fn work(&mut self) -> ReplyGuard<()> {
        loop {
            match self.shared.queue.take(self.patience()) {
                Taken::Nothing => self.idle(),
                Taken::Woken => {
                    // Somebody started to watch.
                    self.look_soon();
                    self.idle();
                }
                Taken::Items(items) => {
                    if let Some(closing) = self.handle(items) {
                        if let Some(checkpoints) = &mut self.checkpoints {
                            // The next owner would move what is left.
                            let _ = checkpoints.checkpoint(self.write_connection.connection());
                        }
                        return closing;
                    }
                }
            }
        }
    }

    fn handle(&mut self, items: Vec<Work>) -> Option<ReplyGuard<()>> {
        let mut batch = Vec::with_capacity(items.len());
        for work in items {
            match work {
                Work::Write(request) => batch.push(request),
                Work::Read(request) => {
                    self.write(std::mem::take(&mut batch));
                    let connection = self.write_connection.connection();
                    calling("a reply", || reader::answer(connection, &self.path, self.shared, request));
                }
                Work::Close(reply) => {
                    self.write(std::mem::take(&mut batch));
                    return Some(reply);
                }
            }
        }
        self.write(batch);
        None
    }

    fn write(&mut self, mut batch: Vec<WriteCall>) {
        if batch.is_empty() {
            return;
        }
        let written = match self.shared.health.check() {
            Ok(()) => {
                self.number_log();
                let written = self.write_connection.write(&mut batch).map_err(|halt| self.explain(&halt));
                // Before anything is acknowledged.
                written.and_then(|()| self.check_files())
            }
            Err(failure) => Err(failure),
        };
        let members = batch.iter().map(WriteCall::weight).sum();
        for request in batch {
            calling("a reply", || request.finish(&written));
        }
        // The sender of a message usually waits for its effect.
        self.look_soon();
        self.shared.watchers.tell(&self.write_connection.take_changes());
        if written.is_ok()
            && let Some(checkpoints) = &mut self.checkpoints
        {
            let checkpointed = checkpoints.after_batch(self.write_connection.connection(), members);
            self.after_checkpoint(checkpointed);
        }
    }

    /// Lets the next commit number the log, if it begins it again.
    fn number_log(&mut self) {
        if self.checkpoints.as_mut().is_some_and(Checkpoints::take_log_moved) {
            self.write_connection.begin_log();
        }
    }

    /// Fails the store if its paths lead elsewhere, and notes the number of the log.
    fn check_files(&mut self) -> Result<(), StoreError> {
        self.identity_checked = Instant::now();
        let number = self.write_connection.log_number();
        let noted = match &mut self.lock {
            Some(lock) if number != self.noted => lock.sign(number).map_err(|error| {
                StoreError::Failed(format!(
                    "the lock file of {} cannot be written: {error}",
                    self.path.display()
                ))
            }),
            _ => Ok(()),
        };
        self.noted = number;
        let checked = noted.and_then(|()| self.identity.check());
        if let Err(failure) = &checked {
            tracing::error!(target: log::STORE, error = %failure, "store failed");
            self.shared.health.fail(failure.clone());
        }
        checked
    }

    /// What a failed transaction means for its callers, and for the store.
    fn explain(&self, halt: &Halt) -> StoreError {
        let failure = match halt {
            // A guest has acknowledged nothing that could be lost, and owns nothing: it goes on when there is room again.
            Halt::Write(error) if self.shared.is_guest && is_full(error) => unavailable(&self.path, error),
            // The record of the commit may be in the log.
            Halt::Commit(error) if self.shared.is_guest && is_full(error) => {
                StoreError::Unknown(format!("{}: {error}", self.path.display()))
            }
            Halt::Redo => StoreError::Unavailable("a member could not be undone".to_owned()),
            Halt::Write(error) => match Trouble::of(error) {
                Trouble::Busy | Trouble::Passing | Trouble::Refused => unavailable(&self.path, error),
                Trouble::Lasting => failed(&self.path, error),
            },
            Halt::Commit(error) => match Trouble::of(error) {
                Trouble::Busy => unavailable(&self.path, error),
                Trouble::Passing | Trouble::Refused | Trouble::Lasting => failed(&self.path, error),
            },
        };
        if matches!(failure, StoreError::Failed(_)) {
            tracing::error!(target: log::STORE, error = %failure, "store failed");
            self.shared.health.fail(failure.clone());
        }
        failure
    }

    fn idle(&mut self) {
        if self.shared.health.check().is_err() {
            return;
        }
        if self.identity_checked.elapsed() >= FILES_CHECKED_EVERY && self.check_files().is_err() {
            // Callers that wait for news ask, and learn of the failure.
            self.shared.watchers.tell(&Changes::ALL);
            return;
        }
        if !self.shared.watchers.is_empty() {
            self.look_for_changes();
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            let checkpointed = checkpoints.when_idle(self.write_connection.connection());
            self.after_checkpoint(checkpointed);
        }
    }

    fn look_for_changes(&mut self) {
        if self.log_watch.as_mut().is_some_and(LogWatch::is_still) {
            return;
        }
        if let Err(error) = self.write_connection.notice_changes() {
            // The next check may succeed; a lost hint only costs time.
            tracing::debug!(target: log::STORE, %error, "changes of other processes cannot be read");
        }
        if self.write_connection.take_changed_by_others() {
            self.shared.watchers.tell(&BY_OTHERS);
            self.look_soon();
        } else if self.shared.is_guest {
            self.looks_every = (self.looks_every * 2).min(GUEST_LOOKS_EVERY.1);
        }
    }

    fn look_soon(&mut self) {
        self.looks_every = if self.shared.is_guest { GUEST_LOOKS_EVERY.0 } else { OWNER_LOOKS_EVERY };
    }

    /// How long to wait for work.
    fn patience(&self) -> Option<Duration> {
        if self.shared.health.check().is_err() {
            return None;
        }
        let looks = (!self.shared.watchers.is_empty() && self.shared.is_file).then_some(self.looks_every);
        let moves = self.checkpoints.as_ref().and_then(Checkpoints::patience);
        looks.into_iter().chain(moves).min()
    }

    fn after_checkpoint(&self, checkpointed: rusqlite::Result<()>) {
        let Err(error) = checkpointed else {
            return;
        };
        match Trouble::of(&error) {
            Trouble::Lasting => {
                let failure = failed(&self.path, &error);
                tracing::error!(target: log::STORE, error = %failure, "store failed");
                self.shared.health.fail(failure);
            }
            Trouble::Busy | Trouble::Passing | Trouble::Refused => {
                tracing::debug!(target: log::STORE, %error, "checkpoint failed; the write-ahead log grows until one succeeds");
            }
        }
    }
}
