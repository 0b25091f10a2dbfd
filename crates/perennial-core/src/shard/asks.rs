//! Queries and updates: questions to an instance's code, from callers here and from request rows of other processes.
//!
//! A question is put to the code between turns, when no commit is under way, so that an answer shows only what is
//! durable. An accepted update becomes a job; its answer is part of the turn that gives it.

use crate::execution::{Execution, QueryFailure, UpdateRefusal};
use crate::history::{Decision, EventId, Job, Turn};
use crate::instance::InstanceKey;
use crate::store::{Commit, RequestReply, RequestRow};

use super::output::Output;
use super::request::{Answer, AskReply, Asker, PendingAsk, Question};
use super::slot::{InFlight, Late, Slot};
use super::state_machine::Shard;
use super::turn_task::Consultation;

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

impl Shard {
    /// A request was read from the store. Returns whether it was not known.
    pub fn handle_request_row(&mut self, now_ms: u64, row: RequestRow) -> bool {
        let asker = Asker::Row(row.number);
        let is_known = self.slots.get(&row.key).is_some_and(|slot| slot.knows_asker(asker));
        if self.closing || is_known || self.answered.contains(row.number) || self.is_awaited(row.key, asker) {
            return false;
        }
        let question = match Question::decode(&row.body) {
            Ok(question) => question,
            Err(error) => {
                tracing::error!(number = row.number, %error, "a request cannot be read; it is left to its deadline");
                return false;
            }
        };
        if !self.slots.contains_key(&row.key) {
            self.load(row.key, now_ms);
        }
        if let Some(after) = row.after.filter(|after| self.has_to_wait(row.key, *after)) {
            self.wait_behind(row.key, after, Late::Ask(asker, question));
        } else {
            self.put_question(now_ms, row.key, asker, question);
        }
        true
    }

    pub(super) fn put_question(&mut self, now_ms: u64, key: InstanceKey, asker: Asker, question: Question) {
        if let Some(slot) = self.slots.get_mut(&key) {
            let place = slot.next_place();
            slot.asks.push_back(PendingAsk { asker, question, place });
            self.go_on(now_ms, key);
        }
    }

    fn is_awaited(&self, key: InstanceKey, asker: Asker) -> bool {
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        self.updates.range(all).any(|(_, askers)| askers.contains(&asker))
    }

    /// Answers a question once what it says is durable: here with the next outputs, in a row with a commit.
    pub(super) fn reply_to(
        &self,
        asker: Asker,
        reply: AskReply,
        rows: &mut Vec<RequestReply>,
    ) -> Option<Output> {
        match asker {
            Asker::Request(request) => Some(Output::Reply(request, Answer::Asked(reply))),
            Asker::Row(number) => {
                rows.push(RequestReply { number, body: reply.encode() });
                None
            }
        }
    }

    /// Sorts what became of questions in a turn task: answers are left in `rows` or sent, the rest is returned.
    pub(super) fn settle_asks(
        &mut self,
        key: InstanceKey,
        done: Vec<(PendingAsk, Consultation)>,
        rows: &mut Vec<RequestReply>,
    ) -> Vec<PendingAsk> {
        let (mut accepted, mut later) = (Vec::new(), Vec::new());
        for (ask, consultation) in done {
            match consultation {
                Consultation::Answered(reply) => {
                    let output = self.reply_to(ask.asker, reply, rows);
                    self.outputs.extend(output);
                }
                Consultation::Accepted => accepted.push(ask),
                Consultation::Known(event) => self.updates.entry((key, event)).or_default().push(ask.asker),
                Consultation::Later => later.push(ask),
            }
        }
        if let Some(slot) = self.slots.get_mut(&key) {
            // They keep their place before what was asked meanwhile.
            later.into_iter().rev().for_each(|ask| slot.asks.push_front(ask));
        }
        accepted
    }

    /// The answers to updates that a turn gives, into its commit and what follows from it.
    pub(super) fn answer_updates(
        &mut self,
        key: InstanceKey,
        turn: &Turn,
        ended: &[EventId],
        accepted: Vec<PendingAsk>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) {
        let requested = turn.jobs().filter(|(_, job)| matches!(job, Job::UpdateRequested { .. }));
        let requested: Vec<EventId> = requested.map(|(event, _)| event).collect();
        in_flight.accepted = requested.into_iter().zip(accepted).collect();
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
        let ended = ended.iter().map(|event| (*event, AskReply::Ended));
        for (event, reply) in completed.chain(ended).collect::<Vec<_>>() {
            let waiting = self.updates.get(&(key, event)).cloned().unwrap_or_default();
            let new = in_flight.accepted.iter().filter(|(accepted, _)| *accepted == event);
            let askers: Vec<Asker> = waiting.into_iter().chain(new.map(|(_, ask)| ask.asker)).collect();
            for asker in askers {
                let output = self.reply_to(asker, reply.clone(), &mut commit.replies);
                in_flight.outputs.extend(output);
            }
            in_flight.answered.push(event);
        }
    }

    /// Remembers who waits for the updates of a durable turn.
    pub(super) fn await_updates(
        &mut self,
        key: InstanceKey,
        accepted: Vec<(EventId, PendingAsk)>,
        answered: &[EventId],
    ) {
        for (event, ask) in accepted {
            self.updates.entry((key, event)).or_default().push(ask.asker);
        }
        for event in answered {
            self.updates.remove(&(key, *event));
        }
    }

    /// Gives the same reply to everything that is asked of an instance.
    pub(super) fn refuse_asks(
        &self,
        asks: &[PendingAsk],
        reply: &AskReply,
        rows: &mut Vec<RequestReply>,
    ) -> Vec<Output> {
        asks.iter().filter_map(|ask| self.reply_to(ask.asker, reply.clone(), rows)).collect()
    }

    /// The updates of an instance that nobody answers any more, because it ended without its code; and what those who
    /// wait for them are told.
    pub(super) fn orphaned_updates(
        &self,
        key: InstanceKey,
        rows: &mut Vec<RequestReply>,
    ) -> (Vec<EventId>, Vec<Output>) {
        let all = (key, EventId(0))..=(key, EventId(u64::MAX));
        let (mut events, mut outputs) = (Vec::new(), Vec::new());
        for ((_, event), askers) in self.updates.range(all) {
            events.push(*event);
            let replies = askers.iter().filter_map(|asker| self.reply_to(*asker, AskReply::Ended, rows));
            outputs.extend(replies);
        }
        (events, outputs)
    }
}

impl Slot {
    /// Takes the updates that wait: they cannot be answered after the end.
    pub(super) fn take_update_asks(&mut self) -> Vec<PendingAsk> {
        let (queries, updates): (Vec<PendingAsk>, Vec<PendingAsk>) =
            self.asks.drain(..).partition(|ask| matches!(ask.question, Question::Query { .. }));
        self.asks.extend(queries);
        updates
    }
}

/// Puts questions to an execution between its turns.
pub(super) fn consult(
    execution: &mut Execution,
    asks: Vec<PendingAsk>,
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
            };
            (ask, consultation)
        })
        .collect();
    // The validators saw the state before the other jobs; so do the handlers.
    jobs.splice(0..0, accepted);
    done
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
