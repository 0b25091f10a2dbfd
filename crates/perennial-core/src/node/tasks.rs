//! The tasks of a node: taking them from the store within its free slots, running them when they may run, and writing
//! what became of them.
//!
//! A taken task is held under a lease until its end is durable. A task that was interrupted before waits for a quarantine
//! slot, and its start is noted before it runs.

use std::sync::Arc;
use std::time::Duration;

use crate::history::{ActivityError, Payload};
use crate::instance::ShardId;
use crate::lane::Moment;
use crate::log;
use crate::shard::{
    ActivityTask, BodyError, LeftOpen, Message, RanElsewhere, Tenure, cannot_be_left_open, hold_ms,
    max_together,
};
use crate::store::{Evidence, TaskId, TaskRow};

use super::calls::Purpose;
use super::machine::Node;
use super::output::NodeOutput;
use super::quarantine_gate::Waiting;
use super::taken::task_id;

impl Node {
    /// A lane requests a quarantine slot for an activity. `free` is how many more activities could run here now.
    pub fn handle_want_quarantine_slot(
        &mut self,
        now: Moment,
        lane: usize,
        (shard, tenure): (ShardId, Tenure),
        interruptions: u32,
        task: TaskId,
        free: usize,
    ) {
        self.wait_for_turn(now, Waiting::Lane { lane, shard, tenure, interruptions, task });
        self.grant(now, free);
    }

    /// An activity with a quarantine slot has started.
    pub fn handle_quarantined_begun(&mut self, now: Moment, task: &ActivityTask) {
        self.quarantine.handle_begun(now, task_id(task));
    }

    /// An activity with a quarantine slot has ended.
    pub fn handle_quarantined_ended(&mut self, now: Moment, task: &ActivityTask, free: usize) {
        self.quarantine.handle_ended(task_id(task));
        self.grant(now, free);
    }

    /// A lane handed over an attempt that runs here: it is now a task of this node.
    pub fn handle_hand_over(&mut self, now: Moment, task: &ActivityTask) {
        self.taken.hand_over(now, task);
    }

    /// A taken task has ended. `details` are its last heartbeat details.
    pub fn handle_task_done(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        result: Result<Payload, ActivityError>,
        details: Option<Payload>,
    ) {
        if !self.taken.is_kept(task) {
            // Its lease has expired: another attempt of it may run, here or elsewhere.
            return self.taken.remove(task_id(task), task.tenure);
        }
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let ran = Some(Box::new(self.ran(now, task)));
        self.finish(now, task, &Message::Attempt { execution, event, attempt, result, details, ran });
    }

    /// The code of a taken task returned after this many milliseconds, without a result: the holder of its token
    /// completes it. `details` are its last heartbeat details.
    pub fn handle_task_left_open(
        &mut self,
        now: Moment,
        task: &ActivityTask,
        ran_ms: u64,
        details: Option<Payload>,
    ) {
        let Some(secret) = task.secret else {
            let error = cannot_be_left_open();
            return self.handle_task_done(now, task, Err(error), details);
        };
        if !self.taken.is_kept(task) {
            return self.taken.remove(task_id(task), task.tenure);
        }
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let ran = self.ran(now, task);
        let left = LeftOpen { execution, event, attempt, secret, ran_ms, details, ran };
        self.finish(now, task, &Message::LeftOpen(Box::new(left)));
    }

    fn ran(&self, now: Moment, task: &ActivityTask) -> RanElsewhere {
        let took = self.taken.age(now, task_id(task)).as_millis();
        RanElsewhere {
            node: self.options.info.name.clone(),
            queued_ms: task.queued_ms,
            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
            past: task.past.clone(),
        }
    }

    /// Writes the end of a task. The lease is kept until that is durable.
    fn finish(&mut self, now: Moment, task: &ActivityTask, message: &Message) {
        let (shard, body) = (ShardId::of(&task.instance), message.encode());
        let (attempt, tenure) = (task.attempt, task.tenure);
        let instance = Some(Arc::clone(&task.instance));
        self.issue(now, Purpose::Finish { instance, task: task_id(task), tenure, shard, attempt, body });
    }

    /// A taken task did not start, or was stopped for the node's sake: another node may take it.
    pub fn handle_task_released(&mut self, now: Moment, task: &ActivityTask) {
        let is_kept = self.taken.is_kept(task);
        self.taken.remove(task_id(task), task.tenure);
        if is_kept {
            self.issue(now, Purpose::GiveBack(task_id(task)));
        }
    }

    /// A heartbeat of a taken task.
    pub fn handle_task_heartbeat(&mut self, now: Moment, task: &ActivityTask, details: Payload) {
        // An attempt that sends heartbeats is healthy.
        if let Some(renewal) = self.taken.renewal(task, Some(details), Evidence::Healthy) {
            self.issue(now, Purpose::RenewTasks(vec![renewal]));
        }
    }

    /// Whether a task is being returned to the store.
    pub(super) fn gives_back(&self, id: TaskId) -> bool {
        self.calls.has(|purpose| matches!(purpose, Purpose::GiveBack(other) if *other == id))
    }

    pub(super) fn takes_tasks(&self) -> bool {
        !self.options.served.is_empty() && !self.is_stopping && !self.options.is_visitor
    }

    pub(super) fn take_tasks(&mut self, now: Moment, free: usize) {
        // Even if the list is only planned: the tasks of a lost reply have to be known before more are taken.
        let is_taking = |purpose: &Purpose| matches!(purpose, Purpose::Take { .. } | Purpose::Held);
        if !self.wants_tasks
            || !self.takes_tasks()
            || free == 0
            || !self.lease.holds(now)
            || self.calls.has(is_taking)
        {
            return;
        }
        self.wants_tasks = false;
        self.issue(now, Purpose::Take { limit: free.min(self.options.max_take) });
    }

    /// Runs a taken task, when it may run.
    pub(super) fn run(&mut self, now: Moment, row: &TaskRow) {
        let task = match ActivityTask::from_row(row) {
            Ok(task) => task,
            Err(error) => return self.cannot_read(now, row, &error),
        };
        self.tenures -= 1;
        let task = ActivityTask { tenure: Tenure(self.tenures), ..task };
        if !self.taken.add(now, row.id, row.attempt, task.tenure) {
            return;
        }
        if self.is_stopping {
            return self.handle_task_released(now, &task);
        }
        if task.interruptions > self.options.max_interruptions {
            let details = task.details.clone();
            return self.handle_task_done(now, &task, Err(ActivityError::Poisoned), details);
        }
        let (quarantine_after, interruptions) = (self.options.quarantine_after, task.interruptions);
        if !row.is_suspect() && max_together(quarantine_after, interruptions).is_none() {
            return self.outputs.push(NodeOutput::RunTask(Box::new(task)));
        }
        // The process has to live for a while without a task that runs alone, each time for longer.
        let healthy_ms = u64::try_from(self.options.healthy.as_millis()).unwrap_or(u64::MAX);
        let admitted = now + Duration::from_millis(hold_ms(quarantine_after, interruptions, healthy_ms));
        let task = ActivityTask { begun: Some(self.id()), ..task };
        self.calls.at(admitted, Purpose::Admit(Box::new(task)));
    }

    /// Runs a task whose start is noted.
    pub(super) fn begin(&mut self, now: Moment, task: Box<ActivityTask>) {
        if self.is_stopping {
            return self.handle_task_released(now, &task);
        }
        self.taken.begin(now, &task);
        self.outputs.push(NodeOutput::RunTask(task));
    }

    /// Handles a taken task that cannot be read. It never counts as an interruption: the activity is not at fault.
    fn cannot_read(&mut self, now: Moment, row: &TaskRow, error: &BodyError) {
        let (TaskId { key, execution, event }, attempt) = (row.id, row.attempt);
        if matches!(error, BodyError::NewerEngine { .. } | BodyError::Undecodable(_)) {
            // A newer node, or one with the key, may take it. The pause keeps this node from taking it again.
            tracing::warn!(
                target: log::ACTIVITY,
                %key,
                execution,
                event = event.0,
                attempt,
                activity = row.name,
                %error,
                "task cannot be read by this node; it is given back"
            );
            if self.is_stopping {
                return self.issue(now, Purpose::GiveBack(row.id));
            }
            let pause = Duration::from_millis(self.options.task_lease_ms / 2);
            return self.calls.at(now + pause, Purpose::GiveBack(row.id));
        }
        tracing::error!(
            target: log::ACTIVITY,
            %key,
            execution,
            event = event.0,
            attempt,
            activity = row.name,
            %error,
            "task cannot be read; its owner writes it again"
        );
        let body = Message::Requeue { execution, event, attempt, past: row.past.clone() }.encode();
        let tenure = Tenure::default();
        self.taken.add(now, row.id, attempt, tenure);
        let (instance, task, shard) = (None, row.id, row.shard);
        self.issue(now, Purpose::Finish { instance, task, tenure, shard, attempt, body });
    }

    /// Lets an activity wait for a quarantine slot. A task that it replaces no longer belongs to this node.
    pub(super) fn wait_for_turn(&mut self, now: Moment, waiting: Waiting) {
        if let Some(Waiting::Task(earlier)) = self.quarantine.add(waiting) {
            self.handle_task_released(now, &earlier);
        }
    }

    pub(super) fn grant(&mut self, now: Moment, free: usize) {
        while let Some(waiting) = self.quarantine.take(now, free) {
            match waiting {
                Waiting::Task(task) if !self.taken.is_kept(&task) => {
                    self.quarantine.handle_ended(task_id(&task));
                    self.taken.remove(task_id(&task), task.tenure);
                    continue;
                }
                Waiting::Task(task) => self.issue(now, Purpose::Begin(task)),
                Waiting::Lane { lane, shard, tenure, task: TaskId { key, event, .. }, .. } => {
                    self.outputs.push(NodeOutput::GrantQuarantineSlot { lane, shard, tenure, key, event });
                }
            }
        }
    }
}
