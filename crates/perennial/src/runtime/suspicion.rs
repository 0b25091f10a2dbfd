//! What is known about which instance takes the process down, and whose turns are taken together because of it.
//!
//! Pure data: the node tells it of turns to take, of turns that were taken and of notes that are durable. What a process
//! had noted as being taken when it ended has become suspect. Suspects are taken in batches of half the size each time,
//! until one stands alone. A process may also be killed from outside at any moment, so a death says little. Suspicion ends
//! as soon as the instance gets past the point where it arose. Who stood alone when a process ended is held back in the
//! next one for a while: if that one ends all the same, it was not the instance. Only one that dies alone at the same
//! point again and again, while processes without it live, is convicted.

use std::collections::{BTreeMap, VecDeque};

use perennial_core::history::decode_turn;
use perennial_core::shard::{TurnSource, TurnTask};
use perennial_core::{InstanceKey, ShardId, Turn};
use serde::{Deserialize, Serialize};

/// From this many unclean ends in a row on, a node is careful.
const CAREFUL_FROM: u32 = 3;
/// How many turns a careful node takes together.
const BATCH: usize = 256;
/// An instance that took the process down alone this often, at one point of its history, is blocked.
const CONVICTED_FROM: u32 = 4;
/// How many suspects a note holds. Those in the smallest batches are kept.
const MAX_SUSPECTS: usize = 512;

/// What a node leaves for the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Note {
    /// Whether the node has not stopped in good order.
    running: bool,
    /// How many nodes before it have not.
    unclean_ends: u32,
    /// Whose turns are being taken.
    batch: Vec<Trial>,
    /// Whose turns are taken apart from others.
    suspects: Vec<Suspect>,
}

/// A turn that is being taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trial {
    key: InstanceKey,
    /// Where its history stands: this is the same until a turn is recorded.
    execution: u64,
    turns: u64,
    /// Whether its execution grows back: that may go well and the turn after it not.
    replays: bool,
}

impl Trial {
    fn of(task: &TurnTask) -> Trial {
        let (execution, turns, replays) = match &task.source {
            TurnSource::Start(started) => (started.execution, 0, false),
            TurnSource::Resident(execution) => {
                (execution.started().execution, execution.ledger().turns(), false)
            }
            TurnSource::History(turns) => {
                let first = turns.first().and_then(|bytes| decode_turn(1, bytes).ok());
                let execution = first.as_ref().and_then(Turn::started).map_or(0, |started| started.execution);
                (execution, turns.len() as u64, true)
            }
        };
        Trial { key: task.key, execution, turns, replays }
    }

    fn is_at_the_point_of(&self, other: &Trial) -> bool {
        (self.key, self.execution, self.turns) == (other.key, other.execution, other.turns)
    }
}

/// An instance that was in a batch which a process did not survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Suspect {
    trial: Trial,
    /// With how many it is tried at most.
    together: usize,
    /// How many processes ended while it alone was tried.
    alone: u32,
}

impl Note {
    /// Of a node that runs, and has no reason to be careful.
    pub(super) fn steady() -> Note {
        Note { running: true, ..Note::default() }
    }

    /// The first note of a node that found this one; and its turns, if it has to be careful.
    pub(super) fn succeed(self) -> (Note, Option<Gate>) {
        let unclean_ends = if self.running { self.unclean_ends.saturating_add(1) } else { 0 };
        if unclean_ends < CAREFUL_FROM {
            return (Note { running: true, unclean_ends, ..Note::default() }, None);
        }
        let mut suspects: BTreeMap<InstanceKey, Suspect> =
            self.suspects.into_iter().map(|suspect| (suspect.trial.key, suspect)).collect();
        let (together, is_alone) = (self.batch.len().div_ceil(2), self.batch.len() == 1);
        let is_trial = |trial: &Trial| suspects.get(&trial.key).is_some_and(|suspect| suspect.together == 1);
        if !(is_alone && self.batch.iter().all(is_trial)) {
            // It ended while those who had stood alone were held back, or had been tried.
            suspects.values_mut().for_each(|suspect| suspect.alone = 0);
        }
        for trial in self.batch {
            let before = suspects.get(&trial.key).filter(|suspect| suspect.trial.is_at_the_point_of(&trial));
            let alone = before.map_or(0, |suspect| suspect.alone) + u32::from(is_alone);
            // Growing back well clears nobody who was suspect for what came after it.
            let replays = trial.replays && before.is_none_or(|suspect| suspect.trial.replays);
            suspects.insert(trial.key, Suspect { trial: Trial { replays, ..trial }, together, alone });
        }
        if suspects.len() > MAX_SUSPECTS {
            let mut closest: Vec<Suspect> = suspects.into_values().collect();
            closest.sort_by_key(|suspect| suspect.together);
            closest.truncate(MAX_SUSPECTS);
            suspects = closest.into_iter().map(|suspect| (suspect.trial.key, suspect)).collect();
        }
        let gate = Gate {
            unclean_ends,
            suspects,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            is_noting: false,
            has_noted: false,
            is_holding: true,
        };
        (gate.note(), Some(gate))
    }
}

/// A turn that waits, and whose shard it is.
pub(super) type Waiting = (ShardId, Box<TurnTask>);

/// The turns of a careful node.
pub(super) struct Gate {
    unclean_ends: u32,
    suspects: BTreeMap<InstanceKey, Suspect>,
    queue: VecDeque<Waiting>,
    /// The batch that is being taken.
    running: BTreeMap<InstanceKey, Trial>,
    /// What is to be done next waits for a note.
    is_noting: bool,
    /// Whether the note in the store names a batch.
    has_noted: bool,
    /// Whether those who stood alone are held back.
    is_holding: bool,
}

/// What follows once the gate's note is durable.
pub(super) enum Step {
    /// These turns are taken.
    Take(Vec<Waiting>),
    /// This instance is blocked.
    Convict(Waiting),
    /// Nothing is being taken.
    Rest,
}

impl Gate {
    /// Whether turns are being tried, or wait to be.
    pub(super) fn is_trying(&self) -> bool {
        self.is_noting || !self.running.is_empty() || !self.queue.is_empty()
    }

    pub(super) fn unclean_ends(&self) -> u32 {
        self.unclean_ends
    }

    pub(super) fn suspects(&self) -> usize {
        self.suspects.len()
    }

    pub(super) fn add(&mut self, shard: ShardId, task: Box<TurnTask>) {
        self.queue.push_back((shard, task));
    }

    /// The turns that wait, for a node that need not be careful any more.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = Waiting> {
        self.queue.into_iter()
    }

    /// What the store has to know before anything else happens.
    pub(super) fn note(&self) -> Note {
        Note {
            running: true,
            unclean_ends: self.unclean_ends,
            batch: self.running.values().copied().collect(),
            suspects: self.suspects.values().copied().collect(),
        }
    }

    /// What is next, if nothing is under way. It waits for the note to be durable, and for [`Gate::noted`].
    pub(super) fn next_step(&mut self) -> Option<Step> {
        if self.is_noting || !self.running.is_empty() {
            return None;
        }
        let first = self.queue.iter().position(|(_, task)| !self.is_held(&Trial::of(task)));
        let Some(first) = first else {
            // A process that is killed while nothing is tried makes nobody suspect.
            let rests = std::mem::take(&mut self.has_noted);
            self.is_noting = rests;
            return rests.then_some(Step::Rest);
        };
        let trial = Trial::of(&self.queue[first].1);
        self.is_noting = true;
        let suspicion = self.suspicion(&trial);
        if suspicion.is_some_and(|suspect| suspect.alone >= CONVICTED_FROM) {
            // Whoever retries it wants it tried, not judged for what was.
            self.suspects.remove(&trial.key);
            self.has_noted = false;
            return self.queue.remove(first).map(Step::Convict);
        }
        let together = suspicion.map(|suspect| suspect.together);
        let size = together.unwrap_or(BATCH);
        let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
        for (shard, task) in std::mem::take(&mut self.queue) {
            let trial = Trial::of(&task);
            let is_alike = self.suspicion(&trial).map(|suspect| suspect.together) == together;
            if batch.len() < size && is_alike && !self.is_held(&trial) {
                self.running.insert(trial.key, trial);
                batch.push((shard, task));
            } else {
                rest.push_back((shard, task));
            }
        }
        self.queue = rest;
        self.has_noted = true;
        Some(Step::Take(batch))
    }

    /// Whoever stood alone may be tried from now on.
    pub(super) fn end_hold(&mut self) {
        self.is_holding = false;
    }

    fn is_held(&self, trial: &Trial) -> bool {
        self.is_holding && self.suspicion(trial).is_some_and(|suspect| suspect.alone > 0)
    }

    fn suspicion(&self, trial: &Trial) -> Option<&Suspect> {
        self.suspects.get(&trial.key).filter(|suspect| suspect.trial.is_at_the_point_of(trial))
    }

    /// The note is durable.
    pub(super) fn noted(&mut self) {
        self.is_noting = false;
    }

    /// A turn was taken, or given up: the process is still there. Returns whether that was the last of its batch.
    pub(super) fn settled(&mut self, key: InstanceKey) -> bool {
        let Some(trial) = self.running.remove(&key) else { return false };
        let is_cleared = |suspect: &Suspect| suspect.trial.replays || !trial.replays;
        if self.suspects.get(&key).is_some_and(is_cleared) {
            self.suspects.remove(&key);
        }
        self.running.is_empty()
    }
}
