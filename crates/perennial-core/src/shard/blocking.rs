//! Instances that cannot go on. Nothing that came for them is lost.

use std::sync::Arc;

use crate::instance::InstanceKey;
use crate::store::{Blocked, Commit, Outgoing, RowChange};

use super::message::Message;
use super::options::OnFailure;
use super::output::Output;
use super::request::Answer;
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Origin, Queued};
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
        if self.options.on_failure.of(failure) == OnFailure::End {
            let message = Message::Terminate { reason: failure.to_string() };
            messages.push(Queued { message, origin: Origin::Engine });
        }
        let start = start_request(&messages);
        let stored = slot.facts.clone();
        let attempts = stored.as_ref().map_or(0, |facts| facts.blocked_attempts) + 1;
        let since_ms = stored.as_ref().and_then(|facts| facts.blocked_since_ms).unwrap_or(now_ms);
        let retry_at_ms = failure.may_pass().then(|| now_ms + self.options.retry_pause_ms(attempts));
        // What the instance wanted to be woken for may be the end of a cancel's grace, which is kept without code.
        let wanted_ms = stored
            .as_ref()
            .and_then(|facts| facts.wake_at_ms)
            .filter(|at_ms| *at_ms > now_ms && failure.may_pass());
        let graces = cancel_grace(&messages).into_iter().chain(slot.grace_until_ms).chain(wanted_ms);
        let wake_at_ms = graces.chain(retry_at_ms).min();
        slot.kept_events = messages.iter().filter(|queued| queued.is_event()).count();
        let blocked = Blocked {
            code: failure.code().to_owned(),
            reason: failure.to_string(),
            report: failure.report(),
            since_ms,
            attempts,
        };
        tracing::warn!(instance = &*slot.id, code = blocked.code, attempts, "blocked: {failure}");
        let id = Arc::clone(&slot.id);
        let send = self.kept(key, &messages);
        let mut commit = Commit { send, ..self.empty_commit(key) };
        let facts = match (stored, started_of(&messages)) {
            (None, Some(started)) => {
                let row = pending_row(key, self.id, &id, started, now_ms, wake_at_ms, blocked);
                let facts = Facts::of_row(&row);
                commit.insert = Some(Box::new(row));
                facts
            }
            (stored, _) => {
                // What the row says is not known if it could not be read.
                let stored = stored.unwrap_or_else(|| nothing_stored(1));
                let facts = Facts {
                    wake_at_ms,
                    blocked_attempts: attempts,
                    blocked_since_ms: Some(since_ms),
                    ..stored.clone()
                };
                let wake_at_ms = Some(wake_at_ms);
                commit.change =
                    RowChange { wake_at_ms, blocked: Some(Some(blocked)), ..facts.change_from(&stored) };
                facts
            }
        };
        let mut outputs = replies(&messages, &Answer::Accepted);
        outputs.extend(start.map(|request| Output::Reply(request, Answer::Started(key))));
        // A termination needs no code: it is done as soon as it is kept, unless it is what failed.
        let is_termination = |queued: &Queued| matches!(queued.message, Message::Terminate { .. });
        let is_over = messages.iter().any(is_termination) && failure.leaves_history();
        let next = if is_over { Next::Reloaded } else { Next::Blocked };
        self.commit(key, commit, InFlight { outputs, facts, next, messages, start });
    }

    /// Writes what came for a blocked instance into its inbox.
    pub(super) fn keep_queue(&mut self, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it is blocked");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let stored = slot.facts.clone().expect("it is stored");
        slot.kept_events += messages.iter().filter(|queued| queued.is_event()).count();
        let send = self.kept(key, &messages);
        let outputs = replies(&messages, &Answer::Accepted);
        if send.is_empty() {
            return self.outputs.extend(outputs);
        }
        let wake_at_ms = cancel_grace(&messages).into_iter().chain(stored.wake_at_ms).min();
        let facts = Facts { wake_at_ms, ..stored.clone() };
        let change = RowChange { blocked: None, ..facts.change_from(&stored) };
        let commit = Commit { send, change, ..self.empty_commit(key) };
        self.commit(key, commit, InFlight { outputs, facts, next: Next::Kept, messages, start: None });
    }

    /// The messages that are not in the inbox yet and would be lost, as rows for it. Each has a key, so that a commit
    /// that is sent again appends nothing twice.
    fn kept(&mut self, key: InstanceKey, messages: &[Queued]) -> Vec<Outgoing> {
        let mut rows = Vec::new();
        for queued in messages {
            if matches!(queued.origin, Origin::Inbox(_)) || matches!(queued.message, Message::Retry) {
                continue;
            }
            self.next_kept += 1;
            let own = || format!("~{:x}.{}.{}", self.nonce, self.id.0, self.next_kept);
            let dedupe = Some(queued.message.dedupe().map_or_else(own, str::to_owned));
            rows.push(Outgoing::ToKey {
                to: key,
                shard: self.id,
                dedupe,
                urgent: false,
                body: queued.message.encode(),
            });
        }
        rows
    }
}
