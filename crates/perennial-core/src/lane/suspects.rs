//! Suspects: finding the instance whose turn ends the process.
//!
//! The store counts for each shard how many owners in a row ended without releasing it. After several, turns are taken
//! in batches that are durably noted beforehand, one batch at a time. The turns noted as running when an owner ended
//! become suspects. Suspects are taken in batches of half the size each time, until one is alone in its batch. A
//! process may also be killed from outside at any moment, so a single end is weak evidence: an instance is cleared as
//! soon as it gets past the point where it became suspect, and an instance that was alone when a process ended is held
//! back in the next process for a while; if that process ends as well, it was not the instance. Only an instance that
//! repeatedly ends the process alone at the same point, while processes without it live, is blocked. An owner that has
//! lived for a while takes turns normally again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::{Turn, decode_turn};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{TurnSource, TurnTask};
use crate::store::{OwnedShard, ShardSet};

use super::clock::Moment;

/// From this many unclean ends in a row, an owner is careful.
const CAREFUL_FROM: u32 = 3;
/// How many turns a careful owner takes together.
const BATCH: usize = 256;
/// An instance that ended the process alone this many times, at one point of its history, is blocked.
const BLOCKED_FROM: u32 = 4;
/// How many suspects are noted. Those in the smallest batches are kept.
const MAX_SUSPECTS: usize = 512;
/// How long an owner has to live without the instances that were alone when others ended, before it tries them.
const HOLD: Duration = Duration::from_secs(1);
/// An owner that lived this long is no longer careful.
const STEADY_AFTER: Duration = Duration::from_secs(61);

/// The note that a careful owner keeps on a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct ShardNote {
    /// How many turns are being taken together, of all shards.
    together: usize,
    /// Those of this shard.
    batch: Vec<Trial>,
    /// Instances of this shard whose turns are taken separately.
    suspects: Vec<Suspect>,
}

/// A turn that is being taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trial {
    key: InstanceKey,
    /// The position in its history: it is the same until a turn is recorded.
    execution: u64,
    turns: u64,
    /// Whether its execution is hydrated: that may succeed and the turn after it fail.
    replays: bool,
}

impl Trial {
    fn of(task: &TurnTask) -> Trial {
        let (execution, turns, replays) = match &task.source {
            TurnSource::Start(started) => (started.execution, 0, false),
            TurnSource::Resident(execution, _) => {
                (execution.started().execution, execution.ledger().turns(), false)
            }
            TurnSource::Read(record) => (record.started().execution, record.turns(), true),
            // It runs no code, and is never noted.
            TurnSource::Reset(_) => (0, 0, false),
            TurnSource::History(rows) | TurnSource::Record(rows) => {
                let first = rows.first().and_then(|row| decode_turn(1, &row.bytes).ok());
                let execution = first.as_ref().and_then(Turn::started).map_or(0, |started| started.execution);
                (execution, rows.len() as u64, true)
            }
        };
        Trial { key: task.key, execution, turns, replays }
    }

    fn is_at_the_point_of(&self, other: &Trial) -> bool {
        (self.key, self.execution, self.turns) == (other.key, other.execution, other.turns)
    }
}

/// An instance that was in a batch that a process did not survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Suspect {
    trial: Trial,
    /// The maximum size of its next batch.
    together: usize,
    /// How many processes ended while only this instance was tried.
    alone: u32,
}

/// The turns of an owner while it is careful.
#[derive(Default)]
pub(super) struct Suspects {
    gate: Option<Gate>,
    /// Shards with a count of unclean ends.
    unclean: ShardSet,
    /// Shards that have a note in the store.
    noted: ShardSet,
    steady_at: Option<Moment>,
}

/// The turns of a careful owner.
#[derive(Default)]
struct Gate {
    suspects: BTreeMap<InstanceKey, (ShardId, Suspect)>,
    queue: VecDeque<Box<TurnTask>>,
    /// The batch that is being taken.
    running: BTreeMap<InstanceKey, (ShardId, Trial)>,
    /// What follows once the notes are durable.
    pending: Option<Step>,
    /// Whether the stored notes name a batch.
    has_noted: bool,
    /// Until when instances that were alone are held back.
    hold_until: Moment,
}

/// What follows once notes are durable.
pub(super) enum Step {
    /// Take these turns.
    Take(Vec<Waiting>),
    /// Block this instance.
    Block(Box<TurnTask>),
    /// No turn is being taken.
    Rest,
}

/// A turn that waits to be taken.
pub(super) type Waiting = Box<TurnTask>;

/// Notes to write before the next step.
pub(super) type Notes = Vec<(ShardId, Option<Arc<[u8]>>)>;

impl Suspects {
    /// Whether turns that may end the process are being tried, or wait to be.
    pub(super) fn is_trying(&self) -> bool {
        self.gate
            .as_ref()
            .is_some_and(|gate| gate.pending.is_some() || !gate.running.is_empty() || !gate.queue.is_empty())
    }

    /// Handles gained shards. Returns the number of unclean ends if it makes the owner careful from now on.
    pub(super) fn handle_gained(&mut self, now: Moment, shards: &[OwnedShard]) -> Option<u32> {
        let mut unclean_ends = 0;
        let (mut notes, mut together) = (Vec::new(), 0);
        for owned in shards {
            if owned.unclean_ends > 0 {
                self.unclean.insert(owned.shard);
                self.steady_at.get_or_insert(now + STEADY_AFTER);
            }
            unclean_ends = unclean_ends.max(owned.unclean_ends);
            let Some(bytes) = &owned.note else { continue };
            self.noted.insert(owned.shard);
            // A note that cannot be read was written by another version; it is ignored.
            let note: ShardNote = serde_json::from_slice(bytes).unwrap_or_default();
            together = together.max(note.together);
            notes.push((owned.shard, note));
        }
        if unclean_ends < CAREFUL_FROM {
            return None;
        }
        self.gate.get_or_insert_default().take_over(now, notes, together);
        Some(unclean_ends)
    }

    /// Handles lost or released shards: their turns are not taken. Returns those that waited.
    pub(super) fn handle_lost(&mut self, shard: ShardId) -> Vec<Waiting> {
        self.unclean.remove(shard);
        self.noted.remove(shard);
        let Some(gate) = &mut self.gate else { return Vec::new() };
        gate.suspects.retain(|_, (of, _)| *of != shard);
        gate.running.retain(|_, (of, _)| *of != shard);
        let (mut gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut gate.queue).into_iter().partition(|task| task.shard == shard);
        gate.queue = left.into();
        gate.pending = match gate.pending.take() {
            Some(Step::Take(batch)) => {
                let (lost, left): (Vec<_>, Vec<_>) = batch.into_iter().partition(|task| task.shard == shard);
                gone.extend(lost);
                Some(Step::Take(left))
            }
            Some(Step::Block(task)) if task.shard == shard => {
                gone.push(task);
                Some(Step::Rest)
            }
            pending => pending,
        };
        gone
    }

    /// Handles the loss of the session and all shards: pending notes are not written. Returns the turns that waited.
    pub(super) fn handle_session_lost(&mut self) -> Vec<Waiting> {
        std::mem::take(self).gate.map(Gate::into_waiting).unwrap_or_default()
    }

    /// Handles a turn to take: it is returned if it may be taken immediately.
    pub(super) fn admit(&mut self, task: Box<TurnTask>) -> Option<Box<TurnTask>> {
        match &mut self.gate {
            None => Some(task),
            // No code runs.
            Some(_) if !task.source.runs_code() => Some(task),
            Some(gate) => {
                gate.queue.push_back(task);
                None
            }
        }
    }

    /// Notes that a turn was taken or abandoned: the process survived it.
    pub(super) fn handle_settled(&mut self, key: InstanceKey) {
        if let Some(gate) = &mut self.gate {
            gate.settled(key);
        }
    }

    /// The notes to write for the next step, if none is in progress. [`Suspects::handle_noted`] follows.
    pub(super) fn take_notes(&mut self, now: Moment) -> Option<Notes> {
        let gate = self.gate.as_mut()?;
        gate.plan(now).then(|| {
            let (notes, noted) = gate.notes(&self.noted);
            self.noted = noted;
            notes
        })
    }

    /// The notes are durable.
    pub(super) fn handle_noted(&mut self) -> Step {
        self.gate.as_mut().and_then(|gate| gate.pending.take()).unwrap_or(Step::Rest)
    }

    /// When [`Suspects::take_notes`] or [`Suspects::take_steady`] may have something to do.
    pub(super) fn next_wake(&self, now: Moment) -> Option<Moment> {
        let hold = self.gate.as_ref().map(|gate| gate.hold_until).filter(|until| *until > now);
        hold.into_iter().chain(self.steady_at).min()
    }

    /// Whether the owner has just become steady: the shards whose unclean ends are to be forgotten, and the turns that
    /// waited.
    pub(super) fn take_steady(&mut self, now: Moment) -> Option<(Notes, Vec<Waiting>)> {
        if self.steady_at.is_none_or(|at| at > now) {
            return None;
        }
        self.steady_at = None;
        let mut shards = std::mem::take(&mut self.unclean);
        shards.extend_from(&std::mem::take(&mut self.noted));
        let waiting = self.gate.take().map(Gate::into_waiting).unwrap_or_default();
        Some((shards.iter().map(|shard| (shard, None)).collect(), waiting))
    }
}

impl Gate {
    /// Takes over the notes of the previous owner.
    fn take_over(&mut self, now: Moment, notes: Vec<(ShardId, ShardNote)>, together: usize) {
        self.hold_until = now + HOLD;
        let mut trials = Vec::new();
        for (shard, note) in notes {
            self.suspects
                .extend(note.suspects.into_iter().map(|suspect| (suspect.trial.key, (shard, suspect))));
            trials.extend(note.batch.into_iter().map(|trial| (shard, trial)));
        }
        let is_alone = together == 1 && !trials.is_empty();
        let suspects = &mut self.suspects;
        let is_trial = |(_, trial): &(ShardId, Trial)| {
            suspects.get(&trial.key).is_some_and(|(_, suspect)| suspect.together == 1)
        };
        if !(is_alone && trials.iter().all(is_trial)) {
            // It ended while the instances that had been alone were held back, or after they had been tried.
            suspects.values_mut().for_each(|(_, suspect)| suspect.alone = 0);
        }
        for (shard, trial) in trials {
            let before = suspects.get(&trial.key).map(|(_, suspect)| *suspect);
            let before = before.filter(|suspect| suspect.trial.is_at_the_point_of(&trial));
            let alone = before.map_or(0, |suspect| suspect.alone) + u32::from(is_alone);
            // A successful hydration does not clear an instance that became suspect after its hydration.
            let replays = trial.replays && before.is_none_or(|suspect| suspect.trial.replays);
            let suspect =
                Suspect { trial: Trial { replays, ..trial }, together: together.div_ceil(2).max(1), alone };
            suspects.insert(trial.key, (shard, suspect));
        }
        if suspects.len() > MAX_SUSPECTS {
            let mut closest: Vec<_> = std::mem::take(suspects).into_iter().collect();
            closest.sort_by_key(|(_, (_, suspect))| suspect.together);
            closest.truncate(MAX_SUSPECTS);
            *suspects = closest.into_iter().collect();
        }
    }

    /// The turns that wait, for an owner that is no longer careful.
    fn into_waiting(self) -> Vec<Waiting> {
        let planned = match self.pending {
            Some(Step::Take(batch)) => batch,
            Some(Step::Block(task)) => vec![task],
            Some(Step::Rest) | None => Vec::new(),
        };
        planned.into_iter().chain(self.queue).collect()
    }

    /// The notes to store, and the shards that have a note afterwards. `before` had one until now.
    fn notes(&self, before: &ShardSet) -> (Notes, ShardSet) {
        let mut notes: BTreeMap<ShardId, ShardNote> = BTreeMap::new();
        let together = self.running.len();
        for (shard, trial) in self.running.values() {
            notes.entry(*shard).or_default().batch.push(*trial);
        }
        for (shard, suspect) in self.suspects.values() {
            notes.entry(*shard).or_default().suspects.push(*suspect);
        }
        let noted: ShardSet = notes.keys().copied().collect();
        let cleared = before.iter().filter(|shard| !noted.contains(*shard)).map(|shard| (shard, None));
        let encode = |(shard, note): (ShardId, ShardNote)| {
            let note = ShardNote { together, ..note };
            let bytes = serde_json::to_vec(&note).expect("a note encodes as JSON");
            (shard, Some(Arc::from(bytes)))
        };
        (cleared.chain(notes.into_iter().map(encode)).collect::<Vec<_>>(), noted)
    }

    /// Plans the next step, if none is in progress. Returns whether notes have to be written for it.
    fn plan(&mut self, now: Moment) -> bool {
        if self.pending.is_some() || !self.running.is_empty() {
            return false;
        }
        let first = self.queue.iter().position(|task| !self.is_held(now, &Trial::of(task)));
        let Some(first) = first else {
            // If the process is killed while nothing is being tried, no instance becomes suspect.
            let rests = std::mem::take(&mut self.has_noted);
            self.pending = rests.then_some(Step::Rest);
            return rests;
        };
        let trial = Trial::of(&self.queue[first]);
        let suspicion = self.suspicion(&trial);
        if suspicion.is_some_and(|suspect| suspect.alone >= BLOCKED_FROM) {
            // A requested retry means that it is to be tried, not judged by its past.
            self.suspects.remove(&trial.key);
            self.has_noted = false;
            self.pending = self.queue.remove(first).map(Step::Block);
            return true;
        }
        let together = suspicion.map(|suspect| suspect.together);
        let size = together.unwrap_or(BATCH);
        let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
        for task in std::mem::take(&mut self.queue) {
            let trial = Trial::of(&task);
            let is_alike = self.suspicion(&trial).map(|suspect| suspect.together) == together;
            if batch.len() < size && is_alike && !self.is_held(now, &trial) {
                self.running.insert(trial.key, (task.shard, trial));
                batch.push(task);
            } else {
                rest.push_back(task);
            }
        }
        self.queue = rest;
        self.has_noted = true;
        self.pending = Some(Step::Take(batch));
        true
    }

    fn is_held(&self, now: Moment, trial: &Trial) -> bool {
        now < self.hold_until && self.suspicion(trial).is_some_and(|suspect| suspect.alone > 0)
    }

    fn suspicion(&self, trial: &Trial) -> Option<&Suspect> {
        let suspect = self.suspects.get(&trial.key).map(|(_, suspect)| suspect);
        suspect.filter(|suspect| suspect.trial.is_at_the_point_of(trial))
    }

    fn settled(&mut self, key: InstanceKey) {
        let Some((_, trial)) = self.running.remove(&key) else { return };
        let is_cleared = |suspect: &Suspect| suspect.trial.replays || !trial.replays;
        if self.suspects.get(&key).is_some_and(|(_, suspect)| is_cleared(suspect)) {
            self.suspects.remove(&key);
        }
    }
}
