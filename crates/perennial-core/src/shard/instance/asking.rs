//! Queries and updates: questions to an instance's code, from callers here and from request rows of other processes.
//!
//! A question is put to the code between turns, when no commit is under way, so that an answer shows only what is
//! durable. An accepted update becomes a job; its answer is part of the turn that gives it.

use std::collections::BTreeSet;

use crate::execution::{Execution, QueryFailure, UpdateRefusal};
use crate::history::{Decision, EventId, Job, Payload, Turn};
use crate::store::{Commit, RequestReply};

use super::super::output::Output;
use super::super::request::{Answer, AskReply, Asker, PendingAsk, Question, TokenCall};
use super::super::shared::Shared;
use super::super::turn_task::Consultation;
use super::Instance;
use super::in_flight::InFlight;
use super::open_ends::{Verdict, judge};

impl AskReply {
    fn refused_query(failure: &QueryFailure) -> AskReply {
        let error = match failure {
            QueryFailure::Refused { error, .. } => Some(error.clone()),
            _ => None,
        };
        AskReply::Refused { reason: failure.to_string(), error }
    }

    fn refused_update(refusal: &UpdateRefusal) -> AskReply {
        let error = match refusal {
            UpdateRefusal::Refused { error, .. } => Some(error.clone()),
            _ => None,
        };
        AskReply::Refused { reason: refusal.to_string(), error }
    }
}

/// Answers a question once what it says is durable: here with the next outputs, in a row with a commit.
pub(super) fn reply_to(asker: Asker, reply: AskReply, rows: &mut Vec<RequestReply>) -> Option<Output> {
    match asker {
        Asker::Request(request) => Some(Output::reply(request, Answer::Asked(reply))),
        Asker::Row(number) => {
            rows.push(RequestReply { number, body: reply.encode() });
            None
        }
    }
}

/// Gives the same reply to all of these questions.
pub(super) fn refuse_asks(
    asks: &[PendingAsk],
    reply: &AskReply,
    rows: &mut Vec<RequestReply>,
) -> Vec<Output> {
    asks.iter().filter_map(|ask| reply_to(ask.asker, reply.clone(), rows)).collect()
}

/// The answers to updates that a turn gives, by the event that recorded them.
fn given_answers(turn: &Turn, ended: &[EventId]) -> Vec<(EventId, AskReply)> {
    let completed = turn.decisions().filter_map(|(_, _, decision)| match decision {
        Decision::UpdateCompleted { source_event_id, result } => {
            let reply = match result {
                Ok(payload) => AskReply::Answered(payload.clone()),
                Err(payload) => AskReply::Failed(payload.clone()),
            };
            Some((*source_event_id, reply))
        }
        _ => None,
    });
    completed.chain(ended.iter().map(|event| (*event, AskReply::Unanswered))).collect()
}

impl Instance {
    /// Sorts what became of questions in a turn task: answers are left in `rows` or sent, what was accepted is returned,
    /// and the rest is put again.
    pub(super) fn settle_asks(
        &mut self,
        shared: &mut Shared,
        done: Vec<(PendingAsk, Consultation)>,
        rows: &mut Vec<RequestReply>,
    ) -> Vec<PendingAsk> {
        let (mut accepted, mut later) = (Vec::new(), Vec::new());
        for (ask, consultation) in done {
            match consultation {
                Consultation::Answered(reply) => shared.outputs.extend(reply_to(ask.asker, reply, rows)),
                Consultation::Accepted => accepted.push(ask),
                Consultation::Known(event) => self.await_update(shared, event, ask.asker),
                Consultation::Writes(row) => match self.write_said(shared, &ask, row) {
                    true => accepted.push(ask),
                    false => later.push(ask),
                },
                Consultation::Later => later.push(ask),
            }
        }
        self.questions.put_back(later);
        accepted
    }

    /// The answers to updates that a turn gives, into its commit and what follows from it.
    pub(super) fn answer_updates(
        &mut self,
        shared: &mut Shared,
        turn: &Turn,
        ended: &[EventId],
        accepted: Vec<PendingAsk>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) {
        let requested = turn.jobs().filter(|(_, job)| matches!(job, Job::UpdateRequested { .. }));
        in_flight.accepted = requested.map(|(event, _)| event).zip(accepted).collect();
        for (event, reply) in given_answers(turn, ended) {
            let waiting = shared.updates.askers(self.key, event).iter().copied();
            let new = in_flight.accepted.iter().filter(|(accepted, _)| *accepted == event);
            for asker in waiting.chain(new.map(|(_, ask)| ask.asker)) {
                in_flight.outputs.extend(reply_to(asker, reply.clone(), &mut commit.replies));
            }
            in_flight.answered.push(event);
        }
    }

    /// Remembers who waits for an update, unless it is a caller that has gone away.
    fn await_update(&self, shared: &mut Shared, event: EventId, asker: Asker) {
        if asker.caller().is_none_or(|request| shared.bindings.contains_key(&request)) {
            shared.updates.add(self.key, event, asker);
        }
    }

    /// Answers those whose events a turn took: whether it ended the instance without reading them. Returns the other
    /// questions that it accepted.
    pub(super) fn answer_raises(
        accepted: Vec<PendingAsk>,
        late_events: &BTreeSet<String>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) -> Vec<PendingAsk> {
        let mut updates = Vec::new();
        for ask in accepted {
            let Question::Raise { key, .. } = &ask.question else {
                updates.push(ask);
                continue;
            };
            let is_late = late_events.contains(key);
            let reply = if is_late { AskReply::Ended } else { AskReply::Answered(Payload::null()) };
            in_flight.outputs.extend(reply_to(ask.asker, reply, &mut commit.replies));
            in_flight.refused.push(ask);
        }
        updates
    }

    /// Remembers who waits for the updates of a durable turn.
    pub(super) fn await_updates(
        &mut self,
        shared: &mut Shared,
        accepted: Vec<(EventId, PendingAsk)>,
        answered: &[EventId],
    ) {
        for (event, ask) in accepted {
            self.await_update(shared, event, ask.asker);
        }
        for event in answered {
            shared.updates.take(self.key, *event);
        }
    }

    /// The updates that nobody answers any more, because the instance ended without its code; and what those who wait for
    /// them are told.
    pub(super) fn orphaned_updates(
        &self,
        shared: &Shared,
        rows: &mut Vec<RequestReply>,
    ) -> (Vec<EventId>, Vec<Output>) {
        let (mut events, mut outputs) = (Vec::new(), Vec::new());
        for (event, askers) in shared.updates.of(self.key) {
            events.push(event);
            outputs.extend(askers.iter().filter_map(|asker| reply_to(*asker, AskReply::Unanswered, rows)));
        }
        (events, outputs)
    }
}

/// Puts questions to an execution between its turns.
pub(in crate::shard) fn consult(
    execution: &mut Execution,
    asks: Vec<PendingAsk>,
    (is_full, now_ms): (bool, u64),
    jobs: &mut Vec<Job>,
) -> Vec<(PendingAsk, Consultation)> {
    let mut accepted = Vec::new();
    let done = asks
        .into_iter()
        .map(|ask| {
            // Whatever follows an accepted update is asked of the state that it leaves.
            if !accepted.is_empty() {
                return (ask, Consultation::Later);
            }
            let consultation = match &ask.question {
                Question::Query { name, payload } => match execution.query(name, payload.clone()) {
                    Ok(answer) => Consultation::Answered(AskReply::Answered(answer)),
                    Err(failure) => Consultation::Answered(AskReply::refused_query(&failure)),
                },
                Question::Update { name, payload, key, trace } => {
                    let (name, payload, key) = (name.clone(), payload.clone(), key.clone());
                    let job = Job::UpdateRequested { name, payload, key, trace: trace.clone() };
                    offer(execution, job, &mut accepted)
                }
                Question::Raise { name, payload, key, trace } => {
                    let (name, payload, key) = (name.clone(), payload.clone(), Some(key.clone()));
                    let job = Job::ExternalEvent { name, payload, key, trace: trace.clone() };
                    take_event(execution, job, is_full, &mut accepted)
                }
                Question::Token(call) => take_said(execution, &ask, call, now_ms, &mut accepted),
                // It is made without the code, and never put to it.
                Question::Reset { .. } => Consultation::Later,
            };
            (ask, consultation)
        })
        .collect();
    // The validators saw the state before the other jobs; so do the handlers.
    jobs.splice(0..0, accepted);
    done
}

/// Makes an event part of the turn, unless the instance has ended, one with its key was taken before, or it has too many
/// to read.
fn take_event(execution: &Execution, job: Job, is_full: bool, accepted: &mut Vec<Job>) -> Consultation {
    if execution.has_ended() {
        return Consultation::Answered(AskReply::Ended);
    }
    if execution.ledger().admit(&job).is_err() {
        return Consultation::Answered(AskReply::KeyTaken);
    }
    if is_full {
        let reason = "the instance has too many unread events".to_owned();
        return Consultation::Answered(AskReply::Refused { reason, error: None });
    }
    accepted.push(job);
    Consultation::Accepted
}

/// Makes what somebody said with a token part of the turn, or has it written, or refuses it.
fn take_said(
    execution: &Execution,
    ask: &PendingAsk,
    call: &TokenCall,
    now_ms: u64,
    accepted: &mut Vec<Job>,
) -> Consultation {
    if execution.has_ended() {
        return Consultation::Answered(AskReply::Ended);
    }
    let current = (execution.started().execution, execution.ledger());
    match judge(current, ask.row.as_deref(), call, now_ms) {
        Verdict::Refused(reply) => Consultation::Answered(reply),
        Verdict::Takes(job) if execution.ledger().admit(&job).is_err() => {
            Consultation::Answered(AskReply::NotOpen)
        }
        Verdict::Takes(job) => {
            accepted.push(job);
            Consultation::Accepted
        }
        Verdict::Writes(row) => Consultation::Writes(row),
    }
}

fn offer(execution: &mut Execution, job: Job, accepted: &mut Vec<Job>) -> Consultation {
    if execution.has_ended() {
        return Consultation::Answered(AskReply::Ended);
    }
    if execution.ledger().admit(&job).is_err() {
        let known = job.key().and_then(|key| execution.ledger().update(key));
        return match known {
            Some((event, None)) => Consultation::Known(event),
            Some((_, Some(Ok(payload)))) => Consultation::Answered(AskReply::Answered(payload.clone())),
            Some((_, Some(Err(payload)))) => Consultation::Answered(AskReply::Failed(payload.clone())),
            None => Consultation::Answered(AskReply::KeyTaken),
        };
    }
    let Job::UpdateRequested { name, payload, .. } = &job else { return Consultation::Later };
    match execution.offer_update(name, payload) {
        Ok(()) => {
            accepted.push(job);
            Consultation::Accepted
        }
        Err(refusal) => Consultation::Answered(AskReply::refused_update(&refusal)),
    }
}
