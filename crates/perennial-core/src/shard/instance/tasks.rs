//! The task rows of an instance's current execution: what is stored or about to be, what is to be written next, and
//! when a row needs attention.
//!
//! A planned change is applied to these rows immediately, before its commit. While that commit is in progress nothing
//! reads the rows except a refresh, which skips them; and if the commit fails, the instance is blocked or loaded again,
//! and its rows with it.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{EventId, Ledger};
use crate::store::{Commit, SessionId, TaskChange, TaskRow, TaskState};

use super::super::block_reason::BlockReason;
use super::super::output::Output;
use super::super::task_work::decoded_details;
use super::in_flight::InFlight;

#[derive(Default)]
pub(super) struct Tasks {
    rows: BTreeMap<EventId, Row>,
    /// When rows need attention: a row may be listed with its due time and with its deadline.
    due: BTreeSet<(u64, EventId)>,
    /// When attempts whose start was noted become healthy.
    healthy_at: BTreeMap<EventId, u64>,
    /// How many rows the owner does not run now.
    elsewhere: usize,
    /// Whether the rows' deadlines are known; they follow from the history.
    has_deadlines: bool,
    /// Rows to write with the next commit, in the order in which they were added.
    writes: BTreeMap<EventId, Vec<TaskWrite>>,
    /// Whether the instance was hydrated and open activities without an attempt have not been looked for since.
    is_hydrated: bool,
    refresh: Refresh,
}

/// A row, and when the total timeout of its activity ends.
struct Row {
    row: TaskRow,
    deadline_ms: Option<u64>,
}

/// Whether rows and messages of the instance are being read again.
#[derive(Default)]
enum Refresh {
    #[default]
    None,
    /// The rows being read may not include the tasks given to other nodes since.
    Reading { given_meanwhile: BTreeSet<EventId> },
}

/// A task row that has to be durable before its attempt runs.
pub(super) struct TaskWrite {
    row: TaskRow,
    deadline_ms: Option<u64>,
    /// What follows once it is durable: an attempt starts, or is handed over.
    then: Option<Output>,
}

impl TaskWrite {
    /// What follows once it is durable. The write itself is kept in case the commit fails.
    fn then_output(&self) -> Option<Output> {
        match &self.then {
            Some(Output::RunActivity(task)) => Some(Output::RunActivity(task.clone())),
            Some(Output::HandOver(task)) => Some(Output::HandOver(task.clone())),
            _ => None,
        }
    }
}

impl Row {
    /// When it needs attention. The owner does not watch leases of other nodes, but it does watch the total timeout.
    fn times(&self) -> impl Iterator<Item = u64> {
        let is_leased = matches!(self.row.state, TaskState::Leased { .. });
        let due_ms = self.row.due_ms.filter(|_| !is_leased);
        let deadline_ms = self.deadline_ms.filter(|_| !is_owners(&self.row));
        due_ms.into_iter().chain(deadline_ms)
    }
}

/// Whether the owner itself runs a task now.
fn is_owners(row: &TaskRow) -> bool {
    matches!(row.state, TaskState::Leased { .. }) && row.due_ms.is_none()
}

/// Whether it is queued for other nodes, or one of them runs it.
fn is_others(row: &TaskRow) -> bool {
    !matches!(row.state, TaskState::Waiting) && !is_owners(row)
}

impl Tasks {
    /// Replaces the rows with loaded ones. Their deadlines are not known yet.
    pub(super) fn load(&mut self, rows: Vec<TaskRow>) {
        self.clear_rows();
        self.has_deadlines = false;
        rows.into_iter().for_each(|row| self.insert(row, None));
    }

    /// The reason why the details of a task cannot be decoded, if there is such a task.
    pub(super) fn undecodable(&self) -> Option<BlockReason> {
        self.rows.iter().find_map(|(event, Row { row, .. })| {
            let cause = decoded_details(row).err()?;
            Some(BlockReason::UndecodableDetails { event: *event, cause })
        })
    }

    /// Notes that the instance was hydrated, so that open activities without an attempt are looked for.
    pub(super) fn handle_hydrated(&mut self) {
        self.is_hydrated = true;
    }

    /// Derives the deadlines of loaded rows from the history.
    pub(super) fn learn_deadlines(&mut self, ledger: &Ledger) {
        if !std::mem::replace(&mut self.has_deadlines, true) {
            let rows = std::mem::take(&mut self.rows);
            self.clear_rows();
            for (event, Row { row, .. }) in rows {
                self.insert(row, ledger.activity_deadline_ms(event));
            }
        }
    }

    /// Removes all rows at the end of an execution.
    pub(super) fn clear(&mut self) {
        self.clear_rows();
        self.writes.clear();
    }

    fn clear_rows(&mut self) {
        self.rows.clear();
        self.due.clear();
        self.healthy_at.clear();
        self.elsewhere = 0;
    }

    fn insert(&mut self, row: TaskRow, deadline_ms: Option<u64>) {
        let event = row.id.event;
        let old = self.remove(event);
        let row = Row { row, deadline_ms: deadline_ms.or(old.and_then(|old| old.deadline_ms)) };
        self.due.extend(row.times().map(|at_ms| (at_ms, event)));
        self.elsewhere += usize::from(!is_owners(&row.row));
        self.rows.insert(event, row);
    }

    fn remove(&mut self, event: EventId) -> Option<Row> {
        let row = self.rows.remove(&event)?;
        for at_ms in row.times() {
            self.due.remove(&(at_ms, event));
        }
        self.elsewhere -= usize::from(!is_owners(&row.row));
        Some(row)
    }

    pub(super) fn get(&self, event: EventId) -> Option<&TaskRow> {
        self.rows.get(&event).map(|row| &row.row)
    }

    /// Until when another node is known to run a task; `None` if no other node has it, or its lease may have expired.
    pub(super) fn is_elsewhere(&self, event: EventId) -> Option<Option<u64>> {
        let row = self.get(event).filter(|row| is_others(row))?;
        Some(row.due_ms.filter(|_| matches!(row.state, TaskState::Leased { .. })))
    }

    /// A row as it will be after all pending writes.
    pub(super) fn latest(&self, event: EventId) -> Option<&TaskRow> {
        let written = self.writes.get(&event).and_then(|writes| writes.last()).map(|write| &write.row);
        written.or_else(|| self.get(event))
    }

    /// Removes a row that was deleted with its result.
    pub(super) fn take(&mut self, event: EventId) -> Option<TaskRow> {
        self.healthy_at.remove(&event);
        self.remove(event).map(|row| row.row)
    }

    /// How many tasks the owner does not run now.
    pub(super) fn elsewhere(&self) -> usize {
        self.elsewhere
    }

    /// When the next row needs attention, not before `from_ms`.
    pub(super) fn next_due_ms(&self, from_ms: u64) -> Option<u64> {
        let due = self.due.range((from_ms, EventId(0))..).next().map(|(at_ms, _)| *at_ms);
        let healthy = self.healthy_at.values().copied().filter(|at_ms| *at_ms >= from_ms);
        due.into_iter().chain(healthy).min()
    }

    /// Schedules attention for an attempt whose start was noted, for when it becomes healthy.
    pub(super) fn watch_health(&mut self, event: EventId, at_ms: u64) {
        self.healthy_at.insert(event, at_ms);
    }

    /// The rows that need attention: those that are due, and, once after hydrating, those that the owner is recorded to
    /// run. Later such a row always has an attempt, a result or a pending write.
    pub(super) fn take_unattended(&mut self, now_ms: u64) -> Unattended {
        let due = self.due.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        let mut events: BTreeSet<EventId> = due.map(|(_, event)| *event).collect();
        events.extend(self.healthy_at.extract_if(.., |_, at_ms| *at_ms <= now_ms).map(|(event, _)| event));
        let is_hydrated = std::mem::take(&mut self.is_hydrated);
        if is_hydrated {
            events.extend(self.rows.iter().filter(|(_, row)| is_owners(&row.row)).map(|(event, _)| *event));
        }
        Unattended { events, is_hydrated }
    }

    /// Whether open activities without an attempt have not been looked for since hydrating.
    pub(super) fn is_hydrated(&self) -> bool {
        self.is_hydrated
    }

    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    pub(super) fn is_written(&self, event: EventId) -> bool {
        self.writes.contains_key(&event)
    }

    /// Whether a pending write leads to an attempt, or hands one over.
    pub(super) fn is_written_for_attempt(&self, event: EventId) -> bool {
        self.writes.get(&event).is_some_and(|writes| writes.iter().any(|write| write.then.is_some()))
    }

    /// Writes a row with the next commit, replacing a pending write of the same task that leads to nothing else.
    pub(super) fn write(&mut self, row: TaskRow, deadline_ms: Option<u64>) {
        let writes = self.writes.entry(row.id.event).or_default();
        writes.retain(|write| write.then.is_some());
        writes.push(TaskWrite { row, deadline_ms, then: None });
    }

    /// Writes a row after all other writes of the same task, with an output that follows once it is durable.
    pub(super) fn write_then(&mut self, row: TaskRow, deadline_ms: Option<u64>, then: Option<Output>) {
        let writes = self.writes.entry(row.id.event).or_default();
        writes.push(TaskWrite { row, deadline_ms, then });
    }

    /// Drops the pending writes of a task.
    pub(super) fn drop_writes(&mut self, event: EventId) {
        self.writes.remove(&event);
    }

    pub(super) fn clear_writes(&mut self) {
        self.writes.clear();
    }

    /// Puts the rows of a failed commit back, before later writes.
    pub(super) fn put_back_writes(&mut self, writes: Vec<TaskWrite>) {
        for write in writes.into_iter().rev() {
            self.writes.entry(write.row.id.event).or_default().insert(0, write);
        }
    }

    /// Starts to read rows and messages again. Returns `false` if that is in progress.
    pub(super) fn begin_refresh(&mut self) -> bool {
        if self.is_refreshing() {
            return false;
        }
        self.refresh = Refresh::Reading { given_meanwhile: BTreeSet::new() };
        true
    }

    pub(super) fn is_refreshing(&self) -> bool {
        matches!(self.refresh, Refresh::Reading { .. })
    }

    /// Handles a durable commit that gave tasks to other nodes.
    pub(super) fn handle_given(&mut self, events: Vec<EventId>) {
        if let Refresh::Reading { given_meanwhile } = &mut self.refresh {
            given_meanwhile.extend(events);
        }
    }

    /// Ends a refresh, and returns the tasks that may be missing in what was read. `None` if none was in progress.
    pub(super) fn end_refresh(&mut self) -> Option<BTreeSet<EventId>> {
        match std::mem::take(&mut self.refresh) {
            Refresh::Reading { given_meanwhile } => Some(given_meanwhile),
            Refresh::None => None,
        }
    }

    /// Takes over the stored rows of other nodes' tasks, except for tasks that were given to them since.
    pub(super) fn handle_read(&mut self, read: Vec<TaskRow>, is_given_since: impl Fn(EventId) -> bool) {
        let mut read: BTreeMap<EventId, TaskRow> = read.into_iter().map(|row| (row.id.event, row)).collect();
        let is_meant = |(event, row): &(&EventId, &Row)| is_others(&row.row) && !is_given_since(**event);
        let events: Vec<EventId> = self.rows.iter().filter(is_meant).map(|(event, _)| *event).collect();
        for event in events {
            match read.remove(&event) {
                Some(row) => self.insert(row, None),
                None => drop(self.remove(event)),
            }
        }
    }
}

/// Tasks that need attention.
pub(super) struct Unattended {
    pub(super) events: BTreeSet<EventId>,
    /// Open activities without a row need attention, too.
    pub(super) is_hydrated: bool,
}

/// The changes that a commit makes to the tasks of an instance.
#[derive(Default)]
pub(super) struct TaskPlan {
    changes: Vec<TaskChange>,
    writes: Vec<TaskWrite>,
    effects: Vec<Output>,
    /// The tasks that other nodes can take once it is durable.
    given: Vec<EventId>,
}

impl TaskPlan {
    /// What the next commit writes if nothing else happens: the pending writes of open activities.
    pub(super) fn of(tasks: &mut Tasks, is_open: impl Fn(EventId) -> bool) -> TaskPlan {
        let mut plan = TaskPlan::default();
        let writes = std::mem::take(&mut tasks.writes);
        for write in writes.into_values().flatten().filter(|write| is_open(write.row.id.event)) {
            plan.put(tasks, write.row.clone(), write.deadline_ms);
            plan.effects.extend(write.then_output());
            plan.writes.push(write);
        }
        plan
    }

    /// What the next commit writes if a running execution decided nothing about its activities.
    pub(super) fn of_open(tasks: &mut Tasks, ledger: &Ledger) -> TaskPlan {
        TaskPlan::of(tasks, |event| ledger.open_decision(event).is_some())
    }

    /// Whether it changes no row.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn put(&mut self, tasks: &mut Tasks, row: TaskRow, deadline_ms: Option<u64>) {
        if is_others(&row) {
            self.given.push(row.id.event);
        }
        self.changes.push(TaskChange::Put(Box::new(row.clone())));
        tasks.insert(row, deadline_ms);
    }

    /// Adds an output that follows once the commit is durable.
    pub(super) fn then(&mut self, effect: Output) {
        self.effects.push(effect);
    }

    /// Removes an activity that was cancelled, or whose result has arrived.
    pub(super) fn close(&mut self, tasks: &mut Tasks, event: EventId) {
        if let Some(row) = tasks.take(event) {
            self.changes.push(TaskChange::Cancel(row.id));
        }
    }

    /// Handles an activity that was asked to stop and whose end is awaited. Whether another node runs it is known after
    /// its row was read again, so its row is due immediately.
    pub(super) fn stop(&mut self, tasks: &mut Tasks, event: EventId, now_ms: u64) {
        let Some(row) = tasks.get(event).filter(|row| is_others(row)) else { return };
        self.changes.push(TaskChange::Cancel(row.id));
        let state = TaskState::Leased { holder: SessionId::NOBODY, cancelled: true };
        let row = TaskRow { state, due_ms: Some(now_ms), ..row.clone() };
        tasks.insert(row, None);
    }

    pub(super) fn close_all(&mut self, tasks: &mut Tasks) {
        let cancels = tasks.rows.values().map(|row| TaskChange::Cancel(row.row.id));
        self.changes.extend(cancels);
        tasks.clear_rows();
    }

    /// Moves the plan into a commit and its outputs.
    pub(super) fn apply(self, commit: &mut Commit, in_flight: &mut InFlight) {
        commit.tasks = self.changes;
        in_flight.given = self.given;
        in_flight.task_writes = self.writes;
        in_flight.outputs.extend(self.effects);
    }
}

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
