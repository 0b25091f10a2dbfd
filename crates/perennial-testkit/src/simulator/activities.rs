//! Attempts of activities: they wait for a slot, take time, send heartbeats, fail, time out, are cancelled,
//! and now and then one crashes its process.

use std::collections::{BTreeMap, VecDeque};

use perennial_core::lane::{LaneOutput, Moment};
use perennial_core::node::{AttemptNumber, WaitingAttempt};
use perennial_core::shard::ActivityTask;
use perennial_core::store::{SessionId, ShardSet, TaskId, TaskState};
use perennial_core::{ActivityError, EventId, InstanceKey, Payload, ShardId, TimeoutKind};

use super::Simulation;

/// Identifies an activity: the instance, the execution and the schedule event.
pub(super) type Place = (InstanceKey, u64, EventId);

pub(super) fn place_of(task: &ActivityTask) -> Place {
    (task.key, task.execution, task.event)
}

pub(super) fn task_id(task: &ActivityTask) -> TaskId {
    TaskId { key: task.key, execution: task.execution, event: task.event }
}

/// An attempt that a process runs, or that waits for a slot.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) task: ActivityTask,
    /// The lane that requested it; `None` if it was taken from the store.
    pub(super) lane: Option<usize>,
    pub(super) has_begun: bool,
    /// Whether it was cancelled and ignores that.
    pub(super) is_cancel_requested: bool,
    /// The details of its last heartbeat.
    details: Option<Payload>,
}

/// The attempts of a process.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) all: BTreeMap<u64, Run>,
    /// With the time since which each waits, by the process's clock.
    waiting: VecDeque<(u64, Moment)>,
}

impl Runs {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Simulation {
    /// The number of further activities that a process could run.
    pub(super) fn free_slots(&self, process: usize) -> usize {
        self.plan.slots.saturating_sub(self.processes[process].runs.all.len())
    }

    /// Starts an attempt as soon as there is a slot.
    pub(super) fn run_activity(&mut self, process: usize, lane: Option<usize>, task: ActivityTask) {
        self.runs += 1;
        let number = self.runs;
        let details = task.details.clone();
        let run = Run { task, lane, has_begun: false, is_cancel_requested: false, details };
        if self.processes[process].stage.is_some() {
            self.count("attempt given back unbegun");
            return self.give_back(process, run);
        }
        self.witness_run(process, &run.task);
        // An attempt that is recorded as begun was admitted because there was a slot, and does not wait.
        let is_noted = self.is_quarantined(&run.task);
        self.processes[process].runs.all.insert(number, run);
        if is_noted {
            return self.begin(process, number);
        }
        let since = self.moment(process);
        self.processes[process].runs.waiting.push_back((number, since));
        self.begin_next(process);
        let waiting = &self.processes[process].runs.waiting;
        if waiting.len() == 1 && waiting[0].0 == number {
            self.node_input(process, |node, now, _| node.handle_waiting_began(now));
        }
    }

    /// Turns a lane's attempt into a task of the process's node. It must exist: the node holds it until it
    /// ends.
    pub(super) fn hand_over(&mut self, process: usize, lane: usize, task: &ActivityTask) {
        self.count("attempt handed over");
        let is_it = |run: &Run| {
            run.lane == Some(lane)
                && (place_of(&run.task), run.task.attempt) == (place_of(task), task.attempt)
        };
        if !self.processes[process].runs.all.values().any(is_it) {
            let what = format!("activity {} of {}, which does not run", task.event, task.instance);
            return self.fail(format!("N17: p{process} hands over {what}"));
        }
        self.node_input(process, |node, now, _| node.handle_hand_over(now, task));
    }

    /// Passes the attempts that wait for a slot to the node.
    pub(super) fn list_waiting(&mut self, process: usize) {
        let runs = &self.processes[process].runs;
        let waiting = runs.waiting.iter().filter_map(|(number, since)| {
            let task = &runs.all.get(number)?.task;
            Some((AttemptNumber(*number), *since, task.name.clone(), task.tag().map(str::to_owned)))
        });
        let waiting: Vec<_> = waiting.collect();
        self.node_input(process, |node, now, _| {
            let waiting = waiting.iter().map(|(number, since, name, tag)| WaitingAttempt {
                number: *number,
                since: *since,
                name,
                tag: tag.as_deref(),
            });
            node.handle_waiting(now, waiting);
        });
    }

    /// Withdraws an attempt that still waits for a slot, so that another process can run it.
    pub(super) fn withdraw(&mut self, process: usize, AttemptNumber(number): AttemptNumber) {
        let is_waiting = self.processes[process].runs.waiting.iter().any(|(waiting, _)| *waiting == number);
        if !is_waiting {
            return self.count("attempt begun before it was withdrawn");
        }
        let Some(Run { task, lane, .. }) = self.end_run(process, number) else { return };
        if self.node(process).is_some_and(|node| node.holds(&task)) {
            self.count("waiting task given to another node");
            self.node_input(process, |node, now, _| node.handle_task_released(now, &task));
        } else if let Some(lane) = lane {
            self.count("waiting attempt given to another node");
            self.lane_input(process, lane, |lane, now| lane.handle_activity_spilled(now, &task));
        }
    }

    /// Starts waiting attempts, as far as there are slots.
    fn begin_next(&mut self, process: usize) {
        loop {
            let runs = &mut self.processes[process].runs;
            let running = runs.all.len() - runs.waiting.len();
            if running >= self.plan.slots {
                return;
            }
            let Some((number, _)) = runs.waiting.pop_front() else { return };
            self.begin(process, number);
        }
    }

    fn begin(&mut self, process: usize, number: u64) {
        let Some(run) = self.processes[process].runs.all.get(&number).cloned() else { return };
        let Run { task, lane, .. } = run;
        let is_held = self.node(process).is_some_and(|node| node.holds(&task));
        if let Some(lane) = lane.filter(|_| !is_held) {
            // It may have waited for a slot; if the lane had lost the shard meanwhile, it would have been
            // cancelled.
            let (deadline, output) =
                (self.deadline(process, lane), LaneOutput::RunActivity(Box::new(task.clone())));
            if self.in_time(process, lane, deadline, output).is_none() {
                self.processes[process].runs.all.remove(&number);
                return;
            }
        }
        if let Some(run) = self.processes[process].runs.all.get_mut(&number) {
            run.has_begun = true;
        }
        self.witness_activity(process, lane.filter(|_| !is_held), number, &task);
        self.count_attempt(&task);
        if self.is_quarantined(&task) {
            self.node_input(process, |node, now, _| node.handle_quarantined_begun(now, &task));
        }
        if self.is_deadly(&task) {
            let label = format!("p{process} dies of activity {} of {}", task.event, task.instance);
            return self.later_on(process, 1, label, move |this| this.die(process));
        }
        if self.plan.has_aim && self.is_lasting(&task) {
            // Late enough for the process to count as healthy.
            let delay_ms = self.rng.between(2_000, 4_000);
            self.later_on(process, delay_ms, format!("p{process} is hit"), move |this| this.crash(process));
        }
        let long = if self.plan.is_stubborn && !self.is_healed { 10 } else { 1 };
        let spans = [(6, (0, 50)), (3, (50, 1_500)), (long, (1_500, self.plan.longest_activity_ms))];
        let (low, high) = self.rng.weighted(&spans);
        let (duration_ms, reports) = (self.rng.between(low, high), self.rng.percent(30));
        // It lasts until the faults end, whenever it starts, and sends no heartbeats.
        let (duration_ms, reports) = match self.is_lasting(&task) {
            true => (self.plan.faults_ms, false),
            false => (duration_ms, reports),
        };
        let (ends_ms, result) = self.outcome(&task, number, duration_ms, reports);
        if reports && duration_ms > 20 {
            let label = format!("p{process} activity {} of {} reports", task.event, task.instance);
            self.later_on(process, ends_ms.min(duration_ms) / 2, label, move |this| {
                this.report(process, number)
            });
        }
        let label = format!("p{process} activity {} of {} ends", task.event, task.instance);
        // Some activities are completed with a token, late or before the code has returned. An activity that
        // should last until the faults end is excluded.
        let has_token = task.secret.is_some() && !self.is_lasting(&task);
        let leaves_open = has_token && result.is_ok() && self.rng.percent(60);
        if has_token && self.rng.percent(20) {
            self.hand_out(&task);
        }
        self.later_on(process, ends_ms, label, move |this| match leaves_open {
            true => {
                if let Some(run) = this.end_run(process, number) {
                    this.leave_open(process, &run, ends_ms);
                }
            }
            false => this.end_attempt(process, number, result),
        });
    }

    /// Ends an attempt.
    fn end_attempt(&mut self, process: usize, number: u64, result: Result<Payload, ActivityError>) {
        let Some(run) = self.end_run(process, number) else { return };
        let duplicate = self.faults(|faults| faults.duplicate);
        if self.rng.percent(duplicate) {
            let (again, result) = (run.clone(), result.clone());
            let delay_ms = self.rng.between(0, 1_500);
            self.later_on(process, delay_ms, format!("p{process} a result comes twice"), move |this| {
                this.count("duplicate result");
                this.bring_result(process, &again, result);
            });
        }
        self.bring_result(process, &run, result);
    }

    fn bring_result(&mut self, process: usize, run: &Run, result: Result<Payload, ActivityError>) {
        let Run { task, lane, details, .. } = run;
        if self.node(process).is_some_and(|node| node.holds(task)) {
            if lane.is_some() {
                self.count("handed-over attempt finished");
            }
            let details = details.clone();
            let id = TaskId { key: task.key, execution: task.execution, event: task.event };
            self.processes[process].task_results.insert((id, task.attempt));
            return self
                .node_input(process, |node, now, _| node.handle_task_done(now, task, result, details));
        }
        let Some(lane) = *lane else { return };
        let (stale_before, reported) = (self.stale(process, lane), result.clone());
        let tenure = (ShardId::of(&task.instance), task.tenure);
        self.tenure_input(process, lane, tenure, "a result", |lane, now| {
            lane.handle_activity_done(now, task, result);
        });
        if let Ok(payload) = reported
            && self.stale(process, lane) == stale_before
        {
            self.witness_result(process, lane, task, &payload);
        }
    }

    /// The duration and the outcome of an attempt.
    fn outcome(
        &mut self,
        task: &ActivityTask,
        number: u64,
        duration_ms: u64,
        reports: bool,
    ) -> (u64, Result<Payload, ActivityError>) {
        let options = task.options.as_deref();
        let total_ms = task.deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(self.store_ms()));
        let attempt_ms = options.and_then(|options| options.attempt_timeout_ms);
        let silence_ms = options.and_then(|options| options.heartbeat_timeout_ms).filter(|_| !reports);
        let limits = [
            (total_ms, TimeoutKind::Total),
            (attempt_ms, TimeoutKind::Attempt),
            (silence_ms, TimeoutKind::Heartbeat),
        ];
        let first = limits.into_iter().filter_map(|(limit, kind)| limit.map(|limit| (limit, kind)));
        if let Some((limit_ms, kind)) =
            first.min_by_key(|(limit, _)| *limit).filter(|(limit, _)| *limit < duration_ms)
        {
            self.count("activity timed out");
            return (limit_ms, Err(ActivityError::Timeout(kind)));
        }
        let what = format!("{} of {} by run {number}", task.event, task.instance);
        let result = match self.rng.below(5) {
            0 => Err(ActivityError::Application(Payload::from("no"))),
            _ => Ok(Payload::from(what)),
        };
        (duration_ms, result)
    }

    fn count_attempt(&mut self, task: &ActivityTask) {
        if task.attempt > 1 {
            self.count("retry");
        }
        if task.interruptions > 0 {
            self.count("attempt after an interruption");
        }
        if task.begun.is_some() {
            self.count("attempt begun with care");
        }
        if task.details.is_some() {
            self.count("attempt that knows what was reported");
        }
    }

    fn report(&mut self, process: usize, number: u64) {
        let Some(run) = self.processes[process].runs.all.get_mut(&number) else { return };
        let details = Payload::from(format!("attempt {}", run.task.attempt));
        run.details = Some(details.clone());
        let Run { task, lane, .. } = run.clone();
        self.count("heartbeat");
        if self.node(process).is_some_and(|node| node.holds(&task)) {
            return self.node_input(process, |node, now, _| node.handle_task_heartbeat(now, &task, details));
        }
        if let Some(lane) = lane {
            let tenure = (ShardId::of(&task.instance), task.tenure);
            self.tenure_input(process, lane, tenure, "a heartbeat", |lane, now| {
                lane.handle_heartbeat(now, &task, details);
            });
        }
    }

    /// Removes an ended attempt, and gives its slot to the next one.
    fn end_run(&mut self, process: usize, number: u64) -> Option<Run> {
        let runs = &mut self.processes[process].runs;
        let run = runs.all.remove(&number)?;
        runs.waiting.retain(|(waiting, _)| *waiting != number);
        if run.has_begun && self.is_quarantined(&run.task) {
            self.node_input(process, |node, now, free| node.handle_quarantined_ended(now, &run.task, free));
        }
        self.later_on(process, 0, format!("p{process} has a free slot"), move |this| {
            this.begin_next(process)
        });
        Some(run)
    }

    fn is_quarantined(&self, task: &ActivityTask) -> bool {
        self.plan.shard.is_gated(task)
    }

    /// Handles the cancellation of an attempt by its lane. The attempt stops, or ignores it.
    pub(super) fn cancel_activity(&mut self, process: usize, lane: usize, place: Place) {
        self.count("activity told to stop");
        self.witness_stop(process, lane, place);
        let is_it = |run: &Run| run.lane == Some(lane) && place_of(&run.task) == place;
        for number in self.runs_of(process, is_it, false) {
            // A caller may wait for its end.
            if let Some(run) = self.cancel_run(process, number) {
                self.bring_result(process, &run, Err(ActivityError::Cancelled));
            }
        }
    }

    /// Cancels a taken task that is no longer wanted, or that the process no longer holds.
    pub(super) fn cancel_task(&mut self, process: usize, id: TaskId) {
        self.count("taken task cancelled");
        self.witness_task_cancelled(process, id);
        for number in self.runs_of(process, |run| task_id(&run.task) == id, true) {
            if let Some(run) = self.cancel_run(process, number) {
                let (task, details) = (run.task, run.details);
                let result = Err(ActivityError::Cancelled);
                self.node_input(process, |node, now, _| node.handle_task_done(now, &task, result, details));
            }
        }
    }

    /// The matching attempts of a process, of its node or of its lanes.
    fn runs_of(&self, process: usize, is_it: impl Fn(&Run) -> bool, is_held: bool) -> Vec<u64> {
        let Some(node) = self.node(process) else { return Vec::new() };
        let runs = self.processes[process].runs.all.iter();
        let found = runs.filter(|(_, run)| is_it(run) && node.holds(&run.task) == is_held);
        found.map(|(number, _)| *number).collect()
    }

    /// Cancels an attempt. Returns it if it stops.
    fn cancel_run(&mut self, process: usize, number: u64) -> Option<Run> {
        let run = self.processes[process].runs.all.get_mut(&number)?;
        run.is_cancel_requested = true;
        let stops = !run.has_begun || (!self.plan.is_stubborn && self.rng.percent(50));
        if stops { self.end_run(process, number) } else { None }
    }

    /// Stops running attempts because the process stops, and drops waiting ones.
    pub(super) fn give_attempts_back(&mut self, process: usize) {
        let running: Vec<u64> = self.processes[process].runs.all.keys().copied().collect();
        for number in running {
            if let Some(run) = self.end_run(process, number) {
                self.count("attempt given back");
                self.give_back(process, run);
            }
        }
    }

    fn give_back(&mut self, process: usize, run: Run) {
        let Run { task, lane, .. } = run;
        if self.node(process).is_some_and(|node| node.holds(&task)) {
            self.node_input(process, |node, now, _| node.handle_task_released(now, &task));
        } else if let Some(lane) = lane {
            self.lane_input(process, lane, |lane, now| lane.handle_activity_released(now, &task));
        }
    }

    /// Whether this activity lasts longer than all faults.
    pub(super) fn is_lasting(&self, task: &ActivityTask) -> bool {
        !self.is_healed && self.is_of_lasting(&task.instance)
    }

    /// Whether this is the instance whose activities last.
    pub(super) fn is_of_lasting(&self, id: &str) -> bool {
        let subject = self.plan.lasting.and_then(|subject| self.callers.subjects.get(subject));
        subject.is_some_and(|subject| subject.id == id)
    }

    /// Whether this is the activity that crashes its process.
    fn is_deadly(&mut self, task: &ActivityTask) -> bool {
        let place = place_of(task);
        let is_chosen = self.plan.deadly.is_some_and(|subject| {
            self.callers.subjects.get(subject).is_some_and(|subject| *subject.id == *task.instance)
        });
        if is_chosen && self.deadly.is_none() {
            self.deadly = Some(place);
        }
        self.deadly == Some(place)
    }

    /// Records a clean release of shards. If the session got one of them after an unclean end, and has not
    /// read the activity that crashed the process, the next owner does not learn of that end.
    pub(super) fn forget_death(&mut self, session: SessionId, shards: &ShardSet) {
        let Some((key, execution, event)) = self.deadly.filter(|_| self.deaths > 0) else { return };
        let tables = self.store.tables();
        let row = tables.tasks.get(&TaskId { key, execution, event });
        let is_unseen = row.is_none_or(|row| {
            row.due_ms.is_none() && matches!(row.state, TaskState::Leased { holder, .. } if holder != session)
        });
        let shard = tables.instances.get(&key).map(|row| ShardId::of(&row.id));
        let entry = shard.filter(|shard| shards.contains(*shard));
        let entry = entry.and_then(|shard| tables.ownership.shards.get(&shard));
        let is_lost = entry.is_some_and(|entry| entry.owner == Some(session) && entry.unclean_ends > 0);
        drop(tables);
        if is_unseen && is_lost {
            self.count("unclean end forgotten with a release");
            self.forgotten_deaths += 1;
        }
    }

    fn die(&mut self, process: usize) {
        self.count("process killed by an activity");
        // Other faults reset the count now and then; without faults, only the first crash does not count.
        self.deaths += u64::from(self.is_healed);
        if self.deaths > u64::from(self.plan.shard.max_interruptions) + 2 + self.forgotten_deaths {
            let what =
                format!("G22: an activity crashed its process {} times and has not failed", self.deaths);
            return self.fail(what);
        }
        self.fall(process);
    }
}
