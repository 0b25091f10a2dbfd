//! Activities beyond their first attempt: retries, interruptions, and what other nodes run.
//!
//! A first attempt that runs here has no row. Everything else is a row of the instance, written by a commit of the
//! instance before its attempt runs. The shard's own attempts are leased without an end: when they are found by a new
//! owner, the process that ran them is gone, and that counts as an interruption.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{
    ActivityFailure, ActivityOptions, Decision, EventId, Job, Ledger, PastAttempt, Payload, RetryPolicy,
    TimeoutKind, Trail, Turn,
};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{Commit, LoadedInstance, Outgoing, SessionId, TaskChange, TaskId, TaskRow, TaskState};

use super::envelope::{self, BodyError, BodyKind};
use super::message::{Message, RanElsewhere};
use super::output::{ActivityTask, Output};
use super::slot::{Facts, InFlight, Lone, Next, Phase, Queued, Slot, TaskWrite, is_others};
use super::state_machine::{Attempt, Shard};
use super::tenure::Tenure;

/// All that another node needs to run an activity, besides its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskWork {
    /// The instance's id.
    pub instance: String,
    /// What the activity is given.
    pub input: Payload,
    /// How it is to be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Box<ActivityOptions>>,
    /// When all attempts together have taken too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// When it could have begun.
    #[serde(default)]
    pub queued_ms: u64,
    /// The row was written by its holder's own lane, for an attempt that ran there; and how many interruptions there were
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<u32>,
}

impl TaskWork {
    /// The work as the body of a task row.
    pub fn encode(&self) -> Arc<[u8]> {
        envelope::seal(BodyKind::Task, self)
    }

    /// The work of a task row's body.
    pub fn decode(body: &[u8]) -> Result<TaskWork, BodyError> {
        envelope::open(BodyKind::Task, body)
    }
}

/// Whether a task is leased to its holder because a lane there handed it over: it was not taken.
pub(crate) fn is_handed_over(row: &TaskRow) -> bool {
    let work = row.work.as_deref().and_then(|work| TaskWork::decode(work).ok());
    work.and_then(|work| work.handed_over) == Some(row.interruptions)
}

impl ActivityTask {
    /// The task that a node takes from the store.
    pub fn from_row(row: &TaskRow) -> Result<ActivityTask, BodyError> {
        let work = TaskWork::decode(row.work.as_deref().unwrap_or_default())?;
        Ok(ActivityTask {
            tenure: Tenure::default(),
            key: row.id.key,
            instance: Arc::from(work.instance),
            execution: row.id.execution,
            event: row.id.event,
            attempt: row.attempt,
            interruptions: row.interruptions,
            details: row.details.clone(),
            queued_ms: work.queued_ms,
            past: row.past.clone(),
            deadline_ms: work.deadline_ms,
            name: row.name.clone(),
            input: work.input,
            options: work.options,
        })
    }

    fn id(&self) -> TaskId {
        TaskId { key: self.key, execution: self.execution, event: self.event }
    }

    fn tag(&self) -> Option<&str> {
        self.options.as_ref().and_then(|options| options.tag.as_deref())
    }

    /// Its row in a state.
    fn row(&self, shard: ShardId, state: TaskState, due_ms: Option<u64>) -> TaskRow {
        TaskRow {
            id: self.id(),
            shard,
            attempt: self.attempt,
            state,
            due_ms,
            details: self.details.clone(),
            interruptions: self.interruptions,
            past: self.past.clone(),
            name: self.name.clone(),
            tag: self.tag().map(str::to_owned),
            work: None,
        }
    }
}

/// What a commit does about the tasks of an instance.
#[derive(Default)]
pub(super) struct TaskPlan {
    pub(super) changes: Vec<TaskChange>,
    /// What is stored once it is durable.
    pub(super) after: BTreeMap<EventId, TaskRow>,
    pub(super) writes: Vec<TaskWrite>,
    pub(super) effects: Vec<Output>,
}

impl TaskPlan {
    /// What the next commit writes if nothing else happens.
    pub(super) fn of_slot(slot: &mut Slot, is_open: impl Fn(EventId) -> bool) -> TaskPlan {
        let mut plan = TaskPlan { after: slot.tasks.clone(), ..TaskPlan::default() };
        for write in slot.task_writes.drain(..).filter(|write| is_open(write.row.id.event)) {
            plan.changes.push(TaskChange::Put(Box::new(write.row.clone())));
            plan.after.insert(write.row.id.event, write.row.clone());
            plan.effects.extend(write.then_output());
            plan.writes.push(write);
        }
        plan
    }

    /// Nobody waits for an activity any more, or its result has come.
    fn close(&mut self, event: EventId) {
        if let Some(row) = self.after.remove(&event) {
            self.changes.push(TaskChange::Cancel(row.id));
        }
    }

    pub(super) fn close_all(&mut self) {
        for row in std::mem::take(&mut self.after).into_values() {
            self.changes.push(TaskChange::Cancel(row.id));
        }
    }

    /// Moves the plan into a commit and what follows from it.
    pub(super) fn apply(self, commit: &mut Commit, in_flight: &mut super::slot::InFlight) {
        commit.tasks = self.changes;
        in_flight.tasks = self.after;
        in_flight.task_writes = self.writes;
        in_flight.outputs.extend(self.effects);
    }
}

impl Shard {
    /// What a turn means for the tasks of its instance.
    pub(super) fn plan_tasks(&mut self, key: InstanceKey, execution: &Execution, turn: &Turn) -> TaskPlan {
        let ledger = execution.ledger();
        let has_ended = turn.ending().is_some();
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let mut plan = TaskPlan::of_slot(slot, |event| ledger.open_decision(event).is_some() && !has_ended);
        turn.jobs().filter_map(|(_, job)| job.source_event_id()).for_each(|event| plan.close(event));
        if has_ended {
            plan.close_all();
            return plan;
        }
        for (event, _, decision) in turn.decisions() {
            match decision {
                Decision::ActivityScheduled { .. } => {
                    let Some(task) = self.activity_task(turn.at_ms, key, execution, event) else { continue };
                    if self.runs_here(&task) {
                        plan.effects.push(Output::RunActivity(Box::new(task)));
                    } else {
                        self.say_unserved(&task);
                        let row = self.queued_row(&task, turn.at_ms);
                        plan.changes.push(TaskChange::Put(Box::new(row.clone())));
                        plan.after.insert(event, row);
                    }
                }
                Decision::ActivityCancelRequested { source_event_id } => {
                    plan.close(*source_event_id);
                    let (execution, event) = (execution.started().execution, *source_event_id);
                    plan.effects.push(Output::CancelActivity { key, execution, event });
                }
                _ => {}
            }
        }
        plan
    }

    /// Whether a first attempt is begun here at once.
    fn runs_here(&self, task: &ActivityTask) -> bool {
        self.releasing.is_none() && self.options.serves(&task.name, task.tag())
    }

    /// Says once that an activity waits for another node. Where there is none, somebody forgot to register it.
    fn say_unserved(&mut self, task: &ActivityTask) {
        if self.options.serves(&task.name, task.tag()) {
            return;
        }
        if self.unserved.insert((task.name.clone(), task.tag().map(str::to_owned))) {
            tracing::warn!(
                instance = &*task.instance,
                activity = task.name,
                tag = task.tag(),
                "PER-0409 not served here: this node has not registered the activity, or does not serve its tag; it waits \
                 for a node that does"
            );
        }
    }

    /// The row of a task that this node cannot run.
    fn queued_row(&self, task: &ActivityTask, now_ms: u64) -> TaskRow {
        self.shared_row(task, now_ms, None)
    }

    /// The row of a task that others can run.
    fn shared_row(&self, task: &ActivityTask, now_ms: u64, handed_over: Option<u32>) -> TaskRow {
        let options = task.options.as_deref();
        let queue_until_ms =
            options.and_then(|options| options.queue_timeout_ms).map(|ms| now_ms.saturating_add(ms));
        let due_ms = queue_until_ms.into_iter().chain(task.deadline_ms).min();
        let work = TaskWork {
            instance: task.instance.to_string(),
            input: task.input.clone(),
            options: task.options.clone(),
            deadline_ms: task.deadline_ms,
            queued_ms: task.queued_ms,
            handed_over,
        };
        TaskRow { work: Some(work.encode()), ..task.row(self.id, TaskState::Queued, due_ms) }
    }

    /// The first attempt of an open activity, as it may begin now.
    pub(super) fn activity_task(
        &self,
        now_ms: u64,
        key: InstanceKey,
        execution: &Execution,
        event: EventId,
    ) -> Option<ActivityTask> {
        let Decision::ActivityScheduled { name, input, options } = execution.ledger().open_decision(event)?
        else {
            return None;
        };
        let deadline_ms = execution.ledger().activity_deadline_ms(event);
        Some(ActivityTask {
            tenure: self.tenure,
            key,
            instance: Arc::clone(&self.slots.get(&key)?.id),
            execution: execution.started().execution,
            event,
            attempt: 1,
            interruptions: 0,
            details: None,
            queued_ms: now_ms,
            past: Trail::default(),
            deadline_ms,
            name: name.clone(),
            input: input.clone(),
            options: options.clone(),
        })
    }

    /// Looks after the tasks of an idle instance: those that are due, and after growing back those that nobody runs.
    pub(super) fn tend_tasks(&mut self, now_ms: u64, key: InstanceKey, execution: &Execution, view: View) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        if self.stopping {
            return;
        }
        let has_grown_back = std::mem::take(&mut slot.has_grown_back);
        let slot = &*slot;
        if slot.tasks.is_empty() && !has_grown_back {
            return;
        }
        let results = slot.waiting_results();
        let is_looked_after = |event: EventId| {
            self.attempts.contains_key(&(key, event))
                || results.contains(&event)
                || slot.task_writes.iter().any(|write| write.row.id.event == event)
        };
        let mut steps: Vec<(EventId, Option<TaskRow>)> = Vec::new();
        steps.extend(slot.tasks.iter().map(|(event, row)| (*event, Some(row.clone()))));
        if has_grown_back {
            let open = execution.ledger().open();
            let activities = open.filter(|(_, open)| matches!(open, Decision::ActivityScheduled { .. }));
            let bare = activities.filter(|(event, _)| !slot.tasks.contains_key(event));
            steps.extend(bare.map(|(event, _)| (event, None)));
        }
        steps.retain(|(event, _)| !is_looked_after(*event));
        for (event, row) in steps {
            let Some(mut task) = self.activity_task(now_ms, key, execution, event) else { continue };
            let step = self.next_step(now_ms, &mut task, row.as_ref(), view);
            let slot = self.slots.get_mut(&key).expect("it was just looked at");
            match step {
                TaskStep::None => {}
                TaskStep::Refresh if slot.is_refreshing => {}
                TaskStep::Refresh => {
                    slot.is_refreshing = true;
                    self.outputs.push(Output::Refresh { key });
                }
                TaskStep::Run { .. } if !self.options.serves(&task.name, task.tag()) => {
                    let row = self.queued_row(&task, now_ms);
                    self.write_task(key, row);
                }
                TaskStep::Run { is_interrupted: true } if self.options.is_lone(&task) => {
                    // That it was interrupted is written before it waits for its turn to run alone.
                    let row = task.row(self.id, TaskState::Waiting, Some(now_ms));
                    self.write_task(key, row);
                }
                TaskStep::Run { .. }
                    if self.options.is_lone(&task)
                        && self.lone.get(&(key, event)) != Some(&Lone::Granted) =>
                {
                    if self.lone.insert((key, event), Lone::Wanted).is_none() {
                        self.outputs.push(Output::WantLone { key, event });
                    }
                }
                TaskStep::Run { .. } => {
                    self.lone.remove(&(key, event));
                    let state = TaskState::Leased { holder: SessionId(self.nonce), cancelled: false };
                    let row = task.row(self.id, state, None);
                    let run = Output::RunActivity(Box::new(task));
                    if flaws::is(Flaw::RetryBeforeRow) {
                        slot.task_writes.push(TaskWrite { row, then: None });
                        self.release(now_ms, vec![run]);
                    } else {
                        slot.task_writes.push(TaskWrite { row, then: Some(run) });
                    }
                }
                TaskStep::GiveUp(error) => {
                    // The attempt that a task waits for was not made.
                    let is_waiting = row.is_some_and(|row| row.state == TaskState::Waiting);
                    let attempts = if is_waiting { (task.attempt - 1).max(1) } else { task.attempt };
                    let execution = task.execution;
                    let trail = task.past;
                    let job = Job::ActivityFailed { source_event_id: event, error, attempts, trail };
                    slot.push(Queued::engine(Message::Outcome { execution, job }, now_ms));
                }
            }
        }
    }

    /// What is next for an activity that nobody here looks after.
    fn next_step(&self, now_ms: u64, task: &mut ActivityTask, row: Option<&TaskRow>, view: View) -> TaskStep {
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
        if task.interruptions > self.options.max_interruptions {
            TaskStep::GiveUp(ActivityFailure::Poisoned)
        } else if is_over {
            // No time is left for another attempt.
            TaskStep::GiveUp(ActivityFailure::Timeout(TimeoutKind::Total))
        } else {
            TaskStep::Run { is_interrupted }
        }
    }

    /// The tasks and messages of an instance were read again. Other nodes may have taken, renewed or finished tasks;
    /// messages that came while it was blocked are in order now. The inbox is to be read after this.
    pub fn handle_refreshed(&mut self, now_ms: u64, key: InstanceKey, loaded: Option<LoadedInstance>) {
        let Some(slot) = self.slots.get_mut(&key).filter(|slot| slot.is_refreshing) else { return };
        slot.is_refreshing = false;
        let given_meanwhile = std::mem::take(&mut slot.given_meanwhile);
        let Some(loaded) = loaded else { return self.bring_all_behind(now_ms, key) };
        for row in loaded.inbox.rows {
            if !self.consumed.contains(row.number) && !slot.knows_inbox(row.number) {
                slot.insert_inbox(&row);
            }
        }
        let is_loading = matches!(slot.phase, Phase::Loading);
        self.bring_behind(now_ms, key, is_loading);
        let Some(slot) = self.slots.get_mut(&key) else { return };
        if slot.facts.as_ref().map(|facts| facts.execution) != Some(loaded.row.execution) {
            return self.go_on(now_ms, key);
        }
        let read: BTreeMap<EventId, TaskRow> =
            loaded.tasks.into_iter().map(|row| (row.id.event, row)).collect();
        slot.tasks = std::mem::take(&mut slot.tasks)
            .into_iter()
            .filter_map(|(event, row)| match is_others(&row) && !given_meanwhile.contains(&event) {
                true => read.get(&event).map(|row| (event, row.clone())),
                false => Some((event, row)),
            })
            .collect();
        if !matches!(slot.phase, Phase::Idle(_)) {
            return;
        }
        if let Phase::Idle(execution) = std::mem::replace(&mut slot.phase, Phase::Loading) {
            self.tend_tasks(now_ms, key, &execution, View::Fresh);
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.phase = Phase::Idle(execution);
            }
        }
        self.go_on(now_ms, key);
    }

    /// An activity that was interrupted often may run: no other such runs on this node.
    pub fn handle_lone_granted(&mut self, now_ms: u64, key: InstanceKey, event: EventId) {
        if self.closing || self.lone.get(&(key, event)) != Some(&Lone::Wanted) {
            return;
        }
        self.lone.insert((key, event), Lone::Granted);
        if self.slots.contains_key(&key) {
            self.go_on(now_ms, key);
        } else {
            self.load(key, now_ms);
        }
    }

    /// Whether an activity of an instance waits to run alone.
    pub(super) fn wants_to_run_alone(&self, key: InstanceKey) -> bool {
        self.lone.range((key, EventId(0))..=(key, EventId(u64::MAX))).next().is_some()
    }

    /// An attempt of an activity ended.
    pub fn handle_activity_done(
        &mut self,
        now_ms: u64,
        task: &ActivityTask,
        result: Result<Payload, ActivityFailure>,
    ) {
        let Some(attempt) = self.end_attempt(task) else { return };
        if !self.slots.contains_key(&task.key) {
            self.load(task.key, now_ms);
        }
        let ran = PastAttempt::new(task.queued_ms, attempt.began_ms, now_ms);
        let task = ActivityTask { details: attempt.details, ..task.clone() };
        let message = self.attempt_ended(now_ms, &task, Some(ran), result);
        let Some(slot) = self.slots.get_mut(&task.key) else { return };
        match message {
            Some(message) if self.options.is_lone(&task) && matches!(slot.phase, Phase::Idle(_)) => {
                self.keep_result(now_ms, &task, &message);
            }
            message => {
                if let Some(message) = message {
                    slot.push(Queued::engine(message, now_ms));
                }
                self.go_on(now_ms, task.key);
            }
        }
    }

    /// The shard is to be given up. While it still works, the attempts that run here become rows that are leased to the
    /// node's own session, so that they end here; when the last of these is durable, the shard comes to rest.
    pub fn handle_releasing(&mut self, now_ms: u64, holder: SessionId, lease_ms: u64) {
        self.stopping = true;
        self.releasing = Some((holder, lease_ms));
        let keys: BTreeSet<InstanceKey> = self.attempts.keys().map(|(key, _)| *key).collect();
        for key in keys {
            match self.slots.get(&key).map(|slot| &slot.phase) {
                None => self.load(key, now_ms),
                // Its history is not at hand. The next owner finds them without an attempt.
                Some(Phase::Blocked) => self.stop_attempts(key),
                Some(_) => self.go_on(now_ms, key),
            }
        }
        self.close_if_released();
    }

    /// Once no attempt is the shard's own any more, it comes to rest.
    pub(super) fn close_if_released(&mut self) {
        self.closing |= self.releasing.is_some() && self.attempts.is_empty();
    }

    /// Has rows written for the attempts of an instance that run here, if the shard is being given up.
    pub(super) fn hand_over(&mut self, now_ms: u64, key: InstanceKey, execution: &Execution) {
        let Some((holder, lease_ms)) = self.releasing else { return };
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        let running: Vec<(EventId, Attempt)> =
            self.attempts.range(all).map(|((_, event), attempt)| (*event, attempt.clone())).collect();
        for (event, attempt) in running {
            let is_written = self.slots.get(&key).is_some_and(|slot| {
                slot.task_writes.iter().any(|write| write.row.id.event == event && write.then.is_some())
            });
            let task = self.activity_task(now_ms, key, execution, event);
            let Some(task) = task.filter(|_| !is_written) else { continue };
            let row = self.slots[&key].tasks.get(&event);
            let (interruptions, past) =
                row.map_or((0, Trail::default()), |row| (row.interruptions, row.past.clone()));
            let Attempt { attempt, details, began_ms, .. } = attempt;
            let task = ActivityTask { attempt, details, interruptions, past, queued_ms: began_ms, ..task };
            let state = TaskState::Leased { holder, cancelled: false };
            let due_ms = Some(now_ms.saturating_add(lease_ms));
            let row = TaskRow { state, due_ms, ..self.shared_row(&task, now_ms, Some(task.interruptions)) };
            let Some(slot) = self.slots.get_mut(&key) else { return };
            slot.task_writes.retain(|write| write.row.id != row.id);
            slot.task_writes.push(TaskWrite { row, then: Some(Output::HandOver(Box::new(task))) });
        }
    }

    /// An attempt is told to stop for the node's sake, or never began: it runs again elsewhere, and that counts as no
    /// interruption.
    pub fn handle_activity_released(&mut self, now_ms: u64, task: &ActivityTask) {
        let Some(attempt) = self.end_attempt(task) else { return };
        if !self.slots.contains_key(&task.key) {
            self.load(task.key, now_ms);
        }
        let task = ActivityTask { details: attempt.details, ..task.clone() };
        let row = task.row(self.id, TaskState::Waiting, Some(now_ms));
        self.write_task(task.key, row);
        self.go_on(now_ms, task.key);
    }

    /// A running attempt reports how far it is.
    pub fn handle_heartbeat(&mut self, now_ms: u64, task: &ActivityTask, details: Payload) {
        let Some(attempt) =
            self.attempts.get_mut(&(task.key, task.event)).filter(|attempt| attempt.is_of(task))
        else {
            return;
        };
        attempt.details = Some(details.clone());
        if !self.slots.contains_key(&task.key) {
            self.load(task.key, now_ms);
        }
        let state = TaskState::Leased { holder: SessionId(self.nonce), cancelled: false };
        let row = ActivityTask { details: Some(details), ..task.clone() }.row(self.id, state, None);
        self.write_task(task.key, row);
        self.go_on(now_ms, task.key);
    }

    /// Has a row written with the next commit, instead of an older one of the same task.
    fn write_task(&mut self, key: InstanceKey, row: TaskRow) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.task_writes.retain(|write| write.row.id != row.id || write.then.is_some());
        slot.task_writes.push(TaskWrite { row, then: None });
    }

    /// Forgets an attempt, if it is the current one.
    fn end_attempt(&mut self, task: &ActivityTask) -> Option<Attempt> {
        let place = (task.key, task.event);
        if !self.attempts.get(&place).is_some_and(|attempt| attempt.is_of(task)) {
            self.counters.stale += 1;
            return None;
        }
        let ended = self.attempts.remove(&place);
        self.close_if_released();
        ended
    }

    /// What the instance is told about an attempt that ended; nothing if a row for the next one is written instead.
    pub(super) fn attempt_ended(
        &mut self,
        now_ms: u64,
        task: &ActivityTask,
        ran: Option<PastAttempt>,
        result: Result<Payload, ActivityFailure>,
    ) -> Option<Message> {
        let (source_event_id, attempts) = (task.event, task.attempt);
        let past = |ran: Option<PastAttempt>| ran.into_iter().fold(task.past.clone(), Trail::and);
        let job = match result {
            Ok(result) => Job::ActivityCompleted { source_event_id, result, attempts, trail: past(ran) },
            Err(error) => {
                if let Some(due_ms) = self.retry_at_ms(now_ms, task, &error) {
                    let past = past(ran.map(|ran| ran.failed(&error)));
                    let next = ActivityTask { attempt: task.attempt.saturating_add(1), past, ..task.clone() };
                    // What this node cannot run is queued when its pause is over.
                    let row = next.row(self.id, TaskState::Waiting, Some(due_ms));
                    self.write_task(task.key, row);
                    return None;
                }
                Job::ActivityFailed { source_event_id, error, attempts, trail: past(ran) }
            }
        };
        Some(Message::Outcome { execution: task.execution, job })
    }

    /// Writes the result of an activity that was interrupted often before a turn takes it: if it is the turn that takes
    /// the process down, the activity is not to blame.
    fn keep_result(&mut self, now_ms: u64, task: &ActivityTask, message: &Message) {
        let key = task.key;
        self.leave_idle(key);
        let slot = self.slots.get_mut(&key).expect("it is idle");
        let stored = slot.facts.clone().expect("it is stored");
        let Phase::Idle(execution) = std::mem::replace(&mut slot.phase, Phase::Loading) else { return };
        let mut plan = TaskPlan::of_slot(slot, is_open(execution.ledger()));
        plan.close(task.event);
        let max_unread = self.options.max_unread;
        let facts = Facts::after_turn(&execution, max_unread, None, &stored, &plan.after, now_ms);
        let (shard, body) = (self.id, message.encode());
        let send = vec![Outgoing::ToKey { to: key, shard, dedupe: None, urgent: false, body }];
        let mut commit = Commit { send, change: facts.change_from(&stored), ..self.empty_commit(key) };
        let mut in_flight = InFlight::new(facts, Next::Idle(execution), Vec::new());
        plan.apply(&mut commit, &mut in_flight);
        self.commit(key, commit, in_flight);
    }

    /// When a failed attempt is followed by another, if it is.
    fn retry_at_ms(&mut self, now_ms: u64, task: &ActivityTask, error: &ActivityFailure) -> Option<u64> {
        let policy = task.options.as_ref()?.retry.as_ref()?;
        let may_pass = match error {
            ActivityFailure::Application(payload) => !policy.is_final(payload),
            ActivityFailure::Timeout(kind) => matches!(kind, TimeoutKind::Attempt | TimeoutKind::Heartbeat),
            ActivityFailure::Cancelled | ActivityFailure::Poisoned => false,
        };
        if !may_pass || task.attempt >= policy.max_attempts {
            return None;
        }
        let due_ms = now_ms.saturating_add(self.pause_ms(policy, task.attempt));
        (task.deadline_ms.is_none_or(|deadline_ms| due_ms < deadline_ms)).then_some(due_ms)
    }

    fn pause_ms(&mut self, policy: &RetryPolicy, attempt: u32) -> u64 {
        let draw = self.draw();
        policy.pause_ms(attempt, draw)
    }

    /// What another node's attempt means for an execution, if it still waits for it.
    pub(super) fn take_attempt(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        execution: &Execution,
        (event, attempt): (EventId, u32),
        details: Option<Payload>,
        (result, ran, ended_ms): (Result<Payload, ActivityFailure>, Option<Box<RanElsewhere>>, u64),
    ) -> Option<Message> {
        let Some(task) = self.activity_task(now_ms, key, execution, event) else {
            self.counters.stale += 1;
            return None;
        };
        // Its row went with the result.
        let row = self.slots.get_mut(&key).and_then(|slot| slot.tasks.remove(&event));
        let interruptions = row.map_or(0, |row| row.interruptions);
        let (past, ran) = ran.map_or((Trail::default(), None), |ran| {
            let RanElsewhere { node, queued_ms, took_ms, past } = *ran;
            let ran = PastAttempt::new(queued_ms, ended_ms.saturating_sub(took_ms), ended_ms);
            (past, Some(ran.on(&node)))
        });
        let task = ActivityTask { attempt, details, interruptions, past, ..task };
        self.attempt_ended(now_ms, &task, ran, result)
    }

    /// Queues a task again whose row another node could not read. The history has all that the row had.
    pub(super) fn requeue(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        execution: &Execution,
        (event, attempt): (EventId, u32),
        past: Trail,
    ) {
        let Some(task) = self.activity_task(now_ms, key, execution, event) else {
            self.counters.stale += 1;
            return;
        };
        let known = self.slots.get_mut(&key).and_then(|slot| slot.tasks.remove(&event));
        let (interruptions, details) = known.map_or((0, None), |row| (row.interruptions, row.details));
        let row = self.queued_row(&ActivityTask { attempt, interruptions, details, past, ..task }, now_ms);
        self.write_task(key, row);
    }

    /// Tells the attempts of an execution that ended.
    pub(super) fn stop_attempts(&mut self, key: InstanceKey) {
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        let running: Vec<(EventId, u64)> =
            self.attempts.range(all).map(|((_, event), attempt)| (*event, attempt.execution)).collect();
        self.lone.retain(|(of, _), _| *of != key);
        for (event, execution) in running {
            self.attempts.remove(&(key, event));
            self.outputs.push(Output::CancelActivity { key, execution, event });
        }
        self.close_if_released();
    }
}

/// How recent the rows are that a shard looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As they were when they were last read or written.
    Memory,
    /// As they are stored now.
    Fresh,
}

enum TaskStep {
    None,
    /// Look at the stored rows first.
    Refresh,
    Run {
        is_interrupted: bool,
    },
    GiveUp(ActivityFailure),
}

/// Whether an activity of a ledger is open.
pub(super) fn is_open(ledger: &Ledger) -> impl Fn(EventId) -> bool + '_ {
    |event| ledger.open_decision(event).is_some()
}
