//! Long histories and many activities, page by page.

use perennial_core::store::{
    InstanceRow, PageLimit, Reply, Store, StoreError, TaskId, TaskRow, TurnReader, TurnRow,
};
use perennial_core::{Event, EventId, HistoryError, InstanceKey, Timestamp, Turn, TurnFailure};
use serde::Serialize;

use super::Client;
use crate::error::ClientError;

/// The most bytes of turns that a page has, unless one turn alone is larger.
const PAGE_BYTES: u64 = 4 << 20;

/// Consecutive turns of one execution. See [`Client::turn_page`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnPage {
    /// The key of the instance.
    pub key: InstanceKey,
    /// The execution that the turns belong to.
    pub execution: u64,
    /// The number of the instance's current execution.
    pub current: u64,
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// Whether the execution may have more turns after these.
    pub more: bool,
}

/// An event of a history, and the turn that recorded it. See [`Client::find_event`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FoundEvent {
    /// The number of the turn.
    pub turn: u64,
    /// The time of the turn.
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// Its number and what it records.
    #[serde(flatten)]
    pub event: Event,
}

/// Activities with rows of their own, of all instances. See [`Client::task_page`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TaskPage {
    /// The rows, ordered by id, without inputs and heartbeat details.
    pub rows: Vec<TaskRow>,
    /// Pass it to [`Client::task_page`] for the next page; `None` if this is the last.
    pub next: Option<TaskId>,
}

impl Client {
    /// Returns turns of an execution after turn `after_turn`: at most `limit`, and fewer if they are large. A history of
    /// any length can be read like this.
    ///
    /// Each page is verified by itself, and with the turn before it. An execution that does not exist or was deleted is
    /// [`ClientError::NoExecution`].
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
    /// let page = client.turn_page("hello-1", 1, 0, 100).await?;
    /// assert_eq!((page.turns.len(), page.more), (1, false));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn turn_page(
        &self,
        id: &str,
        execution: u64,
        after_turn: u64,
        limit: usize,
    ) -> Result<TurnPage, ClientError> {
        self.turn_page_within(id, execution, after_turn, limit, PAGE_BYTES).await
    }

    /// Returns turns of an execution like [`Client::turn_page`], with at most so many bytes, unless one turn alone is
    /// larger.
    pub async fn turn_page_within(
        &self,
        id: &str,
        execution: u64,
        after_turn: u64,
        limit: usize,
        bytes: u64,
    ) -> Result<TurnPage, ClientError> {
        let row = self.row(id).await?;
        // The turn before the page is what the first turn of the page is chained to.
        let (from, rows) = (after_turn.saturating_sub(1), limit.max(1) + usize::from(after_turn > 0));
        let mut read = self.turn_rows_after(&row, execution, from, (rows, bytes)).await?;
        let mut reader = TurnReader::new(row.key);
        if after_turn > 0 && read.first().is_some_and(|first| first.number == after_turn) {
            reader = TurnReader::after(row.key, &read.remove(0));
            // A very large turn may have filled the page.
            if read.is_empty() && rows > 1 {
                read = self.turn_rows_after(&row, execution, after_turn, (limit.max(1), bytes)).await?;
            }
        } else if after_turn > 0 {
            // There is no such turn yet, so none follows.
            read.clear();
        }
        if read.is_empty() && execution != row.execution {
            let is_stored = !self.turn_rows_after(&row, execution, 0, (1, 0)).await?.is_empty();
            if !is_stored {
                let (id, current) = (id.to_owned(), row.execution);
                return Err(ClientError::NoExecution { id, execution, current });
            }
        }
        let turns =
            read.iter().map(|turn| reader.read_with(&self.codecs, turn)).collect::<Result<Vec<_>, _>>();
        let turns = turns.map_err(|error| corrupt(&row, error))?;
        let last = turns.last().map_or(after_turn, |turn| turn.number);
        let more =
            !turns.is_empty() && !self.turn_rows_after(&row, execution, last, (1, 0)).await?.is_empty();
        Ok(TurnPage { key: row.key, execution, current: row.execution, turns, more })
    }

    /// Returns the number of the last turn of an execution, 0 if it has none. Reads few rows, however long the history
    /// is.
    pub async fn last_turn(&self, id: &str, execution: u64) -> Result<u64, ClientError> {
        let row = self.row(id).await?;
        self.last_turn_of(&row, execution).await
    }

    pub(super) async fn last_turn_of(&self, row: &InstanceRow, execution: u64) -> Result<u64, ClientError> {
        let exists = async |turn: u64| -> Result<bool, ClientError> {
            Ok(!self.turn_rows_after(row, execution, turn - 1, (1, 0)).await?.is_empty())
        };
        // Turns count 1, 2, 3, … without a gap.
        let (mut known, mut step) = (0, 1);
        while exists(known + step).await? {
            known += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if exists(known + step).await? {
                known += step;
            }
        }
        Ok(known)
    }

    /// Finds an event of an execution by its number. Reads few turns, however long the history is. `None` if the
    /// execution has no such event.
    pub async fn find_event(
        &self,
        id: &str,
        execution: u64,
        event: EventId,
    ) -> Result<Option<FoundEvent>, ClientError> {
        let (mut before, mut until) = (0, self.last_turn(id, execution).await?);
        // The events of a turn are numbered after those of the turns before it.
        while before < until {
            let middle = before + (until - before) / 2;
            let page = self.turn_page(id, execution, middle, 1).await?;
            let Some(turn) = page.turns.into_iter().next() else { return Ok(None) };
            let range = turn.events.first().map(|first| first.id)..=turn.events.last().map(|last| last.id);
            match Some(event) {
                wanted if wanted < *range.start() => until = middle,
                wanted if wanted > *range.end() => before = middle + 1,
                _ => {
                    let (number, at) = (turn.number, turn.at());
                    let found = turn.events.into_iter().find(|found| found.id == event);
                    return Ok(found.map(|event| FoundEvent { turn: number, at, event }));
                }
            }
        }
        Ok(None)
    }

    /// Returns activities with rows of their own, of all instances: those that are retried, wait for a node that can run
    /// them, or run on another node.
    pub async fn task_page(&self, after: Option<TaskId>, limit: usize) -> Result<TaskPage, ClientError> {
        let limit = limit.max(1);
        let rows = self.call("", |store, reply| store.list_tasks(after, limit, reply)).await?;
        let next = rows.last().filter(|_| rows.len() >= limit).map(|last| last.id);
        Ok(TaskPage { rows, next })
    }

    async fn turn_rows_after(
        &self,
        row: &InstanceRow,
        execution: u64,
        after_turn: u64,
        (rows, bytes): (usize, u64),
    ) -> Result<Vec<TurnRow>, ClientError> {
        let (shard, key, limit) = (row.shard, row.key, PageLimit { rows, bytes });
        let read = |store: &dyn Store, reply: Reply<Vec<TurnRow>>| {
            store.read_turns(shard, key, execution, after_turn, limit, reply);
        };
        self.call(&row.id, read).await
    }
}

fn corrupt(row: &InstanceRow, error: HistoryError) -> ClientError {
    let source = StoreError::CorruptRow(TurnFailure::from(error).to_string());
    ClientError::Store { id: row.id.clone(), source }
}
