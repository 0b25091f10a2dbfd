//! Writes what has gathered as one transaction.
//!
//! Each member stands for itself. A savepoint around each would cost more than the writing, so there are none at first:
//! members check before they write. The rare transaction in which one finds out too late is rolled back as a whole and
//! done again, then with savepoints.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::{
    Commit, CommitOutcome, SendOutcome, SendRequest, SessionId, StoreError, TaskRenewal, TaskRow,
};
use rusqlite::Connection;

use crate::asks;
use crate::commit;
use crate::connection::wait_out;
use crate::delete;
use crate::failure::Trouble;
use crate::options::{Clock, SqliteOptions};
use crate::request::{NewNote, TaskEnd, TaskRenewals, TaskTake, WriteRequest};
use crate::send;
use crate::sessions::Sessions;
use crate::tables::Tables;
use crate::tasks;
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

/// The answer to a call, or why the whole transaction was not committed.
type Called<T> = Result<Result<T, StoreError>, Halt>;

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
        if self.find_nothing_to_do(requests)? {
            return Ok(());
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

    /// Answers those who look for work where there is none: nobody has to wait for the file for that.
    fn find_nothing_to_do(&mut self, requests: &mut [WriteRequest]) -> rusqlite::Result<bool> {
        for request in &*requests {
            let is_idle = match request {
                WriteRequest::TakeTasks(_) => !tasks::any_to_take(self.connection, (self.clock)())?,
                WriteRequest::SweepAsks(_) => !asks::any_past_deadline(self.connection, (self.clock)())?,
                _ => false,
            };
            if !is_idle {
                return Ok(false);
            }
        }
        self.notice_changes()?;
        for request in requests {
            match request {
                WriteRequest::TakeTasks(asked) => asked.answer = Some(Ok(Vec::new())),
                WriteRequest::SweepAsks(asked) => asked.answer = Some(Ok(())),
                _ => {}
            }
        }
        Ok(true)
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
            WriteRequest::TakeTasks(asked) => asked.answer = Some(self.take_tasks(&asked.question, pace)?),
            WriteRequest::RenewTasks(asked) => asked.answer = Some(self.renew_tasks(&asked.question, pace)?),
            WriteRequest::FinishTask(asked) => asked.answer = Some(self.finish_task(&asked.question, pace)?),
            WriteRequest::GiveBackTasks(asked) => {
                let (holder, ids) = &asked.question;
                let given_back =
                    ids.iter().try_for_each(|id| tasks::give_back(self.connection, *holder, *id));
                asked.answer = Some(Ok(given_back?));
            }
            WriteRequest::Ask(asked) => {
                let ask = &asked.question;
                asked.answer = Some(self.call(pace, |this| Ok(asks::ask(this.connection, ask)?))?);
            }
            WriteRequest::WithdrawAsk(asked) => {
                asked.answer = Some(Ok(asks::withdraw(self.connection, asked.question)?));
            }
            WriteRequest::SweepAsks(asked) => {
                asked.answer = Some(Ok(asks::sweep(self.connection, (self.clock)())?));
            }
            WriteRequest::WriteNote(asked) => asked.answer = Some(self.write_note(&asked.question, pace)?),
            WriteRequest::Delete(asked) => {
                let keys = asked.question.iter();
                let outcomes = keys.map(|key| delete::delete(self.connection, *key));
                asked.answer = Some(Ok(outcomes.collect::<Result<_, _>>()?));
            }
        }
        Ok(())
    }

    fn send(&mut self, requests: &[SendRequest], pace: Pace) -> Called<Vec<SendOutcome>> {
        self.call(pace, |this| {
            let write = |request| send::write(&mut this.tables, &mut this.unread, request);
            requests.iter().map(write).collect()
        })
    }

    fn take_tasks(&mut self, take: &TaskTake, pace: Pace) -> Called<Vec<TaskRow>> {
        let now_ms = (self.clock)();
        let until_ms = now_ms.saturating_add(take.lease_ms);
        self.call(pace, |this| {
            Ok(tasks::take(this.connection, take.holder, &take.served, take.limit, now_ms, until_ms)?)
        })
    }

    fn renew_tasks(&mut self, renewals: &TaskRenewals, pace: Pace) -> Called<Vec<TaskRenewal>> {
        let until_ms = (self.clock)().saturating_add(renewals.lease_ms);
        self.call(pace, |this| {
            let renew = |(id, details): &(_, Option<_>)| {
                tasks::renew(this.connection, renewals.holder, *id, details.as_ref(), until_ms)
            };
            Ok(renewals.tasks.iter().map(renew).collect::<Result<_, _>>()?)
        })
    }

    fn finish_task(&mut self, end: &TaskEnd, pace: Pace) -> Called<bool> {
        self.call(pace, |this| {
            let finished = tasks::finish(this.connection, end.holder, end.task, end.attempt)?;
            if finished && this.tables.append_to_key(end.task.key, None, &end.body)?.is_some() {
                this.unread.appended(end.task.key);
            }
            Ok(finished)
        })
    }

    fn write_note(&mut self, note: &NewNote, pace: Pace) -> Called<()> {
        if !self.sessions.is_live(note.session) {
            return Ok(Err(StoreError::SessionGone));
        }
        self.call(pace, |this| Ok(asks::write_note(this.connection, &note.name, note.body.as_deref())?))
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

    /// Writes what one call brings. If something of it cannot be stored at all, nothing of the call is.
    fn call<T>(&mut self, pace: Pace, write: impl FnOnce(&mut Self) -> Result<T, send::Stop>) -> Called<T> {
        if pace == Pace::Careful {
            self.connection.execute_batch("SAVEPOINT call")?;
        }
        let error = match write(self) {
            Ok(outcome) => {
                if pace == Pace::Careful {
                    self.connection.execute_batch("RELEASE call")?;
                }
                return Ok(Ok(outcome));
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
    matches!(
        request,
        WriteRequest::OpenSession(_)
            | WriteRequest::RenewSession(_)
            | WriteRequest::EndSession(_)
            | WriteRequest::ClaimShards(_)
    )
}
