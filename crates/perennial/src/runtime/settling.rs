//! Settling commits whose outcome is not known.
//!
//! The session they were sent under is ended, which waits for them or beats them; then the same bytes are sent under a
//! new one. A store that refuses them then has not said that it refused them before: what it holds is read back.

use std::sync::Arc;

use perennial_core::store::{Commit, CommitOutcome, Conflict, InstanceRow, Reply, StoreError};

use super::node::{Node, OpenedSession, lock, open_session};

impl Node {
    /// Whether the batch in flight was written is not known: end the session it was sent under, which waits for it or
    /// beats it, and send the same bytes under a new one. What is there already stays as it is.
    pub(super) fn settle_unknown(self: &Arc<Node>, reason: String) {
        tracing::warn!(%reason, "the outcome of a commit is not known; settling it under a new session");
        // Without a session nothing starts and no answer leaves.
        self.lease_keeper.handle_ended();
        let old = {
            let mut lane = lock(&self.lane);
            let batch = lane.committer.in_flight();
            lane.in_doubt.extend(batch.iter().flat_map(|batch| batch.iter()).map(|commit| commit.key));
            lane.session
        };
        let node = Arc::clone(self);
        let retry = move |error: StoreError, node: Arc<Node>, reason: String| {
            if matches!(error, StoreError::Failed(_) | StoreError::Closed) {
                node.fail(error.to_string());
            } else {
                node.later(move |node| node.settle_unknown(reason));
            }
        };
        self.store.end_session(
            old,
            Box::new(move |ended| {
                if let Err(error) = ended {
                    return retry(error, node, reason);
                }
                let reopened = Arc::clone(&node);
                node.open_session(Box::new(move |session| match session {
                    Err(error) => retry(error, reopened, reason),
                    Ok(opened) => {
                        let session = opened.session;
                        {
                            let mut lane = lock(&reopened.lane);
                            lane.session = session.id;
                            lane.resends = true;
                        }
                        reopened.leased(session.id, opened.asked, session.lease);
                        if reopened.is_caretaker {
                            return;
                        }
                        // Without a session these found nothing.
                        reopened.read_inbox();
                        reopened.read_asks();
                        reopened.read_ahead();
                    }
                }));
            }),
        );
    }

    fn open_session(self: &Arc<Node>, reply: Reply<OpenedSession>) {
        open_session(&self.store, &self.options, &*self.turn_clock.local, reply);
    }

    /// A commit that was in doubt is refused now; it may have been written before. What is stored decides.
    pub(super) fn read_back(self: &Arc<Node>, commit: Commit, reason: String) {
        let (node, store) = (Arc::clone(self), &self.store);
        match (&commit.turn, &commit.insert) {
            (Some(turn), _) => {
                let (key, execution, before) = (commit.key, turn.execution, turn.number.saturating_sub(1));
                let bytes = Arc::clone(&turn.bytes);
                let judge = move |stored: &Vec<Arc<[u8]>>| stored.first().map(|stored| *stored == bytes);
                let reply: Reply<Vec<Arc<[u8]>>> = Box::new(move |stored| {
                    node.was_read_back(commit, reason, stored, |commit, stored| match judge(&stored) {
                        Some(true) => Some(CommitOutcome::Durable { sent: vec![None; commit.send.len()] }),
                        Some(false) => Some(CommitOutcome::Conflict(Conflict::OtherTurn)),
                        None => None,
                    });
                });
                store.read_turns(key, execution, before, 1, reply);
            }
            (None, Some(row)) => {
                let id = row.id.clone();
                let reply: Reply<Option<InstanceRow>> = Box::new(move |found| {
                    node.was_read_back(commit, reason, found, |_, found| {
                        found.map(|row| CommitOutcome::Conflict(Conflict::IdTaken(Box::new(row))))
                    });
                });
                store.find(&id, reply);
            }
            // Nothing that can be told apart. Without messages of its own it can be made again from what is stored;
            // with them, callers are told that their outcome is unknown.
            (None, None) if commit.send.is_empty() => {
                let outcome = CommitOutcome::Conflict(Conflict::OtherTurn);
                self.committed(commit.shard, commit.key, outcome);
            }
            (None, None) => self.committed(commit.shard, commit.key, CommitOutcome::Rejected(reason)),
        }
    }

    /// What is stored was read; `judge` says what it means for the commit, or nothing if it was never written.
    fn was_read_back<T>(
        self: &Arc<Node>,
        commit: Commit,
        reason: String,
        stored: Result<T, StoreError>,
        judge: impl FnOnce(&Commit, T) -> Option<CommitOutcome>,
    ) {
        match stored {
            Ok(stored) => {
                let outcome = judge(&commit, stored).unwrap_or(CommitOutcome::Rejected(reason));
                self.committed(commit.shard, commit.key, outcome);
            }
            Err(error) if error.is_retryable() => self.later(move |node| node.read_back(commit, reason)),
            Err(error @ (StoreError::Failed(_) | StoreError::Closed)) => self.fail(error.to_string()),
            // The instance is in trouble by itself.
            Err(_) => self.committed(commit.shard, commit.key, CommitOutcome::Rejected(reason)),
        }
    }
}
