//! What a commit's outcome leads to. Nothing leaves before it is durable.

use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{Ending, Job};
use crate::store::{Commit, CommitOutcome, Conflict, InboxNumber, InstanceRow, Status};

use super::super::message::Message;
use super::super::output::Output;
use super::super::request::{Answer, Request, RequestId};
use super::super::shared::Shared;
use super::super::turn_task::TaskFailure;
use super::Instance;
use super::behind::Late;
use super::facts::Facts;
use super::in_flight::{InFlight, Next, Phase};
use super::queued::{Batch, Origin, Queued};

impl Instance {
    pub(super) fn commit(&mut self, shared: &mut Shared, commit: Commit, mut in_flight: InFlight) {
        in_flight.answered_rows = commit.replies.iter().map(|answer| answer.number).collect();
        in_flight.consumed = commit.consumed.clone();
        if flaws::is(Flaw::EffectsBeforeCommit) || flaws::is(Flaw::AnswerBeforeTurn) {
            let early = in_flight.outputs.extract_if(.., |output| is_early(output)).collect();
            self.release(shared, 0, early);
        }
        self.phase = Phase::Committing(Box::new(in_flight));
        shared.outputs.push(Output::Commit(Box::new(commit)));
    }

    /// A commit's outcome is known. That the session does not own the shard is not for one instance to know.
    pub(in crate::shard) fn handle_committed(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        outcome: CommitOutcome,
    ) {
        let Some(in_flight) = self.end_commit() else { return };
        match outcome {
            CommitOutcome::Durable { sent } => self.durable(shared, now_ms, in_flight, &sent),
            // The instance itself is there: the commit was made before, and sent again.
            CommitOutcome::Conflict(Conflict::IdTaken(row)) if row.key == self.key => {
                self.durable(shared, now_ms, in_flight, &[]);
            }
            CommitOutcome::Conflict(Conflict::IdTaken(row)) => self.id_taken(shared, in_flight, &row),
            CommitOutcome::Conflict(_) => {
                shared.counters.conflicts += 1;
                self.start_over(shared, in_flight);
            }
            CommitOutcome::Rejected(reason) => self.rejected(shared, now_ms, in_flight, reason),
            CommitOutcome::Fenced => self.phase = Phase::Committing(Box::new(in_flight)),
        }
    }

    fn durable(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        in_flight: InFlight,
        sent: &[Option<InboxNumber>],
    ) {
        let InFlight { outputs, facts, next, checksum, consumed, accepted, answered, .. } = in_flight;
        shared.consumed.extend(consumed);
        if matches!(next, Next::Idle(_) | Next::Continued(..) | Next::Ended(..)) {
            // A commit that had been written before does not tell, and is counted as if nothing had arrived.
            shared.counters.undelivered += sent.iter().filter(|number| number.is_none()).count() as u64;
        }
        shared.answered.extend(in_flight.answered_rows);
        self.await_updates(shared, accepted, &answered);
        self.release(shared, now_ms, outputs);
        let wake_at_ms = facts.wake_at_ms;
        self.checksum = checksum.unwrap_or(self.checksum);
        self.stored_as(shared, facts);
        self.tasks.handle_given(in_flight.given);
        match next {
            Next::Idle(execution) if in_flight.messages.rest().is_some() => {
                // The rest is a message now, and comes before everything that waits.
                shared.outputs.push(Output::Drop(execution));
                self.is_retried = true;
                self.reload(shared);
            }
            Next::Idle(execution) => self.settle_idle(shared, now_ms, execution),
            Next::Blocked | Next::Kept => self.settle(shared, now_ms, Phase::Blocked, wake_at_ms),
            Next::Delayed => {
                self.remember_kept(in_flight.messages, sent);
                self.settle(shared, now_ms, Phase::Delayed, wake_at_ms);
            }
            Next::Reloaded => self.reload(shared),
            Next::Reset => self.reset_done(shared),
            Next::Continued(execution, start) => {
                // More than the start is read with it.
                let number = sent.last().copied().flatten().filter(|_| in_flight.carried_rows == 1);
                self.continued(shared, now_ms, execution, *start, number);
            }
            Next::Ended(execution, ending) => self.ended(shared, now_ms, execution, &ending),
            Next::Consulted(execution) => {
                shared.outputs.push(Output::Drop(execution));
                self.clear_leftovers(shared);
            }
            Next::Gone => self.clear_leftovers(shared),
        }
    }

    /// Its row says this now.
    fn stored_as(&mut self, shared: &mut Shared, facts: Facts) {
        let status = facts.status;
        let is_cured = !facts.is_blocked() && !status.is_final();
        let before = self.facts.replace(facts);
        if is_cured && before.as_ref().is_some_and(Facts::is_blocked) {
            // While it was blocked, passes over the inbox went past its messages: what came is read in order first.
            self.refresh(shared);
        }
        self.refuse_rivals(shared, status);
        if before.is_none() {
            // It may have been there for a while without anybody here knowing, and have got messages.
            self.read_for_behind(shared);
        }
    }

    /// It exists: whoever else wants to start its id cannot.
    pub(super) fn refuse_rivals(&mut self, shared: &mut Shared, status: Status) {
        for rival in mem::take(&mut self.rival_starts) {
            shared.reply(rival, Answer::AlreadyExists(status));
        }
    }

    /// It rests, blocked or delayed, until something comes for it.
    pub(super) fn settle(&mut self, shared: &mut Shared, now_ms: u64, phase: Phase, wake: Option<u64>) {
        self.phase = phase;
        shared.wakes.set(self.key, wake);
        self.rest(shared, now_ms);
        if !self.tasks.is_refreshing() {
            // Its messages are not delivered for now, and so need not be read.
            self.bring_all_behind(shared, now_ms);
        }
        self.go_on(shared, now_ms);
    }

    /// Lets go of what follows from something that is durable now.
    pub(super) fn release(&mut self, shared: &mut Shared, now_ms: u64, outputs: Vec<Output>) {
        for mut output in outputs {
            match &mut output {
                Output::HandOver(task) => {
                    // One that has ended meanwhile is the node's no more.
                    let Some(attempt) = shared.attempts.end(task) else { continue };
                    task.details = attempt.details;
                    // What it reported while its row was being written would take the row back from the node.
                    self.tasks.drop_writes(task.event);
                }
                Output::RunActivity(task) => shared.attempts.begin(now_ms, task),
                // Its end is waited for.
                Output::CancelActivity { key, event, is_awaited: true, .. } => {
                    shared.attempts.stop(*key, *event);
                }
                Output::CancelActivity { key, event, .. } => {
                    shared.attempts.cancel(*key, *event);
                    // What came of it while that was being written leaves no row.
                    self.tasks.drop_writes(*event);
                }
                _ => {}
            }
            shared.outputs.push(output);
        }
        shared.close_if_released();
    }

    fn ended(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: Option<Box<Execution>>,
        ending: &Ending,
    ) {
        self.bring_all_behind(shared, now_ms);
        shared.stop_attempts(self.key);
        shared.given_up.remove(&self.key);
        for waiter in shared.waiters.take(self.key) {
            shared.reply(waiter, Answer::Ended(Box::new(ending.clone())));
        }
        shared.lookups.handle_ended(self.key);
        shared.outputs.extend(execution.map(Output::Drop));
        self.tasks.clear_writes();
        if self.queue.is_empty() && self.questions.is_empty() && !self.questions.has_reset() {
            self.forget(shared);
        } else {
            self.clear_leftovers(shared);
        }
    }

    /// The id of a start was taken: the instance never was. What callers want of the id is meant for the other one.
    fn id_taken(&mut self, shared: &mut Shared, in_flight: InFlight, row: &InstanceRow) {
        self.forget(shared);
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        self.rival_starts.splice(0..0, in_flight.start);
        self.refuse_rivals(shared, row.status);
        let id = &self.id;
        for waiter in shared.waiters.take(self.key) {
            shared.look_up(waiter, Arc::clone(id), Request::AwaitEnd, None);
        }
        let resets = std::iter::from_fn(|| self.questions.take_reset()).collect::<Vec<_>>();
        for ask in self.questions.take_all().into_iter().chain(resets) {
            if let Some(request) = ask.asker.caller() {
                shared.look_up(request, Arc::clone(id), Request::Ask(ask.question), None);
            }
        }
        for queued in in_flight.messages.into_messages().into_iter().chain(self.queue.take_all()) {
            if let Some((request_id, request)) = as_request(queued) {
                shared.look_up(request_id, Arc::clone(id), request, None);
            }
        }
        for waiting in self.behind.take_all() {
            if let Late::Request(request_id, request) = waiting.what {
                shared.look_up(request_id, Arc::clone(id), request, Some(waiting.after));
            }
        }
    }

    /// Memory contradicts the store: forget the execution, and read again.
    fn start_over(&mut self, shared: &mut Shared, mut in_flight: InFlight) {
        self.questions.extend(in_flight.take_asks());
        self.tasks.put_back_writes(in_flight.task_writes);
        self.queue.put_back(in_flight.messages.into_messages());
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        // Loading brings the messages of the inbox that are still there.
        self.queue.take_stored();
        self.reload(shared);
    }

    /// The store can never take this commit: the instance is blocked without it.
    fn rejected(&mut self, shared: &mut Shared, now_ms: u64, mut in_flight: InFlight, reason: String) {
        match in_flight.next {
            Next::Gone | Next::Consulted(_) => self.leftovers_refused(shared, in_flight, reason),
            Next::Blocked | Next::Kept | Next::Delayed | Next::Reloaded => {
                self.block_refused(shared, now_ms, in_flight, reason);
            }
            Next::Reset => self.reset_rejected(shared, in_flight, reason),
            Next::Idle(_) | Next::Continued(..) | Next::Ended(..) => {
                self.questions.extend(in_flight.take_asks());
                self.tasks.put_back_writes(in_flight.task_writes);
                shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
                let failure = TaskFailure::StoreRefused(reason);
                self.block(shared, now_ms, in_flight.messages.into_messages(), &failure, Vec::new());
            }
        }
    }

    /// It has ended, and the store does not clear what is left over. That goes another time.
    fn leftovers_refused(&mut self, shared: &mut Shared, in_flight: InFlight, reason: String) {
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        shared.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_question));
        self.forget(shared);
        self.answer_askers(shared, &Answer::Unknown { reason });
        let mut messages = in_flight.messages.into_messages();
        messages.extend(self.queue.take_all());
        self.answer_all(shared, &messages, &Answer::EndedBefore);
    }

    /// It cannot be marked as blocked, or keep what came for it.
    fn block_refused(&mut self, shared: &mut Shared, now_ms: u64, in_flight: InFlight, reason: String) {
        tracing::error!(%reason, "a blocked instance cannot be marked as blocked");
        shared.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_question));
        let mut messages = in_flight.messages.into_messages();
        messages.extend(self.queue.take_all());
        let unknown = Answer::Unknown { reason };
        if self.facts.is_some() {
            // It is stored all the same, and tried again as if it had been marked.
            self.phase = Phase::Blocked;
            shared.wakes.set(self.key, in_flight.facts.wake_at_ms);
            shared.outputs.extend(Batch::new(messages).replies(&unknown));
            for request in self.questions.take_callers() {
                shared.reply(request, unknown.clone());
            }
            self.rest(shared, now_ms);
            return;
        }
        self.forget(shared);
        self.answer_askers(shared, &unknown);
        self.answer_all(shared, &messages, &unknown);
    }

    /// Gives the same answer to every caller who asks an instance something that is gone from memory, or whose request
    /// waited for a message. Those who wrote a row are found again by it.
    pub(super) fn answer_askers(&mut self, shared: &mut Shared, answer: &Answer) {
        for request in self.behind.take_callers().into_iter().chain(self.questions.take_callers()) {
            shared.reply(request, answer.clone());
        }
    }

    /// Gives the same answer to everybody who brought a message to an instance that is gone from memory, wanted to start
    /// it or waits for its end.
    pub(super) fn answer_all(&mut self, shared: &mut Shared, messages: &[Queued], answer: &Answer) {
        let callers = messages.iter().filter_map(|queued| match queued.origin {
            Origin::Caller(request) => Some(request),
            _ => None,
        });
        let rivals = mem::take(&mut self.rival_starts);
        let waiters = shared.waiters.take(self.key);
        let mut all: Vec<RequestId> = callers.chain(rivals).chain(waiters).collect();
        all.sort_unstable();
        all.dedup();
        for request in all {
            shared.reply(request, answer.clone());
        }
    }
}

/// What a caller asked who brought this message.
fn as_request(queued: Queued) -> Option<(RequestId, Request)> {
    let Origin::Caller(request_id) = queued.origin else { return None };
    let request = match queued.message {
        Message::Job(Job::ExternalEvent { name, payload, key, trace }) => {
            Request::Raise { name, payload, key, trace }
        }
        Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms }) => {
            Request::Cancel { reason, grace_ms: Some(grace_ms) }
        }
        Message::Terminate { reason } => Request::Terminate { reason },
        Message::Retry => Request::Retry,
        Message::Pause(pause) => Request::Pause(pause),
        Message::Resume(why) => Request::Resume(why),
        message => Request::Skip(message.skipped()?),
    };
    Some((request_id, request))
}

/// Whether a planted mistake has something done before its commit is durable.
fn is_early(output: &Output) -> bool {
    match output {
        Output::RunActivity(_) => flaws::is(Flaw::EffectsBeforeCommit),
        Output::Reply { answer: Answer::Asked(_), .. } => flaws::is(Flaw::AnswerBeforeTurn),
        _ => false,
    }
}

/// Whether this answers a question; such an answer is true even if nothing was written.
fn is_reply_to_question(output: &Output) -> bool {
    matches!(output, Output::Reply { answer: Answer::Asked(_), .. })
}
