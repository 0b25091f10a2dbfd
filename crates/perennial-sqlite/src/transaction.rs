//! Writes accumulated calls as one transaction.
//!
//! Each member has its own outcome. A savepoint for each would cost more than the writes, so there are none at first:
//! members check before they write. In the rare case that a member finds a conflict too late, the whole transaction is
//! rolled back and repeated with savepoints.

use std::time::Duration;

use perennial_core::log;
use perennial_core::store::{
    Changes, Commit, CommitOutcome, Imported, Lease, MovedRow, NewSession, Outgoing, Replaced, SendOutcome,
    SendRequest, SessionId, ShardSet, StoreError, Swept, TaskRenewal, TaskRow,
};
use rusqlite::Connection;

use crate::calls::{Pruning, Setting, ShardNotes, Sweep, TaskEnd, TaskRenewals, TaskTake, WriteCall};
use crate::clock::{Mark, StoreClock};
use crate::commit::{self, WriteScope};
use crate::connection::wait_out;
use crate::delete;
use crate::failure::Trouble;
use crate::import;
use crate::log_number;
use crate::options::SqliteOptions;
use crate::orphans::{self, Orphans};
use crate::requests;
use crate::row::bound;
use crate::send;
use crate::sessions::Sessions;
use crate::shards;
use crate::tables::{Message, Tables};
use crate::tasks;
use crate::unread::Unread;

/// What other processes may have changed. They own no shards.
pub(crate) const BY_OTHERS: Changes = Changes { owners: ShardSet::EMPTY, ..Changes::ALL };

/// The connection that writes, with what is remembered between transactions.
pub(crate) struct WriteConnection<'c> {
    connection: &'c Connection,
    tables: Tables<'c>,
    sessions: Sessions,
    unread: Unread,
    clock: &'c StoreClock,
    /// The time written in the file, if this is the owner of one: it is updated now and then.
    marked: Option<Option<Mark>>,
    /// The time that the transaction writes.
    marking: Option<Mark>,
    /// The number of the log, if it is noted in the lock file.
    log_number: Option<u64>,
    /// Whether the log has to get the next number.
    begins_log: bool,
    /// The number that the transaction writes.
    numbering: Option<u64>,
    busy_patience: Duration,
    data_version: i64,
    changed_by_others: bool,
    /// The changes of the transaction that others are notified of.
    changes: Changes,
    /// Whether deleted instances have turns left; `None` if that has to be looked up.
    has_graves: Option<bool>,
    orphans: Orphans,
    /// Orphaned messages and tasks that the next sweep deletes.
    orphaned: (Vec<i64>, Vec<i64>),
}

/// How members are isolated from each other.
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
    /// A member has to be undone: repeat with savepoints.
    Redo,
    /// An error of SQLite before the commit.
    Write(rusqlite::Error),
    /// The commit itself failed.
    Commit(rusqlite::Error),
}

/// The result of a call, or why the whole transaction was not committed.
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
        clock: &'c StoreClock,
        marked: Option<Option<Mark>>,
        log_number: Option<u64>,
    ) -> rusqlite::Result<WriteConnection<'c>> {
        Ok(WriteConnection {
            connection,
            tables: Tables::prepare(connection)?,
            sessions: Sessions::new(),
            unread: Unread::default(),
            clock,
            marked,
            marking: None,
            log_number,
            begins_log: false,
            numbering: None,
            busy_patience: options.busy_patience,
            data_version,
            changed_by_others: false,
            changes: Changes::default(),
            has_graves: None,
            orphans: Orphans::default(),
            orphaned: <_>::default(),
        })
    }

    pub(crate) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Writes all calls durably, or nothing. The results are stored in the calls.
    pub(crate) fn write(&mut self, requests: &mut [WriteCall]) -> Result<(), Halt> {
        let is_of_memory =
            |request: &WriteCall| matches!(request, WriteCall::RenewSession(_) | WriteCall::Directory(_));
        if requests.iter().all(is_of_memory) && !self.has_news_of_time() {
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

    /// Whether other connections have changed the database since the last call.
    pub(crate) fn take_changed_by_others(&mut self) -> bool {
        std::mem::take(&mut self.changed_by_others)
    }

    /// What may have changed since the last call. What others changed is not known.
    pub(crate) fn take_changes(&mut self) -> Changes {
        let changes = std::mem::take(&mut self.changes);
        if self.take_changed_by_others() { BY_OTHERS } else { changes }
    }

    /// Checks whether other connections have changed the database.
    pub(crate) fn notice_changes(&mut self) -> rusqlite::Result<()> {
        let data_version = self.tables.data_version()?;
        if data_version != self.data_version {
            self.unread.forget();
            self.tables.forget();
            self.clock.look(self.connection)?;
            self.sessions.reload(self.connection)?;
            self.has_graves = None;
            self.changed_by_others = true;
            self.data_version = data_version;
        }
        Ok(())
    }

    /// Replies to calls that look for work if there is none, without waiting for the file.
    fn find_nothing_to_do(&mut self, requests: &mut [WriteCall]) -> rusqlite::Result<bool> {
        for request in &*requests {
            let is_idle = match request {
                WriteCall::TakeTasks(_) => !tasks::any_to_take(self.connection, self.clock.now_ms())?,
                WriteCall::Sweep(call) => {
                    self.orphaned = self.orphans.look(self.connection)?;
                    let is_orphaned = !self.orphaned.0.is_empty() || !self.orphaned.1.is_empty();
                    !is_orphaned
                        && !delete::any_to_sweep(self.connection, &call.arguments, self.clock.now_ms())?
                }
                _ => false,
            };
            if !is_idle {
                return Ok(false);
            }
        }
        self.notice_changes()?;
        for request in requests {
            match request {
                WriteCall::TakeTasks(call) => call.result = Some(Ok(Vec::new())),
                WriteCall::Sweep(call) => call.result = Some(Ok(Swept::default())),
                _ => {}
            }
        }
        Ok(true)
    }

    fn attempt(&mut self, requests: &mut [WriteCall], pace: Pace) -> Result<(), Halt> {
        wait_out(self.busy_patience, || self.tables.begin())?;
        match self.write_within(requests, pace) {
            Ok(()) => {}
            Err(halt) => {
                self.roll_back();
                return Err(halt);
            }
        }
        match wait_out(self.busy_patience, || self.tables.commit()) {
            Ok(()) => {
                if let Some(mark) = self.marking.take() {
                    self.marked = Some(Some(mark));
                }
                if let Some(number) = self.numbering.take() {
                    (self.log_number, self.begins_log) = (Some(number), false);
                }
                Ok(())
            }
            Err(error) => {
                self.roll_back();
                Err(Halt::Commit(error))
            }
        }
    }

    fn write_within(&mut self, requests: &mut [WriteCall], pace: Pace) -> Result<(), Halt> {
        self.notice_changes()?;
        requests.iter_mut().try_for_each(|request| self.apply(request, pace))?;
        let session_ends = requests.iter().any(|request| matches!(request, WriteCall::EndSession(_)));
        self.mark_time(session_ends)?;
        Ok(self.number_log()?)
    }

    /// The log was moved into the database: the next commit begins it again.
    pub(crate) fn begin_log(&mut self) {
        self.begins_log = true;
    }

    /// The number of the log.
    pub(crate) fn log_number(&self) -> Option<u64> {
        self.log_number
    }

    fn number_log(&mut self) -> rusqlite::Result<()> {
        if let Some(number) = self.log_number.filter(|_| self.begins_log) {
            log_number::write(self.connection, number + 1)?;
            self.numbering = Some(number + 1);
        }
        Ok(())
    }

    /// Whether guests have to be notified that the lead of the store's clock changed.
    fn has_news_of_time(&self) -> bool {
        self.marked.is_some_and(|marked| self.clock.mark().is_news(marked.unwrap_or_default()))
    }

    /// Writes the time, if that is due.
    fn mark_time(&mut self, session_ends: bool) -> rusqlite::Result<()> {
        let Some(marked) = self.marked else { return Ok(()) };
        let mark = self.clock.mark();
        if mark.is_due(marked, session_ends) {
            mark.write(self.connection)?;
            self.marking = Some(mark);
        }
        Ok(())
    }

    fn apply(&mut self, request: &mut WriteCall, pace: Pace) -> Result<(), Halt> {
        // The clock is read here, after the wait for the file: no lease starts expired.
        let (connection, now_ms) = (self.connection, self.clock.now_ms());
        match request {
            WriteCall::OpenSession(call) => {
                let new = &call.arguments;
                let opened = self.call(pace, |this| this.open_session(new, now_ms))?;
                call.result = Some(opened.flatten());
            }
            WriteCall::RenewSession(call) => {
                call.result = Some(self.sessions.renew(&call.arguments, now_ms));
            }
            WriteCall::EndSession(call) => {
                self.sessions.end(connection, call.arguments, now_ms)?;
                call.result = Some(Ok(()));
            }
            WriteCall::ClaimShards(call) => {
                let (session, target) = (call.arguments.session, call.arguments.target);
                let claimed =
                    self.call(pace, |this| this.sessions.claim(connection, session, target, now_ms))?;
                call.result = Some(claimed.flatten());
            }
            WriteCall::ReleaseShards(call) => {
                let (session, shards) = &call.arguments;
                self.sessions.release(connection, *session, shards, now_ms)?;
                call.result = Some(Ok(()));
            }
            WriteCall::ReplaceSession(call) => {
                let (old, new) = &call.arguments;
                let replaced = self.call(pace, |this| this.replace_session(*old, new, now_ms))?;
                call.result = Some(replaced.flatten());
            }
            WriteCall::WriteShardNotes(call) => {
                call.result = Some(self.write_shard_notes(&call.arguments, pace)?);
            }
            WriteCall::Directory(call) => call.result = Some(Ok(self.sessions.directory(now_ms))),
            WriteCall::Commit(call) => {
                let session = call.arguments.session;
                let members = call.arguments.members.iter();
                let outcomes = members.map(|member| self.commit(session, member, now_ms, pace));
                call.result = Some(Ok(outcomes.collect::<Result<_, _>>()?));
                self.sessions.touch(connection, session, now_ms)?;
            }
            WriteCall::Send(call) => call.result = Some(self.send(&call.arguments, pace)?),
            WriteCall::TakeTasks(call) => call.result = Some(self.take_tasks(&call.arguments, pace)?),
            WriteCall::RenewTasks(call) => call.result = Some(self.renew_tasks(&call.arguments, pace)?),
            WriteCall::FinishTask(call) => call.result = Some(self.finish_task(&call.arguments, pace)?),
            WriteCall::GiveBackTasks(call) => {
                let (holder, ids) = &call.arguments;
                for id in ids {
                    if let Some(shard) = tasks::give_back(connection, *holder, *id, now_ms)? {
                        self.changes.tasks.insert(shard);
                    }
                }
                call.result = Some(Ok(()));
            }
            WriteCall::PutRequest(call) => {
                let request = &call.arguments;
                let written = self.call(pace, |_| Ok(requests::put(connection, request, now_ms)?))?;
                if let Ok(Some((_, shard))) = written {
                    self.changes.requests.insert(shard);
                }
                call.result = Some(written.map(requests::outcome));
            }
            WriteCall::WithdrawRequest(call) => {
                call.result = Some(Ok(requests::delete(connection, call.arguments)?.is_some()));
            }
            WriteCall::Sweep(call) => {
                call.result = Some(Ok(self.sweep(&call.arguments, now_ms)?));
            }
            WriteCall::PruneExecutions(call) => call.result = Some(self.prune(&call.arguments)?),
            WriteCall::WriteSetting(call) => {
                let Setting { name, read, value } = &call.arguments;
                let (read, value) = (read.as_deref(), value.as_deref());
                let write = |_: &mut Self| Ok(requests::replace_setting(connection, name, read, value)?);
                call.result = Some(self.call(pace, write)?);
            }
            WriteCall::ImportRows(call) => {
                let (session, rows) = &call.arguments;
                call.result = Some(self.call(pace, |this| this.import(*session, rows))?);
            }
            WriteCall::Delete(call) => {
                let keys = call.arguments.iter();
                let outcomes = keys.map(|key| delete::delete(connection, *key));
                call.result = Some(Ok(outcomes.collect::<Result<_, _>>()?));
                self.has_graves = None;
                self.tables.forget();
            }
        }
        Ok(())
    }

    fn sweep(&mut self, sweep: &Sweep, now_ms: u64) -> rusqlite::Result<Swept> {
        let (messages, tasks) = std::mem::take(&mut self.orphaned);
        let orphaned = orphans::delete(self.connection, &messages, &tasks)?;
        let swept = delete::sweep(self.connection, sweep, now_ms)?;
        self.has_graves = None;
        self.tables.forget();
        Ok(Swept { rows: swept.rows + orphaned, ..swept })
    }

    fn open_session(
        &mut self,
        new: &NewSession,
        now_ms: u64,
    ) -> Result<Result<Lease, StoreError>, send::Stop> {
        import::check_not_moved(self.connection, new.role)?;
        Ok(self.sessions.open(self.connection, new, now_ms)?)
    }

    fn replace_session(
        &mut self,
        old: SessionId,
        new: &NewSession,
        now_ms: u64,
    ) -> Result<Result<Replaced, StoreError>, send::Stop> {
        import::check_not_moved(self.connection, new.role)?;
        self.sessions.replace(self.connection, old, new, now_ms)
    }

    fn import(&mut self, session: SessionId, rows: &[MovedRow]) -> Result<Imported, send::Stop> {
        if !self.sessions.is_open(session) {
            return Err(send::Stop::Row(StoreError::SessionGone));
        }
        self.unread.forget();
        import::import(&mut self.tables, rows)
    }

    fn send(&mut self, requests: &[SendRequest], pace: Pace) -> Called<Vec<SendOutcome>> {
        self.call(pace, |this| {
            let now_ms = this.clock.now_ms();
            let (tables, unread, changes) = (&mut this.tables, &mut this.unread, &mut this.changes);
            requests.iter().map(|request| send::write(tables, unread, changes, now_ms, request)).collect()
        })
    }

    fn take_tasks(&mut self, take: &TaskTake, pace: Pace) -> Called<Vec<TaskRow>> {
        let now_ms = self.clock.now_ms();
        let until_ms = now_ms.saturating_add(take.lease_ms);
        self.call(pace, |this| {
            let (holder, served, changes) = (take.holder, &take.served, &mut this.changes);
            let is_live = |holder| this.sessions.is_live(holder, now_ms);
            tasks::end_leases(this.connection, now_ms, is_live, changes)?;
            Ok(tasks::take(this.connection, holder, served, take.limit, (now_ms, until_ms))?)
        })
    }

    fn renew_tasks(&mut self, renewals: &TaskRenewals, pace: Pace) -> Called<Vec<TaskRenewal>> {
        let now_ms = self.clock.now_ms();
        let times = (now_ms, now_ms.saturating_add(renewals.lease_ms));
        self.call(pace, |this| {
            let renew = |report| tasks::renew(this.connection, renewals.holder, report, times);
            Ok(renewals.tasks.iter().map(renew).collect::<Result<_, _>>()?)
        })
    }

    fn finish_task(&mut self, end: &TaskEnd, pace: Pace) -> Called<bool> {
        self.call(pace, |this| {
            let finished = tasks::finish(this.connection, end.holder, end.task, end.attempt)?;
            let Some(shard) = finished else { return Ok(false) };
            let key = end.task.key;
            let message = Message::plain(key, shard, &end.body);
            let appended = this.tables.append_to_key(&message, this.clock.now_ms())?;
            if appended.number().is_some() {
                this.unread.appended(key);
                this.changes.inbox.insert(shard);
            }
            Ok(true)
        })
    }

    fn write_shard_notes(&mut self, noted: &ShardNotes, pace: Pace) -> Called<()> {
        let ShardNotes { session, notes, is_steady } = noted;
        if !self.sessions.is_open(*session) {
            return Ok(Err(StoreError::SessionGone));
        }
        self.call(pace, |this| {
            for (shard, note) in notes {
                shards::note(this.connection, *session, *shard, note.as_deref(), *is_steady)?;
            }
            Ok(())
        })
    }

    fn prune(&mut self, pruning: &Pruning) -> Called<Swept> {
        let Pruning { session, shard, key, execution, rows } = *pruning;
        if self.sessions.owner(shard) != Some(session) {
            return Ok(Err(StoreError::SessionGone));
        }
        Ok(Ok(delete::prune(self.connection, key.as_bytes(), bound(execution), rows)?))
    }

    fn commit(
        &mut self,
        session: SessionId,
        member: &Commit,
        now_ms: u64,
        pace: Pace,
    ) -> Result<CommitOutcome, Halt> {
        if !self.sessions.owns_at(session, member.shard, member.epoch) {
            return Ok(CommitOutcome::Fenced);
        }
        let has_graves = match self.has_graves {
            Some(has_graves) => has_graves,
            None => *self.has_graves.insert(delete::any_grave(self.connection)?),
        };
        if pace == Pace::Careful {
            self.connection.execute_batch("SAVEPOINT member")?;
        }
        let mut scope = WriteScope {
            tables: &mut self.tables,
            unread: &mut self.unread,
            has_graves,
            now_ms,
            changes: &mut self.changes,
            owned: &|shard| self.sessions.owner(shard) == Some(session),
        };
        let stop = match commit::write(&mut scope, member) {
            Ok(outcome) => {
                if pace == Pace::Careful {
                    self.connection.execute_batch("RELEASE member")?;
                }
                if member.send.iter().any(Outgoing::may_delete) {
                    // An instance may have been deleted.
                    self.has_graves = None;
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
                self.tables.forget();
                self.connection.execute_batch("ROLLBACK TO member; RELEASE member")?;
                Ok(outcome)
            }
        }
    }

    /// Writes one call. If a part of it can never be stored, nothing of the call is written.
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
                self.tables.forget();
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
        self.changes = Changes::default();
        self.marking = None;
        self.numbering = None;
        self.has_graves = None;
        self.tables.forget();
        // Some errors have already rolled it back.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(target: log::STORE, %error, "transaction cannot be rolled back");
        }
    }
}

/// Why one member cannot be stored; other errors concern the whole transaction.
fn refusal(error: rusqlite::Error) -> Result<String, Halt> {
    match Trouble::of(&error) {
        Trouble::Refused => Ok(error.to_string()),
        Trouble::Busy | Trouble::Passing | Trouble::Lasting => Err(Halt::Write(error)),
    }
}

fn touches_sessions(request: &WriteCall) -> bool {
    matches!(
        request,
        WriteCall::OpenSession(_)
            | WriteCall::RenewSession(_)
            | WriteCall::EndSession(_)
            | WriteCall::ClaimShards(_)
            | WriteCall::ReleaseShards(_)
            | WriteCall::ReplaceSession(_)
    )
}
