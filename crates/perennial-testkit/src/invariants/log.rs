//! Answers to callers, and runs of activities: I6, I8, and the part of I2 that acknowledged instances exist.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::Message;
use perennial_core::{ActivityError, EventId, EventKind, InstanceKey, Job, Payload};

use super::{Breach, Decoded, Snapshot, all_events};

/// Acknowledged requests, as callers recorded them.
#[derive(Clone, Debug, Default)]
pub struct ClientLog {
    starts: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// Includes those whose id another instance may have by now.
    ever_deleted: BTreeSet<String>,
    recreated: BTreeSet<InstanceKey>,
    /// By instance and sender, in order: event and payload, which must be unique within the instance.
    raised: BTreeMap<String, BTreeMap<String, Vec<(String, Payload)>>>,
    runs: BTreeMap<(String, u64, EventId), usize>,
    blocked_on_purpose: Option<BTreeSet<String>>,
}

impl ClientLog {
    /// Records an acknowledged start.
    pub fn started(&mut self, id: impl Into<String>) {
        let id = id.into();
        self.deleted.remove(&id);
        self.starts.insert(id);
    }

    /// Records an acknowledged deletion. Earlier acknowledgements of the instance are forgotten.
    pub fn deleted(&mut self, id: &str) {
        self.starts.remove(id);
        self.raised.remove(id);
        self.deleted.insert(id.to_owned());
        self.ever_deleted.insert(id.to_owned());
    }

    /// Records that another instance, whose start is not recorded here, has the id of a deleted one.
    pub fn reused(&mut self, id: &str) {
        self.deleted.remove(id);
    }

    /// Records that a deleted instance exists again under the same key: its start was sent twice, and the
    /// second message arrived after the deletion. Children of the first instance may still exist.
    pub fn recreated(&mut self, key: InstanceKey) {
        self.recreated.insert(key);
    }

    /// Records an acknowledged event. A sender's events of one instance are recorded in the order of
    /// acknowledgement.
    pub fn raised(&mut self, sender: &str, id: &str, event: &str, payload: impl Into<Payload>) {
        let of_instance = self.raised.entry(id.to_owned()).or_default();
        of_instance.entry(sender.to_owned()).or_default().push((event.to_owned(), payload.into()));
    }

    /// Records a run of an activity.
    pub fn ran(&mut self, id: &str, execution: u64, event: EventId) {
        *self.runs.entry((id.to_owned(), execution, event)).or_default() += 1;
    }

    /// Records that a test blocked this instance on purpose. From now on no other instance may be blocked.
    pub fn troubled(&mut self, id: impl Into<String>) {
        self.blocked_on_purpose.get_or_insert_default().insert(id.into());
    }

    /// The ids of acknowledged starts.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().map(String::as_str)
    }

    /// The number of runs beyond the first of each activity.
    pub fn repeated_runs(&self) -> usize {
        self.runs.values().map(|runs| runs - 1).sum()
    }

    /// The instances that were blocked on purpose; `None` if this is not recorded.
    pub(super) fn expected_blocked(&self) -> Option<&BTreeSet<String>> {
        self.blocked_on_purpose.as_ref()
    }

    /// Whether an instance of this id was deleted.
    pub(super) fn is_deleted(&self, id: &str) -> bool {
        self.ever_deleted.contains(id)
    }

    /// Whether an instance has the key of one that was deleted.
    pub(super) fn is_recreated(&self, key: InstanceKey) -> bool {
        self.recreated.contains(&key)
    }

    /// I2: acknowledged instances exist; I18: deleted ones do not.
    pub(super) fn check_starts(&self, snapshot: &Snapshot, found: &mut Vec<Breach>) {
        let ids: BTreeSet<&str> =
            snapshot.instances.iter().map(|instance| instance.row.id.as_str()).collect();
        for id in self.starts().filter(|id| !ids.contains(id)) {
            let what = "its start was acknowledged, and it does not exist".to_owned();
            found.push(Breach { invariant: "I2", instance: id.to_owned(), what });
        }
        for id in self.deleted.iter().filter(|id| ids.contains(id.as_str())) {
            let what = "its deletion was acknowledged, and it exists".to_owned();
            found.push(Breach { invariant: "I18", instance: id.clone(), what });
        }
    }

    pub(super) fn check(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        self.check_raised(decoded, found);
        if !self.runs.is_empty() {
            self.check_runs(decoded, found);
        }
    }

    /// I8: each acknowledged event was received once, in its sender's order, or waits, or the instance ended
    /// first.
    fn check_raised(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        let id = &decoded.row().id;
        let mut breach = |what: String| found.push(Breach { invariant: "I8", instance: id.clone(), what });
        // The positions and executions of each event and payload.
        let mut applied: BTreeMap<(&str, &str), Vec<(usize, u64)>> = BTreeMap::new();
        let executions = decoded.executions.iter();
        let events = executions
            .flat_map(|(execution, turns)| all_events(turns).map(move |(_, event)| (*execution, event)));
        for (place, (execution, event)) in events.enumerate() {
            if let EventKind::Job(Job::ExternalEvent { name, payload, .. }) = &event.kind {
                applied.entry((name, payload.as_json())).or_default().push((place, execution));
            }
        }
        let waiting: Option<Vec<(String, Payload)>> = decoded.messages().map(|messages| {
            let jobs = |message| match message {
                Message::Job(job) => vec![job],
                Message::Carried { jobs, .. } => jobs,
                _ => Vec::new(),
            };
            let event = |job| match job {
                Job::ExternalEvent { name, payload, .. } => Some((name, payload)),
                _ => None,
            };
            messages.flat_map(jobs).filter_map(event).collect()
        });
        let may_be_lost = decoded.row().status.is_final() || !decoded.is_whole();
        // An end drops the events that were not recorded, and their keys with them. If a reset opens the instance again, a
        // repeated call may still deliver such an event, after later ones.
        let reopened = decoded.executions.keys().copied().find(|execution| decoded.is_reopened(*execution));
        let has_order = |execution: u64| reopened.is_none_or(|reopened| execution < reopened);
        for (sender, raised) in self.raised.get(id).into_iter().flatten() {
            let mut last = None;
            // The last place in each execution: events that a later one receives again keep their order.
            let mut last_within: BTreeMap<u64, usize> = BTreeMap::new();
            for (event, payload) in raised {
                let places = applied.get(&(event.as_str(), payload.as_json())).map_or(&[][..], Vec::as_slice);
                let waits = waiting
                    .as_ref()
                    .is_none_or(|all| all.iter().any(|(name, found)| name == event && found == payload));
                // An unread event is repeated in the next execution. One that a reset delivers again may be
                // carried over by the next reset before it is delivered.
                let was_reset = |from: u64, to: u64| (from + 1..=to).any(|it| decoded.reset_of(it).is_some());
                let is_again = |from: u64, to: u64| to == from + 1 || (to > from && was_reset(from, to));
                if places.windows(2).any(|pair| !is_again(pair[0].1, pair[1].1)) {
                    breach(format!("{event} {payload:?} of {sender} was received {} times", places.len()));
                }
                for (place, execution) in places.iter().filter(|(_, execution)| has_order(*execution)) {
                    let before = last_within.insert(*execution, *place);
                    if before.is_some_and(|before| *place < before) {
                        breach(format!(
                            "{event} {payload:?} of {sender} was received out of order within execution {execution}: \
                             {raised:?} as {applied:?}"
                        ));
                    }
                }
                match places.first() {
                    None if waits || may_be_lost => {}
                    None => breach(format!("{event} {payload:?} of {sender} was acknowledged and is lost")),
                    Some((_, execution)) if !has_order(*execution) => {}
                    Some((place, _)) if last.is_some_and(|last| *place < last) => {
                        breach(format!(
                            "{event} {payload:?} of {sender} was received out of order: {raised:?} as {applied:?}"
                        ));
                    }
                    Some((place, _)) => last = Some(*place),
                }
            }
        }
    }

    /// I6: an activity with a result, or with its own error, did run.
    fn check_runs(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        let id = &decoded.row().id;
        for (execution, turns) in &decoded.executions {
            // Activities kept by a reset ran in an earlier execution.
            let first = if decoded.reset_of(*execution).is_some() { 1 } else { *execution };
            let has_run = |activity: EventId| {
                (first..=*execution).any(|ran| self.runs.contains_key(&(id.clone(), ran, activity)))
            };
            for (_, event) in all_events(turns) {
                if let EventKind::Job(
                    Job::ActivityCompleted { source_event_id: activity, .. }
                    | Job::ActivityFailed {
                        source_event_id: activity,
                        error: ActivityError::Application(_),
                        ..
                    },
                ) = &event.kind
                    && !has_run(*activity)
                {
                    let what =
                        format!("activity {activity} of execution {execution} ended without having run");
                    found.push(Breach { invariant: "I6", instance: id.clone(), what });
                }
            }
        }
    }
}
