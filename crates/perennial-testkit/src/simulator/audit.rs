//! Checks at the end of a run.

use std::collections::BTreeSet;

use perennial_core::store::InboxNumber;
use perennial_core::{ActivityError, Decision, EventKind, InstanceKey, Job, Turn};

use super::Simulation;
use crate::invariants::breaches;

impl Simulation {
    pub(super) fn audit(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let mut snapshot = self.decoded_snapshot().expect("the store is open");
        if let Some(keep) = self.plan.keep_executions {
            snapshot.excuse_pruned(keep);
        }
        for id in self.witness.deletions.keys().filter(|id| snapshot.instance(id).is_some()) {
            self.callers.log.reused(id);
        }
        for instance in &snapshot.instances {
            if self.witness.deleted.contains(&instance.row.key) {
                self.callers.log.recreated(instance.row.key);
            }
        }
        if let Some(breach) = breaches(&snapshot, &self.callers.log, &self.handlers).first() {
            return self.fail(breach.to_string());
        }
        let tables = self.store.tables().clone();
        let may_be_gone = |(key, execution, _): &(InstanceKey, u64, u64)| {
            let current = tables.instances.get(key).map_or(0, |row| row.execution);
            self.plan.keep_executions.is_some_and(|keep| execution + keep <= current)
        };
        let is_stored = |(place, turn): (&_, &_)| tables.turns.get(place) == Some(turn) || may_be_gone(place);
        let is_known = |place| self.witness.turns.contains_key(place);
        if !(self.witness.turns.iter().all(is_stored) && tables.turns.keys().all(is_known)) {
            let lost = self.witness.turns.iter().find(|it| !is_stored(*it)).map(|(place, _)| *place);
            let unknown = tables.turns.keys().find(|place| !is_known(place)).copied();
            let what = "I1: the turns that are stored are not those that were committed";
            return self.fail(format!("{what}: lost or changed {lost:?}, unknown {unknown:?}"));
        }
        let there: BTreeSet<InboxNumber> = tables.inbox.keys().copied().collect();
        let lost: Vec<InboxNumber> = self
            .witness
            .sent
            .iter()
            .filter(|number| !self.witness.consumed.contains(number) && !there.contains(number))
            .copied()
            .collect();
        if !lost.is_empty() {
            return self.fail(format!("I8: messages {lost:?} were sent and are lost"));
        }
        let doubled = self.callers.acknowledged.iter().find(|(_, keys)| keys.len() > 1);
        if let Some((id, keys)) = doubled {
            return self.fail(format!("I7: {id} was acknowledged as started {} times", keys.len()));
        }
        for (id, keys) in self.callers.acknowledged.iter().filter(|(_, keys)| !keys.is_empty()) {
            if tables.ids.get(id) != keys.first() {
                let what = format!("I7: {id} was acknowledged under another key than it has");
                return self.fail(what);
            }
        }
        self.audit_updates();
        self.audit_answers();
        self.audit_deadly();
        let (tasks, requests, replies) = (tables.tasks.len(), tables.requests.len(), tables.replies.len());
        if tasks + requests + replies > 0 {
            let rows: Vec<_> = tables.tasks.values().collect();
            self.fail(format!(
                "I18: {tasks} tasks, {requests} requests, {replies} replies are left: {rows:?}"
            ));
        }
    }

    /// Checks that the activity that crashes its process failed in the end, and never completed.
    fn audit_deadly(&mut self) {
        let Some((key, execution, event)) = self.deadly else { return };
        let Some(history) = self.witness.histories.of(key, execution) else { return };
        let completion = history.flatten().find_map(|recorded| match &recorded.kind {
            EventKind::Job(job) if job.source_event_id() == Some(event) => Some(job.clone()),
            _ => None,
        });
        let stop = Decision::ActivityStopRequested { source_event_id: event };
        let is_stopped = history.turns.iter().flat_map(Turn::decisions).any(|(_, _, it)| *it == stop);
        match completion {
            Some(Job::ActivityFailed { error: ActivityError::Poisoned, .. }) => self.count("killer given up"),
            Some(Job::ActivityFailed { error: ActivityError::Timeout(_), .. }) | None => {}
            // G38: it was cancelled after its process had crashed.
            Some(Job::ActivityFailed { error: ActivityError::Cancelled, .. }) if is_stopped => {}
            Some(job) => {
                let what = format!("G22: the activity that crashes its process has {}", job.name());
                self.fail(what);
            }
        }
    }
}
