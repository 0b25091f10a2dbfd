//! Tasks that this node took from the store, or that a lane handed over, and their leases.
//!
//! A lease may expire while the process is suspended, and the same node may take the task again. So each task is held
//! under a tenure, which distinguishes results of an attempt that no longer belongs to the node from those of the
//! current one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::Payload;
use crate::lane::Moment;
use crate::shard::{ActivityTask, Tenure};
use crate::store::{Evidence, TaskId, TaskRenewal, TaskReport};

/// The leases of tasks that run here.
#[derive(Debug)]
pub(super) struct Taken {
    tasks: BTreeMap<TaskId, Held>,
    /// A counter of takes: a renewal of an earlier take comes too late.
    takes: u64,
    every: Duration,
    /// How long a task has to run to be cleared.
    healthy: Duration,
    renew_at: Moment,
}

/// A task that runs here.
#[derive(Clone, Copy, Debug)]
struct Held {
    attempt: u32,
    tenure: Tenure,
    take: u64,
    /// When it came to this node.
    since: Moment,
    /// Since when it runs, if its start was noted.
    suspect_since: Option<Moment>,
    /// Whether the store has reported that another node has it. It is kept until its attempt ends.
    is_gone: bool,
}

/// A lease to renew, and the take that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) report: TaskReport,
    take: u64,
}

impl Taken {
    pub(super) fn new(lease_ms: u64, healthy: Duration) -> Taken {
        let every = Duration::from_millis((lease_ms / 3).max(1));
        Taken { tasks: BTreeMap::new(), takes: 0, every, healthy, renew_at: Moment::MAX }
    }

    /// Adds a task leased to this node. Returns whether it has to be started; if not, this attempt of it is already
    /// running.
    pub(super) fn add(&mut self, now: Moment, id: TaskId, attempt: u32, tenure: Tenure) -> bool {
        if self.tasks.is_empty() {
            self.renew_at = now + self.every;
        }
        self.takes += 1;
        let take = self.takes;
        if let Some(held) = self.tasks.get_mut(&id).filter(|held| held.attempt == attempt && !held.is_gone) {
            held.take = take;
            return false;
        }
        self.tasks
            .insert(id, Held { attempt, tenure, take, since: now, suspect_since: None, is_gone: false });
        true
    }

    /// A lane handed over an attempt that runs here.
    pub(super) fn hand_over(&mut self, now: Moment, task: &ActivityTask) {
        self.tasks.remove(&task_id(task));
        self.add(now, task_id(task), task.attempt, task.tenure);
        if task.begun.is_some() {
            self.begin(now, task);
        }
    }

    /// Notes the start of a suspect task.
    pub(super) fn begin(&mut self, now: Moment, task: &ActivityTask) {
        if let Some(held) = self.tasks.get_mut(&task_id(task)) {
            held.suspect_since = Some(now);
        }
    }

    /// How long a task has been at this node.
    pub(super) fn age(&self, now: Moment, id: TaskId) -> Duration {
        self.tasks.get(&id).map_or(Duration::ZERO, |held| now.saturating_sub(held.since))
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether an attempt of a task runs here.
    pub(super) fn has(&self, id: TaskId, attempt: u32) -> bool {
        self.tasks.get(&id).is_some_and(|held| held.attempt == attempt && !held.is_gone)
    }

    /// Whether this very attempt was taken or handed over.
    pub(super) fn contains(&self, task: &ActivityTask) -> bool {
        let is_it = |held: &Held| (held.attempt, held.tenure) == (task.attempt, task.tenure);
        self.tasks.get(&task_id(task)).is_some_and(is_it)
    }

    /// Whether an attempt that was taken or handed over still belongs to this node.
    pub(super) fn is_kept(&self, task: &ActivityTask) -> bool {
        self.contains(task) && self.has(task_id(task), task.attempt)
    }

    /// An attempt has ended here.
    pub(super) fn remove(&mut self, id: TaskId, tenure: Tenure) {
        if self.tasks.get(&id).is_some_and(|held| held.tenure == tenure) {
            self.tasks.remove(&id);
        }
        if self.tasks.is_empty() {
            self.renew_at = Moment::MAX;
        }
    }

    /// The leases to renew now, if it is time.
    pub(super) fn take_renewals(&mut self, now: Moment) -> Option<Vec<Renewal>> {
        if now < self.renew_at {
            return None;
        }
        self.renew_at = now + self.every;
        let kept = self.tasks.iter().filter(|(_, held)| !held.is_gone);
        let is_healthy = |held: &Held| held.suspect_since.is_some_and(|since| now >= since + self.healthy);
        let renewals: Vec<Renewal> = kept
            .map(|(id, held)| {
                let evidence = is_healthy(held).then_some(Evidence::Healthy);
                Renewal { report: TaskReport { evidence, ..TaskReport::of(*id) }, take: held.take }
            })
            .collect();
        (!renewals.is_empty()).then_some(renewals)
    }

    /// The renewal of one attempt's lease, with a report.
    pub(super) fn renewal(
        &self,
        task: &ActivityTask,
        details: Option<Payload>,
        evidence: Evidence,
    ) -> Option<Renewal> {
        let held = self.tasks.get(&task_id(task)).filter(|_| self.is_kept(task))?;
        let report = TaskReport { task: task_id(task), details, evidence: Some(evidence) };
        Some(Renewal { report, take: held.take })
    }

    pub(super) fn next_wake(&self) -> Option<Moment> {
        (!self.tasks.is_empty()).then_some(self.renew_at)
    }

    /// Handles the outcomes of renewals. Returns the tasks whose results are no longer wanted, or that no longer belong
    /// to this node.
    pub(super) fn handle_renewed(&mut self, asked: &[Renewal], renewals: &[TaskRenewal]) -> Vec<TaskId> {
        let mut over = Vec::new();
        for (Renewal { report: TaskReport { task: id, .. }, take }, renewal) in asked.iter().zip(renewals) {
            let Some(held) = self.tasks.get_mut(id).filter(|held| held.take == *take && !held.is_gone) else {
                continue;
            };
            held.is_gone = *renewal == TaskRenewal::Gone;
            over.extend((*renewal != TaskRenewal::Kept).then_some(*id));
        }
        over
    }
}

/// The row that an attempt belongs to.
pub(super) fn task_id(task: &ActivityTask) -> TaskId {
    TaskId { key: task.key, execution: task.execution, event: task.event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::EventId;
    use crate::instance::InstanceKey;

    const HEALTHY: Duration = Duration::from_secs(60);
    const ID: fn() -> TaskId = || TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(2) };

    #[test]
    fn n17_a_task_that_runs_already_is_not_begun_again() {
        let (mut taken, now) = (Taken::new(9_000, HEALTHY), Moment::ZERO);
        assert!(taken.add(now, ID(), 1, Tenure(1)));
        assert!(!taken.add(now, ID(), 1, Tenure(2)), "its lease ran out, and this node took it again");
        assert!(taken.add(now, ID(), 2, Tenure(3)), "the next attempt");
    }

    #[test]
    fn n17_what_a_renewal_says_of_an_earlier_take_is_late() {
        let (mut taken, mut now) = (Taken::new(9_000, HEALTHY), Moment::ZERO);
        taken.add(now, ID(), 1, Tenure(1));
        now += Duration::from_secs(3);
        let asked = taken.take_renewals(now).unwrap();
        assert!(!taken.add(now, ID(), 1, Tenure(2)));
        assert_eq!(taken.handle_renewed(&asked, &[TaskRenewal::Gone]), []);
        assert!(taken.has(ID(), 1));
    }

    #[test]
    fn n17_a_task_that_is_gone_can_be_taken_again_beside_its_old_attempt() {
        let (mut taken, mut now) = (Taken::new(9_000, HEALTHY), Moment::ZERO);
        taken.add(now, ID(), 1, Tenure(1));
        now += Duration::from_secs(3);
        let asked = taken.take_renewals(now).unwrap();
        assert_eq!(taken.handle_renewed(&asked, &[TaskRenewal::Gone]), [ID()]);
        assert!(!taken.is_empty() && !taken.has(ID(), 1));
        assert!(taken.add(now, ID(), 1, Tenure(2)));
        taken.remove(ID(), Tenure(1));
        assert!(taken.has(ID(), 1), "the old attempt's end is not the new one's");
    }
}
