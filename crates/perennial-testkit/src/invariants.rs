//! The invariants of a store's rows, checked from outside: by what is stored and by what callers were told.
//!
//! A [`Snapshot`] holds all rows. [`breaches`] reads it without the help of the engine, so that a mistake of the engine
//! does not excuse itself; only for replays it runs the code again. It is meant for stores at rest: nothing writes
//! while a snapshot is taken.

mod events;
mod log;
mod snapshot;

pub use log::ClientLog;
pub use snapshot::{Snapshot, StoredInstance};

use std::collections::BTreeSet;
use std::fmt;

use perennial_core::history::{decode_history, decode_turn};
use perennial_core::shard::Message;
use perennial_core::store::Status;
use perennial_core::{
    Decision, Ending, EventKind, Handlers, History, Ledger, ReplayReport, Replayer, ShardId, Turn,
};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which, by its number.
    pub invariant: &'static str,
    /// The instance's id.
    pub instance: String,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken by {:?}: {}", self.invariant, self.instance, self.what)
    }
}

/// Panics unless all invariants hold.
#[track_caller]
pub fn assert_invariants(snapshot: &Snapshot, log: &ClientLog, handlers: &Handlers) {
    let breaches = breaches(snapshot, log, handlers);
    let lines: Vec<String> = breaches.iter().take(20).map(Breach::to_string).collect();
    assert!(breaches.is_empty(), "{} invariants are broken:\n{}", breaches.len(), lines.join("\n"));
}

/// Everything that does not hold: I1, I2, I4, I5, I6 (as far as runs were logged), I7, I8, I10, I11, I12, I14, I15.
pub fn breaches(snapshot: &Snapshot, log: &ClientLog, handlers: &Handlers) -> Vec<Breach> {
    let mut found = Vec::new();
    one_instance_per_id(snapshot, &mut found);
    let replayer = Replayer::new(handlers.clone());
    for instance in &snapshot.instances {
        let mut checked = Checked { instance, found: &mut found };
        checked.rows();
        let Some(turns) = checked.turns() else { continue };
        checked.events(&turns);
        checked.status(&turns);
        let ledger = checked.replay(&replayer, &turns);
        checked.can_be_woken(&turns, ledger.as_ref());
        log.check(instance, &turns, &mut found);
    }
    log.check_starts(snapshot, &mut found);
    found
}

fn one_instance_per_id(snapshot: &Snapshot, found: &mut Vec<Breach>) {
    let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for StoredInstance { row, .. } in &snapshot.instances {
        if !ids.insert(&row.id) || !keys.insert(row.key) {
            let what = format!("another row has its id or its key {}", row.key);
            found.push(Breach { invariant: "I7", instance: row.id.clone(), what });
        }
    }
}

/// One instance, and where its breaches go.
struct Checked<'a> {
    instance: &'a StoredInstance,
    found: &'a mut Vec<Breach>,
}

impl Checked<'_> {
    fn breach(&mut self, invariant: &'static str, what: impl Into<String>) {
        self.found.push(Breach { invariant, instance: self.instance.row.id.clone(), what: what.into() });
    }

    fn rows(&mut self) {
        let row = &self.instance.row;
        if row.shard != ShardId::of(&row.id) {
            self.breach("I7", format!("it is in shard {}", row.shard.0));
        }
        if self.instance.executions.len() as u64 != row.execution {
            self.breach("I4", format!("it has no turns of execution {}", row.execution));
        }
    }

    /// The turns of the current execution, decoded. Those of an instance that is blocked as corrupt are left alone.
    fn turns(&mut self) -> Option<Vec<Turn>> {
        let row = &self.instance.row;
        if row.blocked.as_ref().is_some_and(|blocked| blocked.code.starts_with("PER-01")) {
            return None;
        }
        let bodies = self.instance.executions.last()?;
        let mut turns = Vec::new();
        for (number, body) in (1..).zip(bodies) {
            match decode_turn(number, body) {
                Ok(turn) if turn.number == number => turns.push(turn),
                Ok(turn) => self.breach("I4", format!("turn {} stands at place {number}", turn.number)),
                Err(error) => self.breach("I4", format!("turn {number} does not decode: {error}")),
            }
        }
        // The engine's own check comes on top.
        if let Err(error) = decode_history(bodies)
            && !bodies.is_empty()
        {
            self.breach("I1", error.to_string());
        }
        Some(turns)
    }

    /// I14: what the row says is what the last event says.
    fn status(&mut self, turns: &[Turn]) {
        let row = &self.instance.row;
        let ending = turns.last().and_then(Turn::ending);
        let expected = match ending {
            None if turns.is_empty() => Status::Pending,
            None | Some(Ending::OrchestrationContinuedAsNew { .. }) => Status::Running,
            Some(Ending::OrchestrationCompleted { .. }) => Status::Completed,
            Some(Ending::OrchestrationFailed { .. }) => Status::Failed,
            Some(Ending::OrchestrationCancelled { .. }) => Status::Cancelled,
            Some(Ending::OrchestrationTerminated { .. }) => Status::Terminated,
        };
        if row.status != expected {
            let what = format!("the row says {}, its history {}", row.status.name(), expected.name());
            self.breach("I14", what);
        }
        if let Some(started) = turns.first().and_then(Turn::started)
            && (started.name != row.name || started.version != row.version)
        {
            let what = format!("the row says {} {}, its history otherwise", row.name, row.version);
            self.breach("I14", what);
        }
        if expected.is_final() && (row.owed || row.wake_at_ms.is_some() || row.blocked.is_some()) {
            self.breach("I14", "it has ended, and its row still wants something");
        }
    }

    /// I15: the code decides what is recorded, turn by turn and hence for every prefix. Gives what is open by the code.
    fn replay(&mut self, replayer: &Replayer, turns: &[Turn]) -> Option<Ledger> {
        if turns.is_empty() || self.instance.row.blocked.is_some() {
            return None;
        }
        match replayer.hydrate(&self.instance.row.id, &History::from(turns.to_vec())) {
            Ok(execution) => Some(execution.ledger().clone()),
            Err(ReplayReport::Incompatible(failure)) => {
                self.breach("I15", failure.to_string());
                None
            }
            Err(report) => {
                self.breach("I15", format!("{report:?}"));
                None
            }
        }
    }

    /// I2: it has ended, or something will wake it: and for everything that is open, the very thing that would.
    fn can_be_woken(&mut self, turns: &[Turn], replayed: Option<&Ledger>) {
        let StoredInstance { row, inbox, .. } = self.instance;
        if row.status.is_final() || row.blocked.is_some() {
            return;
        }
        if turns.is_empty() {
            let starts = |body: &[u8]| matches!(Message::decode(body), Ok(Message::Start(_)));
            if inbox.as_ref().is_some_and(|rows| !rows.iter().any(|row| starts(&row.body))) {
                self.breach("I2", "it is pending, and no start is in its inbox");
            }
            return;
        }
        let read = turns
            .iter()
            .try_fold(Ledger::default(), |mut ledger, turn| ledger.apply_turn(turn).map(|()| ledger));
        let Some(ledger) = replayed.cloned().or_else(|| read.ok()) else { return };
        if ledger.open_activities() > 0 && !row.owed {
            self.breach(
                "I2",
                format!("{} activities are open, and it is not owed", ledger.open_activities()),
            );
        }
        if let Some((due_ms, event)) = ledger.timers().next()
            && row.wake_at_ms.is_none_or(|wake_at_ms| wake_at_ms > due_ms)
        {
            self.breach("I2", format!("timer {event} is due at {due_ms}, its row says {:?}", row.wake_at_ms));
        }
        let waits = ledger.open().any(|(_, decision)| {
            matches!(
                decision,
                Decision::ExternalSubscribed { .. } | Decision::SubOrchestrationScheduled { .. }
            )
        });
        let has_mail = inbox.as_ref().is_none_or(|rows| !rows.is_empty());
        if !(row.owed || row.wake_at_ms.is_some() || waits || has_mail) {
            self.breach("I2", "it is running, and nothing would wake it");
        }
    }
}

/// The events of some turns, in order.
fn all_events(turns: &[Turn]) -> impl Iterator<Item = (u64, &perennial_core::Event)> {
    turns.iter().flat_map(|turn| turn.events.iter().map(|event| (turn.at_ms, event)))
}

/// The decision of an event, if it is one.
fn decision(kind: &EventKind) -> Option<&Decision> {
    match kind {
        EventKind::Decision { decision, .. } => Some(decision),
        _ => None,
    }
}
