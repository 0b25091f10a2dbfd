//! Attempts of activities: those that run on this node, those in quarantine, and the activities that this node cannot
//! run.

use std::collections::{BTreeMap, BTreeSet};

use crate::flaws::{self, Flaw};
use crate::history::{EventId, Payload};
use crate::instance::InstanceKey;

use super::output::ActivityTask;

/// An attempt that runs on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    pub(super) execution: u64,
    pub(super) attempt: u32,
    /// When it was given to a worker.
    pub(super) began_ms: u64,
    /// Its last heartbeat details.
    pub(super) details: Option<Payload>,
    /// It was asked to stop, and its end is awaited.
    pub(super) is_stopping: bool,
}

impl Attempt {
    fn is_of(&self, task: &ActivityTask) -> bool {
        (self.execution == task.execution && self.attempt == task.attempt) || flaws::is(Flaw::StaleAttempts)
    }
}

/// The quarantine slot of an activity that was interrupted repeatedly: only few of them run on a node at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuarantineSlot {
    Wanted,
    Granted,
}

#[derive(Default)]
pub(super) struct Attempts {
    running: BTreeMap<(InstanceKey, EventId), Attempt>,
    quarantine: BTreeMap<(InstanceKey, EventId), QuarantineSlot>,
    /// Names and tags for which a log line was already written that this node cannot run them.
    unserved: BTreeSet<(String, Option<String>)>,
}

/// The range of all entries of an instance.
fn all(key: InstanceKey) -> std::ops::RangeInclusive<(InstanceKey, EventId)> {
    (key, EventId(0))..=(key, EventId(u64::MAX))
}

impl Attempts {
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn begin(&mut self, now_ms: u64, task: &ActivityTask) {
        let (execution, attempt, details) = (task.execution, task.attempt, task.details.clone());
        let running = Attempt { execution, attempt, began_ms: now_ms, details, is_stopping: false };
        self.running.insert((task.key, task.event), running);
    }

    /// Removes an attempt, if it is the current one.
    pub(super) fn end(&mut self, task: &ActivityTask) -> Option<Attempt> {
        let place = (task.key, task.event);
        self.running.get(&place).filter(|attempt| attempt.is_of(task))?;
        self.running.remove(&place)
    }

    /// Stores the heartbeat details of an attempt. Returns whether it is the current one.
    pub(super) fn report(&mut self, task: &ActivityTask, details: &Payload) -> bool {
        match self.running.get_mut(&(task.key, task.event)) {
            Some(attempt) if attempt.is_of(task) => {
                attempt.details = Some(details.clone());
                true
            }
            _ => false,
        }
    }

    /// Notes that an activity was asked to stop. One that waits for a quarantine slot has not started and is removed.
    pub(super) fn stop(&mut self, key: InstanceKey, event: EventId) {
        if let Some(attempt) = self.running.get_mut(&(key, event)) {
            attempt.is_stopping = true;
        }
        self.quarantine.remove(&(key, event));
    }

    /// Forgets a cancelled activity.
    pub(super) fn cancel(&mut self, key: InstanceKey, event: EventId) {
        self.running.remove(&(key, event));
        self.quarantine.remove(&(key, event));
    }

    /// When the running attempt of an activity started.
    pub(super) fn began_ms(&self, key: InstanceKey, event: EventId) -> Option<u64> {
        self.running.get(&(key, event)).map(|attempt| attempt.began_ms)
    }

    /// The attempts of one instance, ordered by event.
    pub(super) fn of(&self, key: InstanceKey) -> impl Iterator<Item = (EventId, &Attempt)> {
        self.running.range(all(key)).map(|((_, event), attempt)| (*event, attempt))
    }

    /// The instances with attempts.
    pub(super) fn keys(&self) -> BTreeSet<InstanceKey> {
        self.running.keys().map(|(key, _)| *key).collect()
    }

    /// Removes all entries of an instance, and returns the activities that were running, with their execution.
    pub(super) fn take(&mut self, key: InstanceKey) -> Vec<(EventId, u64)> {
        let running: Vec<(EventId, u64)> =
            self.of(key).map(|(event, attempt)| (event, attempt.execution)).collect();
        for (event, _) in &running {
            self.running.remove(&(key, *event));
        }
        let quarantine: Vec<_> = self.quarantine.range(all(key)).map(|(place, _)| *place).collect();
        for place in quarantine {
            self.quarantine.remove(&place);
        }
        running
    }

    /// Requests a quarantine slot for an activity. Returns whether it had not been requested before.
    pub(super) fn want_quarantine_slot(&mut self, key: InstanceKey, event: EventId) -> bool {
        self.quarantine.insert((key, event), QuarantineSlot::Wanted).is_none()
    }

    /// Grants a requested slot. Returns whether the activity still waits for it.
    pub(super) fn grant_quarantine_slot(&mut self, key: InstanceKey, event: EventId) -> bool {
        match self.quarantine.get_mut(&(key, event)) {
            Some(quarantine @ QuarantineSlot::Wanted) => {
                *quarantine = QuarantineSlot::Granted;
                true
            }
            _ => false,
        }
    }

    pub(super) fn has_quarantine_slot(&self, key: InstanceKey, event: EventId) -> bool {
        self.quarantine.get(&(key, event)) == Some(&QuarantineSlot::Granted)
    }

    /// The activities of an instance that have a slot.
    pub(super) fn granted(&self, key: InstanceKey) -> impl Iterator<Item = EventId> {
        let granted =
            self.quarantine.range(all(key)).filter(|(_, quarantine)| **quarantine == QuarantineSlot::Granted);
        granted.map(|((_, event), _)| *event)
    }

    /// Removes an activity from quarantine: it is about to run, or no longer needs a slot.
    pub(super) fn leave_quarantine(&mut self, key: InstanceKey, event: EventId) {
        self.quarantine.remove(&(key, event));
    }

    /// Whether an activity of an instance waits for a slot, or has one.
    pub(super) fn has_quarantined(&self, key: InstanceKey) -> bool {
        self.quarantine.range(all(key)).next().is_some()
    }

    /// Whether this is the first time that this node is found unable to run an activity.
    pub(super) fn is_news(&mut self, name: &str, tag: Option<&str>) -> bool {
        self.unserved.insert((name.to_owned(), tag.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tenure::Tenure;
    use super::*;

    fn task(number: u128, event: u64, attempt: u32) -> ActivityTask {
        ActivityTask {
            activity_id: None,
            tenure: Tenure::default(),
            key: InstanceKey::new(1, number),
            instance: Arc::from("i"),
            execution: 1,
            event: EventId(event),
            attempt,
            interruptions: 0,
            begun: None,
            details: None,
            queued_ms: 0,
            past: Default::default(),
            deadline_ms: None,
            name: "a".to_owned(),
            input: Payload::null(),
            options: None,
            secret: None,
            trace: None,
        }
    }

    #[test]
    fn g20_only_the_attempt_that_runs_can_end_or_report() {
        let mut attempts = Attempts::default();
        attempts.begin(5, &task(1, 2, 3));
        assert!(attempts.end(&task(1, 2, 2)).is_none(), "an earlier attempt");
        assert!(!attempts.report(&task(1, 2, 2), &Payload::null()));
        assert!(attempts.report(&task(1, 2, 3), &Payload::null()));
        let ended = attempts.end(&task(1, 2, 3)).unwrap();
        assert_eq!((ended.began_ms, ended.details), (5, Some(Payload::null())));
        assert!(attempts.end(&task(1, 2, 3)).is_none() && attempts.is_empty());
    }

    #[test]
    fn n5_taking_an_instance_leaves_the_attempts_of_others() {
        let mut attempts = Attempts::default();
        for (number, event) in [(1, 2), (1, 4), (2, 2)] {
            attempts.begin(0, &task(number, event, 1));
            attempts.want_quarantine_slot(InstanceKey::new(1, number), EventId(event));
        }
        let (first, second) = (InstanceKey::new(1, 1), InstanceKey::new(1, 2));
        assert_eq!(attempts.take(first), [(EventId(2), 1), (EventId(4), 1)]);
        assert!(!attempts.has_quarantined(first) && attempts.has_quarantined(second));
        assert_eq!(
            (attempts.began_ms(first, EventId(2)), attempts.began_ms(second, EventId(2))),
            (None, Some(0))
        );
        assert_eq!(attempts.keys().into_iter().collect::<Vec<_>>(), [second]);
    }

    #[test]
    fn n5_a_grant_counts_once_and_only_if_it_is_wanted() {
        let (mut attempts, key) = (Attempts::default(), InstanceKey::new(1, 1));
        assert!(!attempts.grant_quarantine_slot(key, EventId(2)), "nobody asked");
        assert!(attempts.want_quarantine_slot(key, EventId(2)));
        assert!(!attempts.has_quarantine_slot(key, EventId(2)));
        assert_eq!(attempts.granted(key).count(), 0);
        assert!(
            attempts.grant_quarantine_slot(key, EventId(2)) && attempts.has_quarantine_slot(key, EventId(2))
        );
        assert_eq!(attempts.granted(key).collect::<Vec<_>>(), [EventId(2)]);
        assert!(!attempts.grant_quarantine_slot(key, EventId(2)), "it was granted before");
        attempts.cancel(key, EventId(2));
        assert!(!attempts.has_quarantined(key));
        assert!(
            attempts.is_news("a", None) && !attempts.is_news("a", None) && attempts.is_news("a", Some("t"))
        );
    }
}
