//! The Committer: collects the commits of a lane's shards into batches, one in flight at a time.
//!
//! The next batch is taken and submitted when a commit or an outcome arrives, so no thread and no timer is needed: a
//! single commit is submitted immediately, and while a batch is being synced the next one collects. Each batch knows
//! the tenures of its shards, so that outcomes for a shard that was lost and claimed again are not attributed to the
//! later tenure.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::Tenure;
use crate::store::{Commit, Outgoing};

use super::doubts::is_written_once;

/// Commits on their way to the store.
#[derive(Debug)]
pub(super) struct Committer {
    gathered: VecDeque<Member>,
    /// Parts of a batch that was refused as a whole, to be submitted separately.
    parts: VecDeque<Vec<Member>>,
    in_flight: Option<InFlight>,
    /// The instances with a commit that was submitted and whose outcome is not known.
    in_doubt: BTreeSet<InstanceKey>,
    max_rows: usize,
    max_bytes: u64,
}

/// A commit, and the tenure that it belongs to.
#[derive(Clone, Debug)]
struct Member {
    tenure: Tenure,
    commit: Box<Commit>,
}

#[derive(Debug)]
struct InFlight {
    batch: Arc<[Commit]>,
    tenures: Vec<Tenure>,
}

/// A member of a completed batch.
pub(super) struct FinishedCommit<'a> {
    pub(super) tenure: Tenure,
    pub(super) commit: &'a Commit,
    /// Whether it had been submitted before without its outcome becoming known.
    pub(super) was_in_doubt: bool,
}

impl FinishedCommit<'_> {
    /// The shards whose inbox has new messages once it is durable.
    pub(super) fn addressed(&self) -> impl Iterator<Item = ShardId> {
        let shards = self.commit.send.iter().map(address);
        // The sender may also get a message, with the report on what it sent.
        let own = self.commit.send.iter().any(Outgoing::may_come_back).then_some(self.commit.shard);
        shards.chain(own)
    }
}

/// The shard that receives a message.
fn address(message: &Outgoing) -> ShardId {
    match message {
        Outgoing::ToKey { shard, .. } => *shard,
        Outgoing::ToId { id, .. } => ShardId::of(id),
        Outgoing::Start { row, .. } => row.shard,
    }
}

/// A completed batch.
pub(super) struct FinishedBatch {
    batch: Arc<[Commit]>,
    tenures: Vec<Tenure>,
    in_doubt: BTreeSet<InstanceKey>,
}

impl FinishedBatch {
    pub(super) fn members(&self) -> impl Iterator<Item = FinishedCommit<'_>> {
        self.batch.iter().zip(&self.tenures).map(|(commit, tenure)| FinishedCommit {
            tenure: *tenure,
            commit,
            was_in_doubt: self.in_doubt.contains(&commit.key),
        })
    }
}

/// Looks up the epoch of a shard, if the tenure still holds it.
pub(super) trait Epochs {
    fn epoch(&self, shard: ShardId, tenure: Tenure) -> Option<u64>;
}

impl Committer {
    /// Batches contain at most `max_rows` commits and approximately `max_bytes`.
    pub(super) fn new(max_rows: usize, max_bytes: u64) -> Committer {
        Committer {
            gathered: VecDeque::new(),
            parts: VecDeque::new(),
            in_flight: None,
            in_doubt: BTreeSet::new(),
            max_rows: max_rows.max(1),
            max_bytes,
        }
    }

    /// Adds a commit to the next batch.
    pub(super) fn add(&mut self, tenure: Tenure, commit: Box<Commit>) {
        self.gathered.push_back(Member { tenure, commit });
    }

    /// How many commits have not been submitted.
    pub(super) fn queued(&self) -> usize {
        self.gathered.len() + self.parts.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether there are no commits, neither collected nor in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.queued() == 0
    }

    /// The number of commits in the batch in flight, if there is one.
    pub(super) fn in_flight_len(&self) -> Option<usize> {
        self.in_flight.as_ref().map(|in_flight| in_flight.batch.len())
    }

    /// Whether a commit of a tenure is collected or in flight.
    pub(super) fn concerns(&self, tenure: Tenure) -> bool {
        let waits = self.gathered.iter().chain(self.parts.iter().flatten());
        let flies = self.in_flight.iter().flat_map(|batch| &batch.tenures);
        waits.map(|member| &member.tenure).chain(flies).any(|other| *other == tenure)
    }

    /// The batch to submit now, unless one is in flight or there are no commits. Members get the epoch of their shard;
    /// those of tenures that have ended are dropped.
    pub(super) fn take_batch(&mut self, epochs: &impl Epochs) -> Option<Arc<[Commit]>> {
        if self.in_flight.is_some() {
            return None;
        }
        let mut batch = Vec::new();
        while batch.is_empty() {
            let members = self.next_members()?;
            batch = members
                .into_iter()
                .filter_map(|mut member| {
                    member.commit.epoch = epochs.epoch(member.commit.shard, member.tenure)?;
                    Some(member)
                })
                .collect();
        }
        Some(self.launch(batch))
    }

    fn next_members(&mut self) -> Option<Vec<Member>> {
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }
        let (mut members, mut bytes) = (Vec::with_capacity(self.gathered.len().min(self.max_rows)), 0);
        while members.len() < self.max_rows
            && let Some(next) = self.gathered.front()
        {
            bytes += next.commit.weight();
            if bytes > self.max_bytes && !members.is_empty() {
                break;
            }
            members.extend(self.gathered.pop_front());
        }
        (!members.is_empty()).then_some(members)
    }

    fn launch(&mut self, members: Vec<Member>) -> Arc<[Commit]> {
        let tenures = members.iter().map(|member| member.tenure).collect();
        let batch: Arc<[Commit]> = members.into_iter().map(|member| *member.commit).collect();
        self.in_flight = Some(InFlight { batch: Arc::clone(&batch), tenures });
        batch
    }

    /// The batch in flight, to be submitted again with the current epochs: its outcome is unknown, or the store could
    /// not be reached. Otherwise the content is the same.
    pub(super) fn take_again(&mut self, epochs: &impl Epochs) -> Option<Arc<[Commit]>> {
        let InFlight { batch, tenures } = self.in_flight.take()?;
        let mut members = Vec::new();
        for (commit, tenure) in batch.iter().zip(tenures) {
            match epochs.epoch(commit.shard, tenure) {
                Some(epoch) => {
                    let mut commit = Box::new(Commit { epoch, ..commit.clone() });
                    if flaws::is(Flaw::FreshChildKeys) {
                        give_fresh_keys(&mut commit);
                    }
                    members.push(Member { tenure, commit });
                }
                None => {
                    self.in_doubt.remove(&commit.key);
                }
            }
        }
        if members.is_empty() { self.take_batch(epochs) } else { Some(self.launch(members)) }
    }

    /// Notes that it is not known whether the batch in flight was written.
    pub(super) fn handle_unknown(&mut self) {
        let batch = self.in_flight.iter().flat_map(|in_flight| in_flight.batch.iter());
        self.in_doubt.extend(batch.map(|commit| commit.key));
    }

    /// Removes those commits from the batch in flight that may have been written and must not be written twice.
    pub(super) fn take_doubtful(&mut self) -> Vec<(Tenure, Commit)> {
        let Some(InFlight { batch, tenures }) = &mut self.in_flight else { return Vec::new() };
        if !batch.iter().any(is_written_once) {
            return Vec::new();
        }
        let members = batch.iter().cloned().zip(std::mem::take(tenures));
        let (once, rest): (Vec<_>, Vec<_>) = members.partition(|(commit, _)| is_written_once(commit));
        *tenures = rest.iter().map(|(_, tenure)| *tenure).collect();
        *batch = rest.into_iter().map(|(commit, _)| commit).collect();
        for (commit, _) in &once {
            self.in_doubt.remove(&commit.key);
        }
        once.into_iter().map(|(commit, tenure)| (tenure, commit)).collect()
    }

    /// Completes the batch in flight.
    pub(super) fn handle_finished(&mut self) -> Option<FinishedBatch> {
        let InFlight { batch, tenures } = self.in_flight.take()?;
        let in_doubt = match self.in_doubt.is_empty() {
            true => BTreeSet::new(),
            false => batch.iter().map(|commit| commit.key).filter(|key| self.in_doubt.remove(key)).collect(),
        };
        Some(FinishedBatch { batch, tenures, in_doubt })
    }

    /// Handles a batch in flight that can never be written as a whole. It is halved until the culprit is alone in its
    /// batch, which is then returned.
    pub(super) fn handle_refused(&mut self) -> Option<FinishedBatch> {
        if self.in_flight.as_ref().is_some_and(|in_flight| in_flight.batch.len() == 1) {
            return self.handle_finished();
        }
        let InFlight { batch, tenures } = self.in_flight.take()?;
        let members: Vec<Member> = batch
            .iter()
            .zip(tenures)
            .map(|(commit, tenure)| Member { tenure, commit: Box::new(commit.clone()) })
            .collect();
        let mut first = members;
        let second = first.split_off(first.len() / 2);
        self.parts.push_front(second);
        self.parts.push_front(first);
        None
    }

    /// Forgets everything, including the batch in flight, because the lane has lost its session.
    pub(super) fn clear(&mut self) {
        self.gathered.clear();
        self.parts.clear();
        self.in_flight = None;
        mem::take(&mut self.in_doubt);
    }
}

/// A planted flaw: the children of a commit get other keys.
fn give_fresh_keys(commit: &mut Commit) {
    for message in &mut commit.send {
        if let Outgoing::Start { row, .. } = message {
            row.key = InstanceKey::new(row.created_ms, u128::from_be_bytes(*row.key.as_bytes()) + 1);
            **row = row.clone().sealed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AllHeld;

    impl Epochs for AllHeld {
        fn epoch(&self, _: ShardId, tenure: Tenure) -> Option<u64> {
            (tenure.0 < 100).then_some(7)
        }
    }

    fn commit(number: u128) -> Commit {
        Commit::empty(InstanceKey::new(1, number), ShardId(0))
    }

    fn committer(max_rows: usize, numbers: impl IntoIterator<Item = u128>) -> Committer {
        let mut committer = Committer::new(max_rows, u64::MAX);
        numbers.into_iter().for_each(|number| committer.add(Tenure(1), Box::new(commit(number))));
        committer
    }

    fn keys(batch: &[Commit]) -> Vec<InstanceKey> {
        batch.iter().map(|commit| commit.key).collect()
    }

    fn expected(numbers: &[u128]) -> Vec<InstanceKey> {
        numbers.iter().map(|number| commit(*number).key).collect()
    }

    #[test]
    fn g6_a_lone_commit_goes_at_once_and_the_next_batch_gathers_meanwhile() {
        let mut committer = committer(100, [1]);
        assert_eq!(committer.take_batch(&AllHeld).map(|batch| batch.len()), Some(1));
        (2..=4).for_each(|number| committer.add(Tenure(1), Box::new(commit(number))));
        assert!(committer.take_batch(&AllHeld).is_none(), "one batch is in flight");
        committer.handle_finished();
        assert_eq!(committer.take_batch(&AllHeld).map(|batch| batch.len()), Some(3));
        committer.handle_finished();
        assert!(committer.take_batch(&AllHeld).is_none() && committer.is_idle());
    }

    #[test]
    fn g6_batches_are_bounded_in_rows_and_bytes_and_keep_their_order() {
        let mut committer = committer(2, 1..=3);
        assert_eq!(keys(&committer.take_batch(&AllHeld).unwrap()), expected(&[1, 2]));
        committer.handle_finished();
        assert_eq!(keys(&committer.take_batch(&AllHeld).unwrap()), expected(&[3]));
        let mut narrow = Committer::new(100, 1);
        let heavy = |number| {
            let consumed = vec![1; 50];
            Commit { consumed, ..commit(number) }
        };
        (1..=2).for_each(|number| narrow.add(Tenure(1), Box::new(heavy(number))));
        assert_eq!(keys(&narrow.take_batch(&AllHeld).unwrap()), expected(&[1]), "at least one goes");
    }

    #[test]
    fn g7_a_refused_batch_is_halved_until_the_culprit_stands_alone() {
        let mut committer = committer(100, 1..=5);
        let (mut written, mut culprits) = (Vec::new(), Vec::new());
        while let Some(batch) = committer.take_batch(&AllHeld) {
            if keys(&batch).contains(&commit(4).key) {
                let culprit = committer.handle_refused();
                culprits.extend(culprit.iter().flat_map(FinishedBatch::members).map(|it| it.commit.key));
            } else {
                written.extend(keys(&batch));
                committer.handle_finished();
            }
        }
        assert_eq!(culprits, expected(&[4]));
        assert_eq!(written, expected(&[1, 2, 3, 5]));
    }

    #[test]
    fn n10_commits_carry_the_epoch_and_those_of_an_ended_tenure_are_left_out() {
        let mut committer = committer(100, [1]);
        committer.add(Tenure(100), Box::new(commit(2)));
        let batch = committer.take_batch(&AllHeld).unwrap();
        assert_eq!((keys(&batch), batch[0].epoch), (expected(&[1]), 7));
        committer.handle_unknown();
        let again = committer.take_again(&AllHeld).unwrap();
        assert_eq!(keys(&again), expected(&[1]));
        let answered = committer.handle_finished().unwrap();
        assert!(answered.members().all(|member| member.was_in_doubt));
    }
}
