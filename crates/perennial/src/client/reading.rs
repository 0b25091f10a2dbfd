//! Reading one instance: its status, its histories, its ending.

use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use perennial_core::codec::is_encoded;
use perennial_core::shard::{Message, Request, Response};
use perennial_core::store::{
    Blocked, InstanceRow, LoadedInstance, PageLimit, Reply, Store, StoreError, TurnRow, read_turns,
    read_turns_with,
};
use perennial_core::{
    Ending, History, HistoryError, InstanceKey, Job, Ledger, Payload, ShardId, TurnFailure, check_derived_id,
};

use serde::de::DeserializeOwned;

use super::sending::{LocalOutcome, bound, outcome_of};
use super::{Client, InstanceView, check};
use crate::error::{ClientError, Error};
use crate::export::{ExportedExecution, ExportedInstance};
use crate::filter::Filter;
use crate::typed::Run;

/// How many turns are read at a time.
const TURNS_PER_PAGE: PageLimit = PageLimit { rows: 1_000, bytes: 16 << 20 };
/// How many executions are searched for an event or update with a key.
const MAX_EXECUTIONS_SEARCHED: u64 = 1_000;
/// The shortest and the longest pause between two reads while waiting. Hints of the store end a pause early.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// More messages than an instance can have unread.
const UNREAD: PageLimit = PageLimit { rows: 20_000, bytes: 64 << 20 };

impl Client {
    /// Waits for an instance to end and returns its result as a payload. [`Client::run`] returns it with its
    /// types.
    pub async fn result(&self, id: &str) -> Result<Payload, Error> {
        let run: Run = Run::new(self.clone(), id, self.only, false, Ok, Ok);
        Ok(run.result_of(self.only).await?)
    }

    /// Like [`result`](Client::result), but returns [`ClientError::Elapsed`] after `limit`. The instance
    /// continues to run.
    pub async fn result_within(&self, id: &str, limit: Duration) -> Result<Payload, Error> {
        match tokio::time::timeout(limit, self.result(id)).await {
            Ok(result) => result,
            Err(_) => Err(self.elapsed(id, limit).await.into()),
        }
    }

    /// The error of a wait that took too long. It says whether the instance is blocked, if the store can tell soon.
    pub(crate) async fn elapsed(&self, id: &str, limit: Duration) -> ClientError {
        let row = tokio::time::timeout(LOOK_PAUSES.1, self.row(id)).await;
        let blocked = row.ok().and_then(Result::ok).and_then(|row| row.blocked);
        let blocked = blocked.filter(|blocked| !blocked.is_waiting());
        ClientError::Elapsed { id: id.to_owned(), limit, blocked: blocked.map(|blocked| blocked.reason) }
    }

    /// Like [`result`](Client::result), but returns [`ClientError::Blocked`] with the reason as soon as the
    /// instance is blocked or paused. A retry, skip or resume that was accepted before is awaited first.
    pub async fn result_unless_blocked(&self, id: &str) -> Result<Payload, Error> {
        // Binds the wait to the instance that has the id now.
        let key = self.row(id).await?.key;
        let run: Run = Run::new(self.clone(), id, Some(key), false, Ok, Ok);
        Ok(run.result_of_unless_blocked(Some(key)).await?)
    }

    /// Waits until an instance is blocked, and returns that as an error. Errors of the store are returned,
    /// too.
    pub(crate) async fn until_blocked(&self, id: &str, key: Option<InstanceKey>) -> ClientError {
        match self.look_until(id, || self.examined_block(id, key)).await {
            Ok(Blocked { code, reason, .. }) => ClientError::Blocked { id: id.to_owned(), code, reason },
            Err(error) => error,
        }
    }

    /// The block of an instance, if no request is waiting that may end the block. The requests of other
    /// processes are accepted before the owner reads them.
    async fn examined_block(
        &self,
        id: &str,
        key: Option<InstanceKey>,
    ) -> Result<Option<Blocked>, ClientError> {
        let row = self.row_of(id, key).await?;
        if row.blocked.as_ref().is_none_or(Blocked::is_waiting) {
            return Ok(None);
        }
        // One read, so that the block and the messages belong together.
        let read = |store: &dyn Store, reply: Reply<Option<LoadedInstance>>| {
            store.load(row.shard, row.key, u64::MAX, UNREAD, reply);
        };
        let loaded = self.as_stored().call(id, read).await?;
        let LoadedInstance { row, inbox, .. } =
            loaded.ok_or_else(|| ClientError::NotFound { id: id.to_owned() })?;
        // A message that the owner has examined is no longer urgent, even if it stays in the inbox.
        let mut unexamined = inbox.rows.iter().filter(|message| message.urgent);
        Ok(row.blocked.filter(|blocked| !unexamined.any(|message| may_end(blocked, &message.body))))
    }

    /// Waits for an instance to end and returns how. A blocked instance has not ended; see
    /// [`Client::status`].
    pub async fn wait(&self, id: &str) -> Result<Ending, ClientError> {
        let ending = self.wait_bound(id, self.only).await;
        self.tell_apart(id, ending).await
    }

    /// Waits for the instance with the key to end, if given, and not for another one that has its id now.
    pub(crate) async fn wait_bound(&self, id: &str, key: Option<InstanceKey>) -> Result<Ending, ClientError> {
        check("instance id", id, check_derived_id)?;
        let reached = match self.request_here(id, bound(key, Request::AwaitEnd)).await? {
            LocalOutcome::Here(Response::Ended(ending)) => return Ok(*ending),
            LocalOutcome::Here(Response::EndedRow(row)) => return self.ending_of(&row).await,
            LocalOutcome::Here(Response::EndedBefore) => return self.stored_ending(id, key).await,
            LocalOutcome::Here(answer) => {
                outcome_of(id, answer)?;
                None
            }
            LocalOutcome::Elsewhere { reached } => reached,
        };
        // Binds the wait to the instance that has the id at the first read.
        let key = match key.or(reached) {
            Some(key) => Some(key),
            None => Some(self.row(id).await?.key),
        };
        self.look_until(id, || async move {
            let is_over = self.row_of(id, key).await?.status.is_final();
            if is_over { self.stored_ending(id, key).await.map(Some) } else { Ok(None) }
        })
        .await
    }

    /// Waits until the published status of an instance meets a condition, and returns that status.
    ///
    /// The status is read when the store hints at a change, and periodically. A status that is soon replaced
    /// may be missed, so test for something that stays true, such as a phase that has been reached. If the
    /// instance ends without meeting the condition, the result is [`ClientError::Ended`]; limit the time with
    /// `tokio::time::timeout`.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const GO: ExternalEvent<()> = ExternalEvent::named("go");
    ///
    /// #[orchestration]
    /// async fn copy(ctx: OrchestrationContext, files: u32) -> Result<(), String> {
    ///     for done in 1..=files {
    ///         ctx.set_status(done);
    ///     }
    ///     Ok(ctx.schedule_wait(GO).await)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(copy).start().await?;
    /// # let client = runtime.client();
    /// client.start(copy, "copy-1", 3).await?;
    /// let done = client.wait_for("copy-1", |done: &u32| *done >= 2).await?;
    /// assert_eq!(done, 3);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn wait_for<T: DeserializeOwned>(
        &self,
        id: &str,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<T, ClientError> {
        // Binds the wait to the instance that has the id at the first read.
        let mut row = self.row(id).await?;
        let key = Some(row.key);
        loop {
            if let Some(published) = &row.published {
                if is_encoded(published) {
                    let (id, marker) = (id.to_owned(), published.clone());
                    return Err(ClientError::Encoded { id, marker });
                }
                let status = published.decode_as::<T>();
                let status = status.map_err(|problem| ClientError::unreadable(id, &problem))?;
                if condition(&status) {
                    return Ok(status);
                }
            }
            if row.status.is_final() {
                return Err(ClientError::Ended { id: id.to_owned() });
            }
            let seen = &row.published;
            row = self
                .look_until(id, || async move {
                    let row = self.row_of(id, key).await?;
                    let is_news = row.published != *seen || row.status.is_final();
                    Ok(is_news.then_some(row))
                })
                .await?;
        }
    }

    /// Calls `look` until it returns something: whenever the store hints at a change in the instance's shard, and
    /// periodically.
    pub(super) async fn look_until<T, F: Future<Output = Result<Option<T>, ClientError>>>(
        &self,
        id: &str,
        look: impl Fn() -> F,
    ) -> Result<T, ClientError> {
        let shard = ShardId::of(id);
        let mut pause = LOOK_PAUSES.0;
        loop {
            let hint = self.changed.of(shard);
            if let Some(found) = look().await? {
                return Ok(found);
            }
            // A lost hint only delays the next read.
            let _ = tokio::time::timeout(pause, hint).await;
            pause = (pause * 2).min(LOOK_PAUSES.1);
        }
    }

    pub(super) async fn stored_ending(
        &self,
        id: &str,
        key: Option<InstanceKey>,
    ) -> Result<Ending, ClientError> {
        let row = self.row_of(id, key).await?;
        self.ending_of(&row).await
    }

    /// How the instance of a final row ended.
    async fn ending_of(&self, row: &InstanceRow) -> Result<Ending, ClientError> {
        let rows = self.turn_rows_until(row, row.execution, TurnRow::is_ending).await?;
        let history = self.decode_turns(row, &rows)?;
        let reason = "it ended, but its last turn contains no ending".to_owned();
        history.ending().cloned().ok_or_else(|| ClientError::Unknown { id: row.id.clone(), reason })
    }

    /// Returns the status of an instance.
    pub async fn status(&self, id: &str) -> Result<InstanceView, ClientError> {
        self.row(id).await.map(InstanceView::from)
    }

    /// The row of an id, if it is the instance with a key.
    pub(super) async fn row_of(
        &self,
        id: &str,
        key: Option<InstanceKey>,
    ) -> Result<InstanceRow, ClientError> {
        let row = self.row(id).await?;
        if key.is_some_and(|key| key != row.key) {
            return Err(ClientError::NotFound { id: id.to_owned() });
        }
        Ok(row)
    }

    pub(crate) async fn row(&self, id: &str) -> Result<InstanceRow, ClientError> {
        check("instance id", id, check_derived_id)?;
        let row = self.call(id, |store, reply| store.find(id, reply)).await?;
        match (row, self.only) {
            (Some(row), Some(key)) if row.key != key => {
                Err(ClientError::AnotherInstance { id: id.to_owned(), key })
            }
            (Some(row), _) => Ok(row),
            (None, _) => Err(ClientError::NotFound { id: id.to_owned() }),
        }
    }

    /// Returns the history of an instance's current execution.
    pub async fn history(&self, id: &str) -> Result<History, ClientError> {
        let row = self.row(id).await?;
        self.turns(&row, row.execution).await
    }

    /// Returns the instance with a key, `None` if there is none. Keys never name another instance, unlike ids.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// # #[orchestration]
    /// # async fn greet(_: OrchestrationContext, name: String) -> Result<String, String> { Ok(name) }
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(greet).start().await?;
    /// # let client = runtime.client();
    /// client.start(greet, "hello-1", "Ada".to_owned()).await?.result().await?;
    /// let key = client.status("hello-1").await?.key;
    /// assert_eq!(client.find_by_key(key).await?.unwrap().id, "hello-1");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn find_by_key(&self, key: InstanceKey) -> Result<Option<InstanceView>, ClientError> {
        Ok(self.find_row_by_key(key).await?.map(InstanceView::from))
    }

    /// The row of the instance with a key, with the engine's internal columns. For filters.
    #[doc(hidden)]
    pub async fn find_row_by_key(&self, key: InstanceKey) -> Result<Option<InstanceRow>, ClientError> {
        // Lists are in the order of keys: the first one after the key before this one.
        let before = u128::from_be_bytes(*key.as_bytes()).checked_sub(1);
        let after = before.map(|before| InstanceKey::from_bytes(before.to_be_bytes()));
        let page = self.list_rows(Filter::new(), after, 1).await?;
        Ok(page.rows.into_iter().next().filter(|row| row.key == key))
    }

    /// Returns the history of one execution of an instance: 1, and one more with each continue-as-new. An
    /// execution that does not exist or was deleted is an error; the history of the current one may be empty.
    pub async fn history_of(&self, id: &str, execution: u64) -> Result<History, ClientError> {
        let row = self.row(id).await?;
        let history = self.turns(&row, execution).await?;
        if history.turns.is_empty() && execution != row.execution {
            let (id, current) = (id.to_owned(), row.execution);
            return Err(ClientError::NoExecution { id, execution, current });
        }
        Ok(history)
    }

    /// Returns the numbers of the executions of an instance that are stored. The last one is the current one; the
    /// oldest ones may have been deleted, see
    /// [`RuntimeOptions::keep_executions`](crate::RuntimeOptions::keep_executions).
    pub async fn executions(&self, id: &str) -> Result<RangeInclusive<u64>, ClientError> {
        let row = self.row(id).await?;
        self.stored_executions(&row).await
    }

    /// Finds the oldest stored execution by bisection: executions are deleted oldest first.
    async fn stored_executions(&self, row: &InstanceRow) -> Result<RangeInclusive<u64>, ClientError> {
        let (shard, key) = (row.shard, row.key);
        let (mut deleted, mut stored) = (0, row.execution);
        while deleted + 1 < stored {
            let execution = deleted + (stored - deleted) / 2;
            let first = |store: &dyn Store, reply: Reply<Vec<TurnRow>>| {
                store.read_turns(shard, key, execution, 0, PageLimit { rows: 1, bytes: 1 }, reply);
            };
            match self.as_stored().call(&row.id, first).await?.is_empty() {
                true => deleted = execution,
                false => stored = execution,
            }
        }
        Ok(stored..=row.execution)
    }

    /// Returns an instance with all its stored executions, for an export file.
    pub async fn export(&self, id: &str) -> Result<ExportedInstance, ClientError> {
        let row = self.row(id).await?;
        let mut executions = Vec::new();
        for execution in self.stored_executions(&row).await? {
            let turns = self.turns(&row, execution).await?.turns;
            executions.push(ExportedExecution { execution, turns });
        }
        let status = Some(row.status);
        Ok(ExportedInstance { id: row.id, name: row.name, version: row.version, status, executions })
    }

    /// Searches the executions of an instance, latest first. At most 1,000 are read: keys of events and
    /// updates are remembered for no longer. The search ends at a deleted execution, since all earlier ones
    /// are deleted, too.
    pub(super) async fn search_executions<T>(
        &self,
        row: &InstanceRow,
        mut look: impl FnMut(u64, &History) -> Option<T>,
    ) -> Result<Option<T>, ClientError> {
        let oldest = row.execution.saturating_sub(MAX_EXECUTIONS_SEARCHED);
        for execution in (oldest + 1..=row.execution).rev() {
            let history = self.turns(row, execution).await?;
            if history.turns.is_empty() && execution < row.execution {
                return Ok(None);
            }
            if let Some(found) = look(execution, &history) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(crate) async fn turn_rows(
        &self,
        row: &InstanceRow,
        execution: u64,
    ) -> Result<Vec<TurnRow>, ClientError> {
        self.turn_rows_until(row, execution, |_| false).await
    }

    /// Reads turns until a page ends with one that is the last, or until there are no more.
    async fn turn_rows_until(
        &self,
        row: &InstanceRow,
        execution: u64,
        is_last: fn(&TurnRow) -> bool,
    ) -> Result<Vec<TurnRow>, ClientError> {
        let (shard, key) = (row.shard, row.key);
        let mut rows: Vec<TurnRow> = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row| row.number);
            let limit = TURNS_PER_PAGE;
            let read = |store: &dyn Store, reply: Reply<Vec<TurnRow>>| {
                store.read_turns(shard, key, execution, after, limit, reply);
            };
            let page = self.call(&row.id, read).await?;
            if page.is_empty() {
                return Ok(rows);
            }
            rows.extend(page);
            if rows.last().is_some_and(is_last) {
                return Ok(rows);
            }
        }
    }

    pub(super) async fn turns(&self, row: &InstanceRow, execution: u64) -> Result<History, ClientError> {
        let rows = self.turn_rows(row, execution).await?;
        self.decode_turns(row, &rows)
    }

    fn decode_turns(&self, row: &InstanceRow, rows: &[TurnRow]) -> Result<History, ClientError> {
        let key = row.key;
        let mut ledger = Ledger::default();
        // Payloads that cannot be decoded here are shown as markers.
        let read = match read_turns_with(&self.codecs, key, rows) {
            Err(HistoryError::Undecodable { .. }) => read_turns(key, rows),
            read => read,
        };
        let read = read
            .and_then(|read| read.turns.iter().try_for_each(|turn| ledger.apply_turn(turn)).map(|()| read));
        let read = read.map_err(|error| {
            let source = StoreError::CorruptRow(TurnFailure::from(error).to_string());
            ClientError::Store { id: row.id.clone(), source }
        })?;
        Ok(History { turns: read.turns })
    }
}

/// Whether a message may end a block: a paused instance goes on only if it is resumed.
fn may_end(blocked: &Blocked, message: &[u8]) -> bool {
    match Message::decode(message) {
        Ok(Message::Terminate { .. }) => true,
        Ok(Message::Resume(_)) => blocked.pause.is_some(),
        Ok(Message::Retry | Message::SkipMessage { .. } | Message::Job(Job::ExternalEventSkipped { .. })) => {
            blocked.pause.is_none()
        }
        _ => false,
    }
}
