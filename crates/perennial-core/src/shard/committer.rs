//! The Committer: gathers the commits of a lane's shards into batches, one in flight at a time.
//!
//! Whoever brings a commit or an outcome takes the next batch and submits it, so no thread and no timer is needed: a
//! lone commit goes at once, and while a batch is being synced the next one gathers.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::Commit;

/// Commits on their way to the store.
#[derive(Debug)]
pub struct Committer {
    gathered: Vec<Commit>,
    /// Parts of a batch that was refused as a whole, to be tried by themselves.
    parts: VecDeque<Vec<Commit>>,
    in_flight: Option<Arc<[Commit]>>,
    max_batch: usize,
}

impl Committer {
    /// Batches hold at most `max_batch` commits.
    pub fn new(max_batch: usize) -> Committer {
        Committer {
            gathered: Vec::new(),
            parts: VecDeque::new(),
            in_flight: None,
            max_batch: max_batch.max(1),
        }
    }

    /// Adds a commit to the next batch.
    pub fn add(&mut self, commit: Commit) {
        self.gathered.push(commit);
    }

    /// How many commits are gathered and not submitted.
    pub fn queued(&self) -> usize {
        self.gathered.len() + self.parts.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether nothing is gathered and nothing in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.queued() == 0
    }

    /// The batch to submit now, unless one is in flight or nothing has gathered.
    pub fn take_batch(&mut self) -> Option<Arc<[Commit]>> {
        if self.in_flight.is_some() {
            return None;
        }
        let batch = match self.parts.pop_front() {
            Some(part) => part,
            None if self.gathered.is_empty() => return None,
            None => {
                let rest = self.gathered.split_off(self.gathered.len().min(self.max_batch));
                std::mem::replace(&mut self.gathered, rest)
            }
        };
        let batch: Arc<[Commit]> = batch.into();
        self.in_flight = Some(Arc::clone(&batch));
        Some(batch)
    }

    /// The batch in flight, to be submitted again: its outcome is unknown, or the store could not be reached.
    pub fn in_flight(&self) -> Option<Arc<[Commit]>> {
        self.in_flight.clone()
    }

    /// The batch in flight was answered.
    pub fn handle_answered(&mut self) {
        self.in_flight = None;
    }

    /// The batch in flight was refused as a whole for a lasting reason. It is halved until the culprit stands alone,
    /// which is then returned.
    pub fn handle_refused(&mut self) -> Option<Commit> {
        let batch = self.in_flight.take()?;
        if let [culprit] = &*batch {
            return Some(culprit.clone());
        }
        let (first, second) = batch.split_at(batch.len() / 2);
        self.parts.push_front(second.to_vec());
        self.parts.push_front(first.to_vec());
        None
    }

    /// Forgets everything: the lane has lost its shards.
    pub fn clear(&mut self) {
        self.gathered.clear();
        self.parts.clear();
        self.in_flight = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{InstanceKey, ShardId};

    fn commit(number: u64) -> Commit {
        Commit::empty(InstanceKey::new(number, 0), ShardId(0))
    }

    fn keys(batch: &[Commit]) -> Vec<InstanceKey> {
        batch.iter().map(|commit| commit.key).collect()
    }

    #[test]
    fn g6_a_lone_commit_goes_at_once_and_the_next_batch_gathers_meanwhile() {
        let mut committer = Committer::new(100);
        committer.add(commit(1));
        assert_eq!(committer.take_batch().map(|batch| batch.len()), Some(1));
        (2..=4).for_each(|number| committer.add(commit(number)));
        assert!(committer.take_batch().is_none(), "one batch is in flight");
        committer.handle_answered();
        assert_eq!(committer.take_batch().map(|batch| batch.len()), Some(3));
        committer.handle_answered();
        assert!(committer.take_batch().is_none() && committer.is_idle());
    }

    #[test]
    fn g6_batches_are_bounded_and_keep_their_order() {
        let mut committer = Committer::new(2);
        (1..=3).for_each(|number| committer.add(commit(number)));
        assert_eq!(keys(&committer.take_batch().unwrap()), keys(&[commit(1), commit(2)]));
        committer.handle_answered();
        assert_eq!(keys(&committer.take_batch().unwrap()), keys(&[commit(3)]));
    }

    #[test]
    fn g7_a_refused_batch_is_halved_until_the_culprit_stands_alone() {
        let mut committer = Committer::new(100);
        (1..=5).for_each(|number| committer.add(commit(number)));
        let (mut written, mut culprits) = (Vec::new(), Vec::new());
        while let Some(batch) = committer.take_batch() {
            if keys(&batch).contains(&commit(4).key) {
                culprits.extend(committer.handle_refused());
            } else {
                written.extend(keys(&batch));
                committer.handle_answered();
            }
        }
        assert_eq!(keys(&culprits), keys(&[commit(4)]));
        assert_eq!(written, keys(&[commit(1), commit(2), commit(3), commit(5)]));
    }
}
