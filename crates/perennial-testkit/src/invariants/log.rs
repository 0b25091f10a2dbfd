//! What callers were told, and what activities did: I6, I8, and of I2 that what was acknowledged exists.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::Message;
use perennial_core::{ActivityError, EventId, EventKind, InstanceKey, Job, Payload};

use super::{Breach, Decoded, Snapshot, all_events};

/// What was acknowledged, as its callers wrote it down.
#[derive(Clone, Debug, Default)]
pub struct ClientLog {
    starts: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// Those of which another instance may have the id by now, too.
    ever_deleted: BTreeSet<String>,
    recreated: BTreeSet<InstanceKey>,
    /// By instance and sender, in order: event and payload, which have to be unlike every other of the instance.
    raised: BTreeMap<String, BTreeMap<String, Vec<(String, Payload)>>>,
    runs: BTreeMap<(String, u64, EventId), usize>,
    troubled: Option<BTreeSet<String>>,
}

impl ClientLog {
    /// A start was acknowledged.
    pub fn started(&mut self, id: impl Into<String>) {
        let id = id.into();
        self.deleted.remove(&id);
        self.starts.insert(id);
    }

    /// That an instance was deleted was acknowledged. What was acknowledged of it before is forgotten.
    pub fn deleted(&mut self, id: &str) {
        self.starts.remove(id);
        self.raised.remove(id);
        self.deleted.insert(id.to_owned());
        self.ever_deleted.insert(id.to_owned());
    }

    /// The id of a deleted instance is another one's, started by nobody who writes here.
    pub fn reused(&mut self, id: &str) {
        self.deleted.remove(id);
    }

    /// An instance that was deleted exists again under the same key: its start was sent twice, and the second one came
    /// after the deletion. The children of its first life may still be there.
    pub fn recreated(&mut self, key: InstanceKey) {
        self.recreated.insert(key);
    }

    /// An event was acknowledged. A sender's events of one instance are noted in the order of acknowledgement.
    pub fn raised(&mut self, sender: &str, id: &str, event: &str, payload: impl Into<Payload>) {
        let of_instance = self.raised.entry(id.to_owned()).or_default();
        of_instance.entry(sender.to_owned()).or_default().push((event.to_owned(), payload.into()));
    }

    /// An activity of an instance's execution ran.
    pub fn ran(&mut self, id: &str, execution: u64, event: EventId) {
        *self.runs.entry((id.to_owned(), execution, event)).or_default() += 1;
    }

    /// This instance was put in trouble on purpose; from now on nobody else may be blocked.
    pub fn troubled(&mut self, id: impl Into<String>) {
        self.troubled.get_or_insert_default().insert(id.into());
    }

    /// The ids of acknowledged starts.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().map(String::as_str)
    }

    /// How many runs were more than the first of their activity.
    pub fn repeated_runs(&self) -> usize {
        self.runs.values().map(|runs| runs - 1).sum()
    }

    /// Who was put in trouble, if somebody says so.
    pub(super) fn in_trouble(&self) -> Option<&BTreeSet<String>> {
        self.troubled.as_ref()
    }

    /// Whether an instance of this id was deleted.
    pub(super) fn is_deleted(&self, id: &str) -> bool {
        self.ever_deleted.contains(id)
    }

    /// Whether an instance has the key of one that was deleted.
    pub(super) fn is_recreated(&self, key: InstanceKey) -> bool {
        self.recreated.contains(&key)
    }

    /// I2: acknowledged means that it exists; I18: deleted means that it does not.
    pub(super) fn check_starts(&self, snapshot: &Snapshot, found: &mut Vec<Breach>) {
        let ids: BTreeSet<&str> =
            snapshot.instances.iter().map(|instance| instance.row.id.as_str()).collect();
        for id in self.starts().filter(|id| !ids.contains(id)) {
            let what = "its start was acknowledged, and it does not exist".to_owned();
            found.push(Breach { invariant: "I2", instance: id.to_owned(), what });
        }
        for id in self.deleted.iter().filter(|id| ids.contains(id.as_str())) {
            let what = "that it was deleted was acknowledged, and it is there".to_owned();
            found.push(Breach { invariant: "I18", instance: id.clone(), what });
        }
    }

    pub(super) fn check(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        self.check_raised(decoded, found);
        if !self.runs.is_empty() {
            self.check_runs(decoded, found);
        }
    }

    /// I8: each acknowledged event is there once, in its sender's order, or waits, or the instance ended first.
    fn check_raised(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        let id = &decoded.row().id;
        let mut breach = |what: String| found.push(Breach { invariant: "I8", instance: id.clone(), what });
        // By event and payload: where each came, and in which execution.
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
        for (sender, raised) in self.raised.get(id).into_iter().flatten() {
            let mut last = None;
            for (event, payload) in raised {
                let places = applied.get(&(event.as_str(), payload.as_json())).map_or(&[][..], Vec::as_slice);
                let waits = waiting
                    .as_ref()
                    .is_none_or(|all| all.iter().any(|(name, found)| name == event && found == payload));
                // An event that nobody read is there again in the next execution. One that a reset delivers again may be
                // passed on, before it is delivered, by the next reset.
                let was_reset = |from: u64, to: u64| (from + 1..=to).any(|it| decoded.reset_of(it).is_some());
                let is_again = |from: u64, to: u64| to == from + 1 || (to > from && was_reset(from, to));
                if places.windows(2).any(|pair| !is_again(pair[0].1, pair[1].1)) {
                    breach(format!("{event} {payload:?} of {sender} came {} times", places.len()));
                }
                match places.first() {
                    None if waits || may_be_lost => {}
                    None => breach(format!("{event} {payload:?} of {sender} was acknowledged and is lost")),
                    Some((place, _)) if last.is_some_and(|last| *place < last) => {
                        breach(format!(
                            "{event} {payload:?} of {sender} came out of order: {raised:?} came as {applied:?}"
                        ));
                    }
                    Some((place, _)) => last = Some(*place),
                }
            }
        }
    }

    /// I6: what has a result, or an error of its own, did run.
    fn check_runs(&self, decoded: &Decoded<'_>, found: &mut Vec<Breach>) {
        let id = &decoded.row().id;
        for (execution, turns) in &decoded.executions {
            // What was kept by a reset ran in an execution before.
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
