//! Batches on their way to the store: one in flight at a time, and what comes of each.
//!
//! Whoever brings a commit or an outcome submits the next batch; the effects of a durable one are let go while the next
//! is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::Committer;
use perennial_core::store::{Commit, CommitOutcome, SessionId, StoreError};
use perennial_core::{InstanceKey, ShardId};

use super::node::{Node, lock};

/// The longest pause between two tries to reach the store.
const MAX_STORE_PAUSE: Duration = Duration::from_secs(5);

/// The commits of this node and the session they are made under.
pub(super) struct Lane {
    pub(super) committer: Committer,
    pub(super) session: SessionId,
    attempts: u32,
    /// The batch in flight has to be sent again.
    pub(super) resends: bool,
    /// The instances whose commit was sent without its outcome becoming known, and has none yet.
    pub(super) in_doubt: BTreeSet<InstanceKey>,
}

impl Lane {
    pub(super) fn new(max_batch: usize, session: SessionId) -> Lane {
        Lane {
            committer: Committer::new(max_batch),
            session,
            attempts: 0,
            resends: false,
            in_doubt: BTreeSet::new(),
        }
    }

    /// The members of a batch that were in doubt until now.
    fn take_in_doubt(&mut self, batch: &[Commit]) -> BTreeSet<InstanceKey> {
        if self.in_doubt.is_empty() {
            return BTreeSet::new();
        }
        batch.iter().map(|commit| commit.key).filter(|key| self.in_doubt.remove(key)).collect()
    }
}

impl Node {
    pub(super) fn gather(self: &Arc<Node>, commits: Vec<Commit>) {
        let mut lane = lock(&self.lane);
        commits.into_iter().for_each(|commit| lane.committer.add(commit));
        drop(lane);
        self.submit();
    }

    /// Submits the next batch, unless one is in flight or the lease has run out.
    pub(super) fn submit(self: &Arc<Node>) {
        if self.has_failed() || !self.lease_keeper.holds_or_hurries() {
            return;
        }
        let (session, batch) = {
            let mut lane = lock(&self.lane);
            let Some(batch) = lane.committer.take_batch() else {
                return;
            };
            (lane.session, batch)
        };
        self.send_batch(session, batch);
    }

    pub(super) fn send_batch(self: &Arc<Node>, session: SessionId, batch: Arc<[Commit]>) {
        let node = Arc::clone(self);
        let members = Arc::clone(&batch);
        self.store.commit(session, batch, Box::new(move |outcome| node.batch_answered(&members, outcome)));
    }

    /// Sends the batch in flight once more if it has to be, or else the next one. Nothing is sent past the deadline of
    /// the lease; the next renewal comes here again.
    pub(super) fn go_on_committing(self: &Arc<Node>) {
        if self.has_failed() || !self.lease_keeper.holds_or_hurries() {
            return;
        }
        let again = {
            let mut lane = lock(&self.lane);
            let resends = std::mem::take(&mut lane.resends);
            if resends { lane.committer.in_flight().map(|batch| (lane.session, batch)) } else { None }
        };
        match again {
            Some((session, batch)) => self.send_batch(session, batch),
            None => self.submit(),
        }
    }

    pub(super) fn batch_answered(
        self: &Arc<Node>,
        batch: &[Commit],
        outcome: Result<Vec<CommitOutcome>, StoreError>,
    ) {
        match outcome {
            Ok(outcomes) => {
                let in_doubt: BTreeSet<InstanceKey> = {
                    let mut lane = lock(&self.lane);
                    lane.committer.handle_answered();
                    lane.attempts = 0;
                    lane.take_in_doubt(batch)
                };
                // The next batch is on its way while this one's effects are let go.
                self.submit();
                let fenced = outcomes.contains(&CommitOutcome::Fenced);
                let has_sent = batch.iter().any(|commit| !commit.send.is_empty());
                let mut outputs = Vec::new();
                for (commit, outcome) in batch.iter().zip(outcomes) {
                    let key = commit.key;
                    if let CommitOutcome::Rejected(reason) = &outcome
                        && in_doubt.contains(&key)
                    {
                        self.read_back(commit.clone(), reason.clone());
                        continue;
                    }
                    self.feed(
                        commit.shard,
                        |shard, now_ms| shard.handle_committed(now_ms, key, outcome),
                        &mut outputs,
                    );
                }
                self.carry_out(outputs);
                if has_sent {
                    self.read_inbox();
                }
                if fenced {
                    self.fail("another node has taken the store over".to_owned());
                }
                self.changed.notify_waiters();
            }
            Err(error) if error.is_retryable() => self.later(|node| {
                lock(&node.lane).resends = true;
                node.go_on_committing();
            }),
            Err(StoreError::Unknown(reason)) => self.settle_unknown(reason),
            Err(StoreError::BatchRefused(reason)) => {
                let (culprit, in_doubt) = {
                    let mut lane = lock(&self.lane);
                    let culprit = lane.committer.handle_refused();
                    let in_doubt = lane.take_in_doubt(culprit.as_slice());
                    (culprit, !in_doubt.is_empty())
                };
                match culprit {
                    Some(culprit) if in_doubt => self.read_back(culprit, reason),
                    Some(culprit) => {
                        self.committed(culprit.shard, culprit.key, CommitOutcome::Rejected(reason));
                    }
                    None => {}
                }
                self.submit();
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Brings a commit's outcome to its shard.
    pub(super) fn committed(self: &Arc<Node>, shard: ShardId, key: InstanceKey, outcome: CommitOutcome) {
        self.with_shard(shard, |shard, now_ms| shard.handle_committed(now_ms, key, outcome));
    }

    pub(super) fn session(&self) -> SessionId {
        lock(&self.lane).session
    }

    /// Tries something again after a pause that grows while the store cannot be reached.
    pub(super) fn later(self: &Arc<Node>, again: impl FnOnce(&Arc<Node>) + Send + 'static) {
        let attempts = {
            let mut lane = lock(&self.lane);
            lane.attempts = (lane.attempts + 1).min(20);
            lane.attempts
        };
        let pause = Duration::from_millis(10 << attempts.min(10)).min(MAX_STORE_PAUSE);
        let node = Arc::clone(self);
        self.workers.spawn(async move {
            tokio::time::sleep(pause).await;
            if !node.has_failed() {
                again(&node);
            }
        });
    }
}
