//! The log lines of an instance. They contain ids, kinds and numbers, never payloads.

use crate::execution::Execution;
use crate::history::{ActivityError, Ending, TraceContext};
use crate::log;
use crate::store::{Blocked, Status};

use super::super::block_reason::BlockReason;
use super::super::output::ActivityTask;
use super::Instance;
use super::in_flight::Next;
use super::row_columns::RowColumns;

impl Instance {
    /// Logs the effect of a durable commit. To be called before its columns are taken over, to compare them with the
    /// old ones.
    pub(super) fn log_durable(&self, columns: &RowColumns, next: &Next) {
        let is_begun = columns.status != Status::Pending;
        if is_begun && self.columns.as_ref().is_none_or(|before| before.status == Status::Pending) {
            self.log_started(next);
        }
        let was_blocked = self.columns.as_ref().is_some_and(RowColumns::is_blocked);
        if was_blocked && !columns.is_blocked() && !columns.status.is_final() {
            let execution = columns.execution;
            tracing::info!(target: log::INSTANCE, instance = &*self.id, execution, "instance unblocked");
        }
        match next {
            Next::Continued(_, start) => {
                let execution = start.started.execution;
                tracing::info!(target: log::INSTANCE, instance = &*self.id, execution, "instance continued as new");
            }
            Next::Ended(_, ending) => self.log_ended(columns.execution, ending),
            _ => {}
        }
    }

    fn log_started(&self, next: &Next) {
        let Some(started) = execution_of(next).map(Execution::started) else { return };
        tracing::info!(
            target: log::INSTANCE,
            instance = &*self.id,
            execution = started.execution,
            orchestration = started.name,
            version = started.version,
            "instance started"
        );
    }

    fn log_ended(&self, execution: u64, ending: &Ending) {
        let instance = &*self.id;
        match ending {
            Ending::OrchestrationFailed { .. } => {
                tracing::warn!(target: log::INSTANCE, instance, execution, "instance failed");
            }
            Ending::OrchestrationCancelled { reason, .. } => {
                tracing::info!(target: log::INSTANCE, instance, execution, reason, "instance cancelled");
            }
            Ending::OrchestrationTerminated { reason } => {
                tracing::info!(target: log::INSTANCE, instance, execution, reason, "instance terminated");
            }
            Ending::OrchestrationCompleted { .. } | Ending::OrchestrationContinuedAsNew { .. } => {
                tracing::info!(target: log::INSTANCE, instance, execution, "instance completed");
            }
        }
    }
}

fn execution_of(next: &Next) -> Option<&Execution> {
    match next {
        Next::Idle(execution) | Next::Continued(execution, _) | Next::Ended(Some(execution), _) => {
            Some(execution)
        }
        _ => None,
    }
}

/// Logs an attempt that returned a result.
pub(super) fn attempt_completed(task: &ActivityTask) {
    tracing::debug!(
        target: log::ACTIVITY,
        instance = &*task.instance,
        execution = task.execution,
        event = task.event.0,
        attempt = task.attempt,
        activity = task.name,
        trace_id = trace_id(task),
        "attempt completed"
    );
}

/// Logs a failed attempt, and when the next one is due if there is one. A cancelled attempt is not a failure.
pub(super) fn attempt_failed(task: &ActivityTask, failure: &ActivityError, retry_in_ms: Option<u64>) {
    let (instance, execution, event) = (&*task.instance, task.execution, task.event.0);
    let (attempt, activity, trace_id) = (task.attempt, &*task.name, trace_id(task));
    if matches!(failure, ActivityError::Cancelled) {
        tracing::info!(
            target: log::ACTIVITY, instance, execution, event, attempt, activity, trace_id, "attempt cancelled"
        );
        return;
    }
    let failure = failure.kind();
    tracing::warn!(
        target: log::ACTIVITY, instance, execution, event, attempt, activity, trace_id, failure, "attempt failed"
    );
    if let Some(retry_in_ms) = retry_in_ms {
        let attempt = attempt.saturating_add(1);
        tracing::info!(
            target: log::ACTIVITY, instance, execution, event, attempt, activity, trace_id, retry_in_ms, "retry scheduled"
        );
    }
}

/// Logs an instance that cannot take its next turn.
pub(super) fn blocked(instance: &Instance, failure: &BlockReason, blocked: &Blocked) {
    let execution = instance.columns.as_ref().map(|columns| columns.execution);
    if let Some(until_ms) = blocked.waits_until_ms {
        tracing::info!(
            target: log::INSTANCE,
            instance = &*instance.id,
            key = %instance.key,
            execution,
            code = blocked.code,
            tries = blocked.attempts,
            waits_ms = until_ms.saturating_sub(blocked.since_ms),
            reason = %failure,
            "instance waits for code"
        );
        return;
    }
    tracing::warn!(
        target: log::INSTANCE,
        instance = &*instance.id,
        // The id of an instance that cannot be loaded is not known.
        key = %instance.key,
        execution,
        code = blocked.code,
        place = failure.place(),
        tries = blocked.attempts,
        reason = %failure,
        "instance blocked"
    );
}

/// Logs an activity that ends without another attempt, because its time is up or its process ended too often.
pub(super) fn retries_exhausted(task: &ActivityTask, attempts: u32, failure: &ActivityError) {
    if matches!(failure, ActivityError::Cancelled) {
        return;
    }
    tracing::warn!(
        target: log::ACTIVITY,
        instance = &*task.instance,
        execution = task.execution,
        event = task.event.0,
        attempt = attempts,
        activity = task.name,
        trace_id = trace_id(task),
        failure = failure.kind(),
        "activity given up"
    );
}

/// The trace that an attempt belongs to.
fn trace_id(task: &ActivityTask) -> Option<&str> {
    task.trace.as_deref().and_then(TraceContext::trace_id)
}
