//! Activities beyond their first attempt: deciding the next step of activities without a running attempt, and handing
//! attempts over.
//!
//! A first attempt that runs on this node has no row. Every other attempt has a task row, written by a commit of the
//! instance before the attempt runs. The shard's own attempts are leased without an end: if a new owner finds such a
//! row, the process that ran the attempt is gone.
//!
//! A single end of a process is weak evidence against the activities that ran in it. So the first unclean end only
//! makes the next owner note each start of the activities that were open (`begun`). From then on, an attempt whose
//! start was noted and that did not run long enough to be healthy counts as interrupted if the next owner finds an
//! unclean end. Activities that were interrupted repeatedly run in quarantine: with few others, and finally alone,
//! after the process has proved that it can live without them. An activity that was waiting for its slot when the
//! process ended is not blamed.

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::whole_ms;
use crate::history::{ActivityError, Decision, EventId, Job, Ledger, Payload, TimeoutKind, Trail};
use crate::store::{TaskId, TaskRow, TaskState};

use super::super::attempts::Attempt;
use super::super::message::Message;
use super::super::output::{ActivityTask, Output};
use super::super::record::Record;
use super::super::shared::Shared;
use super::super::standing::Lease;
use super::super::task_work::open_end;
use super::Instance;
use super::logging;
use super::queued::Queued;

/// How many attempts of an instance, and approximately how many bytes, one commit hands over. The others follow when it
/// is durable.
const MAX_HANDED_OVER: usize = 256;
const MAX_HANDED_OVER_BYTES: usize = 1 << 20;

/// How recent the rows are that an instance examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As they were last read or written.
    Memory,
    /// As they are stored now.
    Fresh,
}

#[derive(Debug, PartialEq)]
enum TaskStep {
    None,
    /// Read the stored rows first.
    Refresh,
    Run,
    /// Write its interruptions before it waits for a slot.
    Hold {
        until_ms: u64,
    },
    GiveUp(ActivityError),
}

impl Instance {
    /// Examines the tasks of an idle execution: those that are due, and after hydrating those without an attempt.
    pub(super) fn tend_tasks(&mut self, shared: &mut Shared, now_ms: u64, execution: &Execution, view: View) {
        if shared.standing.is_stopping() {
            return;
        }
        let unattended = self.tasks.take_unattended(now_ms);
        let mut events = unattended.events;
        // If the start was noted here before the shard was lost and claimed again, the row itself is not due.
        events.extend(shared.attempts.granted(self.key));
        if unattended.is_hydrated {
            let activities = execution
                .ledger()
                .open()
                .filter(|(_, open)| matches!(open, Decision::ActivityScheduled { .. }))
                .map(|(event, _)| event);
            events.extend(activities.filter(|event| self.tasks.get(*event).is_none()));
        }
        events.extend(execution.ledger().stopping());
        let current = execution.started().execution;
        for event in events {
            if let Some(began_ms) = shared.attempts.began_ms(self.key, event) {
                self.tend_health(now_ms, event, began_ms.saturating_add(whole_ms(shared.options.healthy)));
                continue;
            }
            let is_looked_after = self.queue.has_result(current, event) || self.tasks.is_written(event);
            if is_looked_after {
                continue;
            }
            let Some(task) = self.activity_task(shared, now_ms, execution, event) else { continue };
            match execution.ledger().is_stopping(event) {
                true => self.tend_stopping(shared, now_ms, task, view),
                false => self.tend(shared, now_ms, task, view),
            }
        }
    }

    /// Clears an attempt whose start was noted and that has run long enough; until then it is examined again later.
    fn tend_health(&mut self, now_ms: u64, event: EventId, healthy_at_ms: u64) {
        let suspect = self.tasks.get(event).filter(|row| row.is_suspect() && !self.tasks.is_written(event));
        let Some(mut row) = suspect.cloned() else { return };
        if healthy_at_ms > now_ms {
            return self.tasks.watch_health(event, healthy_at_ms);
        }
        if !flaws::is(Flaw::EveryEndCounts) {
            row.clear();
            self.tasks.write(row, None);
        }
    }

    /// Ends an activity that was asked to stop and is not running: it waited for a worker or for its next attempt, or
    /// its process is gone. If another node runs it, its end is awaited until the lease expires.
    fn tend_stopping(&mut self, shared: &mut Shared, now_ms: u64, mut task: ActivityTask, view: View) {
        match (self.tasks.is_elsewhere(task.event), view) {
            (Some(Some(until_ms)), _) if until_ms > now_ms => {
                return self.tasks.watch_health(task.event, until_ms);
            }
            (Some(_), View::Memory) => return self.refresh(shared),
            (Some(_), View::Fresh) | (None, _) => {}
        }
        let row = self.tasks.get(task.event);
        // An activity that waits for the holder of its token has run.
        let left = row.and_then(open_end).and_then(|open| open.left);
        let is_waiting = row.is_some_and(|row| row.state == TaskState::Waiting) && left.is_none();
        if let Some(row) = row {
            let ran = left.map(|left| left.ended(now_ms));
            (task.attempt, task.past) = (row.attempt, ran.into_iter().fold(row.past.clone(), Trail::and));
        }
        self.give_up(now_ms, task, is_waiting, ActivityError::Cancelled);
    }

    /// Ends an activity with this error, without another attempt.
    fn give_up(&mut self, now_ms: u64, task: ActivityTask, is_waiting: bool, error: ActivityError) {
        // The attempt that a task waits for was not made.
        let attempts = if is_waiting { (task.attempt - 1).max(1) } else { task.attempt };
        logging::retries_exhausted(&task, attempts, &error);
        let (execution, source_event_id, trail) = (task.execution, task.event, task.past);
        let job = Job::ActivityFailed { source_event_id, error, attempts, trail };
        self.queue.push(Queued::engine(Message::Outcome { execution, job }, now_ms));
    }

    /// Carries out the next step of one activity.
    fn tend(&mut self, shared: &mut Shared, now_ms: u64, mut task: ActivityTask, view: View) {
        let (key, event) = (self.key, task.event);
        let row = self.tasks.get(event);
        if let Some(left) = row.and_then(open_end).and_then(|open| open.left) {
            return self.tend_left_open(shared, now_ms, task, &left);
        }
        let is_waiting = row.is_some_and(|row| row.state == TaskState::Waiting);
        let step = next_step(now_ms, &mut task, row, view, shared);
        let is_first = row.is_none() && !task.completes_later();
        let task = shared.with_secret(task);
        match step {
            TaskStep::None => {}
            TaskStep::Refresh => self.refresh(shared),
            TaskStep::Run | TaskStep::Hold { .. } if !shared.options.serves(&task.name, task.tag()) => {
                self.tasks.write(task.queued_row(shared.id, now_ms), task.deadline_ms);
            }
            TaskStep::Hold { until_ms } => {
                let row = task.row(shared.id, TaskState::Waiting, now_ms, Some(until_ms));
                self.tasks.write(row, task.deadline_ms);
            }
            TaskStep::Run
                if shared.options.is_gated(&task) && !shared.attempts.has_quarantine_slot(key, event) =>
            {
                if shared.attempts.want_quarantine_slot(key, event) {
                    let (interruptions, execution) = (task.interruptions, task.execution);
                    let task = TaskId { key, execution, event };
                    shared.outputs.push(Output::WantQuarantineSlot { interruptions, task });
                }
            }
            // Nothing has to be noted: it is treated as if it had not started.
            TaskStep::Run if is_first => {
                self.release(shared, now_ms, vec![Output::RunActivity(Box::new(task))]);
            }
            TaskStep::Run => self.run_from_row(shared, now_ms, task),
            TaskStep::GiveUp(error) => self.give_up(now_ms, task, is_waiting, error),
        }
    }

    /// Starts an attempt once its row is durable.
    fn run_from_row(&mut self, shared: &mut Shared, now_ms: u64, task: ActivityTask) {
        shared.attempts.leave_quarantine(self.key, task.event);
        let state = TaskState::Leased { holder: shared.holder, cancelled: false };
        let (row, deadline_ms) = (task.row(shared.id, state, now_ms, None), task.deadline_ms);
        if row.is_suspect() {
            self.tasks.watch_health(task.event, now_ms.saturating_add(whole_ms(shared.options.healthy)));
        }
        let run = Output::RunActivity(Box::new(task));
        if flaws::is(Flaw::RetryBeforeRow) {
            self.tasks.write_then(row, deadline_ms, None);
            self.release(shared, now_ms, vec![run]);
        } else {
            self.tasks.write_then(row, deadline_ms, Some(run));
        }
    }

    /// Writes rows for the attempts that run here, if the shard is being released.
    pub(super) fn hand_over(&mut self, shared: &mut Shared, now_ms: u64, execution: &Execution) {
        self.hand_over_open(shared, now_ms, (execution.started().execution, execution.ledger()));
    }

    fn hand_over_open(&mut self, shared: &Shared, now_ms: u64, (execution, ledger): (u64, &Ledger)) {
        let Some(lease) = shared.standing.lease() else { return };
        let is_left = |(event, _): &(EventId, &Attempt)| !self.tasks.is_written_for_attempt(*event);
        let running = shared.attempts.of(self.key).filter(is_left).take(MAX_HANDED_OVER);
        let running: Vec<(EventId, Attempt)> =
            running.map(|(event, attempt)| (event, attempt.clone())).collect();
        let mut bytes = 0;
        for (event, attempt) in running {
            let Some(task) = self.open_activity(shared, now_ms, (execution, ledger), event) else { continue };
            bytes += task.input.size() + attempt.details.as_ref().map_or(0, Payload::size);
            self.hand_over_attempt(shared, now_ms, lease, task, attempt);
            if bytes >= MAX_HANDED_OVER_BYTES {
                return;
            }
        }
    }

    /// Whether an attempt runs here that has to become a row because the shard is being released.
    pub(super) fn has_to_hand_over(&self, shared: &Shared) -> bool {
        shared.standing.lease().is_some()
            && shared.attempts.of(self.key).any(|(event, _)| !self.tasks.is_written_for_attempt(event))
    }

    /// Writes rows for the attempts of an instance that cannot run its code, from its history. Attempts that are not in
    /// the history are stopped, because nothing is known about them.
    pub(super) fn hand_over_blocked(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: u64,
        record: Option<&Record>,
    ) {
        let ledger = record.map(|record| &record.ledger);
        if let Some(ledger) = ledger {
            self.tasks.learn_deadlines(ledger);
            self.hand_over_open(shared, now_ms, (execution, ledger));
        }
        let is_open = |event: &EventId| ledger.is_some_and(|ledger| ledger.open_decision(*event).is_some());
        let attempts = shared.attempts.of(self.key).map(|(event, _)| event);
        let unknown: Vec<EventId> = attempts.filter(|event| !is_open(event)).collect();
        for event in unknown {
            shared.stop_attempt(self.key, execution, event);
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
        let secret = known.and_then(open_end).map(|open| open.secret);
        let heard_ms = known.and_then(|row| row.heard_ms);
        let (interruptions, begun, past) =
            known.map(|row| (row.interruptions, row.begun, row.past.clone())).unwrap_or_default();
        let Attempt { attempt, details, began_ms, .. } = running;
        let queued_ms = began_ms;
        let task = ActivityTask { attempt, details, interruptions, begun, past, queued_ms, secret, ..task };
        let state = TaskState::Leased { holder: lease.holder, cancelled: false };
        let due_ms = Some(now_ms.saturating_add(lease.lease_ms));
        let since_ms = Some(began_ms);
        let row = TaskRow { state, due_ms, since_ms, heard_ms, ..task.handed_over_row(shared.id, now_ms) };
        self.tasks.drop_writes(task.event);
        self.tasks.write_then(row, task.deadline_ms, Some(Output::HandOver(Box::new(task))));
    }
}

/// The next step of an activity without a running attempt. Takes over what its row says about earlier attempts.
fn next_step(
    now_ms: u64,
    task: &mut ActivityTask,
    row: Option<&TaskRow>,
    view: View,
    shared: &Shared,
) -> TaskStep {
    let mut was_running = true;
    let is_over = task.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
    if let Some(row) = row {
        task.attempt = row.attempt;
        task.interruptions = row.interruptions;
        task.begun = row.begun;
        task.details = row.details.clone();
        task.past = row.past.clone();
        task.secret = open_end(row).map(|open| open.secret);
        if row.state == TaskState::Waiting {
            task.queued_ms = row.due_ms.unwrap_or(now_ms);
        }
        let is_due = row.due_ms.is_some_and(|due_ms| due_ms <= now_ms);
        match row.state {
            TaskState::Waiting if is_due => was_running = false,
            // A lease with an end belongs to another node; when it expires, the next node that takes tasks handles it.
            TaskState::Leased { .. } if row.due_ms.is_none() => {}
            // Another node may have taken it, or have finished it.
            TaskState::Queued if is_due && view == View::Memory => return TaskStep::Refresh,
            TaskState::Queued | TaskState::Leased { .. } if is_over && view == View::Memory => {
                return TaskStep::Refresh;
            }
            TaskState::Queued | TaskState::Leased { .. } if is_over => {
                return TaskStep::GiveUp(ActivityError::Timeout(TimeoutKind::Total));
            }
            TaskState::Queued if is_due => {
                return TaskStep::GiveUp(ActivityError::Timeout(TimeoutKind::Queue));
            }
            TaskState::Waiting | TaskState::Queued | TaskState::Leased { .. } => return TaskStep::None,
        }
    }
    let is_noted_here = task.begun == Some(shared.node);
    judge(task, was_running, shared);
    if task.interruptions > shared.options.max_interruptions {
        TaskStep::GiveUp(ActivityError::Poisoned)
    } else if is_over {
        // There is no time left for another attempt.
        TaskStep::GiveUp(ActivityError::Timeout(TimeoutKind::Total))
    } else if shared.options.is_gated(task) && !is_noted_here {
        task.begun = Some(shared.node);
        TaskStep::Hold { until_ms: now_ms.saturating_add(shared.options.hold_ms(task.interruptions)) }
    } else {
        TaskStep::Run
    }
}

/// Updates the interruptions of an activity, depending on how its last owner ended.
fn judge(task: &mut ActivityTask, was_running: bool, shared: &Shared) {
    // If the last owner is on this node, it did not end: it lost the shard. If it released the shard, its end says
    // nothing.
    let is_of_this_node = task.begun == Some(shared.node);
    let is_judged = shared.is_after_unclean_end || flaws::is(Flaw::EveryEndCounts);
    if !is_judged || is_of_this_node {
        return;
    }
    if was_running {
        let counts = task.begun.is_some() || flaws::is(Flaw::EveryEndCounts);
        task.interruptions += u32::from(counts && !flaws::is(Flaw::UncountedInterruptions));
        task.begun = Some(shared.node);
    } else if task.interruptions < shared.options.quarantine_after && !flaws::is(Flaw::EveryEndCounts) {
        // It was not running when the process ended. Activities that had to run alone stay suspect, because otherwise
        // two activities that end the process would clear each other.
        (task.interruptions, task.begun) = (0, None);
    }
}
