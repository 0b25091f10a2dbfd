//! What callers ask: starts, events, cancels, terminations, retries, questions, and waiting for the end.

use std::sync::Arc;

use crate::history::Job;
use crate::instance::InstanceKey;
use crate::store::InstanceRow;

use super::message::{Message, Start};
use super::output::Output;
use super::request::{Answer, Asker, PendingAsk, Question, Request, RequestId, StartRequest};
use super::slot::{Origin, Phase, Queued};
use super::state_machine::Shard;

impl Shard {
    /// A caller asks something of the instance with this id.
    pub fn handle_request(&mut self, now_ms: u64, request_id: RequestId, id: &str, request: Request) {
        let request = match request {
            Request::Start(start) => return self.handle_start(now_ms, request_id, id, *start),
            request => request,
        };
        match self.by_id.get(id).copied() {
            Some(key) => self.ask(now_ms, request_id, key, request),
            None => self.look_up(request_id, Arc::from(id), request),
        }
    }

    pub(super) fn look_up(&mut self, request_id: RequestId, id: Arc<str>, request: Request) {
        self.lookups.insert(request_id, request);
        self.outputs.push(Output::Find { request: request_id, id });
    }

    /// An id was looked up for a request.
    pub fn handle_found(&mut self, now_ms: u64, request_id: RequestId, row: Option<InstanceRow>) {
        let Some(request) = self.lookups.remove(&request_id) else { return };
        self.answer_found(now_ms, request_id, request, row);
        if self.lookups.is_empty() {
            self.ended_lately.clear();
        }
    }

    fn answer_found(
        &mut self,
        now_ms: u64,
        request_id: RequestId,
        request: Request,
        row: Option<InstanceRow>,
    ) {
        let Some(row) = row else {
            return self.reply(request_id, Answer::NotFound);
        };
        let is_known = self.slots.contains_key(&row.key);
        let is_query = matches!(request, Request::Ask(Question::Query { .. }));
        if !is_known && !is_query && (row.status.is_final() || self.ended_lately.contains(&row.key)) {
            return self.reply(request_id, Answer::EndedBefore);
        }
        if !is_known {
            if matches!(request, Request::AwaitEnd) {
                return self.waiters.entry(row.key).or_default().push(request_id);
            }
            let is_blocked = row.blocked.is_some() && !row.status.is_final();
            let phase = if is_blocked { Phase::Blocked } else { Phase::Loading };
            let loading = matches!(phase, Phase::Loading);
            let slot = self.add_slot(row.key, Arc::from(row.id.as_str()), phase, now_ms);
            slot.read_row(&row);
            if loading {
                self.outputs.push(Output::Load { key: row.key });
            } else {
                self.enter_idle(now_ms, row.key);
            }
        }
        self.ask(now_ms, request_id, row.key, request);
    }

    /// A look-up failed.
    pub fn handle_find_failed(&mut self, request_id: RequestId, reason: String) {
        if self.lookups.remove(&request_id).is_some() {
            self.reply(request_id, Answer::Unknown { reason });
        }
        if self.lookups.is_empty() {
            self.ended_lately.clear();
        }
    }

    pub(super) fn handle_start(&mut self, now_ms: u64, request_id: RequestId, id: &str, start: StartRequest) {
        if let Some(key) = self.by_id.get(id) {
            let slot = self.slots.get_mut(key).expect("ids name slots");
            // Whether the id exists is known once the instance's own start is durable.
            match &slot.facts {
                Some(facts) => {
                    let status = facts.status;
                    self.reply(request_id, Answer::AlreadyExists(status));
                }
                None => slot.rival_starts.push(request_id),
            }
            return;
        }
        let StartRequest { key, started, jobs } = start;
        let start = Start { jobs, ..Start::new(started) };
        self.add_slot(key, Arc::from(id), Phase::Loading, now_ms);
        self.begin(now_ms, key, start, Origin::Caller(request_id));
    }

    pub(super) fn ask(&mut self, now_ms: u64, request_id: RequestId, key: InstanceKey, request: Request) {
        let grace_until_ms = now_ms.saturating_add(self.options.cancel_grace_ms);
        let message = match request {
            Request::Raise { name, payload, key } => Message::Job(Job::ExternalEvent { name, payload, key }),
            Request::Cancel { reason } => {
                Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms })
            }
            Request::Terminate { reason } => Message::Terminate { reason },
            Request::Retry => Message::Retry,
            Request::AwaitEnd => return self.waiters.entry(key).or_default().push(request_id),
            Request::Ask(question) => {
                let ask = PendingAsk { asker: Asker::Request(request_id), question };
                return self.put_question(now_ms, key, ask);
            }
            Request::Start(_) => return,
        };
        let Some(slot) = self.slots.get(&key) else { return };
        let unread = slot.unread_events();
        if unread >= self.options.max_unread && matches!(message, Message::Job(Job::ExternalEvent { .. })) {
            return self.reply(request_id, Answer::Full { unread });
        }
        if matches!(message, Message::Retry) && !slot.is_blocked() {
            return self.reply(request_id, Answer::NotBlocked);
        }
        self.enqueue(now_ms, key, Queued { message, origin: Origin::Caller(request_id) });
    }
}
