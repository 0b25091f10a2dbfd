//! Blocked instances. Nothing that arrived for them is lost.

use crate::code::ErrorCode;
use crate::history::whole_ms;
use crate::store::{Blocked, Commit, InboxNumber, InstanceRow, Outgoing, RequestReply, RowChange};

use super::super::block_reason::BlockReason;
use super::super::message::Message;
use super::super::options::OnFailure;
use super::super::output::Output;
use super::super::request::{CallReply, InstanceCall, Response};
use super::super::shared::Shared;
use super::Instance;
use super::calls::{refuse_calls, send_reply};
use super::in_flight::{InFlight, Next, Phase};
use super::logging;
use super::queued::{Batch, Queued};
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

impl Instance {
    /// Blocks the instance. Everything that arrived for it is kept in its inbox; replies that were produced before the
    /// turn failed are written.
    pub(super) fn block(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        mut messages: Vec<Queued>,
        failure: &BlockReason,
        answers: Vec<RequestReply>,
    ) {
        shared.counters.failed_turns += 1;
        if self.has_ended() {
            return self.calls_failed(shared, messages, failure, answers);
        }
        self.blocked_reply = Some(blocked_reply(failure));
        messages.extend(self.queue.take_all());
        if shared.options.on_failure.of(failure) == OnFailure::End {
            let message = Message::Terminate { reason: failure.to_string() };
            messages.push(Queued::engine(message, now_ms));
        }
        let messages = Batch::new(messages);
        self.kept_events = messages.events();
        let mut blocked = self.blocked(shared, now_ms, failure);
        blocked.message = blocked.message.or_else(|| self.unreadable_result(failure, &messages));
        if !shared.options.codecs.is_empty() {
            // The row is stored unencoded, so it must not quote payloads.
            blocked.remove_payloads();
        }
        let wake_at_ms = self.blocked_wake(shared, now_ms, &messages, failure, &blocked);
        logging::blocked(self, failure, &blocked);
        let send = self.kept(shared, &messages);
        // A retry request allows one attempt. It is deleted by a later commit, not by this one: a commit that sends
        // messages without a turn is repeated if its outcome is unknown, and a repetition that consumes a message would
        // conflict with its own first execution.
        self.tried.extend(messages.iter().filter_map(Queued::retry_number));
        let retries = messages.iter().filter_map(Queued::retry_number);
        let consumed: Vec<InboxNumber> = retries.filter(|_| send.is_empty()).collect();
        // What stays in the inbox has been examined; unless it stops being urgent, every pass over the inbox would
        // return it again.
        let urgent = messages.iter().filter_map(Queued::urgent_number);
        let seen = urgent.filter(|number| !consumed.contains(number)).collect();
        let mut commit = Commit { send, replies: answers, consumed, seen, ..shared.empty_commit(self.key) };
        let calls = self.pending_calls.take_all();
        let refusals = refuse_calls(&calls, &blocked_reply(failure), &mut commit.replies);
        let columns = self.mark_blocked(now_ms, &messages, blocked, wake_at_ms, &mut commit);
        let start = messages.start_request();
        let mut outputs: Vec<Output> = messages.replies(&Response::Accepted).collect();
        outputs.extend(start.map(|request| Output::reply(request, Response::Started(self.key))));
        outputs.extend(refusals);
        // A termination needs no code, so it is carried out as soon as the messages are kept, unless terminating is
        // what failed. An instance that is not retried wakes only for its end, and the time of that may be known only
        // from its history, so it is loaded again.
        let is_over = messages.iter().any(Queued::is_termination) && failure.leaves_history();
        let is_not_retried = !failure.may_pass();
        if is_not_retried {
            shared.no_auto_retry.insert(self.key);
        }
        let next = if is_over || is_not_retried { Next::Reloaded } else { Next::Blocked };
        let mut in_flight =
            InFlight { outputs, start, refused: calls, ..InFlight::new(columns, next, messages) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// The description of the block for its row. A cause that was already known keeps its time.
    pub(super) fn blocked(&self, shared: &Shared, now_ms: u64, failure: &BlockReason) -> Blocked {
        let cause = failure.cause();
        let known = self.columns.as_ref().and_then(|columns| columns.blocked_cause.as_ref());
        let since_ms = known.filter(|(known, _)| **known == *cause).map_or(now_ms, |(_, since_ms)| *since_ms);
        let waits_until_ms = match failure {
            BlockReason::MissingCode { .. } => {
                Some(since_ms.saturating_add(whole_ms(shared.options.missing_code_wait)))
            }
            _ => None,
        };
        Blocked {
            code: failure.code().to_string(),
            cause,
            reason: failure.to_string(),
            report: failure.report(),
            divergence: failure.divergence(),
            event: failure.unreadable_event(),
            message: failure.unreadable_message(),
            pause: failure.pause().cloned().map(Box::new),
            waits_until_ms: waits_until_ms.filter(|until_ms| *until_ms > now_ms),
            since_ms,
            tried_ms: failure.is_tried().then_some(now_ms),
            attempts: self.attempts(failure),
        }
    }

    /// The number of attempts. A successful hydration in between does not reset the count of turns that did not end,
    /// and a turn that was not tried does not increment it.
    fn attempts(&self, failure: &BlockReason) -> u32 {
        let known = self.columns.as_ref().map_or(0, |columns| columns.blocked_attempts);
        match failure {
            BlockReason::ThreadLost => known.max(self.lost_turns) + 1,
            BlockReason::Paused(_) => 1,
            BlockReason::NotTried => known.max(self.lost_turns).max(1),
            _ => known + 1,
        }
    }

    /// When a blocked instance needs attention: for its next retry, or for an end that needs no code.
    fn blocked_wake(
        &self,
        shared: &Shared,
        now_ms: u64,
        messages: &Batch,
        failure: &BlockReason,
        blocked: &Blocked,
    ) -> Option<u64> {
        let retry_at_ms =
            failure.may_pass().then(|| now_ms + shared.options.retry_pause_ms(blocked.attempts));
        // The stored wake time may be the end of a cancel request's grace period, which ends the instance without its
        // code.
        let wanted_ms = self.columns.as_ref().and_then(|columns| columns.wake_at_ms);
        let wanted_ms = wanted_ms.filter(|at_ms| *at_ms > now_ms && failure.may_pass());
        let graces = messages.cancel_graces().map(|grace| shared.gaps.end_of(grace));
        let ends = graces.chain(self.limits.ends());
        // When its code is no longer waited for, it is tried once more and shown as blocked.
        ends.chain(wanted_ms).chain(retry_at_ms).chain(blocked.waits_until_ms).min()
    }

    /// Adds to a commit that the instance is blocked, and returns its new columns. If it is not stored yet, it is
    /// inserted.
    pub(super) fn mark_blocked(
        &self,
        now_ms: u64,
        messages: &Batch,
        blocked: Blocked,
        wake_at_ms: Option<u64>,
        commit: &mut Commit,
    ) -> RowColumns {
        // A start that came from the inbox already has a row, even if that row could not be read.
        let started = messages.started().filter(|_| !messages.has_stored_start());
        if let (None, Some(started)) = (&self.columns, started) {
            let row = InstanceRow::pending(self.key, &self.id, started, now_ms);
            let row = InstanceRow { wake_at_ms, blocked: Some(blocked), ..row };
            let columns = RowColumns::of_row(&row);
            commit.insert = Some(Box::new(row));
            return columns;
        }
        // If the row could not be read, its columns are not known.
        let stored = self.columns.clone().unwrap_or_else(|| RowColumns::nothing_stored(1));
        let columns = RowColumns {
            wake_at_ms,
            blocked_attempts: blocked.attempts,
            blocked_code: blocked.code.parse().ok(),
            blocked_cause: Some((blocked.cause.as_str().into(), blocked.since_ms)),
            skippable: blocked.skippable(),
            pause: blocked.pause.as_ref().map(|pause| pause.orchestration),
            ..stored.clone()
        };
        let (wake_at_ms, blocked) = (Some(wake_at_ms), Some(Some(blocked)));
        commit.change = RowChange { wake_at_ms, blocked, ..columns.change_from(&stored) };
        columns
    }

    /// Handles a failure to hydrate an ended instance for calls: the callers get the reason, and the instance stays
    /// ended.
    fn calls_failed(
        &mut self,
        shared: &mut Shared,
        messages: Vec<Queued>,
        failure: &BlockReason,
        answers: Vec<RequestReply>,
    ) {
        self.queue.put_back(messages);
        let mut calls = self.pending_calls.take_updates();
        let mut commit = Commit { replies: answers, ..shared.empty_commit(self.key) };
        let mut outputs = refuse_calls(&calls, &CallReply::Ended, &mut commit.replies);
        let queries = self.pending_calls.take_all();
        outputs.extend(refuse_calls(&queries, &blocked_reply(failure), &mut commit.replies));
        calls.extend(queries);
        if commit.is_empty() {
            shared.outputs.extend(outputs);
            return self.clear_leftovers(shared);
        }
        let in_flight = InFlight::new(self.stored(), Next::Gone, Batch::default());
        self.commit(shared, commit, InFlight { outputs, refused: calls, ..in_flight });
    }

    /// Handles a loaded instance that is not retried: it stays blocked.
    pub(super) fn stay_blocked(&mut self, shared: &mut Shared, now_ms: u64) {
        self.kept_events = self.queue.stored_events();
        let stored = self.stored();
        // Wake times up to now were handled by this load.
        let graces = self.queue.cancel_graces().map(|grace| shared.gaps.end_of(grace));
        let ends = graces.chain(self.limits.ends()).chain(stored.wake_at_ms);
        let wake_at_ms = ends.filter(|at_ms| *at_ms > now_ms).min();
        if wake_at_ms == stored.wake_at_ms {
            return self.settle(shared, now_ms, Phase::Blocked, wake_at_ms);
        }
        let columns = RowColumns { wake_at_ms, ..stored.clone() };
        let mut commit = Commit { change: columns.change_from(&stored), ..shared.empty_commit(self.key) };
        let mut in_flight = InFlight::new(columns, Next::Kept, Batch::default());
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// Writes what arrived for a blocked or delayed instance into its inbox.
    pub(super) fn keep_queue(&mut self, shared: &mut Shared, next: Next) {
        let is_delayed = matches!(next, Next::Delayed);
        let messages = Batch::new(self.queue.take_brought());
        // A cancel request from another process ends the instance when its grace period is over, like one from this
        // process.
        let graces = messages.cancel_graces().chain(self.queue.cancel_graces());
        let grace_until_ms = graces.map(|grace| shared.gaps.end_of(grace)).min();
        // The inbox messages of a delayed instance are kept in memory, so that they are not read repeatedly.
        let stored = if is_delayed { Vec::new() } else { self.queue.take_stored() };
        let seen = stored.iter().filter_map(Queued::urgent_number).collect();
        let send = self.kept(shared, &messages);
        let mut commit = Commit { send, seen, ..shared.empty_commit(self.key) };
        // Those of a delayed instance stay in the queue, as rows.
        self.kept_events += if is_delayed { 0 } else { messages.events() };
        let mut outputs: Vec<Output> = messages.replies(&Response::Accepted).collect();
        let calls = self.pending_calls.take_all();
        for pending in &calls {
            let reply = if is_delayed { not_begun(&pending.call) } else { self.refusal() };
            outputs.extend(send_reply(pending.reply_to, reply, &mut commit.replies));
        }
        let stored = self.stored();
        // An instance that could not be marked as blocked is still retried, although its row does not say so.
        let retry_ms = shared.wakes.of(self.key);
        let wake_at_ms = grace_until_ms.into_iter().chain(stored.wake_at_ms).chain(retry_ms).min();
        let columns = RowColumns { wake_at_ms, ..stored.clone() };
        commit.change = RowChange { blocked: None, ..columns.change_from(&stored) };
        let mut in_flight = InFlight { outputs, refused: calls, ..InFlight::new(columns, next, messages) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        if commit.is_empty() {
            return shared.outputs.extend(in_flight.outputs);
        }
        self.commit(shared, commit, in_flight);
    }

    /// Remembers what was written into the inbox of a delayed instance under these numbers, so that it is not read
    /// repeatedly. A message without a number existed before, or is found by the next read.
    pub(super) fn remember_kept(&mut self, messages: Batch, sent: &[Option<InboxNumber>]) {
        let kept = messages.into_messages().into_iter().filter(Queued::is_only_here);
        for (queued, number) in kept.zip(sent) {
            if let Some(number) = number.filter(|number| !self.knows_inbox(*number)) {
                self.queue.insert_written(number, queued);
            }
        }
    }

    /// The reply to calls while the instance cannot run its code.
    fn refusal(&self) -> CallReply {
        self.blocked_reply.clone().unwrap_or_else(|| CallReply::Blocked {
            code: ErrorCode::Blocked.to_string(),
            reason: "the instance is blocked; its status says why".to_owned(),
        })
    }

    /// The messages that exist only in memory, as inbox rows. Each has a deduplication key, so that a repeated commit
    /// appends nothing twice.
    pub(super) fn kept(&self, shared: &mut Shared, messages: &Batch) -> Vec<Outgoing> {
        let mut rows = Vec::new();
        for queued in messages.iter().filter(|queued| queued.is_only_here()) {
            let dedupe = queued.message.dedupe().map_or_else(|| shared.kept_keys.next(), str::to_owned);
            rows.push(Outgoing::ToKey {
                to: self.key,
                shard: shared.id,
                dedupe: Some(dedupe),
                urgent: false,
                body: queued.message.encode(),
            });
        }
        rows
    }
}

/// The reply to a call to an instance whose start time has not come.
fn not_begun(call: &InstanceCall) -> CallReply {
    let reason = match call {
        InstanceCall::Query { .. } | InstanceCall::Handlers => {
            ErrorCode::QueryRefused.message("the instance has not started, and has no state to query yet")
        }
        InstanceCall::Update { .. } => ErrorCode::UpdateRefused.message("the instance has not started"),
        InstanceCall::Raise { .. } => {
            "the instance has not started; the event can wait in its inbox".to_owned()
        }
        InstanceCall::Token(_) => {
            ErrorCode::BadToken.message("the instance has not started, and has handed out no tokens")
        }
        InstanceCall::RetryActivity { .. } | InstanceCall::Reset { .. } => {
            "the instance has not started".to_owned()
        }
    };
    CallReply::Refused { reason, error: None }
}

/// The reply of a blocked instance to a call.
pub(super) fn blocked_reply(failure: &BlockReason) -> CallReply {
    CallReply::Blocked { code: failure.code().to_string(), reason: failure.to_string() }
}
