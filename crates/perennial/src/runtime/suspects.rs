//! Suspects: finding the instance whose turn takes the process down.
//!
//! A node notes that it runs, and takes the note back when it stops in good order. After several starts that found the
//! note of one that did not, turns are taken in batches whose instances are noted beforehand. A batch that a process
//! did not survive are the suspects of the next: they are taken apart from the others, half of them at a time, until
//! one stands alone, and is blocked when it has taken the process down alone more than once. A process may also be
//! killed from outside, so one time proves nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial_core::shard::{Consultation, TaskFailure, TurnSource, TurnTask, TurnTaskDone};
use perennial_core::store::{SessionId, Store, StoreError};
use perennial_core::{InstanceKey, ShardId};
use serde::{Deserialize, Serialize};

use super::node::{Node, lock};
use super::turn_threads::TurnWork;

/// Where the note stands.
const NOTE: &str = "node";
/// From this many unclean ends in a row on, a node is careful.
const CAREFUL_FROM: u32 = 3;
/// How many turns a careful node takes together.
const BATCH: usize = 256;
/// An instance that took the process down alone this often is blocked.
const CONVICTED_FROM: u32 = 2;
/// A node that ran for so long is taken to run well.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// What a node leaves for the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Whether the node has not stopped in good order.
    running: bool,
    /// How many nodes before it have not.
    unclean_ends: u32,
    /// Whose turns are being taken.
    batch: BTreeSet<InstanceKey>,
    /// How often the only one of the batch was alone before.
    alone: u32,
}

/// The turns of a careful node.
#[derive(Default)]
pub(super) struct Suspects {
    gate: Mutex<Option<Gate>>,
}

struct Gate {
    unclean_ends: u32,
    /// The batch that the last node did not survive, and how often its only member was alone.
    suspects: BTreeSet<InstanceKey>,
    alone: u32,
    /// How many suspects are taken together.
    share: usize,
    queue: VecDeque<(ShardId, Box<TurnTask>)>,
    /// The batch that is being taken.
    running: BTreeMap<InstanceKey, ShardId>,
    is_noting: bool,
}

impl Gate {
    /// The next batch: suspects by themselves, others by themselves.
    fn next_batch(&mut self) -> Vec<(ShardId, Box<TurnTask>)> {
        if self.is_noting || !self.running.is_empty() {
            return Vec::new();
        }
        let Some((_, first)) = self.queue.front() else { return Vec::new() };
        let is_suspect = self.suspects.contains(&first.key);
        let size = if is_suspect { self.share } else { BATCH };
        let mut batch = Vec::new();
        let mut rest = VecDeque::new();
        for (shard, task) in self.queue.drain(..) {
            if batch.len() < size && self.suspects.contains(&task.key) == is_suspect {
                batch.push((shard, task));
            } else {
                rest.push_back((shard, task));
            }
        }
        self.queue = rest;
        batch
    }
}

impl Node {
    /// Reads the note of the node before and leaves one of its own.
    pub(super) async fn begin_note(self: &Arc<Node>) -> Result<(), StoreError> {
        let found = read(&self.store).await?;
        let unclean_ends = if found.running { found.unclean_ends.saturating_add(1) } else { 0 };
        let alone = if found.batch.len() == 1 { found.alone.saturating_add(1) } else { 0 };
        let is_careful = unclean_ends >= CAREFUL_FROM;
        if is_careful {
            tracing::warn!(
                unclean_ends,
                suspects = found.batch.len(),
                "this store's nodes did not stop in good order; turns are taken in batches, to find what ends them"
            );
            let gate = Gate {
                unclean_ends,
                share: found.batch.len().div_ceil(2).max(1),
                suspects: found.batch.clone(),
                alone,
                queue: VecDeque::new(),
                running: BTreeMap::new(),
                is_noting: false,
            };
            *lock(&self.suspects.gate) = Some(gate);
        }
        let batch = if is_careful { found.batch } else { BTreeSet::new() };
        write(&self.store, self.session(), &Note { running: true, unclean_ends, batch, alone }).await?;
        let node = Arc::downgrade(self);
        self.workers.spawn(async move {
            tokio::time::sleep(STEADY_AFTER).await;
            if let Some(node) = node.upgrade() {
                node.is_steady().await;
            }
        });
        Ok(())
    }

    /// The node has run for a while: nothing takes it down.
    async fn is_steady(self: &Arc<Node>) {
        let waiting = lock(&self.suspects.gate).take().map(|gate| gate.queue).unwrap_or_default();
        self.turn_threads.submit(waiting.into_iter().map(|(shard, task)| TurnWork::Turn(shard, task)));
        if self.failure().is_none() {
            let note = Note { running: true, ..Note::default() };
            if let Err(error) = write(&self.store, self.session(), &note).await {
                tracing::warn!(%error, "the note of a steady node was not written");
            }
        }
    }

    /// The node stops in good order.
    pub(super) async fn end_note(self: &Arc<Node>) -> Result<(), StoreError> {
        write(&self.store, self.session(), &Note::default()).await
    }

    /// Has turns taken: at once, or in their batch if the node is careful.
    pub(super) fn submit_turns(self: &Arc<Node>, work: Vec<TurnWork>) {
        let free = {
            let mut gate = lock(&self.suspects.gate);
            match &mut *gate {
                None => work,
                Some(gate) => {
                    let mut free = Vec::new();
                    for work in work {
                        match work {
                            TurnWork::Turn(shard, task) => gate.queue.push_back((shard, task)),
                            drop @ TurnWork::Drop(_) => free.push(drop),
                        }
                    }
                    free
                }
            }
        };
        if !free.is_empty() {
            self.turn_threads.submit(free);
        }
        self.take_next_batch();
    }

    /// A turn was taken, or given up.
    pub(super) fn turn_settled(self: &Arc<Node>, key: InstanceKey) {
        let is_over = match &mut *lock(&self.suspects.gate) {
            None => return,
            Some(gate) => {
                gate.suspects.remove(&key);
                gate.running.remove(&key).is_some() && gate.running.is_empty()
            }
        };
        if is_over {
            self.take_next_batch();
        }
    }

    fn take_next_batch(self: &Arc<Node>) {
        let (batch, note, convicted) = {
            let mut gate = lock(&self.suspects.gate);
            let Some(gate) = &mut *gate else { return };
            let batch = gate.next_batch();
            if batch.is_empty() {
                return;
            }
            let keys: BTreeSet<InstanceKey> = batch.iter().map(|(_, task)| task.key).collect();
            let is_old = keys == gate.suspects;
            let alone = if is_old { gate.alone } else { 0 };
            let convicted = is_old && keys.len() == 1 && alone >= CONVICTED_FROM;
            gate.running = batch.iter().map(|(shard, task)| (task.key, *shard)).collect();
            gate.is_noting = true;
            (batch, Note { running: true, unclean_ends: gate.unclean_ends, batch: keys, alone }, convicted)
        };
        let node = Arc::clone(self);
        self.workers.spawn(async move {
            let noted = if convicted { Ok(()) } else { write(&node.store, node.session(), &note).await };
            if let Some(gate) = &mut *lock(&node.suspects.gate) {
                gate.is_noting = false;
            }
            match noted {
                Err(error) => node.fail(format!("what is being tried cannot be noted: {error}")),
                Ok(()) if convicted => batch.into_iter().for_each(|(shard, task)| node.convict(shard, *task)),
                Ok(()) => {
                    let turns = batch.into_iter().map(|(shard, task)| TurnWork::Turn(shard, task));
                    node.turn_threads.submit(turns.collect::<Vec<_>>());
                }
            }
        });
    }

    /// Blocks the instance whose turn takes the process down.
    fn convict(self: &Arc<Node>, shard: ShardId, task: TurnTask) {
        let TurnTask { key, number, instance, source, asks, .. } = task;
        tracing::error!(instance = &*instance, "its turn takes the process down; it is blocked");
        let wreck = match source {
            TurnSource::Resident(execution) => Some(execution),
            TurnSource::Start(_) | TurnSource::History(_) => None,
        };
        let asks = asks.into_iter().map(|ask| (ask, Consultation::Later)).collect();
        let outcome = Err(TaskFailure::TakesProcessDown);
        let done = TurnTaskDone { key, number, outcome, asks, wreck };
        self.with_shard(shard, |shard, now_ms| shard.handle_turn_done(now_ms, done));
        self.turn_settled(key);
    }
}

async fn read(store: &Arc<dyn Store>) -> Result<Note, StoreError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    store.read_note(NOTE, Box::new(move |note| drop(sender.send(note))));
    let note = receiver.await.unwrap_or(Err(StoreError::Closed))?;
    // A note that cannot be read is of another engine; it says nothing to this one.
    Ok(note.and_then(|note| serde_json::from_slice(&note).ok()).unwrap_or_default())
}

async fn write(store: &Arc<dyn Store>, session: SessionId, note: &Note) -> Result<(), StoreError> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let note = serde_json::to_vec(note).expect("a note holds nothing that JSON cannot");
    store.write_note(session, NOTE, Some(note.into()), Box::new(move |written| drop(sender.send(written))));
    receiver.await.unwrap_or(Err(StoreError::Closed))
}
