//! What must hold when everything is over.

use std::collections::BTreeSet;

use perennial_core::store::InboxNumber;

use super::Simulation;
use crate::invariants::{Snapshot, breaches};

impl Simulation {
    pub(super) fn audit(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let snapshot = Snapshot::read_memory(&self.store).expect("the store is open");
        if let Some(breach) = breaches(&snapshot, &self.callers.log, &self.handlers).first() {
            return self.fail(breach.to_string());
        }
        let tables = self.store.tables().clone();
        if tables.turns != self.witness.turns {
            return self.fail("I1: the turns that are stored are not those that were committed".to_owned());
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
        for (id, keys) in &self.callers.acknowledged {
            if tables.ids.get(id) != keys.first() {
                let what = format!("I7: {id} was acknowledged under another key than it has");
                return self.fail(what);
            }
        }
    }
}
