//! Handling the outcome of a commit. Replies, messages and activities leave only after it is durable.

use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{Ending, Job};
use crate::log;
use crate::store::{Commit, CommitOutcome, Conflict, InboxNumber, InstanceRow, Status};

use super::super::block_reason::BlockReason;
use super::super::message::Message;
use super::super::output::Output;
use super::super::request::{Request, RequestId, Response};
use super::super::shared::Shared;
use super::super::spans::TakenSpan;
use super::Instance;
use super::behind::Late;
use super::in_flight::{InFlight, Next, Phase};
use super::queued::{Batch, Origin, Queued};
use super::row_columns::RowColumns;

impl Instance {
    /// Hands out a commit. Everything that follows from it is kept in `in_flight` until the outcome is known, so that
    /// nothing leaves before it is durable, and everything can be put back if it fails.
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

    /// Handles the outcome of a commit. Losing the shard is handled by the lane, not by one instance.
    pub(in crate::shard) fn handle_committed(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        outcome: CommitOutcome,
    ) {
        let Some(in_flight) = self.end_commit() else { return };
        match outcome {
            CommitOutcome::Durable { sent } => self.durable(shared, now_ms, in_flight, &sent),
            // The existing instance is this one: the commit had been written before, and was repeated.
            CommitOutcome::Conflict(Conflict::IdTaken(row)) if row.key == self.key => {
                self.durable(shared, now_ms, in_flight, &[]);
            }
            CommitOutcome::Conflict(Conflict::IdTaken(row)) => {
                self.report_refused(shared, &in_flight.report);
                self.id_taken(shared, in_flight, &row);
            }
            CommitOutcome::Conflict(_) => {
                self.report_refused(shared, &in_flight.report);
                shared.counters.conflicts += 1;
                self.start_over(shared, in_flight);
            }
            CommitOutcome::Rejected(reason) => {
                self.report_refused(shared, &in_flight.report);
                self.rejected(shared, now_ms, in_flight, reason);
            }
            // The lane reports the loss of the shard separately; until then this instance must not do anything else.
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
        let InFlight { outputs, columns, next, checksum, consumed, accepted, answered, span, .. } = in_flight;
        shared.consumed.extend(consumed);
        if matches!(next, Next::Idle(_) | Next::Continued(..) | Next::Ended(..)) {
            // A repeated commit does not report which messages were delivered; they count as undelivered.
            shared.counters.undelivered += sent.iter().filter(|number| number.is_none()).count() as u64;
        }
        shared.answered.extend(in_flight.answered_rows);
        self.await_updates(shared, accepted, &answered);
        self.release(shared, now_ms, outputs);
        let wake_at_ms = columns.wake_at_ms;
        TakenSpan::in_scope(span.as_deref(), || self.log_durable(&columns, &next));
        if let Some(span) = span {
            span.close();
        }
        self.report_durable(shared, now_ms, &in_flight.report, (&columns, &next));
        self.checksum = checksum.unwrap_or(self.checksum);
        self.stored_as(shared, columns);
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
                // If jobs were carried over in further rows, they have to be read together with the start.
                let number = sent.last().copied().flatten().filter(|_| in_flight.carried_rows == 1);
                self.continued(shared, now_ms, execution, *start, number);
            }
            Next::Ended(execution, ending) => self.ended(shared, now_ms, execution, &ending),
            Next::CallsAnswered(execution) => {
                shared.outputs.push(Output::Drop(execution));
                self.clear_leftovers(shared);
            }
            Next::Gone => self.clear_leftovers(shared),
        }
    }

    /// Takes over the new columns of its row.
    fn stored_as(&mut self, shared: &mut Shared, columns: RowColumns) {
        let status = columns.status;
        let is_cured = !columns.is_blocked() && !status.is_final();
        let before = self.columns.replace(columns);
        if is_cured && before.as_ref().is_some_and(RowColumns::is_blocked) {
            // While it was blocked, passes over the inbox skipped its messages; they have to be read in order before
            // new ones are delivered.
            self.refresh(shared);
        }
        self.refuse_rivals(shared, status);
        if before.is_none() {
            // The instance may have existed for a while without this node knowing, and may have received messages.
            self.read_for_behind(shared);
        }
    }

    /// The instance exists now: other callers that want to start its id are refused.
    pub(super) fn refuse_rivals(&mut self, shared: &mut Shared, status: Status) {
        for rival in mem::take(&mut self.rival_starts) {
            shared.reply(rival, Response::AlreadyExists(status));
        }
    }

    /// Lets it rest, blocked or delayed, until something arrives for it.
    pub(super) fn settle(&mut self, shared: &mut Shared, now_ms: u64, phase: Phase, wake: Option<u64>) {
        self.phase = phase;
        shared.wakes.set(self.key, wake);
        self.rest(shared, now_ms);
        if !self.tasks.is_refreshing() {
            // Its messages are not delivered for now, so requests need not wait for them to be read.
            self.bring_all_behind(shared, now_ms);
        }
        self.go_on(shared, now_ms);
    }

    /// Sends out what was waiting for the commit to become durable.
    pub(super) fn release(&mut self, shared: &mut Shared, now_ms: u64, outputs: Vec<Output>) {
        for mut output in outputs {
            match &mut output {
                Output::HandOver(task) => {
                    // An attempt that has ended meanwhile does not have to be handed over.
                    let Some(attempt) = shared.attempts.end(task) else { continue };
                    task.details = attempt.details;
                    // Details reported while its row was being written would overwrite the node's lease.
                    self.tasks.drop_writes(task.event);
                }
                Output::RunActivity(task) => shared.attempts.begin(now_ms, task),
                // Its end is awaited.
                Output::CancelActivity { key, event, is_awaited: true, .. } => {
                    shared.attempts.stop(*key, *event);
                }
                Output::CancelActivity { key, event, .. } => {
                    shared.attempts.cancel(*key, *event);
                    // What it reported while that was being written needs no row any more.
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
        shared.no_auto_retry.remove(&self.key);
        for waiter in shared.waiters.take(self.key) {
            shared.reply(waiter, Response::Ended(Box::new(ending.clone())));
        }
        shared.lookups.handle_ended(self.key);
        shared.outputs.extend(execution.map(Output::Drop));
        self.tasks.clear_writes();
        if self.queue.is_empty() && self.pending_calls.is_empty() && !self.pending_calls.has_reset() {
            self.forget(shared);
        } else {
            self.clear_leftovers(shared);
        }
    }

    /// Handles a start whose id was taken: this instance never existed. Requests that arrived for the id are meant for
    /// the other one.
    fn id_taken(&mut self, shared: &mut Shared, in_flight: InFlight, row: &InstanceRow) {
        self.forget(shared);
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        self.rival_starts.splice(0..0, in_flight.start);
        self.refuse_rivals(shared, row.status);
        let id = &self.id;
        for waiter in shared.waiters.take(self.key) {
            shared.look_up(waiter, Arc::clone(id), Request::AwaitEnd, None);
        }
        let resets = std::iter::from_fn(|| self.pending_calls.take_reset()).collect::<Vec<_>>();
        for pending in self.pending_calls.take_all().into_iter().chain(resets) {
            if let Some(request) = pending.reply_to.caller() {
                shared.look_up(request, Arc::clone(id), Request::Call(pending.call), None);
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

    /// Handles a conflict: memory contradicts the store, so the execution is dropped and everything is read again.
    fn start_over(&mut self, shared: &mut Shared, mut in_flight: InFlight) {
        // Nothing of the commit was written, so its parts are put back and applied again after the load.
        self.pending_calls.extend(in_flight.take_calls());
        self.tasks.put_back_writes(in_flight.task_writes);
        self.queue.put_back(in_flight.messages.into_messages());
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        // Loading returns the inbox messages that still exist.
        self.queue.take_stored();
        self.reload(shared);
    }

    /// Handles a commit that the store can never accept: the instance is blocked without it.
    fn rejected(&mut self, shared: &mut Shared, now_ms: u64, mut in_flight: InFlight, reason: String) {
        match in_flight.next {
            Next::Gone | Next::CallsAnswered(_) => self.leftovers_refused(shared, in_flight, reason),
            Next::Blocked | Next::Kept | Next::Delayed | Next::Reloaded => {
                self.block_refused(shared, now_ms, in_flight, reason);
            }
            Next::Reset => self.reset_rejected(shared, in_flight, reason),
            Next::Idle(_) | Next::Continued(..) | Next::Ended(..) => {
                self.pending_calls.extend(in_flight.take_calls());
                self.tasks.put_back_writes(in_flight.task_writes);
                shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
                let failure = BlockReason::StoreRefused(reason);
                self.block(shared, now_ms, in_flight.messages.into_messages(), &failure, Vec::new());
            }
        }
    }

    /// Handles a refused commit that was to clean up after an ended instance. It is tried again another time.
    fn leftovers_refused(&mut self, shared: &mut Shared, in_flight: InFlight, reason: String) {
        shared.outputs.extend(in_flight.next.into_execution().map(Output::Drop));
        shared.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_call));
        self.forget(shared);
        self.respond_to_all(shared, &Response::Unknown { reason });
        let mut messages = in_flight.messages.into_messages();
        messages.extend(self.queue.take_all());
        self.answer_all(shared, &messages, &Response::EndedBefore);
    }

    /// Handles a refused commit that was to block the instance, or to keep its messages.
    fn block_refused(&mut self, shared: &mut Shared, now_ms: u64, in_flight: InFlight, reason: String) {
        tracing::error!(
            target: log::STORE,
            instance = &*self.id,
            execution = self.columns.as_ref().map(|columns| columns.execution),
            %reason,
            "blocked instance cannot be marked as blocked"
        );
        shared.outputs.extend(in_flight.outputs.into_iter().filter(is_reply_to_call));
        let mut messages = in_flight.messages.into_messages();
        messages.extend(self.queue.take_all());
        let unknown = Response::Unknown { reason };
        if self.columns.is_some() {
            // Its row exists anyway, and it is retried as if it had been marked as blocked.
            self.phase = Phase::Blocked;
            shared.wakes.set(self.key, in_flight.columns.wake_at_ms);
            shared.outputs.extend(Batch::new(messages).replies(&unknown));
            for request in self.pending_calls.take_callers() {
                shared.reply(request, unknown.clone());
            }
            self.rest(shared, now_ms);
            return;
        }
        self.forget(shared);
        self.respond_to_all(shared, &unknown);
        self.answer_all(shared, &messages, &unknown);
    }

    /// Sends the same response to every caller with a pending call or a request that waits for a message, after the
    /// instance was removed from memory. Request rows are found again by the next reader.
    pub(super) fn respond_to_all(&mut self, shared: &mut Shared, answer: &Response) {
        for request in self.behind.take_callers().into_iter().chain(self.pending_calls.take_callers()) {
            shared.reply(request, answer.clone());
        }
    }

    /// Sends the same response to everybody who sent a message to, wanted to start, or waits for the end of an instance
    /// that was removed from memory.
    pub(super) fn answer_all(&mut self, shared: &mut Shared, messages: &[Queued], answer: &Response) {
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

/// The request of the caller that brought this message.
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

/// Whether a planted flaw sends an output before its commit is durable.
fn is_early(output: &Output) -> bool {
    match output {
        Output::RunActivity(_) => flaws::is(Flaw::EffectsBeforeCommit),
        Output::Reply { answer: Response::Reply(_), .. } => flaws::is(Flaw::AnswerBeforeTurn),
        _ => false,
    }
}

/// Whether this is the reply to a call; it is true even if nothing was written, because queries read durable state
/// only.
fn is_reply_to_call(output: &Output) -> bool {
    matches!(output, Output::Reply { answer: Response::Reply(_), .. })
}
