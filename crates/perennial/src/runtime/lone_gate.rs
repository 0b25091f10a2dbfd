//! The LoneGate: activities that ended often with their process run one at a time.
//!
//! The one that takes the process down is then alone among its like when it does, and only its own interruptions grow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::ActivityTask;
use perennial_core::{EventId, InstanceKey, ShardId};
use tokio::sync::oneshot;

use super::node::{Node, lock};

/// How long an activity that may run has to begin. It may have been cancelled meanwhile.
const BEGINNING: Duration = Duration::from_secs(2);

/// How long it waits while turns are being tried that may end the process.
const TRYING: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct LoneGate {
    waiting: VecDeque<Waiting>,
    /// Who may run, whether it has begun, and the number of this permission.
    current: Option<(InstanceKey, EventId, bool)>,
    permissions: u64,
    /// Whether it will be looked again, because turns are being tried.
    is_patient: bool,
}

/// An activity that waits for its turn to run alone.
struct Waiting {
    key: InstanceKey,
    event: EventId,
    wants: Wants,
}

enum Wants {
    /// Its shard has it run.
    Shard(ShardId),
    /// It was taken from the store, and runs when this is told.
    Word(oneshot::Sender<()>),
}

impl Node {
    /// An activity wants to run alone.
    pub(super) fn want_lone(self: &Arc<Node>, shard: ShardId, key: InstanceKey, event: EventId) {
        {
            let mut gate = lock(&self.lone);
            if !gate.waiting.iter().any(|waiting| (waiting.key, waiting.event) == (key, event)) {
                gate.waiting.push_back(Waiting { key, event, wants: Wants::Shard(shard) });
            }
        }
        self.grant_lone();
    }

    /// Waits until an activity that was taken from the store may run: at once, unless it was interrupted often.
    pub(super) async fn alone_if_it_must(self: &Arc<Node>, task: &ActivityTask) {
        if !self.options.shard.is_lone(task) {
            return;
        }
        let (word, told) = oneshot::channel();
        let waiting = Waiting { key: task.key, event: task.event, wants: Wants::Word(word) };
        lock(&self.lone).waiting.push_back(waiting);
        self.grant_lone();
        // The gate is gone only with the node.
        let _ = told.await;
        self.lone_begun(task.key, task.event);
    }

    /// An activity that may run alone has begun.
    pub(super) fn lone_begun(&self, key: InstanceKey, event: EventId) {
        if let Some((current_key, current_event, has_begun)) = &mut lock(&self.lone).current
            && (*current_key, *current_event) == (key, event)
        {
            *has_begun = true;
        }
    }

    /// An activity has ended; if it was the lone one, the next may run.
    pub(super) fn lone_ended(self: &Arc<Node>, key: InstanceKey, event: EventId) {
        {
            let mut gate = lock(&self.lone);
            if gate.current.is_none_or(|(of, at, _)| (of, at) != (key, event)) {
                return;
            }
            gate.current = None;
        }
        self.grant_lone();
    }

    fn grant_lone(self: &Arc<Node>) {
        if self.is_trying_turns() {
            // A turn that ends the process would count against whoever runs meanwhile.
            if !std::mem::replace(&mut lock(&self.lone).is_patient, true) {
                let node = Arc::downgrade(self);
                self.workers.spawn(async move {
                    tokio::time::sleep(TRYING).await;
                    if let Some(node) = node.upgrade() {
                        lock(&node.lone).is_patient = false;
                        node.grant_lone();
                    }
                });
            }
            return;
        }
        let (Waiting { key, event, wants }, permission) = {
            let mut gate = lock(&self.lone);
            if gate.current.is_some() {
                return;
            }
            let Some(waiting) = gate.waiting.pop_front() else { return };
            gate.current = Some((waiting.key, waiting.event, false));
            gate.permissions += 1;
            (waiting, gate.permissions)
        };
        match wants {
            Wants::Shard(shard) => {
                self.with_shard(shard, |shard, now_ms| shard.handle_lone_granted(now_ms, key, event));
            }
            Wants::Word(word) => {
                if word.send(()).is_err() {
                    return self.lone_ended(key, event);
                }
            }
        }
        let node = Arc::downgrade(self);
        self.workers.spawn(async move {
            tokio::time::sleep(BEGINNING).await;
            if let Some(node) = node.upgrade() {
                node.give_up_lone(permission);
            }
        });
    }

    /// Lets the next one run if the one of a permission has not begun.
    fn give_up_lone(self: &Arc<Node>, permission: u64) {
        {
            let mut gate = lock(&self.lone);
            let is_unused =
                gate.permissions == permission && gate.current.is_some_and(|(_, _, begun)| !begun);
            if !is_unused {
                return;
            }
            gate.current = None;
        }
        self.grant_lone();
    }
}
