//! Requests that arrive just as an execution ends or continues as new.

use perennial_core::store::{Commit, Status};

use super::Simulation;
use crate::program::HandlerKind;

/// The effect of a commit on an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Ending,
    Renewal,
}

/// The request that is made then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Event,
    Update,
    StartOrRaise,
}

impl Simulation {
    /// Makes requests now and then before commits are written, at that moment, or right after.
    pub(super) fn meet_edges(&mut self, batch: &[Commit]) {
        if self.is_healed {
            return;
        }
        for commit in batch {
            let status = commit.change.status.or(commit.insert.as_ref().map(|row| row.status));
            let edge = match (status.is_some_and(Status::is_final), commit.change.execution) {
                (true, _) => Edge::Ending,
                (false, Some(_)) => Edge::Renewal,
                (false, None) => continue,
            };
            let Some(id) = self.id_of(commit) else { continue };
            if !self.rng.percent(self.plan.classes.edge) {
                continue;
            }
            let call = *self.rng.pick(&[Call::Event, Call::Update, Call::StartOrRaise]);
            let delay_ms = self.rng.between(0, 3 * self.plan.call_ms);
            self.later(delay_ms, format!("{call:?} at the {edge:?} of {id}"), move |this| {
                if !this.is_healed {
                    this.call_at(&id, call, edge);
                }
            });
        }
    }

    fn id_of(&self, commit: &Commit) -> Option<String> {
        let inserted = commit.insert.as_ref().map(|row| row.id.clone());
        inserted.or_else(|| self.store.tables().instances.get(&commit.key).map(|row| row.id.clone()))
    }

    fn call_at(&mut self, id: &str, call: Call, edge: Edge) {
        let subject = self.callers.subjects.iter().position(|subject| subject.id == id);
        let call = if subject.is_none() && call == Call::StartOrRaise { Call::Event } else { call };
        self.count(match (call, edge) {
            (Call::Event, Edge::Ending) => "event at an ending",
            (Call::Event, Edge::Renewal) => "event at a renewal",
            (Call::Update, Edge::Ending) => "update at an ending",
            (Call::Update, Edge::Renewal) => "update at a renewal",
            (Call::StartOrRaise, Edge::Ending) => "start-or-raise at an ending",
            (Call::StartOrRaise, Edge::Renewal) => "start-or-raise at a renewal",
        });
        match (call, subject) {
            (Call::StartOrRaise, Some(subject)) => self.start_or_raise(subject),
            (Call::Update, _) => {
                let name = self.some_name(id, HandlerKind::Update);
                self.update(id, &name);
            }
            _ => {
                let name = self.some_name(id, HandlerKind::Event);
                self.raise(id, &name);
            }
        }
    }
}
