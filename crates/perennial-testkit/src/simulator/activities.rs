//! Attempts of activities: they take their time, report, fail, take too long, are told to stop, and one now and then
//! takes its process down.

use std::collections::{BTreeMap, VecDeque};

use perennial_core::shard::ActivityTask;
use perennial_core::store::SessionId;
use perennial_core::{ActivityFailure, EventId, InstanceKey, Payload, ShardId, TimeoutKind};

use super::Simulation;

/// An activity that ended this often with its process runs alone among its like, as in a node of the runtime.
const LONE_FROM: u32 = 3;

/// What names an activity: the instance, the execution and the schedule event.
pub(super) type Place = (InstanceKey, u64, EventId);

pub(super) fn place_of(task: &ActivityTask) -> Place {
    (task.key, task.execution, task.event)
}

/// An attempt that a node runs, or that waits until it runs alone.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) shard: ShardId,
    pub(super) task: ActivityTask,
    /// Under whose name it was taken from the store; nothing if it is a shard's of this node.
    pub(super) holder: Option<SessionId>,
}

/// What a node runs.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) all: BTreeMap<u64, Run>,
    lone: Option<u64>,
    waiting: VecDeque<u64>,
}

impl Simulation {
    /// A shard wants an attempt to run.
    pub(super) fn run_activity(&mut self, node: usize, shard: ShardId, task: &ActivityTask) {
        if self.nodes[node].is_stopping {
            self.count("attempt given back unbegun");
            let task = task.clone();
            return self
                .with_shard(node, shard, |shard, now_ms| shard.handle_activity_released(now_ms, &task));
        }
        self.admit(node, Run { shard, task: task.clone(), holder: None });
    }

    /// An activity that was interrupted often wants to run alone.
    pub(super) fn want_lone(&mut self, node: usize, shard: ShardId, key: InstanceKey, event: EventId) {
        if self.nodes[node].runs.lone.is_none() {
            return self
                .with_shard(node, shard, |shard, now_ms| shard.handle_lone_granted(now_ms, key, event));
        }
        self.count("attempt waits to run alone");
        self.later_on(node, 500, format!("n{node} looks whether {event} may run alone"), move |this| {
            this.want_lone(node, shard, key, event);
        });
    }

    /// Runs an attempt, or has it wait until it runs alone. Returns its number.
    pub(super) fn admit(&mut self, node: usize, run: Run) -> u64 {
        self.runs += 1;
        let number = self.runs;
        let runs = &mut self.nodes[node].runs;
        let is_lone = run.task.interruptions >= LONE_FROM;
        runs.all.insert(number, run);
        if is_lone && runs.lone.is_some() {
            runs.waiting.push_back(number);
            self.count("attempt waits to run alone");
            return number;
        }
        if is_lone {
            runs.lone = Some(number);
        }
        self.launch(node, number);
        number
    }

    fn launch(&mut self, node: usize, number: u64) {
        let Some(run) = self.nodes[node].runs.all.get(&number).cloned() else { return };
        let task = &run.task;
        if run.holder.is_none() && !self.nodes[node].owned.contains_key(&run.shard) {
            // It was told to stop while it waited.
            self.end_run(node, number);
            return;
        }
        if run.holder.is_none() && self.is_past_deadline(node) {
            let label = format!("n{node} may not begin an attempt yet");
            return self.later_on(node, 50, label, move |this| this.launch(node, number));
        }
        self.witness_activity(node, &run);
        self.count_attempt(task);
        if self.is_deadly(task) {
            let label = format!("n{node} dies of activity {} of {}", task.event, task.instance);
            return self.later_on(node, 1, label, move |this| this.die(node));
        }
        let spans = [(6, (0, 50)), (3, (50, 1_500)), (1, (1_500, 15_000))];
        let (low, high) = self.chance.weighted(&spans);
        let (duration_ms, reports) = (self.chance.between(low, high), self.chance.percent(30));
        let (ends_ms, result) = self.outcome(task, duration_ms, reports);
        if reports && duration_ms > 20 {
            let label = format!("n{node} activity {} of {} reports", task.event, task.instance);
            self.later_on(node, ends_ms.min(duration_ms) / 2, label, move |this| this.report(node, number));
        }
        let duplicate = self.faults(|faults| faults.duplicate);
        let is_doubled = self.chance.percent(duplicate);
        let label = format!("n{node} activity {} of {} ends", task.event, task.instance);
        self.later_on(node, ends_ms, label, move |this| {
            let Some(run) = this.end_run(node, number) else { return };
            if is_doubled && run.holder.is_none() {
                let (again, result) = (run.clone(), result.clone());
                let delay_ms = this.chance.between(0, 1_500);
                this.later_on(node, delay_ms, format!("n{node} a result comes twice"), move |this| {
                    this.count("duplicate result");
                    this.bring(node, &again, result);
                });
            }
            this.bring(node, &run, result);
        });
    }

    fn bring(&mut self, node: usize, run: &Run, result: Result<Payload, ActivityFailure>) {
        match run.holder {
            Some(holder) => self.finish_taken(node, holder, run.task.clone(), result),
            None => self.with_shard(node, run.shard, |shard, now_ms| {
                shard.handle_activity_done(now_ms, &run.task, result);
            }),
        }
    }

    /// When an attempt ends and how.
    fn outcome(
        &mut self,
        task: &ActivityTask,
        duration_ms: u64,
        reports: bool,
    ) -> (u64, Result<Payload, ActivityFailure>) {
        let options = task.options.as_deref();
        let total_ms = task.deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(self.now_ms()));
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
            return (limit_ms, Err(ActivityFailure::Timeout(kind)));
        }
        let result = match self.chance.below(5) {
            0 => Err(ActivityFailure::Application(Payload::from("no"))),
            _ => Ok(Payload::from(format!("{} of {}", task.event, task.instance))),
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
        if task.details.is_some() {
            self.count("attempt that knows what was reported");
        }
    }

    fn report(&mut self, node: usize, number: u64) {
        let Some(run) = self.nodes[node].runs.all.get(&number).cloned() else { return };
        self.count("heartbeat");
        let details = Payload::from(format!("attempt {}", run.task.attempt));
        match run.holder {
            Some(holder) => self.renew_taken(node, number, holder, Some(details)),
            None => self.with_shard(node, run.shard, |shard, now_ms| {
                shard.handle_heartbeat(now_ms, &run.task, details);
            }),
        }
    }

    /// An attempt is over, one way or another; the next of those that run alone begins.
    pub(super) fn end_run(&mut self, node: usize, number: u64) -> Option<Run> {
        let runs = &mut self.nodes[node].runs;
        let run = runs.all.remove(&number)?;
        runs.waiting.retain(|waiting| *waiting != number);
        if runs.lone == Some(number) {
            runs.lone = runs.waiting.pop_front();
            if let Some(next) = runs.lone {
                self.later_on(node, 0, format!("n{node} runs the next one alone"), move |this| {
                    this.launch(node, next);
                });
            }
        }
        Some(run)
    }

    /// Nobody waits for an attempt any more. It stops, or does not care.
    pub(super) fn cancel_run(&mut self, node: usize, place: Place) {
        self.count("activity told to stop");
        let is_it = |run: &Run| run.holder.is_none() && place_of(&run.task) == place;
        let runs = &self.nodes[node].runs;
        let found: Vec<u64> =
            runs.all.iter().filter(|(_, run)| is_it(run)).map(|(number, _)| *number).collect();
        for number in found {
            if self.chance.percent(50) || self.nodes[node].runs.waiting.contains(&number) {
                self.end_run(node, number);
            }
        }
    }

    /// Whether this is the activity that takes its process down.
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

    fn die(&mut self, node: usize) {
        self.count("process killed by an activity");
        self.deaths += 1;
        if self.deaths > u64::from(self.plan.shard.max_interruptions) + 1 {
            let what =
                format!("G22: an activity took its process down {} times and is not given up", self.deaths);
            return self.fail(what);
        }
        self.fall(node);
    }
}
