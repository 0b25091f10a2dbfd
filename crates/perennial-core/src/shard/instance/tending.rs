//! Activities beyond their first attempt: what is next for those that nobody here looks after, and handing attempts over.
//!
//! A first attempt that runs here has no row. Everything else is a row of the instance, written by a commit of the
//! instance before its attempt runs. The shard's own attempts are leased without an end: when they are found by a new
//! owner, the process that ran them is gone, and that counts as an interruption.

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{ActivityFailure, Decision, EventId, Job, TimeoutKind};
use crate::store::{TaskRow, TaskState};

use super::super::attempts::Attempt;
use super::super::message::Message;
use super::super::output::{ActivityTask, Output};
use super::super::shared::Shared;
use super::super::standing::Lease;
use super::Instance;
use super::queued::Queued;

/// How recent the rows are that an instance looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As they were when they were last read or written.
    Memory,
    /// As they are stored now.
    Fresh,
}

#[derive(Debug, PartialEq)]
enum TaskStep {
    None,
    /// Look at the stored rows first.
    Refresh,
    Run {
        is_interrupted: bool,
    },
    GiveUp(ActivityFailure),
}

impl Instance {
    /// Looks after the tasks of an idle execution: those that are due, and after hydrating those that nobody runs.
    pub(super) fn tend_tasks(&mut self, shared: &mut Shared, now_ms: u64, execution: &Execution, view: View) {
        if shared.standing.is_stopping() {
            return;
        }
        let unattended = self.tasks.take_unattended(now_ms);
        let mut events = unattended.events;
        if unattended.is_hydrated {
            let activities = execution
                .ledger()
                .open()
                .filter(|(_, open)| matches!(open, Decision::ActivityScheduled { .. }))
                .map(|(event, _)| event);
            events.extend(activities.filter(|event| self.tasks.get(*event).is_none()));
        }
        let current = execution.started().execution;
        for event in events {
            let is_looked_after = shared.attempts.runs(self.key, event)
                || self.queue.has_result(current, event)
                || self.tasks.is_written(event);
            if is_looked_after {
                continue;
            }
            let Some(task) = self.activity_task(shared, now_ms, execution, event) else { continue };
            self.tend(shared, now_ms, task, view);
        }
    }

    /// Does what is next for one activity.
    fn tend(&mut self, shared: &mut Shared, now_ms: u64, mut task: ActivityTask, view: View) {
        let (key, event) = (self.key, task.event);
        let max_interruptions = shared.options.max_interruptions;
        let row = self.tasks.get(event);
        let is_waiting = row.is_some_and(|row| row.state == TaskState::Waiting);
        match next_step(now_ms, &mut task, row, view, max_interruptions) {
            TaskStep::None => {}
            TaskStep::Refresh => self.refresh(shared),
            TaskStep::Run { .. } if !shared.options.serves(&task.name, task.tag()) => {
                self.tasks.write(task.queued_row(shared.id, now_ms, None), task.deadline_ms);
            }
            TaskStep::Run { is_interrupted: true } if shared.options.is_lone(&task) => {
                // That it was interrupted is written before it waits for its turn to run alone.
                let row = task.row(shared.id, TaskState::Waiting, Some(now_ms));
                self.tasks.write(row, task.deadline_ms);
            }
            TaskStep::Run { .. }
                if shared.options.is_lone(&task) && !shared.attempts.is_lone_granted(key, event) =>
            {
                if shared.attempts.want_lone(key, event) {
                    shared.outputs.push(Output::WantLone { key, event });
                }
            }
            TaskStep::Run { .. } => self.run_from_row(shared, now_ms, task),
            TaskStep::GiveUp(error) => {
                // The attempt that a task waits for was not made.
                let attempts = if is_waiting { (task.attempt - 1).max(1) } else { task.attempt };
                let (execution, trail) = (task.execution, task.past);
                let job = Job::ActivityFailed { source_event_id: event, error, attempts, trail };
                self.queue.push(Queued::engine(Message::Outcome { execution, job }, now_ms));
            }
        }
    }

    /// Has an attempt run once its row is durable.
    fn run_from_row(&mut self, shared: &mut Shared, now_ms: u64, task: ActivityTask) {
        shared.attempts.leave_lone(self.key, task.event);
        let state = TaskState::Leased { holder: shared.holder, cancelled: false };
        let (row, deadline_ms) = (task.row(shared.id, state, None), task.deadline_ms);
        let run = Output::RunActivity(Box::new(task));
        if flaws::is(Flaw::RetryBeforeRow) {
            self.tasks.write_then(row, deadline_ms, None);
            self.release(shared, now_ms, vec![run]);
        } else {
            self.tasks.write_then(row, deadline_ms, Some(run));
        }
    }

    /// Has rows written for the attempts that run here, if the shard is being given up.
    pub(super) fn hand_over(&mut self, shared: &mut Shared, now_ms: u64, execution: &Execution) {
        let Some(lease) = shared.standing.lease() else { return };
        let running: Vec<(EventId, Attempt)> =
            shared.attempts.of(self.key).map(|(event, attempt)| (event, attempt.clone())).collect();
        for (event, attempt) in running {
            if self.tasks.is_written_for_attempt(event) {
                continue;
            }
            if let Some(task) = self.activity_task(shared, now_ms, execution, event) {
                self.hand_over_attempt(shared, now_ms, lease, task, attempt);
            }
        }
    }

    fn hand_over_attempt(
        &mut self,
        shared: &Shared,
        now_ms: u64,
        lease: Lease,
        task: ActivityTask,
        running: Attempt,
    ) {
        let known = self.tasks.get(task.event);
        let (interruptions, past) =
            known.map(|row| (row.interruptions, row.past.clone())).unwrap_or_default();
        let Attempt { attempt, details, began_ms, .. } = running;
        let task = ActivityTask { attempt, details, interruptions, past, queued_ms: began_ms, ..task };
        let state = TaskState::Leased { holder: lease.holder, cancelled: false };
        let due_ms = Some(now_ms.saturating_add(lease.lease_ms));
        let row = TaskRow { state, due_ms, ..task.queued_row(shared.id, now_ms, Some(task.interruptions)) };
        self.tasks.drop_writes(task.event);
        self.tasks.write_then(row, task.deadline_ms, Some(Output::HandOver(Box::new(task))));
    }
}

/// What is next for an activity that nobody here looks after. Takes over what its row says about earlier attempts.
fn next_step(
    now_ms: u64,
    task: &mut ActivityTask,
    row: Option<&TaskRow>,
    view: View,
    max_interruptions: u32,
) -> TaskStep {
    let mut is_interrupted = true;
    let is_over = task.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
    if let Some(row) = row {
        task.attempt = row.attempt;
        task.interruptions = row.interruptions;
        task.details = row.details.clone();
        task.past = row.past.clone();
        if row.state == TaskState::Waiting {
            task.queued_ms = row.due_ms.unwrap_or(now_ms);
        }
        let is_due = row.due_ms.is_some_and(|due_ms| due_ms <= now_ms);
        match row.state {
            TaskState::Waiting if is_due => is_interrupted = false,
            // One with an end is another node's; when it has run out, whoever takes tasks sees to it.
            TaskState::Leased { .. } if row.due_ms.is_none() => {}
            // Another node may have taken it, or have finished it.
            TaskState::Queued if is_due && view == View::Memory => return TaskStep::Refresh,
            TaskState::Queued | TaskState::Leased { .. } if is_over && view == View::Memory => {
                return TaskStep::Refresh;
            }
            TaskState::Queued | TaskState::Leased { .. } if is_over => {
                return TaskStep::GiveUp(ActivityFailure::Timeout(TimeoutKind::Total));
            }
            TaskState::Queued if is_due => {
                return TaskStep::GiveUp(ActivityFailure::Timeout(TimeoutKind::Queue));
            }
            TaskState::Waiting | TaskState::Queued | TaskState::Leased { .. } => return TaskStep::None,
        }
    }
    task.interruptions += u32::from(is_interrupted && !flaws::is(Flaw::UncountedInterruptions));
    if task.interruptions > max_interruptions {
        TaskStep::GiveUp(ActivityFailure::Poisoned)
    } else if is_over {
        // No time is left for another attempt.
        TaskStep::GiveUp(ActivityFailure::Timeout(TimeoutKind::Total))
    } else {
        TaskStep::Run { is_interrupted }
    }
}
