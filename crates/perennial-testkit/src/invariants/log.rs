//! What callers were told, and what activities did.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::Message;
use perennial_core::{EventId, EventKind, Job, Payload, Turn};

use super::{Breach, Snapshot, StoredInstance, all_events};

/// What was acknowledged, as its callers wrote it down.
#[derive(Clone, Debug, Default)]
pub struct ClientLog {
    starts: BTreeSet<String>,
    /// By instance and sender, in order: event and payload, which have to be unlike every other of the instance.
    raised: BTreeMap<String, BTreeMap<String, Vec<(String, Payload)>>>,
    runs: BTreeMap<(String, EventId), usize>,
}

impl ClientLog {
    /// A start was acknowledged.
    pub fn started(&mut self, id: impl Into<String>) {
        self.starts.insert(id.into());
    }

    /// An event was acknowledged. A sender's events of one instance are noted in the order of acknowledgement.
    pub fn raised(&mut self, sender: &str, id: &str, event: &str, payload: impl Into<Payload>) {
        let of_instance = self.raised.entry(id.to_owned()).or_default();
        of_instance.entry(sender.to_owned()).or_default().push((event.to_owned(), payload.into()));
    }

    /// An activity of an instance's first execution ran.
    pub fn ran(&mut self, id: &str, event: EventId) {
        *self.runs.entry((id.to_owned(), event)).or_default() += 1;
    }

    /// The ids of acknowledged starts.
    pub fn starts(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().map(String::as_str)
    }

    /// How many runs were more than the first of their activity.
    pub fn repeated_runs(&self) -> usize {
        self.runs.values().map(|runs| runs - 1).sum()
    }

    /// I2: acknowledged means that it exists.
    pub(super) fn check_starts(&self, snapshot: &Snapshot, found: &mut Vec<Breach>) {
        let ids: BTreeSet<&str> =
            snapshot.instances.iter().map(|instance| instance.row.id.as_str()).collect();
        for id in self.starts().filter(|id| !ids.contains(id)) {
            let what = "its start was acknowledged, and it does not exist".to_owned();
            found.push(Breach { invariant: "I2", instance: id.to_owned(), what });
        }
    }

    pub(super) fn check(&self, instance: &StoredInstance, turns: &[Turn], found: &mut Vec<Breach>) {
        let id = &instance.row.id;
        let mut breach = |invariant: &'static str, what: String| {
            found.push(Breach { invariant, instance: id.clone(), what });
        };
        let applied: Vec<(&String, &Payload)> = all_events(turns)
            .filter_map(|(_, event)| match &event.kind {
                EventKind::Job(Job::ExternalEvent { name, payload, .. }) => Some((name, payload)),
                _ => None,
            })
            .collect();
        let waiting: Option<Vec<(String, Payload)>> = instance.inbox.as_ref().map(|rows| {
            let event = |body: &[u8]| match Message::decode(body) {
                Ok(Message::Job(Job::ExternalEvent { name, payload, .. })) => Some((name, payload)),
                _ => None,
            };
            rows.iter().filter_map(|row| event(&row.body)).collect()
        });
        for (sender, raised) in self.raised.get(id).into_iter().flatten() {
            let mut last = None;
            for (event, payload) in raised {
                let is_it = |(name, found): &(&String, &Payload)| *name == event && *found == payload;
                let places: Vec<usize> =
                    applied.iter().enumerate().filter(|(_, it)| is_it(it)).map(|(place, _)| place).collect();
                let waits =
                    waiting.as_ref().is_none_or(|all| all.iter().any(|(name, found)| is_it(&(name, found))));
                match places[..] {
                    [] if waits || instance.row.status.is_final() => {}
                    [] => {
                        breach("I8", format!("{event} {payload:?} of {sender} was acknowledged and is lost"))
                    }
                    [place] if last.is_some_and(|last| place < last) => {
                        breach("I8", format!("{event} {payload:?} of {sender} came out of order"));
                    }
                    [place] => last = Some(place),
                    _ => breach("I8", format!("{event} {payload:?} of {sender} came {} times", places.len())),
                }
            }
        }
        if self.runs.is_empty() {
            return;
        }
        for (_, event) in all_events(turns) {
            if let EventKind::Job(Job::ActivityCompleted { source_event_id, .. }) = &event.kind
                && !self.runs.contains_key(&(id.clone(), *source_event_id))
            {
                breach("I6", format!("activity {source_event_id} completed without having run"));
            }
        }
    }
}
