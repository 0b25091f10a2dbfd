//! Reading a whole store and checking that all of it was written by the engine.
//!
//! Nothing is written, and a runtime may use the store at the same time: the row of an instance, its current
//! turns, its messages and its tasks are read as one snapshot. The row is compared with the history, from
//! which every column without a checksum can be derived.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::codec::{Codecs, is_encoded};
use perennial_core::history::{Decision, EventId, History, HistoryError, Ledger, Started, Turn};
use perennial_core::shard::{BodyError, CallReply, InstanceCall, Message, TaskWork};
use perennial_core::store::{
    Criteria, DamagedRow, InstanceRow, LoadedInstance, PageLimit, ReadTurns, Status, StoreError, TaskRow,
    TaskState, TurnRow, read_turns, read_turns_with,
};
use perennial_core::{Ending, InstanceKey, Payload};

use super::Client;
use crate::error::ClientError;

/// How many instances are listed at a time.
const ROWS_PER_PAGE: usize = 500;
/// How many other rows are checked at a time.
const ROWS_CHECKED: usize = 2_000;
/// How many damaged rows a report names.
const NAMED: usize = 10_000;

/// Instances that could not be loaded: id and problem by key.
type Unread = BTreeMap<InstanceKey, (String, String)>;

/// Progress of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Number of instances that have been read.
    pub instances: u64,
    /// Number of instances at the beginning.
    pub of: u64,
    /// Number of damaged rows found.
    pub damaged: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Number of instances that were read.
    pub instances: u64,
    /// Number of their executions; older ones may have been pruned.
    pub executions: u64,
    /// Number of turns.
    pub turns: u64,
    /// Number of messages.
    pub messages: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Number of requests from other processes.
    pub requests: u64,
    /// Number of replies to them.
    pub replies: u64,
    /// Number of damaged rows found.
    pub damaged: u64,
    /// The damaged rows, in the order of the list: at most the first 10,000.
    pub damage: Vec<Damage>,
}

/// A damaged row, or rows that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The id of the instance, as far as it can be read; empty if there is no such instance.
    pub id: String,
    /// The key of the instance, if the row names one that can be read.
    pub key: Option<InstanceKey>,
    /// The damaged part: `row`, `execution 2`, `message 7`, `task 4`, `request 3` or `reply 3`, by execution,
    /// number and event; or a row of a table by its row id, if it belongs to no instance.
    pub what: String,
    /// A description of the damage.
    pub problem: String,
}

impl VerifyReport {
    fn found(&mut self, row: &InstanceRow, what: impl Into<String>, problem: impl ToString) {
        let (id, key) = (row.id.clone(), Some(row.key));
        self.name(Damage { id, key, what: what.into(), problem: problem.to_string() });
    }

    fn name(&mut self, damage: Damage) {
        self.damaged += 1;
        if self.damage.len() < NAMED {
            self.damage.push(damage);
        }
    }
}

impl Client {
    /// Reads every instance of the store with all its rows, and checks checksums, histories, messages, tasks,
    /// requests and replies. `progress` is called after each instance.
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
        let stored = self.as_stored();
        let (mut report, mut unread) = (VerifyReport::default(), Unread::new());
        let count = stored.call("", |store, reply| store.count(Criteria::default(), u64::MAX, reply)).await?;
        let mut after = None;
        loop {
            let from = after.take();
            let list = |store: &dyn perennial_core::store::Store, reply| {
                store.list(Criteria::default(), from, ROWS_PER_PAGE, reply);
            };
            let page = stored.call("", list).await?;
            for row in &page.rows {
                stored.verify_instance(row, &mut report, &mut unread).await?;
                let VerifyReport { instances, damaged, .. } = report;
                progress(&VerifyProgress { instances, of: count.rows.max(instances), damaged });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        stored.verify_rows(&mut report, &mut unread).await?;
        // If none of its rows is reported, the instance as a whole is.
        for (key, (id, problem)) in unread {
            report.name(Damage { id, key: Some(key), what: "row".to_owned(), problem });
        }
        Ok(report)
    }

    /// Checks rows that belong to no instance, or are not read when an instance is loaded.
    async fn verify_rows(&self, report: &mut VerifyReport, unread: &mut Unread) -> Result<(), ClientError> {
        // Damage of an instance is not reported twice.
        let named: BTreeSet<InstanceKey> = report.damage.iter().filter_map(|damage| damage.key).collect();
        let mut after = None;
        loop {
            let from = after.take();
            let page = self.call("", |store, reply| store.check_rows(from, ROWS_CHECKED, reply)).await?;
            report.requests += page.requests.len() as u64;
            report.replies += page.replies.len() as u64;
            for DamagedRow { key, id, what, problem } in page.damage {
                if let Some(key) = key {
                    unread.remove(&key);
                }
                if key.is_none_or(|key| !named.contains(&key)) {
                    report.name(Damage { id: id.unwrap_or_default(), key, what, problem });
                }
            }
            for request in page.requests {
                if let Err(problem) = InstanceCall::decode(&request.body)
                    && !matches!(problem, BodyError::Undecodable(_))
                {
                    let (what, problem) = (format!("request {}", request.number), problem.to_string());
                    report.name(Damage { id: String::new(), key: Some(request.key), what, problem });
                }
            }
            for (number, body) in page.replies {
                if let Err(problem) = CallReply::decode(&body)
                    && !matches!(problem, BodyError::Undecodable(_))
                {
                    let (what, problem) = (format!("reply {number}"), problem.to_string());
                    report.name(Damage { id: String::new(), key: None, what, problem });
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn verify_instance(
        &self,
        listed: &InstanceRow,
        report: &mut VerifyReport,
        unread: &mut Unread,
    ) -> Result<(), ClientError> {
        report.instances += 1;
        let (shard, key) = (listed.shard, listed.key);
        let load = |store: &dyn perennial_core::store::Store, reply| {
            store.load(shard, key, 0, PageLimit::rows(usize::MAX), reply);
        };
        let loaded = match self.call(&listed.id, load).await {
            Ok(Some(loaded)) => loaded,
            // Deleted since it was listed.
            Ok(None) if listed.is_sound() => return Ok(()),
            Ok(None) => {
                report.found(listed, "row", "it cannot be read by its key");
                return Ok(());
            }
            Err(ClientError::Store { source: StoreError::CorruptRow(problem), .. }) => {
                unread.insert(listed.key, (listed.id.clone(), problem));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let LoadedInstance { row, turns, inbox, tasks } = &loaded;
        if !row.is_sound() {
            let problem = "its checksum does not match its key, id, name, parent and time of creation";
            report.found(row, "row", problem);
        }
        let (mut start, before) = (None, report.damaged);
        for message in &inbox.rows {
            report.messages += 1;
            match Message::decode(&message.body) {
                Ok(Message::Start(found)) => start = Some(found),
                Ok(_) => {}
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
        if turns.is_empty() && is_readable && !row.status.is_final() {
            match &start {
                None => report.found(row, "row", "it has neither turns nor a start"),
                Some(start) if row.blocked.is_none() && begins_late(row, start.not_before_ms) => {
                    report.found(row, "row", "it would begin later than it should");
                }
                Some(_) => {}
            }
        }
        if turns.is_empty() && row.status.is_final() {
            report.found(row, "row", "it has ended, and its last execution has no turns");
        }
        self.verify_executions(&loaded, report).await
    }

    /// Checks the current execution, and those before it that were not pruned, newest first.
    async fn verify_executions(
        &self,
        loaded: &LoadedInstance,
        report: &mut VerifyReport,
    ) -> Result<(), ClientError> {
        let LoadedInstance { row, turns: current, tasks, inbox } = loaded;
        // The chain value that the first turn of the next execution must have.
        let mut chain = None;
        // Whether the next execution was reset to a turn of this one, which then need not have an ending.
        let mut is_left = inbox.rows.iter().any(|message| starts_after_reset(&message.body));
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
            let (read, ledger) = match checked(&self.codecs, row.key, rows) {
                Ok(read) => read,
                Err(problem) => {
                    report.found(row, what, problem);
                    (chain, is_left) = (None, true);
                    continue;
                }
            };
            let is_cut_off = chain.is_some_and(|chain| chain != read.checksum);
            let started = read.turns.first().and_then(Turn::started).cloned();
            chain = started.as_ref().map(|started| started.chain);
            let ending = History::from(read.turns).ending().cloned();
            let continues = matches!(ending, Some(Ending::OrchestrationContinuedAsNew { .. }));
            let was_left = is_left;
            is_left = started.as_ref().is_some_and(|started| started.reset.is_some());
            if is_cut_off || (execution < row.execution && !continues && !was_left) {
                report.found(row, what, "it does not end where the next execution begins");
            } else if execution == row.execution && row.status.is_final() != (ending.is_some() && !continues)
            {
                let status = row.status.name();
                report.found(row, what, format!("its last turn is not that of an instance that is {status}"));
            } else if execution == row.execution
                && row.is_sound()
                && let Some(started) = &started
                && let Some(problem) = fault_of_row(row, started, &ledger, ending.as_ref(), tasks)
            {
                report.found(row, "row", problem);
            }
        }
        Ok(())
    }
}

/// Whether a message starts an execution after a reset.
fn starts_after_reset(body: &[u8]) -> bool {
    matches!(Message::decode(body), Ok(Message::Start(start)) if start.started.reset.is_some())
}

/// Whether a row agrees with its history, as far as the payload is not encoded.
fn is_same(row: Option<&Payload>, recorded: Option<&Payload>) -> bool {
    row == recorded || [row, recorded].into_iter().flatten().any(is_encoded)
}

fn is_attributed(row: &InstanceRow, ledger: &Ledger) -> bool {
    let recorded = ledger.attributes();
    row.attributes.len() == recorded.len()
        && row.attributes.iter().all(|(name, value)| is_same(Some(value), recorded.get(name)))
}

/// The turns of an execution, if they are valid. With codecs, checks that the payloads can be decoded.
fn checked(codecs: &Codecs, key: InstanceKey, rows: &[TurnRow]) -> Result<(ReadTurns, Ledger), HistoryError> {
    let mut ledger = Ledger::default();
    let read = if codecs.is_empty() { read_turns(key, rows)? } else { read_turns_with(codecs, key, rows)? };
    read.turns.iter().try_for_each(|turn| ledger.apply_turn(turn))?;
    Ok((read, ledger))
}

/// The column in which a row contradicts its history, if any.
fn fault_of_row(
    row: &InstanceRow,
    started: &Started,
    ledger: &Ledger,
    ending: Option<&Ending>,
    tasks: &[TaskRow],
) -> Option<&'static str> {
    let continues = matches!(ending, None | Some(Ending::OrchestrationContinuedAsNew { .. }));
    let checks = [
        (row.name == started.name, "its history is that of another orchestration"),
        (row.version == started.version, "its history is that of another version"),
        (row.parent == started.parent, "its history is that of another instance's child"),
        (is_attributed(row, ledger), "its attributes are not those that its code set"),
        (
            is_same(row.published.as_ref(), ledger.status()),
            "its published status is not the one that its code set",
        ),
        (row.status != Status::Pending, "it is pending, but has a history"),
        (
            continues || ending.is_some_and(|ending| Status::after(ending) == row.status),
            "its status is not that of its ending",
        ),
        (
            row.status.is_final() == row.ended_ms.is_some(),
            "it has ended without a time of its end, or the reverse",
        ),
    ];
    if let Some((_, problem)) = checks.into_iter().find(|(holds, _)| !holds) {
        return Some(problem);
    }
    if !continues || row.status.is_final() || row.blocked.is_some() {
        return None;
    }
    let has_task = |event: EventId| tasks.iter().any(|task| task.id.event == event);
    let is_activity = |decision: &Decision| matches!(decision, Decision::ActivityScheduled { .. });
    let mut open = ledger.open().filter(|(_, decision)| is_activity(decision));
    if !row.owed && open.any(|(event, _)| !has_task(event)) {
        return Some("an open activity has no task, so it would never run");
    }
    let timer = ledger.timers().next().map(|(due_ms, _)| due_ms);
    let waiting = tasks.iter().filter(|task| task.state == TaskState::Waiting).filter_map(|task| task.due_ms);
    let ends = [timer, started.deadline_ms].into_iter().flatten();
    let wakes_ms = ends.chain(waiting).min();
    // The owner computes the end of a grace period, since only it knows the times without an owner.
    if ledger.cancel_request().is_some() && row.wake_at_ms.is_none() {
        return Some("it is being cancelled, but is not woken at the end of the grace period");
    }
    let is_late = wakes_ms.is_some_and(|wakes_ms| row.wake_at_ms.is_none_or(|at_ms| at_ms > wakes_ms));
    is_late.then_some("it would be woken too late")
}

/// Whether an instance that has not begun is woken too late, or never.
fn begins_late(row: &InstanceRow, not_before_ms: Option<u64>) -> bool {
    row.wake_at_ms > not_before_ms || (row.wake_at_ms.is_none() && not_before_ms.is_some())
}

/// The damage of a task, if any. A task that the owner runs itself has no work in its row.
fn fault_of_task(task: &TaskRow) -> Option<String> {
    match &task.work {
        Some(work) => TaskWork::decode(work).err().map(|problem| problem.to_string()),
        None if task.state == TaskState::Queued => Some("no node can run it: it has no work".to_owned()),
        None => None,
    }
}
