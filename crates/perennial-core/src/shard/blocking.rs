//! Instances that cannot go on. Nothing that came for them is lost.

use std::sync::Arc;

use crate::instance::InstanceKey;
use crate::store::{Blocked, Commit, RowChange};

use super::output::Output;
use super::request::Answer;
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Queued};
use super::state_machine::Shard;
use super::turn_task::TaskFailure;

impl Shard {
    /// The instance cannot go on. Everything that came for it is kept in its inbox.
    pub(super) fn block(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        messages: Vec<Queued>,
        failure: &TaskFailure,
    ) {
        self.counters.failed_turns += 1;
        let slot = self.slots.get_mut(&key).expect("its turn failed");
        let mut messages = messages;
        messages.extend(slot.queue.drain(..));
        let start = start_request(&messages);
        let stored = slot.facts.clone();
        let attempts = stored.as_ref().map_or(0, |facts| facts.blocked_attempts) + 1;
        let pause_ms = if matches!(failure, TaskFailure::ThreadLost) {
            self.options.retry_max_ms
        } else {
            self.options.retry_pause_ms(attempts)
        };
        let wake_at_ms = cancel_grace(&messages).into_iter().chain([now_ms + pause_ms]).min();
        let blocked = Blocked {
            code: failure.code().to_owned(),
            reason: failure.to_string(),
            report: failure.report(),
            since_ms: now_ms,
            attempts,
        };
        tracing::warn!(instance = &*slot.id, code = blocked.code, attempts, "blocked: {failure}");
        let id = Arc::clone(&slot.id);
        let send = kept(key, self.id, &messages);
        let mut commit = Commit { send, ..self.empty_commit(key) };
        let facts = match stored {
            Some(stored) => {
                let facts = Facts { wake_at_ms, blocked_attempts: attempts, ..stored.clone() };
                commit.change = RowChange { blocked: Some(Some(blocked)), ..facts.change_from(&stored) };
                facts
            }
            None => {
                let started = started_of(&messages).expect("what is not stored has just been started");
                let row = pending_row(key, self.id, &id, started, now_ms, wake_at_ms, blocked);
                let facts = Facts::of_row(&row);
                commit.insert = Some(Box::new(row));
                facts
            }
        };
        let mut outputs = replies(&messages, &Answer::Accepted);
        outputs.extend(start.map(|request| Output::Reply(request, Answer::Started(key))));
        self.commit(key, commit, InFlight { outputs, facts, next: Next::Blocked, messages, start });
    }

    /// Writes what came for a blocked instance into its inbox.
    pub(super) fn keep_queue(&mut self, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it is blocked");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let stored = slot.facts.clone().expect("it is stored");
        let send = kept(key, self.id, &messages);
        let outputs = replies(&messages, &Answer::Accepted);
        if send.is_empty() {
            return self.outputs.extend(outputs);
        }
        let wake_at_ms = cancel_grace(&messages).into_iter().chain(stored.wake_at_ms).min();
        let facts = Facts { wake_at_ms, ..stored.clone() };
        let change = RowChange { blocked: None, ..facts.change_from(&stored) };
        let commit = Commit { send, change, ..self.empty_commit(key) };
        self.commit(key, commit, InFlight { outputs, facts, next: Next::Blocked, messages, start: None });
    }
}
