//! The invariants of a store's rows, checked from outside: against the stored rows and the answers that
//! callers got.
//!
//! A [`Snapshot`] contains all rows. [`breaches`] reads it without the engine, so that a bug in the engine
//! does not hide itself; only replays run the code again. A snapshot must be consistent: nothing writes while
//! it is taken, or it is taken of a copy. Each invariant has its checker:
//!
//! | invariant | where |
//! |---|---|
//! | I1, I5, I10, I11, I12 | `events`: within one history |
//! | I2 | `waking`: timers and messages that wake an instance, and its tasks |
//! | I4, I7, I14, I15 | here: an instance's row, its turns, its code |
//! | I3, I9 | `executions`: relations between the executions of an instance |
//! | I6, I8, and acknowledged starts of I2 | `log`: acknowledged requests and executed activities |
//! | I13 | `children`: parents and children |
//! | I16, I17 | `progress`: blocked instances, and instances that could continue and do not ([`stalled`]) |
//! | I18 | `orphans`: rows of instances that do not exist or have ended, requests past their deadline ([`unswept`]) |
//!
//! A snapshot does not show whether a commit was made under its owner's live session (I3): the simulator
//! checks that. I19 and I20 concern memory and disk, and have separate tests.

mod children;
mod events;
mod executions;
mod log;
mod orphans;
mod progress;
mod snapshot;
mod waking;

pub use log::ClientLog;
pub use orphans::unswept;
pub use progress::stalled;
pub use snapshot::{Snapshot, StoredInstance, StoredRows, StoredTask};
pub(crate) use waking::is_left_open;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use perennial_core::history::{decode_history, decode_turn};
use perennial_core::shard::Message;
use perennial_core::store::{InstanceRow, Status};
use perennial_core::{
    Decision, Ending, EventKind, Handlers, History, InstanceKey, Ledger, ReplayReport, Replayer, Reset,
    ShardId, Turn,
};

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The number of the invariant.
    pub invariant: &'static str,
    /// The id of the instance.
    pub instance: String,
    /// The violation as text.
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
    assert_none(&breaches(snapshot, log, handlers));
}

/// Panics unless all invariants hold that can be checked without the code.
#[track_caller]
pub fn assert_stored_invariants(snapshot: &Snapshot, log: &ClientLog) {
    assert_none(&stored_breaches(snapshot, log));
}

#[track_caller]
fn assert_none(breaches: &[Breach]) {
    let lines: Vec<String> = breaches.iter().take(20).map(Breach::to_string).collect();
    assert!(breaches.is_empty(), "{} invariants are broken:\n{}", breaches.len(), lines.join("\n"));
}

/// All violations.
pub fn breaches(snapshot: &Snapshot, log: &ClientLog, handlers: &Handlers) -> Vec<Breach> {
    all_breaches(snapshot, log, Some(handlers))
}

/// All violations that can be found without the code: of every invariant except I15.
pub fn stored_breaches(snapshot: &Snapshot, log: &ClientLog) -> Vec<Breach> {
    all_breaches(snapshot, log, None)
}

fn all_breaches(snapshot: &Snapshot, log: &ClientLog, handlers: Option<&Handlers>) -> Vec<Breach> {
    let replayer = handlers.map(|handlers| Replayer::new(handlers.clone()));
    let mut found = Vec::new();
    one_instance_per_id(snapshot, &mut found);
    let mut all: BTreeMap<InstanceKey, Decoded<'_>> = BTreeMap::new();
    for instance in &snapshot.instances {
        let mut checked = Checked { instance, found: &mut found };
        checked.rows();
        let Some(decoded) = checked.decode() else { continue };
        for (execution, turns) in &decoded.executions {
            checked.events(*execution, turns);
        }
        checked.status(&decoded);
        let ledger = replayer.as_ref().and_then(|replayer| checked.replay(replayer, &decoded));
        checked.can_be_woken(decoded.current(), ledger.as_ref());
        checked.continuations(&decoded, handlers);
        log.check(&decoded, &mut found);
        all.insert(instance.row.key, decoded);
    }
    children::check(snapshot, &all, log, &mut found);
    orphans::check(snapshot, &mut found);
    log.check_starts(snapshot, &mut found);
    progress::check_blocked(snapshot, log, &mut found);
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

/// An instance with decoded turns.
struct Decoded<'a> {
    instance: &'a StoredInstance,
    /// Its executions by number, as far as they could be read.
    executions: BTreeMap<u64, Vec<Turn>>,
}

impl<'a> Decoded<'a> {
    fn row(&self) -> &'a InstanceRow {
        &self.instance.row
    }

    /// The turns of the execution that the row names.
    fn current(&self) -> &[Turn] {
        self.executions.get(&self.row().execution).map_or(&[], Vec::as_slice)
    }

    /// Whether all executions could be read.
    fn is_whole(&self) -> bool {
        (1..=self.row().execution).all(|execution| self.executions.contains_key(&execution))
    }

    /// The reset that created an execution, if any.
    fn reset_of(&self, execution: u64) -> Option<&Reset> {
        let turns = self.executions.get(&execution)?;
        turns.first()?.started()?.reset.as_deref()
    }

    /// Whether an execution is the reset of one that had ended for good.
    fn is_reopened(&self, execution: u64) -> bool {
        let ending =
            self.executions.get(&execution.saturating_sub(1)).and_then(|turns| turns.last()?.ending());
        let is_final = |ending: &Ending| !matches!(ending, Ending::OrchestrationContinuedAsNew { .. });
        self.reset_of(execution).is_some() && ending.is_some_and(is_final)
    }

    /// Its messages, as far as they could be read and decoded.
    fn messages(&self) -> Option<impl Iterator<Item = Message> + '_> {
        let rows = self.instance.inbox.as_ref()?;
        Some(rows.iter().filter_map(|row| Message::decode(&row.body).ok()))
    }
}

/// One instance, and the list of violations.
struct Checked<'a, 'f> {
    instance: &'a StoredInstance,
    found: &'f mut Vec<Breach>,
}

impl<'a> Checked<'a, '_> {
    fn breach(&mut self, invariant: &'static str, what: impl Into<String>) {
        self.found.push(Breach { invariant, instance: self.instance.row.id.clone(), what: what.into() });
    }

    fn rows(&mut self) {
        let StoredInstance { row, executions, .. } = self.instance;
        if row.shard != ShardId::of(&row.id) {
            self.breach("I7", format!("it is in shard {}", row.shard.0));
        }
        if !executions.contains_key(&row.execution) {
            self.breach("I4", format!("it has no turns of execution {}", row.execution));
        }
        for (execution, _) in
            executions.iter().filter(|(number, turns)| **number > row.execution && !turns.is_empty())
        {
            self.breach("I3", format!("it has turns of execution {execution}, which its row does not know"));
        }
    }

    /// Decodes its turns. An instance that is blocked as corrupt is skipped.
    fn decode(&mut self) -> Option<Decoded<'a>> {
        let StoredInstance { row, executions, .. } = self.instance;
        if row.blocked.as_ref().is_some_and(|blocked| blocked.code.starts_with("PER-01")) {
            return None;
        }
        let mut decoded = Decoded { instance: self.instance, executions: BTreeMap::new() };
        for (execution, bodies) in executions {
            let mut turns = Vec::new();
            for (number, body) in (1..).zip(bodies) {
                match decode_turn(number, body) {
                    Ok(turn) if turn.number == number => turns.push(turn),
                    Ok(turn) => self.breach("I4", format!("turn {} is at position {number}", turn.number)),
                    Err(error) => self.breach("I4", format!("turn {number} does not decode: {error}")),
                }
            }
            // The engine's own check is run as well.
            if let Err(error) = decode_history(bodies)
                && !bodies.is_empty()
            {
                self.breach("I1", error.to_string());
            }
            decoded.executions.insert(*execution, turns);
        }
        Some(decoded)
    }

    /// I14: the row agrees with the last event.
    fn status(&mut self, decoded: &Decoded<'_>) {
        let (row, turns) = (decoded.row(), decoded.current());
        let expected = match turns.last() {
            Some(turn) => turn.ending().map_or(Status::Running, Status::after),
            None if row.execution > 1 => Status::Running,
            None => Status::Pending,
        };
        if row.status != expected {
            let what = format!("the row says {}, its history {}", row.status.name(), expected.name());
            self.breach("I14", what);
        }
        if let Some(started) = turns.first().and_then(Turn::started)
            // An execution that was ended before its first turn may not have a version.
            && (started.name != row.name
                || (started.version != row.version && !started.version.is_empty()))
        {
            let (name, version) = (&started.name, &started.version);
            let what = format!("the row says {} {}, its history {name} {version}", row.name, row.version);
            self.breach("I14", what);
        }
        if expected.is_final() && (row.owed || row.wake_at_ms.is_some() || row.blocked.is_some()) {
            let (owed, wake, blocked) = (row.owed, row.wake_at_ms, row.blocked.as_ref().map(|it| &it.code));
            let what = format!("it has ended, and its row is not idle: {owed} {wake:?} {blocked:?}");
            self.breach("I14", what);
        }
    }

    /// I15: the code makes the recorded decisions, turn by turn and hence for every prefix. Returns the open
    /// operations according to the code, and whether it has handlers.
    fn replay(&mut self, replayer: &Replayer, decoded: &Decoded<'_>) -> Option<(Ledger, bool)> {
        let row = decoded.row();
        let mut current = None;
        for (execution, turns) in decoded.executions.iter().filter(|(_, turns)| !turns.is_empty()) {
            // An instance that was ended before its first turn may not have a version, and has run no code.
            let is_unbegun = turns.first().and_then(Turn::started).is_some_and(|it| it.version.is_empty());
            // The remains of a reset may belong to code that no longer exists.
            let is_left = decoded.reset_of(execution + 1).is_some();
            if (row.blocked.is_some() && *execution == row.execution) || is_unbegun || is_left {
                continue;
            }
            // An instance that was ended before its code ran has not resolved the latest version.
            if turns.len() == 1 && turns[0].started().is_some_and(|started| started.version.is_empty()) {
                if !matches!(turns[0].ending(), Some(Ending::OrchestrationTerminated { .. })) {
                    self.breach("I15", format!("execution {execution} took a turn without a version"));
                }
                continue;
            }
            match replayer.hydrate(&row.id, &History::from(turns.clone())) {
                Ok(replayed) if *execution == row.execution => {
                    current = Some((replayed.ledger().clone(), replayed.has_handlers()));
                }
                Ok(_) => {}
                Err(ReplayReport::Incompatible(failure)) => self.breach("I15", failure.to_string()),
                Err(report) => self.breach("I15", format!("{report:?}")),
            }
        }
        current
    }
}

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
