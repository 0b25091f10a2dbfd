//! Batches on their way to the store, and what comes of them.

use std::sync::Arc;

use perennial_core::store::{Commit, CommitOutcome, Conflict, SessionId, Store, StoreError};

use super::store_calls::ask;
use super::{Flaw, Simulation};

impl Simulation {
    /// Submits the next batch, unless one is in flight.
    pub(super) fn submit(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let (Some(session), false) = (it.session, it.is_settling) else {
            return;
        };
        if let Some(batch) = it.committer.take_batch() {
            self.send_batch(node, session, batch, false);
        }
    }

    /// Sends a batch. What is known of its outcome comes back, unless the node has died by then.
    pub(super) fn send_batch(
        &mut self,
        node: usize,
        session: SessionId,
        batch: Arc<[Commit]>,
        is_again: bool,
    ) {
        let delay_ms = self.effect_delay_ms(node);
        let (incarnation, lane) = (self.nodes[node].incarnation, self.nodes[node].lane);
        let label = format!("n{node} a batch of {} reaches the store", batch.len());
        self.later(delay_ms, label, move |this| {
            let answer = this.receive_batch(session, &batch, is_again);
            if this.nodes[node].incarnation != incarnation {
                return;
            }
            let delay_ms = this.call_delay_ms();
            let label = format!("n{node} a batch is answered: {}", describe(&answer));
            this.later_on(node, delay_ms, label, move |this| {
                if this.nodes[node].lane == lane {
                    this.batch_answered(node, &batch, answer);
                }
            });
        });
    }

    /// What the store makes of a batch.
    fn receive_batch(
        &mut self,
        session: SessionId,
        batch: &Arc<[Commit]>,
        is_again: bool,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let reason = || "simulated".to_owned();
        let batch = &match self.flaw {
            Some(Flaw::FreshChildKeys) => self.with_fresh_keys(batch),
            _ => Arc::clone(batch),
        };
        self.witness_attempt(batch);
        let (unavailable, batch_refused, unknown) = (
            self.faults(|faults| faults.unavailable),
            self.faults(|faults| faults.batch_refused),
            self.faults(|faults| faults.unknown),
        );
        if self.chance.percent(unavailable) {
            self.count("commit refused");
            return Err(StoreError::Unavailable(reason()));
        }
        // A store does not refuse for ever what it may have written before.
        if self.chance.percent(batch_refused) && !is_again {
            self.count("batch refused");
            return Err(StoreError::BatchRefused(reason()));
        }
        if !self.chance.percent(unknown) {
            return Ok(self.write(session, batch, is_again));
        }
        match self.chance.below(3) {
            0 => {
                self.count("commit unknown and written");
                self.write(session, batch, is_again);
            }
            1 => self.count("commit unknown and not written"),
            _ => {
                self.count("commit unknown and still under way");
                let (batch, delay_ms) = (Arc::clone(batch), self.chance.between(0, 400));
                self.later(delay_ms, "a late batch reaches the store", move |this| {
                    this.write(session, &batch, is_again);
                });
            }
        }
        Err(StoreError::Unknown(reason()))
    }

    fn write(&mut self, session: SessionId, batch: &Arc<[Commit]>, is_again: bool) -> Vec<CommitOutcome> {
        let before = self.messages_before(batch);
        let outcomes: Vec<CommitOutcome> = match self.flaw {
            Some(Flaw::NoFencing) => {
                let owner =
                    |commit: &Commit| self.witness.owners.get(&commit.shard).copied().unwrap_or(session);
                let write = |commit: &Commit| {
                    let alone: Arc<[Commit]> = vec![commit.clone()].into();
                    let outcomes = ask(|reply| self.store.commit(owner(commit), alone, reply));
                    outcomes.expect("the store is open").remove(0)
                };
                batch.iter().map(write).collect()
            }
            Some(Flaw::NoDedupe) if is_again => {
                batch.iter().map(|commit| self.write_without_dedupe(session, commit)).collect()
            }
            _ => {
                let batch = Arc::clone(batch);
                ask(|reply| self.store.commit(session, batch, reply)).expect("the store is open")
            }
        };
        for ((commit, outcome), before) in batch.iter().zip(&outcomes).zip(before) {
            self.witness_commit(session, commit, outcome, &before);
        }
        outcomes
    }

    /// A node sent messages: it reads its inbox, and others may notice. A hint may be lost, late, or come twice.
    fn hint_sent(&mut self, node: usize) {
        let hint_lost = self.faults(|faults| faults.hint_lost);
        if self.chance.percent(hint_lost) {
            self.count("hint lost");
        } else {
            self.read_inbox(node);
        }
        if self.chance.percent(hint_lost) {
            self.count("hint late or twice");
            let delay_ms = self.chance.between(1, 1_000);
            self.later_on(node, delay_ms, format!("n{node} gets a late hint"), move |this| {
                this.read_inbox(node)
            });
        }
        self.hint();
    }

    fn write_without_dedupe(&self, session: SessionId, commit: &Commit) -> CommitOutcome {
        let is_there = commit.turn.as_ref().is_some_and(|turn| {
            self.store.tables().turns.contains_key(&(commit.key, turn.execution, turn.number))
        });
        if is_there {
            return CommitOutcome::Conflict(Conflict::OtherTurn);
        }
        let alone: Arc<[Commit]> = vec![commit.clone()].into();
        ask(|reply| self.store.commit(session, alone, reply)).expect("the store is open").remove(0)
    }

    fn batch_answered(
        &mut self,
        node: usize,
        batch: &[Commit],
        outcome: Result<Vec<CommitOutcome>, StoreError>,
    ) {
        let lane = self.nodes[node].lane;
        match outcome {
            Ok(outcomes) => {
                self.nodes[node].committer.handle_answered();
                self.submit(node);
                let is_fenced = outcomes.contains(&CommitOutcome::Fenced);
                let sends = |outcome: &CommitOutcome| matches!(outcome, CommitOutcome::Durable { sent } if sent.iter().any(Option::is_some));
                if outcomes.iter().any(sends) {
                    self.hint_sent(node);
                }
                for (commit, mut outcome) in batch.iter().zip(outcomes) {
                    let key = commit.key;
                    if let CommitOutcome::Durable { sent } = &mut outcome
                        && self.forgotten.remove(&key)
                        && let Some(last) = sent.last_mut()
                    {
                        *last = None;
                    }
                    self.with_shard(node, commit.shard, |shard, now_ms| {
                        shard.handle_committed(now_ms, key, outcome);
                    });
                }
                // Members of shards that were given up while the batch was settled are fenced too.
                if is_fenced && !self.nodes[node].holds_claims && self.nodes[node].lane == lane {
                    self.count("session found gone by a commit");
                    self.lose_session(node);
                }
            }
            Err(StoreError::Unavailable(_)) => self.again(node, "commit", move |this| {
                let it = &this.nodes[node];
                if let (true, Some(session), Some(batch)) =
                    (it.lane == lane, it.session, it.committer.in_flight())
                {
                    this.send_batch(node, session, batch, true);
                }
            }),
            Err(StoreError::BatchRefused(reason)) => {
                if let Some(culprit) = self.nodes[node].committer.handle_refused() {
                    self.count("culprit found");
                    let outcome = CommitOutcome::Rejected(reason);
                    self.with_shard(node, culprit.shard, |shard, now_ms| {
                        shard.handle_committed(now_ms, culprit.key, outcome);
                    });
                }
                self.submit(node);
            }
            Err(_) => self.settle(node),
        }
    }
}

fn describe(answer: &Result<Vec<CommitOutcome>, StoreError>) -> String {
    let outcome = |outcome: &CommitOutcome| match outcome {
        CommitOutcome::Durable { .. } => "durable",
        CommitOutcome::Fenced => "fenced",
        CommitOutcome::Conflict(_) => "conflict",
        CommitOutcome::Rejected(_) => "rejected",
    };
    match answer {
        Ok(outcomes) => outcomes.iter().map(outcome).collect::<Vec<_>>().join(", "),
        Err(error) => error.code().to_owned(),
    }
}
