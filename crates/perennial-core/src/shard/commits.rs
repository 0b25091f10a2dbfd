//! What a commit's outcome leads to. Nothing leaves before it is durable.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{Ending, EventId, Job};
use crate::instance::InstanceKey;
use crate::store::{Commit, CommitOutcome, Conflict, InboxNumber, InstanceRow, TaskRow};

use super::message::Message;
use super::output::Output;
use super::request::{Answer, Asker, PendingAsk, Request, RequestId};
use super::rows::*;
use super::slot::{Behind, InFlight, Late, Next, Origin, Phase, Queued, Slot, is_others};
use super::state_machine::{Attempt, Shard};
use super::turn_task::TaskFailure;

impl Shard {
    pub(super) fn empty_commit(&self, key: InstanceKey) -> Commit {
        Commit::empty(key, self.id)
    }

    pub(super) fn commit(&mut self, key: InstanceKey, commit: Commit, in_flight: InFlight) {
        let mut in_flight = in_flight;
        in_flight.answered_rows = commit.replies.iter().map(|answer| answer.number).collect();
        in_flight.consumed = commit.consumed.clone();
        if flaws::is(Flaw::EffectsBeforeCommit) || flaws::is(Flaw::AnswerBeforeTurn) {
            let early = in_flight.outputs.extract_if(.., |output| is_early(output)).collect();
            self.release(0, early);
        }
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.phase = Phase::Committing(Box::new(in_flight));
        }
        self.outputs.push(Output::Commit(Box::new(commit)));
    }

    /// A commit's outcome is known.
    pub fn handle_committed(&mut self, now_ms: u64, key: InstanceKey, outcome: CommitOutcome) {
        let Some(in_flight) = self.slots.get_mut(&key).and_then(Slot::end_commit) else { return };
        match outcome {
            CommitOutcome::Durable { sent } => self.durable(now_ms, key, *in_flight, &sent),
            // The instance itself is there: the commit was made before, and sent again.
            CommitOutcome::Conflict(Conflict::IdTaken(row)) if row.key == key => {
                self.durable(now_ms, key, *in_flight, &[]);
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

    pub(super) fn durable(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        in_flight: InFlight,
        sent: &[Option<InboxNumber>],
    ) {
        let InFlight {
            outputs,
            facts,
            next,
            checksum,
            consumed,
            tasks,
            accepted,
            answered,
            answered_rows,
            ..
        } = in_flight;
        self.consumed.extend(consumed);
        if matches!(next, Next::Idle(_) | Next::Continued(..) | Next::Ended(..)) {
            // A commit that had been written before does not tell, and is counted as if nothing had arrived.
            self.counters.undelivered += sent.iter().filter(|number| number.is_none()).count() as u64;
        }
        self.answered.extend(answered_rows);
        self.await_updates(key, accepted, &answered);
        self.release(now_ms, outputs);
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        let was_blocked = slot.facts.as_ref().is_some_and(|facts| facts.blocked_attempts > 0);
        let is_cured = was_blocked && facts.blocked_attempts == 0 && !facts.status.is_final();
        if is_cured && !slot.is_refreshing {
            // While it was blocked, passes over the inbox went past its messages: what came is read in order first.
            slot.is_refreshing = true;
            self.outputs.push(Output::Refresh { key });
        }
        let (wake_at_ms, status) = (facts.wake_at_ms, facts.status);
        let was_unborn = slot.facts.replace(facts).is_none();
        slot.checksum = checksum.unwrap_or(slot.checksum);
        if slot.is_refreshing {
            let is_new =
                |(event, row): &(&EventId, &TaskRow)| is_others(row) && slot.tasks.get(event) != Some(row);
            slot.given_meanwhile.extend(tasks.iter().filter(is_new).map(|(event, _)| *event));
        }
        slot.tasks = tasks;
        for rival in mem::take(&mut slot.rival_starts) {
            self.outputs.push(Output::Reply(rival, Answer::AlreadyExists(status)));
        }
        if was_unborn && !slot.behind.is_empty() && !slot.is_refreshing {
            // It may have been there for a while without anybody here knowing, and have got messages.
            slot.is_refreshing = true;
            slot.behind.iter_mut().for_each(|behind| behind.is_read_for = true);
            self.outputs.push(Output::Refresh { key });
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
            Next::Delayed => {
                slot.phase = Phase::Delayed;
                self.set_wake(key, wake_at_ms);
                self.enter_idle(now_ms, key);
                self.go_on(now_ms, key);
            }
            Next::Reloaded => self.reload(key),
            Next::Continued(execution, start) => {
                let number = sent.last().copied().flatten();
                self.continued(now_ms, key, execution, *start, number);
            }
            Next::Ended(execution, ending) => self.ended(now_ms, key, execution, &ending),
            Next::Consulted(execution) => {
                self.outputs.push(Output::Drop(execution));
                self.clear_leftovers(key);
            }
            Next::Gone => self.clear_leftovers(key),
        }
    }

    /// Lets go of what follows from something that is durable now.
    pub(super) fn release(&mut self, now_ms: u64, outputs: Vec<Output>) {
        for output in outputs {
            match &output {
                Output::HandOver(task) => {
                    // One that has ended meanwhile is the node's no more.
                    let place = (task.key, task.event);
                    let runs = self.attempts.get(&place).is_some_and(|attempt| attempt.is_of(task));
                    if !runs {
                        continue;
                    }
                    self.attempts.remove(&place);
                }
                Output::RunActivity(task) => {
                    let (execution, attempt, details) = (task.execution, task.attempt, task.details.clone());
                    let running = Attempt { execution, attempt, began_ms: now_ms, details };
                    self.attempts.insert((task.key, task.event), running);
                }
                Output::CancelActivity { key, event, .. } => {
                    self.attempts.remove(&(*key, *event));
                    self.lone.remove(&(*key, *event));
                    if let Some(slot) = self.slots.get_mut(key) {
                        // What came of it while that was being written leaves no row.
                        slot.task_writes.retain(|write| write.row.id.event != *event);
                    }
                }
                _ => {}
            }
            self.outputs.push(output);
        }
        self.close_if_released();
    }

    pub(super) fn settle_idle(&mut self, now_ms: u64, key: InstanceKey, execution: Box<Execution>) {
        let slot = self.slots.get_mut(&key).expect("it is in memory");
        slot.phase = Phase::Idle(execution);
        self.enter_idle(now_ms, key);
        self.go_on(now_ms, key);
        self.evict_surplus(now_ms);
    }

    pub(super) fn ended(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        execution: Option<Box<Execution>>,
        ending: &Ending,
    ) {
        self.bring_all_behind(now_ms, key);
        self.stop_attempts(key);
        self.given_up.remove(&key);
        for waiter in self.waiters.remove(&key).unwrap_or_default() {
            self.reply(waiter, Answer::Ended(Box::new(ending.clone())));
        }
        if !self.lookups.is_empty() {
            self.ended_lately.insert(key);
        }
        self.outputs.extend(execution.map(Output::Drop));
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        slot.task_writes.clear();
        if slot.queue.is_empty() && slot.asks.is_empty() {
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
            self.look_up(waiter, Arc::clone(&slot.id), Request::AwaitEnd, None);
        }
        for ask in slot.asks {
            if let Asker::Request(request) = ask.asker {
                self.look_up(request, Arc::clone(&slot.id), Request::Ask(ask.question), None);
            }
        }
        for queued in in_flight.messages.into_iter().chain(slot.queue) {
            let request = match queued.message {
                Message::Job(Job::ExternalEvent { name, payload, key, trace }) => {
                    Request::Raise { name, payload, key, trace }
                }
                Message::Job(Job::OrchestrationCancelRequested { reason, .. }) => Request::Cancel { reason },
                Message::Terminate { reason } => Request::Terminate { reason },
                Message::Retry => Request::Retry,
                _ => continue,
            };
            if let Origin::Caller(request_id) = queued.origin {
                self.look_up(request_id, Arc::clone(&slot.id), request, None);
            }
        }
        for behind in slot.behind {
            if let Late::Request(request_id, request) = behind.what {
                self.look_up(request_id, Arc::clone(&slot.id), request, Some(behind.after));
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
        slot.put_back_writes(in_flight.task_writes);
        slot.asks.extend(in_flight.accepted.into_iter().map(|(_, ask)| ask));
        slot.asks.extend(in_flight.refused);
        // Loading brings the messages of the inbox that are still there.
        slot.queue.retain(|queued| !matches!(queued.origin, Origin::Inbox(_)));
        slot.phase = Phase::Loading;
        self.outputs.push(Output::Load { key });
    }

    /// The store can never take this commit: the instance is blocked without it.
    pub(super) fn rejected(&mut self, now_ms: u64, key: InstanceKey, in_flight: InFlight, reason: String) {
        if matches!(in_flight.next, Next::Gone | Next::Consulted(_)) {
            self.drop_execution(in_flight.next);
            self.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_question));
            // It has ended. What is left over goes another time.
            let Some(slot) = self.remove_slot(key) else { return };
            self.answer_behind(slot.behind, &Answer::Unknown { reason: reason.clone() });
            self.answer_askers(slot.asks, &Answer::Unknown { reason });
            let messages: Vec<Queued> = in_flight.messages.into_iter().chain(slot.queue).collect();
            return self.answer_all(key, &messages, Vec::new(), &Answer::EndedBefore);
        }
        let was_block = matches!(in_flight.next, Next::Blocked | Next::Kept | Next::Delayed | Next::Reloaded);
        self.drop_execution(in_flight.next);
        if was_block {
            tracing::error!(%reason, "a blocked instance cannot be marked as blocked");
            self.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_question));
            let Some(slot) = self.slots.get_mut(&key) else { return };
            let messages: Vec<Queued> = in_flight.messages.into_iter().chain(slot.queue.drain(..)).collect();
            if slot.facts.is_some() {
                // It is stored all the same, and tried again as if it had been marked.
                slot.phase = Phase::Blocked;
                let asks = mem::take(&mut slot.asks);
                self.set_wake(key, in_flight.facts.wake_at_ms);
                self.outputs.extend(replies(&messages, &Answer::Unknown { reason: reason.clone() }));
                return self.answer_askers(asks, &Answer::Unknown { reason });
            }
            let Some(slot) = self.remove_slot(key) else { return };
            self.answer_behind(slot.behind, &Answer::Unknown { reason: reason.clone() });
            self.answer_askers(slot.asks, &Answer::Unknown { reason: reason.clone() });
            return self.answer_all(key, &messages, slot.rival_starts, &Answer::Unknown { reason });
        }
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.asks.extend(in_flight.accepted.into_iter().map(|(_, ask)| ask));
            slot.asks.extend(in_flight.refused);
            slot.put_back_writes(in_flight.task_writes);
        }
        self.block(now_ms, key, in_flight.messages, &TaskFailure::StoreRefused(reason));
    }

    /// Gives the same answer to every caller who asks an instance something that is gone from memory. Those who wrote a
    /// row are found again by it.
    pub(super) fn answer_askers(&mut self, asks: impl IntoIterator<Item = PendingAsk>, answer: &Answer) {
        for ask in asks {
            if let Asker::Request(request) = ask.asker {
                self.reply(request, answer.clone());
            }
        }
    }

    /// Gives the same answer to every caller whose request waited for a message.
    pub(super) fn answer_behind(&mut self, behind: Vec<Behind>, answer: &Answer) {
        for Behind { what, .. } in behind {
            match what {
                Late::Request(request, _) | Late::Ask(Asker::Request(request), _) => {
                    self.reply(request, answer.clone());
                }
                Late::Ask(Asker::Row(_), _) => {}
            }
        }
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
            let mut asks: Vec<PendingAsk> = slot.asks.drain(..).collect();
            match slot.phase {
                Phase::Idle(execution) => self.outputs.push(Output::Drop(execution)),
                Phase::Turning(turning) => {
                    messages.extend(turning.messages);
                    asks.extend(turning.asks);
                }
                Phase::Committing(in_flight) => {
                    self.drop_execution(in_flight.next);
                    messages.extend(in_flight.messages);
                    asks.extend(in_flight.accepted.into_iter().map(|(_, ask)| ask));
                    asks.extend(in_flight.refused);
                }
                Phase::Loading | Phase::Blocked | Phase::Delayed => {}
            }
            self.updates.entry((key, EventId(0))).or_default().extend(asks.iter().map(|ask| ask.asker));
            self.answer_behind(slot.behind, &Answer::Moved);
            self.answer_all(key, &messages, slot.rival_starts, &Answer::Moved);
        }
        for ((key, event), attempt) in mem::take(&mut self.attempts) {
            let execution = attempt.execution;
            self.outputs.push(Output::CancelActivity { key, execution, event });
        }
        let waiting = mem::take(&mut self.waiters).into_values().flatten();
        let looking = mem::take(&mut self.lookups).into_keys();
        // The writers of request rows are answered by the next owner.
        let asking = mem::take(&mut self.updates).into_values().flatten().filter_map(|asker| match asker {
            Asker::Request(request) => Some(request),
            Asker::Row(_) => None,
        });
        for request in waiting.chain(looking).chain(asking).collect::<Vec<_>>() {
            self.reply(request, Answer::Moved);
        }
        self.wakes.clear();
        self.wake_of.clear();
    }

    pub(super) fn drop_execution(&mut self, next: Next) {
        if let Next::Idle(execution)
        | Next::Ended(Some(execution), _)
        | Next::Continued(execution, _)
        | Next::Consulted(execution) = next
        {
            self.outputs.push(Output::Drop(execution));
        }
    }
}

/// Whether a planted mistake has something done before its commit is durable.
fn is_early(output: &Output) -> bool {
    match output {
        Output::RunActivity(_) => flaws::is(Flaw::EffectsBeforeCommit),
        Output::Reply(_, Answer::Asked(_)) => flaws::is(Flaw::AnswerBeforeTurn),
        _ => false,
    }
}

/// Whether this answers a question; such an answer is true also if nothing was written.
fn is_reply_to_question(output: &Output) -> bool {
    matches!(output, Output::Reply(_, Answer::Asked(_)))
}
