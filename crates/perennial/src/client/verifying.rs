//! Reading a whole store and checking that all of it is what an engine wrote.
//!
//! Nothing is written, and a runtime may work on the store meanwhile: the row of an instance, its current turns, its
//! messages and its tasks are read as of one moment. Requests and replies, which live for seconds, are left out.

use perennial_core::history::{History, HistoryError, Ledger, Turn};
use perennial_core::shard::{Message, TaskWork};
use perennial_core::store::{
    Filter, InstanceRow, LoadedInstance, PageLimit, ReadTurns, StoreError, TaskRow, TaskState, TurnRow,
    read_turns,
};
use perennial_core::{Ending, InstanceKey};

use super::Client;
use crate::error::ClientError;

/// How many instances are listed at a time.
const ROWS_PER_PAGE: usize = 500;
/// How many damaged rows a report names.
const NAMED: usize = 10_000;

/// How far a verification is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// How many instances have been read.
    pub instances: u64,
    /// How many there were when it began.
    pub of: u64,
    /// How many damaged rows were found.
    pub damaged: u64,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// How many instances were read.
    pub instances: u64,
    /// How many of their executions; older ones may have been pruned.
    pub executions: u64,
    /// How many turns.
    pub turns: u64,
    /// How many messages.
    pub messages: u64,
    /// How many tasks.
    pub tasks: u64,
    /// How many damaged rows were found.
    pub damaged: u64,
    /// What is damaged, in the order of the list: at most the first 10,000.
    pub damage: Vec<Damage>,
}

/// One damaged row, or a few that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The id of its instance, as far as it can be read.
    pub id: String,
    /// The key of its instance.
    pub key: InstanceKey,
    /// What is damaged: `row`, `execution 2`, `message 7` or `task 4`, by execution, number and event.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
}

impl VerifyReport {
    fn found(&mut self, row: &InstanceRow, what: impl Into<String>, problem: impl ToString) {
        self.damaged += 1;
        if self.damage.len() < NAMED {
            let (id, key) = (row.id.clone(), row.key);
            self.damage.push(Damage { id, key, what: what.into(), problem: problem.to_string() });
        }
    }
}

impl Client {
    /// Reads every instance of the store with all that belongs to it, and checks checksums, histories, messages and
    /// tasks. `progress` is told after each instance.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").start().await?;
    /// let report = runtime.client().verify(|progress| println!("{} instances", progress.instances)).await?;
    /// assert!(report.damage.is_empty());
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn verify(
        &self,
        mut progress: impl FnMut(&VerifyProgress),
    ) -> Result<VerifyReport, ClientError> {
        let mut report = VerifyReport::default();
        let count = self.call("", |store, reply| store.count(Filter::default(), u64::MAX, reply)).await?;
        let mut after = None;
        loop {
            let from = after.take();
            let list = |store: &dyn perennial_core::store::Store, reply| {
                store.list(Filter::default(), from, ROWS_PER_PAGE, reply);
            };
            let page = self.call("", list).await?;
            for row in &page.rows {
                self.verify_instance(row, &mut report).await?;
                let VerifyReport { instances, damaged, .. } = report;
                progress(&VerifyProgress { instances, of: count.rows.max(instances), damaged });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(report),
            }
        }
    }

    async fn verify_instance(
        &self,
        listed: &InstanceRow,
        report: &mut VerifyReport,
    ) -> Result<(), ClientError> {
        report.instances += 1;
        let (shard, key) = (listed.shard, listed.key);
        let load = |store: &dyn perennial_core::store::Store, reply| {
            store.load(shard, key, 0, PageLimit::rows(usize::MAX), reply);
        };
        let loaded = match self.call(&listed.id, load).await {
            Ok(Some(loaded)) => loaded,
            // It was deleted since it was listed.
            Ok(None) if listed.is_sound() => return Ok(()),
            Ok(None) => {
                report.found(listed, "row", "it cannot be read by its key");
                return Ok(());
            }
            Err(ClientError::Store { source: StoreError::CorruptRow(problem), .. }) => {
                report.found(listed, "row", problem);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let LoadedInstance { row, turns, inbox, tasks } = &loaded;
        if !row.is_sound() {
            let problem = "its checksum does not match its key, id, name, parent and time of creation";
            report.found(row, "row", problem);
        }
        let (mut has_start, before) = (false, report.damaged);
        for message in &inbox.rows {
            report.messages += 1;
            match Message::decode(&message.body) {
                Ok(message) => has_start |= matches!(message, Message::Start(_)),
                Err(problem) => report.found(row, format!("message {}", message.number), problem),
            }
        }
        for task in tasks {
            report.tasks += 1;
            if let Some(problem) = fault_of_task(task) {
                report.found(row, format!("task {}", task.id.event), problem);
            }
        }
        let is_readable = report.damaged == before;
        if turns.is_empty() && row.execution == 1 && !has_start && is_readable && !row.status.is_final() {
            report.found(row, "row", "it has neither turns nor a start");
        }
        self.verify_executions(row, turns, report).await
    }

    /// Checks the current execution, and those before it that were not pruned, newest first.
    async fn verify_executions(
        &self,
        row: &InstanceRow,
        current: &[TurnRow],
        report: &mut VerifyReport,
    ) -> Result<(), ClientError> {
        // What the first turn of the execution behind is chained to.
        let mut chain = None;
        for execution in (1..=row.execution).rev() {
            let older;
            let rows = if execution == row.execution {
                current
            } else {
                older = match self.turn_rows(row, execution).await {
                    Err(ClientError::Store { source: StoreError::CorruptRow(problem), .. }) => {
                        report.found(row, format!("execution {execution}"), problem);
                        return Ok(());
                    }
                    read => read?,
                };
                &older
            };
            if rows.is_empty() && execution < row.execution {
                return Ok(());
            }
            if rows.is_empty() {
                continue;
            }
            report.executions += 1;
            report.turns += rows.len() as u64;
            let what = format!("execution {execution}");
            let read = match checked(row.key, rows) {
                Ok(read) => read,
                Err(problem) => {
                    report.found(row, what, problem);
                    chain = None;
                    continue;
                }
            };
            let is_cut_off = chain.is_some_and(|chain| chain != read.checksum);
            chain = read.turns.first().and_then(Turn::started).map(|started| started.chain);
            let ending = History::from(read.turns).ending().cloned();
            let goes_on = matches!(ending, Some(Ending::OrchestrationContinuedAsNew { .. }));
            if is_cut_off || (execution < row.execution && !goes_on) {
                report.found(row, what, "it does not end where the next execution begins");
            } else if execution == row.execution && row.status.is_final() != (ending.is_some() && !goes_on) {
                let status = row.status.name();
                report.found(row, what, format!("its last turn is not that of an instance that is {status}"));
            }
        }
        Ok(())
    }
}

/// The turns of an execution, if they are one.
fn checked(key: InstanceKey, rows: &[TurnRow]) -> Result<ReadTurns, HistoryError> {
    let mut ledger = Ledger::default();
    let read = read_turns(key, rows)?;
    read.turns.iter().try_for_each(|turn| ledger.apply_turn(turn))?;
    Ok(read)
}

/// What is wrong with a task, if something is. What the owner runs itself has no work in its row.
fn fault_of_task(task: &TaskRow) -> Option<String> {
    match &task.work {
        Some(work) => TaskWork::decode(work).err().map(|problem| problem.to_string()),
        None if task.state == TaskState::Queued => Some("nobody can run it: it has no work".to_owned()),
        None => None,
    }
}
