//! Writing batches, and everything that can come of one.

use std::sync::Arc;

use perennial_core::history::{decode_turn, encode_turn};
use perennial_core::store::{Commit, CommitOutcome, SessionId, Store, StoreError};
use perennial_core::{Decision, SHARDS};

use super::{Desk, ask_store};

impl Desk {
    /// The instances of the batch that is in flight, in order.
    pub fn batch(&self) -> Vec<String> {
        let batch = self.committer.in_flight();
        batch.iter().flat_map(|batch| batch.iter()).map(|commit| self.name_in(commit)).collect()
    }

    /// The batch that is in flight, each member in words: the instance and the kinds of the events of its turn.
    pub fn batch_words(&self) -> Vec<String> {
        let batch = self.committer.in_flight();
        let words = |commit: &Commit| {
            let turn = commit.turn.as_ref().and_then(|row| decode_turn(row.number, &row.bytes).ok());
            let events = turn.map(|turn| {
                let kinds: Vec<&str> = turn.events.iter().map(|event| event.kind.name()).collect();
                format!("turn {}: {}", turn.number, kinds.join(", "))
            });
            format!("{} ({})", self.name_in(commit), events.unwrap_or_else(|| "its row".to_owned()))
        };
        batch.iter().flat_map(|batch| batch.iter()).map(words).collect()
    }

    /// Writes the batch that is in flight. Returns how many members it had.
    pub fn commit(&mut self) -> usize {
        let Some(batch) = self.committer.in_flight() else { return 0 };
        let outcomes = self.write(&batch).expect("the store in memory takes every batch");
        self.answer_batch(&batch, outcomes)
    }

    /// Writes the batch that is in flight, and does something else before the shards hear of it.
    pub fn commit_with(&mut self, meanwhile: impl FnOnce(&mut Desk)) -> usize {
        let batch = self.committer.in_flight().expect("a batch is in flight");
        let outcomes = self.write(&batch).expect("the store in memory takes every batch");
        meanwhile(self);
        self.answer_batch(&batch, outcomes)
    }

    /// Answers the batch in flight, of which one instance's member is not written and fares like this.
    ///
    /// # Panics
    ///
    /// If there is no such member.
    pub fn commit_as(&mut self, id: &str, outcome: CommitOutcome) {
        let batch = self.committer.in_flight().expect("a batch is in flight");
        let is_it = |commit: &Commit| self.name_in(commit) == id;
        assert!(batch.iter().any(is_it), "{id:?} is not in the batch");
        let others: Vec<Commit> = batch.iter().filter(|commit| !is_it(commit)).cloned().collect();
        let fates: Vec<bool> = batch.iter().map(is_it).collect();
        let mut written = self.write(&others.into()).expect("the store is open").into_iter();
        let outcomes = fates.into_iter().map(|singled_out| {
            if singled_out { outcome.clone() } else { written.next().expect("one outcome per member") }
        });
        let outcomes = outcomes.collect();
        self.answer_batch(&batch, outcomes);
    }

    /// The store fails the batch in flight as a whole. What is written of it is the caller's to say; it stays in flight,
    /// or in halves if it was refused.
    ///
    /// # Panics
    ///
    /// If the error would stop the node.
    pub fn commit_failing(&mut self, error: StoreError) {
        assert!(self.committer.in_flight().is_some(), "a batch is in flight");
        match error {
            StoreError::Unavailable(_) | StoreError::Unknown(_) => {}
            StoreError::BatchRefused(reason) => {
                let culprit = self.committer.handle_refused();
                self.committer.take_batch();
                if let Some(culprit) = culprit {
                    self.bring_outcome(&culprit, CommitOutcome::Rejected(reason));
                }
            }
            error => panic!("the node stops: {error}"),
        }
    }

    /// The connection is lost while the batch is in flight, after it was written or before.
    pub fn commit_unknown(&mut self, is_written: bool) {
        let batch = self.committer.in_flight().expect("a batch is in flight");
        if is_written {
            self.write(&batch).expect("the store is open");
        }
        self.commit_failing(StoreError::Unknown("connection lost".to_owned()));
    }

    /// Ends the session that the batch was sent under, and sends the same bytes under a new one.
    pub fn settle_unknown(&mut self) {
        self.renew_session();
        self.commit();
    }

    /// Writes what is in flight and gathered, while the store refuses every batch with this instance in it, until the
    /// instance stands alone and was told. Returns the instances of each batch that the store was sent.
    pub fn commit_refusing(&mut self, id: &str, reason: &str) -> Vec<Vec<String>> {
        let mut batches = Vec::new();
        while self.committer.in_flight().is_some() {
            let batch = self.batch();
            batches.push(batch.clone());
            if !batch.iter().any(|member| member == id) {
                self.commit();
                continue;
            }
            self.commit_failing(StoreError::BatchRefused(reason.to_owned()));
            if batch == [id] {
                break;
            }
        }
        batches
    }

    /// Another node takes every shard: what is committed from now on is fenced.
    pub fn fence(&mut self) -> SessionId {
        ask_store(|reply| self.store.end_session(self.session, reply)).expect("the store is open");
        let rival =
            ask_store(|reply| self.store.open_session("rival", 1_000_000, reply)).expect("the store is open");
        let claimed = ask_store(|reply| self.store.claim_shards(rival.id, SHARDS, reply));
        assert_eq!(claimed.map(|shards| shards.len()), Ok(SHARDS));
        rival.id
    }

    /// The turn that an instance has in flight is written by somebody else, a millisecond later, with all that goes with
    /// it; so that this node's own is another turn of the same number.
    pub fn write_otherwise(&mut self, id: &str) {
        let batch = self.committer.in_flight().expect("a batch is in flight");
        let mut commit =
            batch.iter().find(|commit| self.name_in(commit) == id).expect("it is in the batch").clone();
        let row = commit.turn.as_mut().expect("it has a turn");
        let mut turn = decode_turn(row.number, &row.bytes).expect("a shard writes turns that can be read");
        turn.at_ms += 1;
        row.bytes = encode_turn(&turn).into();
        let outcomes = self.write(&vec![commit].into());
        assert!(matches!(outcomes.as_deref(), Ok([CommitOutcome::Durable { .. }])));
    }

    fn write(&mut self, batch: &Arc<[Commit]>) -> Result<Vec<CommitOutcome>, StoreError> {
        let outcomes = ask_store(|reply| self.store.commit(self.session, Arc::clone(batch), reply))?;
        for (commit, outcome) in batch.iter().zip(&outcomes) {
            if matches!(outcome, CommitOutcome::Durable { .. }) {
                self.note_written(commit);
            }
        }
        Ok(outcomes)
    }

    fn note_written(&mut self, commit: &Commit) {
        self.seen.written.push((commit.key, commit.clone()));
        let Some(row) = &commit.turn else { return };
        let turn = decode_turn(row.number, &row.bytes).expect("a shard writes turns that can be read");
        for (event, _, decision) in turn.decisions() {
            if matches!(decision, Decision::ActivityScheduled { .. }) {
                self.seen.schedules.insert((commit.key, row.execution, event));
            }
        }
    }

    fn answer_batch(&mut self, batch: &[Commit], outcomes: Vec<CommitOutcome>) -> usize {
        self.committer.handle_answered();
        self.committer.take_batch();
        for (commit, outcome) in batch.iter().zip(outcomes) {
            self.bring_outcome(commit, outcome);
        }
        batch.len()
    }

    fn bring_outcome(&mut self, commit: &Commit, outcome: CommitOutcome) {
        self.seen.committing.remove(&commit.key);
        self.is_hinted |= !commit.send.is_empty() && matches!(outcome, CommitOutcome::Durable { .. });
        self.with_shard(commit.shard, |shard, now_ms| shard.handle_committed(now_ms, commit.key, outcome));
    }

    fn name_in(&self, commit: &Commit) -> String {
        match &commit.insert {
            Some(row) => row.id.clone(),
            None => self.name(commit.key),
        }
    }
}
