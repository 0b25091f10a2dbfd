//! Calls to an instance: queries, updates and others with a reply, from callers in this process and from request rows
//! of other processes.
//!
//! A call is made between turns, while no commit is in progress, so that a reply never shows state that is not durable.
//! An accepted update becomes a job; its reply is part of the turn that produces it.

use std::collections::BTreeSet;

use crate::code::ErrorCode;
use crate::execution::{Execution, QueryFailure, UpdateRefusal};
use crate::history::{Decision, EventId, Job, Payload, Turn};
use crate::store::{Commit, RequestReply, TaskRow, TaskState};

use super::super::output::Output;
use super::super::request::{CallReply, InstanceCall, PendingCall, ReplyTo, Response, TokenCall};
use super::super::shared::Shared;
use super::super::task_work::open_end;
use super::super::turn_task::CallOutcome;
use super::Instance;
use super::in_flight::InFlight;
use super::open_ends::{Verdict, judge};

impl CallReply {
    fn refused_query(failure: &QueryFailure) -> CallReply {
        let error = match failure {
            QueryFailure::Refused { error, .. } => Some(error.clone()),
            _ => None,
        };
        CallReply::Refused { reason: failure.to_string(), error }
    }

    fn refused_update(refusal: &UpdateRefusal) -> CallReply {
        let error = match refusal {
            UpdateRefusal::Refused { error, .. } => Some(error.clone()),
            _ => None,
        };
        CallReply::Refused { reason: refusal.to_string(), error }
    }
}

/// Sends the reply to a call: to a caller in this process with the next outputs, to a request row with a commit.
pub(super) fn send_reply(
    reply_to: ReplyTo,
    reply: CallReply,
    rows: &mut Vec<RequestReply>,
) -> Option<Output> {
    match reply_to {
        ReplyTo::Request(request) => Some(Output::reply(request, Response::Reply(reply))),
        ReplyTo::Row(number) => {
            rows.push(RequestReply { number, body: reply.encode() });
            None
        }
    }
}

/// Sends the same reply to all of these calls.
pub(super) fn refuse_calls(
    calls: &[PendingCall],
    reply: &CallReply,
    rows: &mut Vec<RequestReply>,
) -> Vec<Output> {
    calls.iter().filter_map(|pending| send_reply(pending.reply_to, reply.clone(), rows)).collect()
}

/// The replies to updates that a turn produces, by the event that recorded the update.
fn given_answers(turn: &Turn, ended: &[EventId]) -> Vec<(EventId, CallReply)> {
    let completed = turn.decisions().filter_map(|(_, _, decision)| match decision {
        Decision::UpdateCompleted { source_event_id, result } => {
            let reply = match result {
                Ok(payload) => CallReply::Answered(payload.clone()),
                Err(payload) => CallReply::Failed(payload.clone()),
            };
            Some((*source_event_id, reply))
        }
        _ => None,
    });
    completed.chain(ended.iter().map(|event| (*event, CallReply::Unanswered))).collect()
}

impl Instance {
    /// Sorts the outcomes of calls in a turn task: replies are put into `rows` or sent, accepted calls are returned,
    /// and the others are queued again.
    pub(super) fn settle_calls(
        &mut self,
        shared: &mut Shared,
        done: Vec<(PendingCall, CallOutcome)>,
        rows: &mut Vec<RequestReply>,
    ) -> Vec<PendingCall> {
        let (mut accepted, mut later) = (Vec::new(), Vec::new());
        for (pending, outcome) in done {
            match outcome {
                CallOutcome::Answered(reply) => {
                    shared.outputs.extend(send_reply(pending.reply_to, reply, rows))
                }
                CallOutcome::Accepted => accepted.push(pending),
                CallOutcome::Known(event) => self.await_update(shared, event, pending.reply_to),
                CallOutcome::Writes(row) => match self.write_said(shared, &pending, row) {
                    true => accepted.push(pending),
                    false => later.push(pending),
                },
                CallOutcome::Later => later.push(pending),
            }
        }
        self.pending_calls.put_back(later);
        accepted
    }

    /// Adds the replies to updates that a turn produces to its commit and its outputs.
    pub(super) fn answer_updates(
        &mut self,
        shared: &mut Shared,
        turn: &Turn,
        ended: &[EventId],
        accepted: Vec<PendingCall>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) {
        let requested = turn.jobs().filter(|(_, job)| matches!(job, Job::UpdateRequested { .. }));
        in_flight.accepted = requested.map(|(event, _)| event).zip(accepted).collect();
        for (event, reply) in given_answers(turn, ended) {
            let waiting = shared.updates.waiting(self.key, event).iter().copied();
            let new = in_flight.accepted.iter().filter(|(accepted, _)| *accepted == event);
            for reply_to in waiting.chain(new.map(|(_, pending)| pending.reply_to)) {
                in_flight.outputs.extend(send_reply(reply_to, reply.clone(), &mut commit.replies));
            }
            in_flight.answered.push(event);
        }
    }

    /// Remembers where the reply to an update goes, unless it is a caller that no longer waits.
    fn await_update(&self, shared: &mut Shared, event: EventId, reply_to: ReplyTo) {
        if reply_to.caller().is_none_or(|request| shared.bindings.contains_key(&request)) {
            shared.updates.add(self.key, event, reply_to);
        }
    }

    /// Replies to those whose events a turn took: whether it ended the instance without reading them. Returns the other
    /// accepted calls.
    pub(super) fn answer_raises(
        accepted: Vec<PendingCall>,
        late_events: &BTreeSet<String>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) -> Vec<PendingCall> {
        let mut updates = Vec::new();
        for pending in accepted {
            let InstanceCall::Raise { key, .. } = &pending.call else {
                updates.push(pending);
                continue;
            };
            let is_late = late_events.contains(key);
            let reply = if is_late { CallReply::Ended } else { CallReply::Answered(Payload::null()) };
            in_flight.outputs.extend(send_reply(pending.reply_to, reply, &mut commit.replies));
            in_flight.refused.push(pending);
        }
        updates
    }

    /// Remembers where the replies to the updates of a durable turn go.
    pub(super) fn await_updates(
        &mut self,
        shared: &mut Shared,
        accepted: Vec<(EventId, PendingCall)>,
        answered: &[EventId],
    ) {
        for (event, pending) in accepted {
            self.await_update(shared, event, pending.reply_to);
        }
        for event in answered {
            shared.updates.take(self.key, *event);
        }
    }

    /// The updates that will never be answered because the instance ended without its code, and the replies to those
    /// who wait for them.
    pub(super) fn orphaned_updates(
        &self,
        shared: &Shared,
        rows: &mut Vec<RequestReply>,
    ) -> (Vec<EventId>, Vec<Output>) {
        let (mut events, mut outputs) = (Vec::new(), Vec::new());
        for (event, waiting) in shared.updates.of(self.key) {
            events.push(event);
            outputs.extend(
                waiting.iter().filter_map(|reply_to| send_reply(*reply_to, CallReply::Unanswered, rows)),
            );
        }
        (events, outputs)
    }
}

/// Makes calls to an execution between its turns.
pub(in crate::shard) fn make_calls(
    execution: &mut Execution,
    calls: Vec<PendingCall>,
    (is_full, now_ms): (bool, u64),
    jobs: &mut Vec<Job>,
) -> Vec<(PendingCall, CallOutcome)> {
    let mut accepted = Vec::new();
    let done = calls
        .into_iter()
        .map(|pending| {
            // Calls after an accepted update have to see the state that the update leaves.
            if !accepted.is_empty() {
                return (pending, CallOutcome::Later);
            }
            let outcome = match &pending.call {
                InstanceCall::Query { name, payload } => match execution.query(name, payload.clone()) {
                    Ok(answer) => CallOutcome::Answered(CallReply::Answered(answer)),
                    Err(failure) => CallOutcome::Answered(CallReply::refused_query(&failure)),
                },
                InstanceCall::Update { name, payload, key, trace } => {
                    let (name, payload, key) = (name.clone(), payload.clone(), key.clone());
                    let job = Job::UpdateRequested { name, payload, key, trace: trace.clone() };
                    offer(execution, job, &mut accepted)
                }
                InstanceCall::Raise { name, payload, key, trace } => {
                    let (name, payload, key) = (name.clone(), payload.clone(), Some(key.clone()));
                    let job = Job::ExternalEvent { name, payload, key, trace: trace.clone() };
                    take_event(execution, job, is_full, &mut accepted)
                }
                InstanceCall::Token(call) => take_said(execution, &pending, call, now_ms, &mut accepted),
                InstanceCall::Handlers => {
                    let named = Payload::encode(&execution.handlers()).unwrap_or_else(|_| Payload::null());
                    CallOutcome::Answered(CallReply::Answered(named))
                }
                InstanceCall::RetryActivity { execution: meant, event } => {
                    let row = pending.row.as_deref().map(|known| &known.row);
                    retry_now(execution, row, (*meant, *event), now_ms)
                }
                // A reset needs no code and is never passed to it.
                InstanceCall::Reset { .. } => CallOutcome::Later,
            };
            (pending, outcome)
        })
        .collect();
    // The validators saw the state before the other jobs, so the handlers run before them.
    jobs.splice(0..0, accepted);
    done
}

/// Makes an event part of the turn, unless the instance has ended, has accepted its key before, or has too many unread
/// events.
fn take_event(execution: &Execution, job: Job, is_full: bool, accepted: &mut Vec<Job>) -> CallOutcome {
    if execution.has_ended() {
        return CallOutcome::Answered(CallReply::Ended);
    }
    if execution.ledger().admit(&job).is_err() {
        return CallOutcome::Answered(CallReply::KeyTaken);
    }
    if is_full {
        let reason = "the instance has too many unread events".to_owned();
        return CallOutcome::Answered(CallReply::Refused { reason, error: None });
    }
    accepted.push(job);
    CallOutcome::Accepted
}

/// Applies a call with a token: it becomes part of the turn, changes the task row, or is refused.
fn take_said(
    execution: &Execution,
    pending: &PendingCall,
    call: &TokenCall,
    now_ms: u64,
    accepted: &mut Vec<Job>,
) -> CallOutcome {
    if execution.has_ended() {
        return CallOutcome::Answered(CallReply::Ended);
    }
    let current = (execution.started().execution, execution.ledger());
    match judge(current, pending.row.as_deref(), call, now_ms) {
        Verdict::Refused(reply) => CallOutcome::Answered(reply),
        Verdict::Takes(job) if execution.ledger().admit(&job).is_err() => {
            CallOutcome::Answered(CallReply::NotOpen)
        }
        Verdict::Takes(job) => {
            accepted.push(job);
            CallOutcome::Accepted
        }
        Verdict::Writes(row) => CallOutcome::Writes(row),
    }
}

/// Makes the attempt that an activity waits for due now.
fn retry_now(
    execution: &Execution,
    row: Option<&TaskRow>,
    (meant, event): (u64, EventId),
    now_ms: u64,
) -> CallOutcome {
    if execution.has_ended() {
        return CallOutcome::Answered(CallReply::Ended);
    }
    let ledger = execution.ledger();
    let is_open = matches!(ledger.open_decision(event), Some(Decision::ActivityScheduled { .. }));
    if execution.started().execution != meant || !is_open || ledger.is_stopping(event) {
        return CallOutcome::Answered(CallReply::NotOpen);
    }
    let is_left_open = |row: &TaskRow| open_end(row).is_some_and(|open| open.left.is_some());
    match row.filter(|row| row.state == TaskState::Waiting && !is_left_open(row)) {
        // Repeating the request changes nothing.
        Some(row) if row.due_ms.is_some_and(|due_ms| due_ms <= now_ms) => CallOutcome::Writes(None),
        Some(row) => CallOutcome::Writes(Some(Box::new(TaskRow { due_ms: Some(now_ms), ..row.clone() }))),
        None => {
            let reason = ErrorCode::NotWaiting.message("the activity does not wait for another attempt");
            CallOutcome::Answered(CallReply::Refused { reason, error: None })
        }
    }
}

fn offer(execution: &mut Execution, job: Job, accepted: &mut Vec<Job>) -> CallOutcome {
    if execution.has_ended() {
        return CallOutcome::Answered(CallReply::Ended);
    }
    if execution.ledger().admit(&job).is_err() {
        let known = job.key().and_then(|key| execution.ledger().update(key));
        return match known {
            Some((event, None)) => CallOutcome::Known(event),
            Some((_, Some(Ok(payload)))) => CallOutcome::Answered(CallReply::Answered(payload.clone())),
            Some((_, Some(Err(payload)))) => CallOutcome::Answered(CallReply::Failed(payload.clone())),
            None => CallOutcome::Answered(CallReply::KeyTaken),
        };
    }
    let Job::UpdateRequested { name, payload, .. } = &job else { return CallOutcome::Later };
    match execution.offer_update(name, payload) {
        Ok(()) => {
            accepted.push(job);
            CallOutcome::Accepted
        }
        Err(refusal) => CallOutcome::Answered(CallReply::refused_update(&refusal)),
    }
}
