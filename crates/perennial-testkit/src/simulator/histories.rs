//! The committed histories, decoded once when their turns are written, and their ledgers.

use std::collections::BTreeMap;

use perennial_core::{History, InstanceKey, Ledger, Turn};

#[derive(Default)]
pub(super) struct Histories {
    /// By instance and execution.
    all: BTreeMap<(InstanceKey, u64), Committed>,
}

struct Committed {
    history: History,
    /// `None` if the turns are not a valid history. The audit reports why.
    ledger: Option<Ledger>,
}

impl Histories {
    /// Adds the next turn of an execution.
    pub(super) fn add(&mut self, key: InstanceKey, execution: u64, turn: Turn) {
        let new = || Committed { history: History { turns: Vec::new() }, ledger: Some(Ledger::default()) };
        let committed = self.all.entry((key, execution)).or_insert_with(new);
        let is_sound = committed.ledger.as_mut().is_some_and(|ledger| ledger.apply_turn(&turn).is_ok());
        if !is_sound {
            committed.ledger = None;
        }
        committed.history.turns.push(turn);
    }

    /// Removes a deleted instance.
    pub(super) fn forget(&mut self, key: InstanceKey) {
        self.all.retain(|(owner, _), _| *owner != key);
    }

    pub(super) fn of(&self, key: InstanceKey, execution: u64) -> Option<&History> {
        self.all.get(&(key, execution)).map(|committed| &committed.history)
    }

    /// The history of each execution of an instance, in order.
    pub(super) fn executions(&self, key: InstanceKey) -> impl Iterator<Item = &History> {
        self.all.range((key, 0)..=(key, u64::MAX)).map(|(_, committed)| &committed.history)
    }

    /// The ledger of an execution.
    pub(super) fn ledger(&self, key: InstanceKey, execution: u64) -> Option<&Ledger> {
        self.all.get(&(key, execution))?.ledger.as_ref()
    }
}
