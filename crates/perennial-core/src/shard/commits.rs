//! What a commit's outcome leads to. Nothing leaves before it is durable.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Ending, EventId, Job, Turn};
use crate::instance::InstanceKey;
use crate::store::{Commit, CommitOutcome, Conflict, InstanceRow, RowChange};

use super::message::Message;
use super::output::Output;
use super::request::{Answer, Request, RequestId};
use super::rows::*;
use super::slot::{InFlight, Next, Origin, Phase, Queued, Slot};
use super::state_machine::Shard;
use super::turn_task::TaskFailure;

impl Shard {
    pub(super) fn empty_commit(&self, key: InstanceKey) -> Commit {
        Commit {
            key,
            shard: self.id,
            insert: None,
            turn: None,
            change: RowChange::default(),
            consumed: Vec::new(),
            send: Vec::new(),
        }
    }

    pub(super) fn turn_commit(&self, key: InstanceKey, execution: &Execution, turn: &Turn) -> Commit {
        Commit { turn: Some(turn_row(execution.started().execution, turn)), ..self.empty_commit(key) }
    }

    pub(super) fn commit(&mut self, key: InstanceKey, commit: Commit, in_flight: InFlight) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.phase = Phase::Committing(Box::new(in_flight));
        }
        self.outputs.push(Output::Commit(Box::new(commit)));
    }

    /// A commit's outcome is known.
    pub fn handle_committed(&mut self, now_ms: u64, key: InstanceKey, outcome: CommitOutcome) {
        let Some(in_flight) = self.slots.get_mut(&key).and_then(Slot::end_commit) else { return };
        match outcome {
            CommitOutcome::Durable { .. } => self.durable(now_ms, key, *in_flight),
            // The instance itself is there: the commit was made before, and sent again.
            CommitOutcome::Conflict(Conflict::IdTaken(row)) if row.key == key => {
                self.durable(now_ms, key, *in_flight);
            }
            CommitOutcome::Conflict(Conflict::IdTaken(row)) => self.id_taken(key, *in_flight, &row),
            CommitOutcome::Conflict(_) => {
                self.counters.conflicts += 1;
                self.start_over(key, *in_flight);
            }
            CommitOutcome::Rejected(reason) => self.rejected(now_ms, key, *in_flight, reason),
            CommitOutcome::Fenced => {
                if let Some(slot) = self.slots.get_mut(&key) {
                    slot.phase = Phase::Committing(in_flight);
                }
                self.handle_lost();
            }
        }
    }

    pub(super) fn durable(&mut self, now_ms: u64, key: InstanceKey, in_flight: InFlight) {
        let InFlight { outputs, facts, next, messages, .. } = in_flight;
        if !matches!(next, Next::Blocked | Next::Kept | Next::Reloaded) {
            self.consumed.extend(inbox_numbers(&messages));
        }
        self.release(outputs);
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        let (wake_at_ms, status) = (facts.wake_at_ms, facts.status);
        slot.facts = Some(facts);
        for rival in mem::take(&mut slot.rival_starts) {
            self.outputs.push(Output::Reply(rival, Answer::AlreadyExists(status)));
        }
        match next {
            Next::Idle(execution) => self.settle_idle(now_ms, key, execution),
            Next::Blocked | Next::Kept => {
                slot.phase = Phase::Blocked;
                self.set_wake(key, wake_at_ms);
                self.enter_idle(now_ms, key);
                self.go_on(now_ms, key);
                self.evict_surplus(now_ms);
            }
            Next::Reloaded => self.reload(key),
            Next::Ended(execution, ending) => self.ended(key, execution, &ending),
            Next::Gone => self.clear_leftovers(key),
        }
    }

    /// Lets go of what follows from something that is durable now.
    pub(super) fn release(&mut self, outputs: Vec<Output>) {
        for output in &outputs {
            match output {
                Output::RunActivity(task) => {
                    self.attempts.insert((task.key, task.event), task.execution);
                }
                Output::CancelActivity { key, event } => {
                    self.attempts.remove(&(*key, *event));
                }
                _ => {}
            }
        }
        self.outputs.extend(outputs);
    }

    pub(super) fn settle_idle(&mut self, now_ms: u64, key: InstanceKey, execution: Box<Execution>) {
        let slot = self.slots.get_mut(&key).expect("it is in memory");
        slot.phase = Phase::Idle(execution);
        self.enter_idle(now_ms, key);
        self.go_on(now_ms, key);
        self.evict_surplus(now_ms);
    }

    pub(super) fn ended(&mut self, key: InstanceKey, execution: Option<Box<Execution>>, ending: &Ending) {
        let running: Vec<EventId> = self
            .attempts
            .range((key, EventId(0))..=(key, EventId(u64::MAX)))
            .map(|((_, event), _)| *event)
            .collect();
        for event in running {
            self.attempts.remove(&(key, event));
            self.outputs.push(Output::CancelActivity { key, event });
        }
        for waiter in self.waiters.remove(&key).unwrap_or_default() {
            self.reply(waiter, Answer::Ended(Box::new(ending.clone())));
        }
        if !self.lookups.is_empty() {
            self.ended_lately.insert(key);
        }
        self.outputs.extend(execution.map(Output::Drop));
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        if slot.queue.is_empty() {
            self.remove_slot(key);
        } else {
            slot.phase = Phase::Loading;
            self.clear_leftovers(key);
        }
    }

    /// The id of a start was taken: the instance never was. What callers want of the id is meant for the other one.
    pub(super) fn id_taken(&mut self, key: InstanceKey, in_flight: InFlight, row: &InstanceRow) {
        let waiters = self.waiters.remove(&key).unwrap_or_default();
        let Some(slot) = self.remove_slot(key) else { return };
        self.drop_execution(in_flight.next);
        for request in in_flight.start.into_iter().chain(slot.rival_starts) {
            self.reply(request, Answer::AlreadyExists(row.status));
        }
        for waiter in waiters {
            self.look_up(waiter, Arc::clone(&slot.id), Request::AwaitEnd);
        }
        for queued in in_flight.messages.into_iter().chain(slot.queue) {
            let request = match queued.message {
                Message::Job(Job::ExternalEvent { name, payload, key }) => {
                    Request::Raise { name, payload, key }
                }
                Message::Job(Job::OrchestrationCancelRequested { reason, .. }) => Request::Cancel { reason },
                Message::Terminate { reason } => Request::Terminate { reason },
                Message::Retry => Request::Retry,
                Message::Job(_) | Message::Start(_) => continue,
            };
            if let Origin::Caller(request_id) = queued.origin {
                self.look_up(request_id, Arc::clone(&slot.id), request);
            }
        }
    }

    /// Memory contradicts the store: forget the execution, and read again.
    pub(super) fn start_over(&mut self, key: InstanceKey, in_flight: InFlight) {
        self.drop_execution(in_flight.next);
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        for queued in in_flight.messages.into_iter().rev() {
            slot.queue.push_front(queued);
        }
        // Loading brings the messages of the inbox that are still there.
        slot.queue.retain(|queued| !matches!(queued.origin, Origin::Inbox(_)));
        self.outputs.push(Output::Load { key });
    }

    /// The store can never take this commit: the instance is blocked without it.
    pub(super) fn rejected(&mut self, now_ms: u64, key: InstanceKey, in_flight: InFlight, reason: String) {
        if matches!(in_flight.next, Next::Gone) {
            // It has ended. What is left over goes another time.
            let Some(slot) = self.remove_slot(key) else { return };
            let messages: Vec<Queued> = in_flight.messages.into_iter().chain(slot.queue).collect();
            return self.answer_all(key, &messages, Vec::new(), &Answer::EndedBefore);
        }
        let was_block = matches!(in_flight.next, Next::Blocked | Next::Kept | Next::Reloaded);
        self.drop_execution(in_flight.next);
        if was_block {
            tracing::error!(%reason, "a blocked instance cannot be marked as blocked");
            let Some(slot) = self.slots.get_mut(&key) else { return };
            let messages: Vec<Queued> = in_flight.messages.into_iter().chain(slot.queue.drain(..)).collect();
            if slot.facts.is_some() {
                // It is stored all the same, and tried again as if it had been marked.
                slot.phase = Phase::Blocked;
                self.set_wake(key, in_flight.facts.wake_at_ms);
                return self.outputs.extend(replies(&messages, &Answer::Unknown { reason }));
            }
            let Some(slot) = self.remove_slot(key) else { return };
            return self.answer_all(key, &messages, slot.rival_starts, &Answer::Unknown { reason });
        }
        self.block(now_ms, key, in_flight.messages, &TaskFailure::StoreRefused(reason));
    }

    /// Gives the same answer to everybody who waits for something of an instance that is gone from memory.
    pub(super) fn answer_all(
        &mut self,
        key: InstanceKey,
        messages: &[Queued],
        rival_starts: Vec<RequestId>,
        answer: &Answer,
    ) {
        let callers = messages.iter().filter_map(|queued| match queued.origin {
            Origin::Caller(request) => Some(request),
            _ => None,
        });
        let waiters = self.waiters.remove(&key).unwrap_or_default();
        for request in callers.chain(rival_starts).chain(waiters).collect::<BTreeSet<_>>() {
            self.reply(request, answer.clone());
        }
    }

    /// The shard is no longer this node's: forget everything. Running activities are told to stop.
    pub fn handle_lost(&mut self) {
        let keys: Vec<InstanceKey> = self.slots.keys().copied().collect();
        for key in keys {
            let Some(mut slot) = self.remove_slot(key) else {
                continue;
            };
            let mut messages: Vec<Queued> = slot.queue.drain(..).collect();
            match slot.phase {
                Phase::Idle(execution) => self.outputs.push(Output::Drop(execution)),
                Phase::Turning(_, turning) => messages.extend(turning),
                Phase::Committing(in_flight) => {
                    self.drop_execution(in_flight.next);
                    messages.extend(in_flight.messages);
                }
                Phase::Loading | Phase::Blocked => {}
            }
            let reason = "another node has taken over".to_owned();
            self.answer_all(key, &messages, slot.rival_starts, &Answer::Unknown { reason });
        }
        for (key, event) in mem::take(&mut self.attempts).into_keys() {
            self.outputs.push(Output::CancelActivity { key, event });
        }
        let waiting = mem::take(&mut self.waiters).into_values().flatten();
        let looking = mem::take(&mut self.lookups).into_keys();
        for request in waiting.chain(looking).collect::<Vec<_>>() {
            self.reply(request, Answer::Unknown { reason: "another node has taken over".to_owned() });
        }
        self.wakes.clear();
        self.wake_of.clear();
    }

    pub(super) fn drop_execution(&mut self, next: Next) {
        if let Next::Idle(execution) | Next::Ended(Some(execution), _) = next {
            self.outputs.push(Output::Drop(execution));
        }
    }
}
