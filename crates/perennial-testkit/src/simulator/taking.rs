//! Events that programs wait for, take at once or receive from a stream: each of these is recorded as a wait,
//! so that no event can be lost.

use std::collections::BTreeMap;

use perennial_core::shard::Message;
use perennial_core::store::{Commit, Outgoing};
use perennial_core::{Decision, Ending, EventId, History, Job, Turn};

use super::Simulation;

/// The events of a name in an execution, and its waits for them.
#[derive(Clone, Copy, Debug, Default)]
struct Taking {
    /// The number of events that arrived and were not skipped.
    arrived: usize,
    /// The number of waits that were not cancelled. Each has returned at most one event.
    waits: usize,
}

impl Simulation {
    /// I9, E34, E35: a continue-as-new carries over all events except those that a recorded wait can have
    /// returned. Computed from the history alone, without running the code. Programs have no handlers for
    /// these names.
    pub(super) fn witness_taking(&mut self, commit: &Commit, execution: u64) {
        let Some(history) = self.witness.histories.of(commit.key, execution) else { return };
        let ending = history.turns.last().and_then(Turn::ending);
        if !matches!(ending, Some(Ending::OrchestrationContinuedAsNew { .. })) {
            return;
        }
        let crossed = crossed(commit);
        for (name, Taking { arrived, waits }) in taken(history, |name| name.starts_with("event-")) {
            let crossed = crossed.get(&name).copied().unwrap_or(0);
            if crossed + waits < arrived || crossed > arrived {
                let what =
                    format!("{arrived} events {name:?} for {waits} waits, and {crossed} were carried over");
                return self.fail(format!("I9: {what} to the execution after {execution}"));
            }
            if crossed < arrived {
                self.count("events taken before continuing");
            }
        }
    }
}

impl Simulation {
    /// The names of events of which an instance waits for more than have arrived, computed from its history alone.
    pub(super) fn missing_events(&self, id: &str) -> Vec<String> {
        let history = self.row(id).and_then(|row| self.witness.histories.of(row.key, row.execution));
        let names = history.map(|history| taken(history, |_| true)).unwrap_or_default();
        names.into_iter().filter(|(_, taking)| taking.waits > taking.arrived).map(|(name, _)| name).collect()
    }
}

/// The events of some names, and their waits.
fn taken(history: &History, is_meant: impl Fn(&str) -> bool) -> BTreeMap<String, Taking> {
    let mut names: BTreeMap<String, Taking> = BTreeMap::new();
    let (mut events, mut waits) = (BTreeMap::new(), BTreeMap::new());
    for turn in &history.turns {
        for (id, job) in turn.jobs() {
            match job {
                Job::ExternalEvent { name, .. } if is_meant(name) => {
                    names.entry(name.clone()).or_default().arrived += 1;
                    events.insert(id, name.clone());
                }
                Job::ExternalEventSkipped { event_id } => undo(&mut names, &events, *event_id, |taking| {
                    taking.arrived -= 1;
                }),
                _ => {}
            }
        }
        for (id, _, decision) in turn.decisions() {
            match decision {
                Decision::ExternalSubscribed { name } if is_meant(name) => {
                    names.entry(name.clone()).or_default().waits += 1;
                    waits.insert(id, name.clone());
                }
                Decision::ExternalUnsubscribed { source_event_id } => {
                    undo(&mut names, &waits, *source_event_id, |taking| taking.waits -= 1);
                }
                _ => {}
            }
        }
    }
    names
}

fn undo(
    names: &mut BTreeMap<String, Taking>,
    done: &BTreeMap<EventId, String>,
    id: EventId,
    change: impl FnOnce(&mut Taking),
) {
    if let Some(taking) = done.get(&id).and_then(|name| names.get_mut(name)) {
        change(taking);
    }
}

/// The events that a commit carries over to the next execution, by name.
fn crossed(commit: &Commit) -> BTreeMap<String, usize> {
    let to_itself = |outgoing: &Outgoing| match outgoing {
        Outgoing::ToKey { to, body, .. } if *to == commit.key => Message::decode(body).ok(),
        _ => None,
    };
    let mut names = BTreeMap::new();
    for message in commit.send.iter().filter_map(to_itself) {
        let jobs = match message {
            Message::Start(start) => start.jobs,
            Message::Carried { jobs, in_place_of: None, .. } => jobs,
            _ => Vec::new(),
        };
        for job in jobs {
            if let Job::ExternalEvent { name, .. } = job {
                *names.entry(name).or_default() += 1;
            }
        }
    }
    names
}
