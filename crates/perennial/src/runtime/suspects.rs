//! Suspects: finding the instance whose turn takes the process down.
//!
//! A node notes that it runs, and takes the note back when it stops in good order. After several starts that found the
//! note of one that did not, turns are taken in batches that are noted durably beforehand, one batch at a time. Who is
//! taken with whom, and who is to blame, is `suspicion`'s; here it is carried out. A node that has run for a while
//! stops being careful.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial_core::shard::{Consultation, TaskFailure, TurnSource, TurnTask, TurnTaskDone};
use perennial_core::store::{SessionId, Store, StoreError};
use perennial_core::{InstanceKey, ShardId};

use super::node::{Node, lock};
use super::suspicion::{Gate, Note, Step};
use super::turn_threads::TurnWork;

/// Where the note stands.
const NOTE: &str = "node";
/// For so long a node has to live without those who stood alone when others ended, before it tries them.
const HOLD: Duration = Duration::from_secs(1);
/// A node that ran for so long is taken to run well.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// The pause before a note that could not be written is written again.
const NOTE_PAUSE: Duration = Duration::from_millis(20);

/// The turns of a careful node.
#[derive(Default)]
pub(super) struct Suspects {
    gate: Mutex<Option<Gate>>,
    /// Whoever holds it writes the note, so that an older one never replaces a newer one.
    pen: tokio::sync::Mutex<()>,
}

impl Node {
    /// Reads the note of the node before and leaves one of its own.
    pub(super) async fn begin_note(self: &Arc<Node>) -> Result<(), StoreError> {
        let (note, gate) = read(&self.store).await?.succeed();
        if let Some(gate) = &gate {
            tracing::warn!(
                unclean_ends = gate.unclean_ends(),
                suspects = gate.suspects(),
                "this store's nodes did not stop in good order; turns are taken in batches, to find what ends them"
            );
        }
        *lock(&self.suspects.gate) = gate;
        write(&self.store, self.session(), &note).await?;
        let node = Arc::downgrade(self);
        self.workers.spawn(async move {
            tokio::time::sleep(HOLD).await;
            if let Some(node) = node.upgrade() {
                node.end_hold();
            }
            tokio::time::sleep(STEADY_AFTER).await;
            if let Some(node) = node.upgrade() {
                node.is_steady().await;
            }
        });
        Ok(())
    }

    fn end_hold(self: &Arc<Node>) {
        if let Some(gate) = &mut *lock(&self.suspects.gate) {
            gate.end_hold();
        }
        self.take_next_step();
    }

    /// The node has run for a while: nothing takes it down.
    async fn is_steady(self: &Arc<Node>) {
        let gate = lock(&self.suspects.gate).take();
        let waiting = gate.into_iter().flat_map(Gate::into_waiting);
        self.turn_threads.submit(waiting.map(|(shard, task)| TurnWork::Turn(shard, task)));
        let _pen = self.suspects.pen.lock().await;
        if self.failure().is_none()
            && let Err(error) = write(&self.store, self.session(), &Note::steady()).await
        {
            tracing::warn!(%error, "the note of a steady node was not written");
        }
    }

    /// The node stops in good order.
    pub(super) async fn end_note(self: &Arc<Node>) -> Result<(), StoreError> {
        lock(&self.suspects.gate).take();
        let _pen = self.suspects.pen.lock().await;
        write(&self.store, self.session(), &Note::default()).await
    }

    /// Whether this node is careful and tries turns that may end it.
    pub(super) fn is_trying_turns(&self) -> bool {
        lock(&self.suspects.gate).as_ref().is_some_and(Gate::is_trying)
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
                            TurnWork::Turn(shard, task) => gate.add(shard, task),
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
        self.take_next_step();
    }

    /// A turn was taken, or given up.
    pub(super) fn turn_settled(self: &Arc<Node>, key: InstanceKey) {
        let is_over = lock(&self.suspects.gate).as_mut().is_some_and(|gate| gate.settled(key));
        if is_over {
            self.take_next_step();
        }
    }

    /// Has the next batch taken, if none is under way, after it was noted.
    fn take_next_step(self: &Arc<Node>) {
        let Some(step) = lock(&self.suspects.gate).as_mut().and_then(Gate::next_step) else { return };
        let node = Arc::clone(self);
        self.workers.spawn(async move {
            if let Err(error) = node.write_gate().await {
                return node.fail(format!("what is being tried cannot be noted: {error}"));
            }
            if let Some(gate) = &mut *lock(&node.suspects.gate) {
                gate.noted();
            }
            match step {
                Step::Take(batch) => {
                    let turns = batch.into_iter().map(|(shard, task)| TurnWork::Turn(shard, task));
                    return node.turn_threads.submit(turns.collect::<Vec<_>>());
                }
                Step::Convict((shard, task)) => node.convict(shard, *task),
                Step::Rest => {}
            }
            node.take_next_step();
        });
    }

    /// Notes what the gate says, unless the node has stopped being careful.
    async fn write_gate(self: &Arc<Node>) -> Result<(), StoreError> {
        let _pen = self.suspects.pen.lock().await;
        loop {
            let Some(note) = lock(&self.suspects.gate).as_ref().map(Gate::note) else { return Ok(()) };
            let session = self.session();
            if self.lease_keeper.holds_or_hurries() {
                match write(&self.store, session, &note).await {
                    Err(error) if error.is_retryable() => {}
                    // Commits in doubt are being settled under a new session; or one that is gone stops the node.
                    Err(StoreError::Unknown(_) | StoreError::SessionGone) => {}
                    written => return written,
                }
            }
            if self.failure().is_some() {
                return Err(StoreError::Closed);
            }
            tokio::time::sleep(NOTE_PAUSE).await;
        }
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
