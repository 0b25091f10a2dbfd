//! Commits of a lane: submitting batches, and passing each outcome to its shard. The
//! [`Committer`](super::committer::Committer) decides which batch is next, and `doubts` finds out whether a commit in
//! doubt was written.

use std::time::Duration;

use crate::log;
use crate::shard::Tenure;
use crate::store::{Commit, CommitOutcome, ShardSet};

use super::call::StoreCall;
use super::clock::Moment;
use super::doubts::{Evidence, outcome, unread_outcome};
use super::machine::{Lane, SESSION_PAUSE};
use super::purpose::Purpose;

/// A slower commit is logged. Even a spinning disk syncs in a fraction of this.
const SLOW_COMMIT: Duration = Duration::from_secs(1);

impl Lane {
    /// Logs a batch whose reply took long: everything that waits for the store waits at least as long.
    pub(super) fn note_slow_commit(&self, took: Duration) {
        if took >= SLOW_COMMIT {
            let (commits, queued) = (self.committer.in_flight_len().unwrap_or(0), self.committer.queued());
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(target: log::STORE, took_ms, commits, queued, "commit slow");
        }
    }

    /// Submits the next batch, unless one is in flight or the lane is suspended.
    pub(super) fn submit(&mut self, now: Moment) {
        if self.lease.holds(now)
            && let Some(batch) = self.committer.take_batch(&self.tenures)
        {
            self.send(now, Purpose::Commit, StoreCall::Commit { session: self.lease.session(), batch });
        }
    }

    /// Submits the batch in flight once more, when the lane may act.
    pub(super) fn submit_again(&mut self, now: Moment) {
        if !self.lease.holds(now) {
            return self.calls.at(now + SESSION_PAUSE, Purpose::Commit);
        }
        // It may have been planned for a batch that was settled since. Only one batch is in flight at a time.
        let session = self.lease.session();
        if self.calls.is_open(session, |purpose| matches!(purpose, Purpose::Commit)) {
            return;
        }
        if let Some(batch) = self.committer.take_again(&self.tenures) {
            self.send(now, Purpose::Commit, StoreCall::Commit { session, batch });
        }
    }

    pub(super) fn committed(&mut self, now: Moment, outcomes: Vec<CommitOutcome>) {
        if self.committer.in_flight_len() != Some(outcomes.len()) {
            return self.settle(now, "the store returned a different number of outcomes than commits");
        }
        let Some(batch) = self.committer.handle_finished() else { return };
        // The next batch is on its way while the effects of this one are released.
        self.submit(now);
        let (mut fenced, mut addressed) = (ShardSet::EMPTY, ShardSet::EMPTY);
        for (member, outcome) in batch.members().zip(outcomes) {
            let (tenure, commit) = (member.tenure, member.commit);
            match outcome {
                CommitOutcome::Fenced if self.tenures.has(commit.shard, tenure) => {
                    fenced.insert(commit.shard)
                }
                CommitOutcome::Fenced => {}
                CommitOutcome::Rejected(reason) if member.was_in_doubt => {
                    self.read_back(now, tenure, commit.clone(), reason);
                }
                outcome => {
                    member.addressed().for_each(|shard| addressed.insert(shard));
                    self.bring_outcome(now, tenure, commit, outcome);
                }
            }
        }
        if !fenced.is_empty() {
            self.lose_some(now, fenced);
            if !self.is_moving() {
                self.issue(now, Purpose::Confirm);
            }
        }
        if self.reads_by_itself() {
            self.passes.handle_hint();
            self.passes.inbox.want(&addressed);
        }
    }

    /// The planted flaw that a commit with an unknown outcome is taken for durable.
    pub(super) fn take_for_done(&mut self, now: Moment) {
        let commits = self.committer.in_flight_len().unwrap_or_default();
        self.committed(now, vec![CommitOutcome::Durable { sent: Vec::new() }; commits]);
    }

    /// Passes the outcome of a commit to its shard.
    pub(super) fn bring_outcome(
        &mut self,
        now: Moment,
        tenure: Tenure,
        commit: &Commit,
        outcome: CommitOutcome,
    ) {
        let (shard, key) = (commit.shard, commit.key);
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_committed(now_ms, key, outcome));
    }

    pub(super) fn batch_refused(&mut self, now: Moment, reason: String) {
        if let Some(culprit) = self.committer.handle_refused() {
            for member in culprit.members() {
                match member.was_in_doubt {
                    true => self.read_back(now, member.tenure, member.commit.clone(), reason.clone()),
                    false => {
                        let outcome = CommitOutcome::Rejected(reason.clone());
                        self.bring_outcome(now, member.tenure, member.commit, outcome);
                    }
                }
            }
        }
        self.submit(now);
    }

    /// Handles a commit in doubt that is refused now but may have been written before: the stored rows decide.
    fn read_back(&mut self, now: Moment, tenure: Tenure, commit: Commit, reason: String) {
        match unread_outcome(&commit, &reason) {
            Some(outcome) => self.bring_outcome(now, tenure, &commit, outcome),
            None => {
                let (commit, refused) = (Box::new(commit), Some(reason));
                self.issue(now, Purpose::ReadBack { tenure, commit, refused });
            }
        }
    }

    pub(super) fn was_read_back(
        &mut self,
        now: Moment,
        tenure: Tenure,
        commit: Commit,
        refused: Option<String>,
        evidence: Evidence,
    ) {
        match outcome(&commit, refused, evidence) {
            Some(outcome) => self.bring_outcome(now, tenure, &commit, outcome),
            None => self.committer.add(tenure, Box::new(commit)),
        }
    }
}
