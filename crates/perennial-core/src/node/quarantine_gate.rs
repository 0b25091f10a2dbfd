//! The QuarantineGate: activities under which a process ended start only when there is a slot for them; those that were
//! interrupted repeatedly run with few other suspects, and finally alone.
//!
//! An activity that waits for a slot is not noted as started, so the end of the process does not count against it. The
//! activity that ends the process is then the only suspect running when it does, and only its own interruptions
//! increase. An activity that has run long enough to be healthy makes room for the next.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::instance::ShardId;
use crate::lane::Moment;
use crate::shard::{ActivityTask, Tenure, max_together};
use crate::store::TaskId;

use super::taken::task_id;

/// How long an activity with a slot may take to start. It may have been cancelled meanwhile.
const BEGINNING: Duration = Duration::from_secs(2);
/// The pause before the next check for a free worker.
const SLOT_PAUSE: Duration = Duration::from_millis(50);

/// A waiting activity, and who runs it.
#[derive(Debug)]
pub(super) enum Waiting {
    Lane { lane: usize, shard: ShardId, tenure: Tenure, interruptions: u32, task: TaskId },
    Task(Box<ActivityTask>),
}

impl Waiting {
    fn id(&self) -> TaskId {
        match self {
            Waiting::Lane { task, .. } => *task,
            Waiting::Task(task) => task_id(task),
        }
    }

    fn interruptions(&self) -> u32 {
        match self {
            Waiting::Lane { interruptions, .. } => *interruptions,
            Waiting::Task(task) => task.interruptions,
        }
    }
}

#[derive(Debug)]
pub(super) struct QuarantineGate {
    quarantine_after: u32,
    healthy: Duration,
    /// In order of arrival.
    waiting: BTreeMap<u64, Waiting>,
    places: BTreeMap<TaskId, u64>,
    next: u64,
    /// The activities with a slot that have not started, and the running ones that limit how many others run.
    current: BTreeMap<TaskId, Current>,
    /// When to check for a free worker again.
    look_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    /// How many suspects may run together with it, itself included.
    max_together: usize,
    has_begun: bool,
    /// When its slot is freed: it did not start in time, or it is healthy.
    until: Moment,
}

impl QuarantineGate {
    pub(super) fn new(quarantine_after: u32, healthy: Duration) -> QuarantineGate {
        let (waiting, places, current) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        QuarantineGate { quarantine_after, healthy, waiting, places, next: 0, current, look_at: None }
    }

    /// Adds an activity that waits for a slot. If it already waits, the new request replaces the old one, whose tenure
    /// has ended. Returns what it replaces.
    #[must_use]
    pub(super) fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        self.next += 1;
        let number = *self.places.entry(waiting.id()).or_insert(self.next);
        self.waiting.insert(number, waiting)
    }

    /// The next activity that may run, if few enough others do and one of the free workers is not promised to another.
    pub(super) fn take(&mut self, now: Moment, free: usize) -> Option<Waiting> {
        self.current.retain(|_, current| now < current.until);
        self.look_at = None;
        let max_together = self.max_together(self.waiting.first_key_value()?.1);
        let most = self.current.values().map(|current| current.max_together).min();
        if self.current.len() >= most.map_or(max_together, |most| most.min(max_together)) {
            return None;
        }
        if free <= self.current.values().filter(|current| !current.has_begun).count() {
            self.look_at = Some(now + SLOT_PAUSE);
            return None;
        }
        let (_, next) = self.waiting.pop_first()?;
        self.places.remove(&next.id());
        let current = Current { max_together, has_begun: false, until: now + BEGINNING };
        self.current.insert(next.id(), current);
        Some(next)
    }

    fn max_together(&self, waiting: &Waiting) -> usize {
        max_together(self.quarantine_after, waiting.interruptions()).unwrap_or(usize::MAX)
    }

    /// Removes the waiting tasks, because the node starts none of them any more.
    pub(super) fn take_tasks(&mut self) -> Vec<ActivityTask> {
        let mut tasks = Vec::new();
        for (number, waiting) in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Task(task) => {
                    self.places.remove(&task_id(&task));
                    tasks.push(*task);
                }
                lane @ Waiting::Lane { .. } => drop(self.waiting.insert(number, lane)),
            }
        }
        tasks
    }

    pub(super) fn handle_begun(&mut self, now: Moment, task: TaskId) {
        let Some(current) = self.current.get_mut(&task) else { return };
        if current.max_together == usize::MAX {
            self.current.remove(&task);
        } else {
            current.has_begun = true;
            current.until = now + self.healthy;
        }
    }

    pub(super) fn handle_ended(&mut self, task: TaskId) {
        self.current.remove(&task);
    }

    pub(super) fn next_wake(&self) -> Option<Moment> {
        let untils = self.current.values().map(|current| current.until).filter(|_| !self.waiting.is_empty());
        untils.chain(self.look_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventId;
    use crate::instance::InstanceKey;

    const HEALTHY: Duration = Duration::from_secs(60);

    fn id(event: u64) -> TaskId {
        TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(event) }
    }

    fn waiting(event: u64, interruptions: u32) -> Waiting {
        let (shard, tenure) = (ShardId(0), Tenure(1));
        Waiting::Lane { lane: 0, shard, tenure, interruptions, task: id(event) }
    }

    fn add(gate: &mut QuarantineGate, event: u64, interruptions: u32) {
        assert!(gate.add(waiting(event, interruptions)).is_none());
    }

    fn take(gate: &mut QuarantineGate, now: Moment) -> Option<u64> {
        gate.take(now, 100).map(|it| it.id().event.0)
    }

    #[test]
    fn n10_an_activity_that_waits_to_run_alone_is_granted_to_the_latest_tenure() {
        let (mut gate, now) = (QuarantineGate::new(4, HEALTHY), Moment::ZERO);
        add(&mut gate, 1, 4);
        let (shard, tenure) = (ShardId(0), Tenure(2));
        let later = Waiting::Lane { lane: 0, shard, tenure, interruptions: 4, task: id(1) };
        assert!(matches!(gate.add(later), Some(Waiting::Lane { tenure: Tenure(1), .. })));
        assert!(matches!(gate.take(now, 1), Some(Waiting::Lane { tenure: Tenure(2), .. })));
        assert!(gate.waiting.is_empty());
    }

    #[test]
    fn g22_one_runs_at_a_time_and_one_that_does_not_begin_gives_way() {
        let (mut gate, mut now) = (QuarantineGate::new(4, HEALTHY), Moment::ZERO);
        (1..=3).for_each(|event| add(&mut gate, event, 4));
        assert!(gate.add(waiting(2, 5)).is_some());
        assert_eq!(take(&mut gate, now), Some(1));
        gate.handle_begun(now, id(1));
        now += BEGINNING * 2;
        assert_eq!(take(&mut gate, now), None, "the first one runs");
        gate.handle_ended(id(1));
        assert_eq!(take(&mut gate, now), Some(2));
        now += BEGINNING;
        assert_eq!(take(&mut gate, now), Some(3), "the second never began");
        assert_eq!(take(&mut gate, now), None);
    }

    #[test]
    fn g22_one_that_is_healthy_makes_room_for_the_next() {
        let (mut gate, mut now) = (QuarantineGate::new(4, HEALTHY), Moment::ZERO);
        (1..=2).for_each(|event| add(&mut gate, event, 4));
        assert_eq!(take(&mut gate, now), Some(1));
        gate.handle_begun(now, id(1));
        assert_eq!(gate.next_wake(), Some(now + HEALTHY));
        now += HEALTHY;
        assert_eq!(take(&mut gate, now), Some(2), "the first one runs on");
    }

    #[test]
    fn g22_the_more_often_they_were_interrupted_the_fewer_run_together() {
        let most = |interruptions: u32| {
            let mut gate = QuarantineGate::new(4, HEALTHY);
            (0..100).for_each(|event| add(&mut gate, event, interruptions));
            std::iter::from_fn(|| take(&mut gate, Moment::ZERO)).count()
        };
        assert_eq!([0, 1, 2, 3, 4, 9].map(most), [100, 100, 64, 8, 1, 1]);
        // While one runs alone, no other runs.
        let mut gate = QuarantineGate::new(4, HEALTHY);
        [(1, 2), (2, 4), (3, 2)].into_iter().for_each(|(event, often)| add(&mut gate, event, often));
        assert_eq!(take(&mut gate, Moment::ZERO), Some(1));
        assert_eq!(take(&mut gate, Moment::ZERO), None);
        gate.handle_ended(id(1));
        assert_eq!((take(&mut gate, Moment::ZERO), take(&mut gate, Moment::ZERO)), (Some(2), None));
    }

    #[test]
    fn g22_nobody_is_granted_what_would_wait_for_a_slot() {
        let (mut gate, now) = (QuarantineGate::new(4, HEALTHY), Moment::ZERO);
        (1..=3).for_each(|event| add(&mut gate, event, 2));
        assert!(gate.take(now, 0).is_none());
        assert_eq!(gate.next_wake(), Some(now + SLOT_PAUSE));
        assert!(gate.take(now, 1).is_some() && gate.take(now, 1).is_none(), "the slot is promised");
        gate.handle_begun(now, id(1));
        assert!(gate.take(now, 0).is_none() && gate.take(now, 1).is_some());
    }
}
