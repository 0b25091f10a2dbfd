//! Outcomes of attempts: results, retries, heartbeats, and attempts of other nodes.

use crate::execution::Execution;
use crate::history::whole_ms;
use crate::history::{
    ActivityError, ActivityOptions, EventId, Job, PastAttempt, Payload, TimeoutKind, Trail,
};
use crate::store::{Commit, TaskRow, TaskState};

use super::super::attempts::Attempt;
use super::super::message::{Message, RanElsewhere};
use super::super::output::ActivityTask;
use super::super::shared::Shared;
use super::super::task_work::open_end;
use super::Instance;
use super::in_flight::{InFlight, Next};
use super::logging;
use super::queued::{Batch, Queued};
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

/// The outcome of an attempt.
pub(super) struct Ended {
    /// Its last heartbeat details.
    pub(super) details: Option<Payload>,
    /// When and where it ran, if that is known.
    pub(super) ran: Option<PastAttempt>,
    pub(super) result: Result<Payload, ActivityError>,
    /// The activity was asked to stop: no other attempt follows.
    pub(super) is_last: bool,
}

impl Instance {
    /// Handles the end of an attempt on this node.
    pub(in crate::shard) fn handle_attempt_ended(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        attempt: Attempt,
        result: Result<Payload, ActivityError>,
    ) {
        let ran = PastAttempt::new(task.queued_ms, attempt.began_ms, now_ms);
        let ended = Ended { details: attempt.details, ran: Some(ran), result, is_last: attempt.is_stopping };
        if let Some(message) = self.attempt_ended(shared, now_ms, task, ended) {
            if shared.options.is_gated(task)
                && let Some(execution) = self.take_idle()
            {
                return self.keep_result(shared, now_ms, task.event, &message, execution);
            }
            self.queue.push(Queued::engine(message, now_ms));
        }
        self.go_on(shared, now_ms);
    }

    /// Handles an attempt that was stopped for the node's sake, or never started: it runs again elsewhere, and does not
    /// count as interrupted.
    pub(in crate::shard) fn handle_attempt_released(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        attempt: Attempt,
    ) {
        // It may have been cleared since it started.
        let known = self.tasks.get(task.event).map(|row| (row.interruptions, row.begun));
        let (interruptions, begun) = known.unwrap_or((task.interruptions, task.begun));
        let task = ActivityTask { details: attempt.details, interruptions, begun, ..task.clone() };
        self.tasks.write(task.row(shared.id, TaskState::Waiting, now_ms, Some(now_ms)), task.deadline_ms);
        self.go_on(shared, now_ms);
    }

    /// Handles an attempt that waited too long for a free slot here: it is queued for other nodes. If it was asked to
    /// stop meanwhile, it ends.
    pub(in crate::shard) fn handle_attempt_spilled(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        attempt: Attempt,
    ) {
        if attempt.is_stopping {
            let cancelled = Err(ActivityError::Cancelled);
            return self.handle_attempt_ended(shared, now_ms, task, attempt, cancelled);
        }
        shared.counters.spilled += 1;
        let task = ActivityTask { details: attempt.details, ..task.clone() };
        self.tasks.write(task.spilled_row(shared.id, now_ms), task.deadline_ms);
        self.go_on(shared, now_ms);
    }

    /// Handles a heartbeat of an attempt on this node.
    pub(in crate::shard) fn handle_heartbeat(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        details: Payload,
    ) {
        let state = TaskState::Leased { holder: shared.holder, cancelled: false };
        // An attempt that sends heartbeats is healthy.
        let task = ActivityTask { details: Some(details), interruptions: 0, begun: None, ..task.clone() };
        let began_ms = shared.attempts.began_ms(self.key, task.event).unwrap_or(now_ms);
        let row = TaskRow { heard_ms: Some(now_ms), ..task.row(shared.id, state, began_ms, None) };
        self.tasks.write(row, task.deadline_ms);
        self.go_on(shared, now_ms);
    }

    /// What the instance gets of an attempt that ended; `None` if a row for the next attempt is written instead.
    pub(super) fn attempt_ended(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        ended: Ended,
    ) -> Option<Message> {
        let Ended { details, ran, result, is_last } = ended;
        let (source_event_id, attempts) = (task.event, task.attempt);
        let past = |ran: Option<PastAttempt>| ran.into_iter().fold(task.past.clone(), Trail::and);
        let job = match result {
            Ok(result) => {
                logging::attempt_completed(task);
                Job::ActivityCompleted { source_event_id, result, attempts, trail: past(ran) }
            }
            Err(error) => {
                let tried = (task.attempt, task.deadline_ms);
                let draw = || shared.draw();
                let retry_at_ms = match is_last {
                    true => None,
                    false => retry_at_ms(task.options.as_deref(), tried, now_ms, &error, draw),
                };
                logging::attempt_failed(
                    task,
                    &error,
                    retry_at_ms.map(|due_ms| due_ms.saturating_sub(now_ms)),
                );
                if let Some(due_ms) = retry_at_ms {
                    shared.facts.state_retry(&task.name);
                    let past = past(ran.map(|ran| ran.failed(&error)));
                    let attempt = task.attempt.saturating_add(1);
                    // An attempt that ended by itself did not end its process.
                    let (interruptions, begun) = (0, None);
                    let next = ActivityTask { attempt, details, past, interruptions, begun, ..task.clone() };
                    let next = shared.with_secret(ActivityTask { secret: None, ..next });
                    // An activity that this node cannot run is queued when its pause is over.
                    self.tasks.write(
                        next.row(shared.id, TaskState::Waiting, now_ms, Some(due_ms)),
                        next.deadline_ms,
                    );
                    return None;
                }
                Job::ActivityFailed { source_event_id, error, attempts, trail: past(ran) }
            }
        };
        Some(Message::Outcome { execution: task.execution, job })
    }

    /// Writes the result of an activity that was interrupted repeatedly before a turn takes it: if the turn then ends
    /// the process, the activity is not blamed for it.
    fn keep_result(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        event: EventId,
        message: &Message,
        execution: Box<Execution>,
    ) {
        shared.residents.leave(&mut self.stay);
        let stored = self.stored();
        let mut plan = TaskPlan::of_open(&mut self.tasks, execution.ledger());
        plan.close(&mut self.tasks, event);
        let max_unread = shared.options.max_unread;
        let columns =
            RowColumns::after_turn(&execution, max_unread, None, &stored, &self.tasks, &self.limits, now_ms);
        let send = vec![self.to_itself(shared, message)];
        let mut commit =
            Commit { send, change: columns.change_from(&stored), ..shared.empty_commit(self.key) };
        let mut in_flight = InFlight::new(columns, Next::Idle(execution), Batch::default());
        plan.apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// The effect of an attempt on another node, if the execution still waits for it.
    pub(super) fn take_attempt(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        (event, attempt): (EventId, u32),
        details: Option<Payload>,
        (result, ran, ended_ms): (Result<Payload, ActivityError>, Option<Box<RanElsewhere>>, u64),
    ) -> Option<Message> {
        // If its turn failed, the row of the next attempt may be written while the message still exists.
        let is_followed = self.tasks.get(event).is_some_and(|row| row.attempt > attempt);
        let task = self.activity_task(shared, now_ms, execution, event);
        let Some(task) = task.filter(|_| !is_followed) else {
            shared.counters.stale += 1;
            return None;
        };
        // Its row was deleted with the result.
        self.tasks.take(event);
        let (past, ran) = ran.map_or((Trail::default(), None), |ran| {
            let RanElsewhere { node, queued_ms, took_ms, past } = *ran;
            let ran = PastAttempt::new(queued_ms, ended_ms.saturating_sub(took_ms), ended_ms);
            (past, Some(ran.on(&node)))
        });
        let task = ActivityTask { attempt, past, ..task };
        let is_last = execution.ledger().is_stopping(event);
        self.attempt_ended(shared, now_ms, &task, Ended { details, ran, result, is_last })
    }

    /// Queues a task again whose row another node could not read. The history has everything that the row had.
    ///
    /// The row is written even if the turn fails, while the message stays in the inbox. If a load finds both, the row
    /// is newer: it was written after the message, and a node may have taken it by now. A row that was already in
    /// memory says nothing about a message that arrived later.
    pub(super) fn requeue(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        (event, attempt): (EventId, u32),
        past: Trail,
        is_found_by_load: bool,
    ) {
        let is_done = self
            .tasks
            .get(event)
            .is_some_and(|row| row.attempt > attempt || (row.attempt == attempt && is_found_by_load));
        let task = self.activity_task(shared, now_ms, execution, event);
        let Some(task) = task.filter(|_| !is_done) else {
            shared.counters.stale += 1;
            return;
        };
        let known = self.tasks.take(event);
        let secret = known.as_ref().and_then(open_end).map(|open| open.secret);
        let (interruptions, begun, details) =
            known.map_or((0, None, None), |row| (row.interruptions, row.begun, row.details));
        let task = ActivityTask { attempt, interruptions, begun, details, past, secret, ..task };
        let task = shared.with_secret(task);
        self.tasks.write(task.queued_row(shared.id, now_ms), task.deadline_ms);
    }
}

/// When a failed attempt is followed by another, if it is. `tried` is the number of the attempt, and the time until
/// which there may be more.
pub(super) fn retry_at_ms(
    options: Option<&ActivityOptions>,
    tried: (u32, Option<u64>),
    now_ms: u64,
    error: &ActivityError,
    draw: impl FnOnce() -> u64,
) -> Option<u64> {
    let (policy, (attempt, deadline_ms)) = (options?.retry.as_ref()?, tried);
    let may_pass = match error {
        ActivityError::Application(payload) => !policy.is_final(payload),
        ActivityError::Broken { .. } => true,
        ActivityError::Timeout(kind) => matches!(kind, TimeoutKind::Attempt | TimeoutKind::Heartbeat),
        ActivityError::Cancelled | ActivityError::Poisoned => false,
    };
    if !may_pass || attempt >= policy.max_attempts {
        return None;
    }
    let due_ms = now_ms.saturating_add(whole_ms(policy.pause(attempt, draw())));
    (deadline_ms.is_none_or(|deadline_ms| due_ms < deadline_ms)).then_some(due_ms)
}
