//! Writes what has gathered as one transaction.
//!
//! Each member stands for itself. A savepoint around each would cost more than the writing, so there are none at first:
//! members check before they write. The rare transaction in which one finds out too late is rolled back as a whole and
//! done again, then with savepoints.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::{Commit, CommitOutcome, SessionId, StoreError};
use rusqlite::Connection;

use crate::commit;
use crate::connection::wait_out;
use crate::failure::Trouble;
use crate::options::{Clock, SqliteOptions};
use crate::request::WriteRequest;
use crate::send;
use crate::sessions::Sessions;
use crate::tables::Tables;
use crate::unread::Unread;

/// The connection that writes, with what is remembered between transactions.
pub(crate) struct WriteConnection<'c> {
    connection: &'c Connection,
    tables: Tables<'c>,
    sessions: Sessions,
    unread: Unread,
    clock: Clock,
    busy_patience: Duration,
    data_version: i64,
    changed_by_others: bool,
}

/// How members are kept apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// By checking before writing.
    Quick,
    /// By a savepoint each.
    Careful,
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A member has to be undone: do it again, carefully.
    Redo,
    /// SQLite said so, before the commit.
    Write(rusqlite::Error),
    /// The commit itself did not succeed.
    Commit(rusqlite::Error),
}

impl From<rusqlite::Error> for Halt {
    fn from(error: rusqlite::Error) -> Halt {
        Halt::Write(error)
    }
}

impl<'c> WriteConnection<'c> {
    pub(crate) fn new(
        connection: &'c Connection,
        data_version: i64,
        options: &SqliteOptions,
    ) -> rusqlite::Result<WriteConnection<'c>> {
        Ok(WriteConnection {
            connection,
            tables: Tables::prepare(connection)?,
            sessions: Sessions::new(),
            unread: Unread::default(),
            clock: Arc::clone(&options.clock),
            busy_patience: options.busy_patience,
            data_version,
            changed_by_others: false,
        })
    }

    pub(crate) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Writes all of it durably, or nothing. The answers are left in the requests.
    pub(crate) fn write(&mut self, requests: &mut [WriteRequest]) -> Result<(), Halt> {
        if requests.iter().all(|request| matches!(request, WriteRequest::RenewSession(_))) {
            // Leases are not on disk.
            self.notice_changes()?;
            return requests.iter_mut().try_for_each(|request| self.apply(request, Pace::Quick));
        }
        let sessions = requests.iter().any(touches_sessions).then(|| self.sessions.clone());
        let mut written = self.attempt(requests, Pace::Quick);
        if matches!(written, Err(Halt::Redo)) {
            self.restore(&sessions);
            written = self.attempt(requests, Pace::Careful);
        }
        if written.is_err() {
            self.restore(&sessions);
        }
        written
    }

    /// Whether other connections have changed the database since this was asked last.
    pub(crate) fn take_changed_by_others(&mut self) -> bool {
        std::mem::take(&mut self.changed_by_others)
    }

    /// Looks whether other connections have changed the database.
    pub(crate) fn notice_changes(&mut self) -> rusqlite::Result<()> {
        let data_version = self.tables.data_version()?;
        if data_version != self.data_version {
            self.unread.forget();
            self.sessions.reload(self.connection)?;
            self.changed_by_others = true;
            self.data_version = data_version;
        }
        Ok(())
    }

    fn attempt(&mut self, requests: &mut [WriteRequest], pace: Pace) -> Result<(), Halt> {
        wait_out(self.busy_patience, || self.tables.begin())?;
        match self.write_within(requests, pace) {
            Ok(()) => {}
            Err(halt) => {
                self.roll_back();
                return Err(halt);
            }
        }
        match wait_out(self.busy_patience, || self.tables.commit()) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.roll_back();
                Err(Halt::Commit(error))
            }
        }
    }

    fn write_within(&mut self, requests: &mut [WriteRequest], pace: Pace) -> Result<(), Halt> {
        self.notice_changes()?;
        requests.iter_mut().try_for_each(|request| self.apply(request, pace))
    }

    fn apply(&mut self, request: &mut WriteRequest, pace: Pace) -> Result<(), Halt> {
        // The clock is read here, where the wait for the file is over: no lease is born expired.
        match request {
            WriteRequest::OpenSession(asked) => {
                let new = &asked.question;
                let opened = self.sessions.open(self.connection, &new.node, new.lease_ms, (self.clock)())?;
                asked.answer = Some(Ok(opened));
            }
            WriteRequest::RenewSession(asked) => {
                asked.answer = Some(self.sessions.renew(asked.question, (self.clock)()));
            }
            WriteRequest::EndSession(asked) => {
                self.sessions.end(self.connection, asked.question)?;
                asked.answer = Some(Ok(()));
            }
            WriteRequest::ClaimShards(asked) => {
                let claim = &asked.question;
                let now_ms = (self.clock)();
                let claimed = self.sessions.claim(self.connection, claim.session, claim.at_most, now_ms)?;
                asked.answer = Some(claimed);
            }
            WriteRequest::Commit(asked) => {
                let members = asked.question.members.iter();
                let outcomes = members.map(|member| self.commit(asked.question.session, member, pace));
                asked.answer = Some(Ok(outcomes.collect::<Result<_, _>>()?));
            }
            WriteRequest::Send(asked) => asked.answer = Some(self.send(&asked.question, pace)?),
        }
        Ok(())
    }

    fn commit(&mut self, session: SessionId, member: &Commit, pace: Pace) -> Result<CommitOutcome, Halt> {
        if !self.sessions.owns(session, member.shard) {
            return Ok(CommitOutcome::Fenced);
        }
        if pace == Pace::Careful {
            self.connection.execute_batch("SAVEPOINT member")?;
        }
        let stop = match commit::write(&mut self.tables, &mut self.unread, member) {
            Ok(outcome) => {
                if pace == Pace::Careful {
                    self.connection.execute_batch("RELEASE member")?;
                }
                return Ok(outcome);
            }
            Err(stop) => stop,
        };
        let outcome = match stop {
            commit::Stop::Undo(outcome) => outcome,
            commit::Stop::Sqlite(error) => CommitOutcome::Rejected(refusal(error)?),
        };
        match pace {
            Pace::Quick => Err(Halt::Redo),
            Pace::Careful => {
                self.connection.execute_batch("ROLLBACK TO member; RELEASE member")?;
                Ok(outcome)
            }
        }
    }

    /// Writes the messages of one call. If one of them cannot be stored at all, none of the call's is.
    fn send(
        &mut self,
        requests: &[perennial_core::store::SendRequest],
        pace: Pace,
    ) -> Result<Result<Vec<perennial_core::store::SendOutcome>, StoreError>, Halt> {
        if pace == Pace::Careful {
            self.connection.execute_batch("SAVEPOINT call")?;
        }
        let written: Result<Vec<_>, send::Stop> =
            requests.iter().map(|request| send::write(&mut self.tables, &mut self.unread, request)).collect();
        let error = match written {
            Ok(outcomes) => {
                if pace == Pace::Careful {
                    self.connection.execute_batch("RELEASE call")?;
                }
                return Ok(Ok(outcomes));
            }
            Err(send::Stop::Row(error)) => error,
            Err(send::Stop::Sqlite(error)) => StoreError::CorruptRow(refusal(error)?),
        };
        match pace {
            Pace::Quick => Err(Halt::Redo),
            Pace::Careful => {
                self.connection.execute_batch("ROLLBACK TO call; RELEASE call")?;
                Ok(Err(error))
            }
        }
    }

    fn restore(&mut self, sessions: &Option<Sessions>) {
        if let Some(sessions) = sessions {
            self.sessions = sessions.clone();
        }
    }

    fn roll_back(&mut self) {
        // Some errors have rolled it back already.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }
}

/// Why one member cannot be stored; other trouble is not its own.
fn refusal(error: rusqlite::Error) -> Result<String, Halt> {
    match Trouble::of(&error) {
        Trouble::Refused => Ok(error.to_string()),
        Trouble::Busy | Trouble::Passing | Trouble::Lasting => Err(Halt::Write(error)),
    }
}

fn touches_sessions(request: &WriteRequest) -> bool {
    !matches!(request, WriteRequest::Commit(_) | WriteRequest::Send(_))
}
