//! Writes batches, with every possible outcome.

use std::sync::Arc;

use perennial_core::Decision;
use perennial_core::history::decode_turn;
use perennial_core::lane::{StoreCall, StoreResponse};
use perennial_core::store::{Commit, CommitOutcome, SessionId, Store, StoreError, TurnRow};

use super::{ManualNode, wait_for_store};

impl ManualNode {
    fn in_flight(&self) -> Arc<[Commit]> {
        self.waiting.batch().map(|(_, batch)| batch).unwrap_or_default()
    }

    /// The instances of the batch in flight, in order.
    pub fn batch(&self) -> Vec<String> {
        self.in_flight().iter().map(|commit| self.name_in(commit)).collect()
    }

    /// The batch in flight as text: for each member the instance and the kinds of events of its turn.
    pub fn batch_words(&self) -> Vec<String> {
        let words = |commit: &Commit| {
            let turn = commit.turn.as_ref().and_then(|row| decode_turn(row.number, &row.bytes).ok());
            let events = turn.map(|turn| {
                let kinds: Vec<&str> = turn.events.iter().map(|event| event.kind.name()).collect();
                format!("turn {}: {}", turn.number, kinds.join(", "))
            });
            format!("{} ({})", self.name_in(commit), events.unwrap_or_else(|| "its row".to_owned()))
        };
        self.in_flight().iter().map(words).collect()
    }

    /// Writes the batch in flight. Returns its number of members.
    pub fn commit(&mut self) -> usize {
        if self.waiting.batch().is_none() {
            return 0;
        }
        self.commit_with(|_| ())
    }

    /// Writes the batch in flight, and runs `meanwhile` before the lane gets the answer.
    ///
    /// # Panics
    ///
    /// If no batch is in flight.
    pub fn commit_with(&mut self, meanwhile: impl FnOnce(&mut ManualNode)) -> usize {
        let (session, batch) = self.waiting.batch().expect("a batch is in flight");
        let outcomes = self.write(session, &batch);
        meanwhile(self);
        self.answer_batch(Ok(outcomes));
        batch.len()
    }

    /// Writes the batch in flight except the member of one instance, which gets this outcome.
    ///
    /// # Panics
    ///
    /// If the instance is not in the batch.
    pub fn commit_as(&mut self, id: &str, outcome: CommitOutcome) {
        let (session, batch) = self.waiting.batch().expect("a batch is in flight");
        let is_it = |commit: &Commit| self.name_in(commit) == id;
        assert!(batch.iter().any(is_it), "{id:?} is not in the batch");
        let others: Vec<Commit> = batch.iter().filter(|commit| !is_it(commit)).cloned().collect();
        let fates: Vec<bool> = batch.iter().map(is_it).collect();
        let mut written = self.write(session, &others.into()).into_iter();
        let outcomes = fates.into_iter().map(|singled_out| {
            if singled_out { outcome.clone() } else { written.next().expect("one outcome per member") }
        });
        let outcomes = outcomes.collect();
        self.answer_batch(Ok(outcomes));
    }

    /// Fails the batch in flight as a whole. The caller decides what is written of it. The lane sends it
    /// again after a pause, under another session, or in halves, depending on the error.
    ///
    /// # Panics
    ///
    /// If no batch is in flight.
    pub fn commit_failing(&mut self, error: StoreError) {
        assert!(self.waiting.batch().is_some(), "a batch is in flight");
        self.answer_batch(Err(error));
    }

    /// Answers the batch in flight with these outcomes, whatever was written.
    ///
    /// # Panics
    ///
    /// If no batch is in flight.
    pub fn commit_answering(&mut self, outcomes: Vec<CommitOutcome>) {
        assert!(self.waiting.batch().is_some(), "a batch is in flight");
        self.answer_batch(Ok(outcomes));
    }

    /// Loses the connection while the batch is in flight, before or after it was written. The lane then
    /// replaces its session.
    ///
    /// # Panics
    ///
    /// If no batch is in flight.
    pub fn commit_unknown(&mut self, is_written: bool) {
        let (session, batch) = self.waiting.batch().expect("a batch is in flight");
        if is_written {
            self.write(session, &batch);
        }
        self.commit_failing(StoreError::Unknown("connection lost".to_owned()));
    }

    /// Replaces the session of the batch with an unknown outcome, and writes the same bytes under the new
    /// one.
    ///
    /// # Panics
    ///
    /// If there is no such batch.
    pub fn settle_unknown(&mut self) {
        assert!(self.replace_session(), "a batch has an unknown outcome");
        self.commit();
    }

    /// Writes all batches while the store refuses every batch with this instance in it, until the instance is
    /// alone in a batch and its member is refused. Returns the instances of each batch that was sent to the
    /// store.
    pub fn commit_refusing(&mut self, id: &str, reason: &str) -> Vec<Vec<String>> {
        let mut batches = Vec::new();
        while self.waiting.batch().is_some() {
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

    /// Writes the turn that an instance has in flight as another node would, a millisecond later, with
    /// everything that belongs to it, so that this node's turn is another one with the same number.
    ///
    /// # Panics
    ///
    /// If there is no such turn.
    pub fn write_otherwise(&mut self, id: &str) {
        let (session, batch) = self.waiting.batch().expect("a batch is in flight");
        let member = batch.iter().find(|commit| self.name_in(commit) == id);
        let mut commit = member.expect("it is in the batch").clone();
        let row = commit.turn.as_ref().expect("it has a turn");
        let mut turn = decode_turn(row.number, &row.bytes).expect("a shard writes turns that can be read");
        turn.at_ms += 1;
        let before = (commit.key, row.execution, row.number - 1);
        let previous = self.tables().turns.get(&before).map_or(0, |row| row.checksum);
        commit.turn = Some(TurnRow::seal(commit.key, row.execution, previous, &turn));
        let outcomes = self.write(session, &vec![commit].into());
        assert!(matches!(outcomes[..], [CommitOutcome::Durable { .. }]));
    }

    fn write(&mut self, session: SessionId, batch: &Arc<[Commit]>) -> Vec<CommitOutcome> {
        let outcomes = wait_for_store(|reply| self.store.commit(session, Arc::clone(batch), reply))
            .expect("the memory store accepts every batch");
        for (commit, outcome) in batch.iter().zip(&outcomes) {
            if matches!(outcome, CommitOutcome::Durable { .. }) {
                self.note_written(commit);
            }
        }
        outcomes
    }

    fn note_written(&mut self, commit: &Commit) {
        self.seen.written.push((commit.key, commit.clone()));
        for row in commit.turn.iter().chain(&commit.more_turns) {
            let turn = decode_turn(row.number, &row.bytes).expect("a shard writes turns that can be read");
            for (event, _, decision) in turn.decisions() {
                if matches!(decision, Decision::ActivityScheduled { .. }) {
                    self.seen.schedules.insert((commit.key, row.execution, event));
                }
            }
        }
    }

    /// Checks a batch that the lane submits: its members must have nothing else in progress.
    pub(super) fn note_call(&mut self, call: &StoreCall) {
        let StoreCall::Commit { batch, .. } = call else { return };
        self.seen.committing.clear();
        for commit in batch.iter() {
            let beside = self.seen.committing.insert(commit.key, commit.shard);
            assert!(beside.is_none(), "two concurrent commits of {}", commit.key);
            assert!(!self.seen.turning.contains_key(&commit.key), "a commit of {} during a turn", commit.key);
        }
    }

    fn answer_batch(&mut self, answer: Result<Vec<CommitOutcome>, StoreError>) {
        let call = self.waiting.take_batch().expect("a batch is in flight");
        // A batch that may be sent again is still in flight.
        if !matches!(answer, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))) {
            self.seen.committing.clear();
        }
        self.feed(|lane, now| lane.handle_response(now, call, answer.map(StoreResponse::Committed)));
    }

    fn name_in(&self, commit: &Commit) -> String {
        match &commit.insert {
            Some(row) => row.id.clone(),
            None => self.name(commit.key),
        }
    }
}
