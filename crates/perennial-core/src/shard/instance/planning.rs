//! The effect of a turn on the activities of its instance.

use std::sync::Arc;

use crate::code::ErrorCode;
use crate::execution::Execution;
use crate::history::{Decision, EventId, Ledger, Trail, Turn};
use crate::log;
use crate::store::TaskState;

use super::super::output::{ActivityTask, Output};
use super::super::shared::Shared;
use super::super::spans;
use super::Instance;
use super::tasks::TaskPlan;

impl Instance {
    /// Plans the task changes of a turn's commit, and the attempts that start and end once it is durable.
    pub(super) fn plan_tasks(&mut self, shared: &mut Shared, execution: &Execution, turn: &Turn) -> TaskPlan {
        let ledger = execution.ledger();
        let has_ended = turn.ending().is_some();
        let is_open = |event| ledger.open_decision(event).is_some() && !has_ended;
        let mut plan = TaskPlan::of(&mut self.tasks, is_open);
        for event in turn.jobs().filter_map(|(_, job)| job.source_event_id()) {
            plan.close(&mut self.tasks, event);
        }
        if has_ended {
            plan.close_all(&mut self.tasks);
            return plan;
        }
        for (event, _, decision) in turn.decisions() {
            match decision {
                Decision::ActivityScheduled { .. } => {
                    let task = self.activity_task(shared, turn.at_ms, execution, event);
                    self.plan_first_attempt(shared, turn.at_ms, task, &mut plan);
                }
                Decision::ActivityCancelRequested { source_event_id } => {
                    plan.close(&mut self.tasks, *source_event_id);
                    let (execution, event) = (execution.started().execution, *source_event_id);
                    plan.then(Output::CancelActivity { key: self.key, execution, event, is_awaited: false });
                }
                Decision::ActivityStopRequested { source_event_id } => {
                    plan.stop(&mut self.tasks, *source_event_id, turn.at_ms);
                    let (execution, event) = (execution.started().execution, *source_event_id);
                    plan.then(Output::CancelActivity { key: self.key, execution, event, is_awaited: true });
                }
                _ => {}
            }
        }
        plan
    }

    /// A first attempt starts here without a row, unless it can be completed from outside or is queued for other nodes.
    /// Nothing is started while the shard is being released.
    fn plan_first_attempt(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: Option<ActivityTask>,
        plan: &mut TaskPlan,
    ) {
        let Some(task) = task.map(|task| shared.with_secret(task)) else { return };
        let is_served = shared.options.serves(&task.name, task.tag());
        if is_served && shared.standing.lease().is_none() {
            if task.secret.is_some() {
                // The holder of its token may be faster than its code, so the row has to exist first.
                let state = TaskState::Leased { holder: shared.holder, cancelled: false };
                plan.put(&mut self.tasks, task.row(shared.id, state, now_ms, None), task.deadline_ms);
            }
            return plan.then(Output::RunActivity(Box::new(task)));
        }
        if !is_served {
            say_unserved(shared, &task);
        }
        plan.put(&mut self.tasks, task.queued_row(shared.id, now_ms), task.deadline_ms);
    }

    /// The first attempt of an open activity, as it may start now.
    pub(super) fn activity_task(
        &self,
        shared: &Shared,
        now_ms: u64,
        execution: &Execution,
        event: EventId,
    ) -> Option<ActivityTask> {
        self.open_activity(shared, now_ms, (execution.started().execution, execution.ledger()), event)
    }

    /// The same, for an execution of which only the history is available.
    pub(super) fn open_activity(
        &self,
        shared: &Shared,
        now_ms: u64,
        (execution, ledger): (u64, &Ledger),
        event: EventId,
    ) -> Option<ActivityTask> {
        let Decision::ActivityScheduled { name, id, input, options } = ledger.open_decision(event)? else {
            return None;
        };
        Some(ActivityTask {
            tenure: shared.tenure,
            key: self.key,
            instance: Arc::clone(&self.id),
            execution,
            event,
            attempt: 1,
            interruptions: 0,
            begun: None,
            details: None,
            queued_ms: now_ms,
            past: Trail::default(),
            deadline_ms: ledger.activity_deadline_ms(event),
            name: name.clone(),
            activity_id: id.clone(),
            input: input.clone(),
            options: options.clone(),
            secret: None,
            trace: spans::of_attempts(self.key, execution, ledger, event),
        })
    }
}

/// Logs once that an activity waits for another node. If there is none, it was probably not registered.
fn say_unserved(shared: &mut Shared, task: &ActivityTask) {
    if shared.attempts.is_news(&task.name, task.tag()) {
        tracing::warn!(
            target: log::ACTIVITY,
            instance = &*task.instance,
            execution = task.execution,
            event = task.event.0,
            attempt = task.attempt,
            activity = task.name,
            tag = task.tag(),
            code = ErrorCode::NotServed.as_str(),
            "activity not served here: this node has not registered it, or does not serve its tag; it waits for a node that does"
        );
    }
}
