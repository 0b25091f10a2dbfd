//! What callers ask: starts, events, cancels, terminations, retries, questions, and waiting for the end.

use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::history::Job;
use crate::instance::InstanceKey;
use crate::store::{InboxNumber, InstanceRow};

use super::message::{Message, Start};
use super::output::Output;
use super::request::{Answer, Asker, Question, Request, RequestId, StartRequest};
use super::slot::{Behind, Late, Origin, Phase, Queued};
use super::state_machine::Shard;

impl Request {
    /// Whether it may be asked of the instance with this key.
    fn is_meant_for(&self, instance: InstanceKey) -> bool {
        !matches!(self, Request::Bound { key, .. } if *key != instance)
    }

    /// What is asked, once it is known of whom.
    fn unbound(self) -> Request {
        match self {
            Request::Bound { request, .. } => *request,
            request => request,
        }
    }
}

impl Shard {
    /// A caller asks something of the instance with this id. It takes effect after the message with the number `after`,
    /// which the caller had acknowledged before.
    pub fn handle_request(
        &mut self,
        now_ms: u64,
        request_id: RequestId,
        id: &str,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        let request = match request {
            Request::Start(start) => return self.handle_start(now_ms, request_id, id, *start),
            request => request,
        };
        match self.by_id.get(id).copied() {
            Some(key) if !request.is_meant_for(key) => self.reply(request_id, Answer::NotFound),
            Some(key) => self.ask_in_order(now_ms, request_id, key, request.unbound(), after),
            None => self.look_up(request_id, Arc::from(id), request, after),
        }
    }

    pub(super) fn look_up(
        &mut self,
        request_id: RequestId,
        id: Arc<str>,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        self.lookups.insert(request_id, (request, after));
        self.outputs.push(Output::Find { request: request_id, id });
    }

    /// Asks something of an instance once the sender's message before it is in memory, or was consumed.
    fn ask_in_order(
        &mut self,
        now_ms: u64,
        request_id: RequestId,
        key: InstanceKey,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        match after.filter(|after| self.has_to_wait(key, *after)) {
            Some(after) => self.wait_behind(key, after, Late::Request(request_id, request)),
            None => self.ask(now_ms, request_id, key, request),
        }
    }

    /// Whether a message may still have to be read from an instance's inbox. What comes for a blocked or delayed
    /// instance is kept in its inbox, after that message.
    pub(super) fn has_to_wait(&self, key: InstanceKey, after: InboxNumber) -> bool {
        let Some(slot) = self.slots.get(&key) else { return false };
        !matches!(slot.phase, Phase::Blocked | Phase::Delayed)
            && !flaws::is(Flaw::UnorderedSenders)
            && !self.consumed.contains(after)
            && !slot.knows_inbox(after)
    }

    /// Keeps something until an instance's messages have been read. A read that is under way may have begun before the
    /// message was written.
    pub(super) fn wait_behind(&mut self, key: InstanceKey, after: InboxNumber, what: Late) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let is_reading = slot.is_refreshing || matches!(slot.phase, Phase::Loading);
        // Whether a start makes the instance, or the id is another one's that has this message, is yet to be seen.
        let is_unborn = slot.facts.is_none();
        slot.behind.push(Behind { after, what, is_read_for: !is_reading });
        if !is_reading && !is_unborn {
            slot.is_refreshing = true;
            self.outputs.push(Output::Refresh { key });
        }
    }

    /// The messages of an instance were read: what waited for one of them is next. What came while they were being read,
    /// and waits for one that is not among them, has them read once more, if that is not under way.
    pub(super) fn bring_behind(&mut self, now_ms: u64, key: InstanceKey, is_reading: bool) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let mut early = Vec::new();
        for behind in std::mem::take(&mut slot.behind) {
            if !behind.is_read_for && self.has_to_wait(key, behind.after) {
                early.push(Behind { is_read_for: !is_reading, ..behind });
            } else {
                self.bring(now_ms, key, behind.what);
            }
        }
        let Some(slot) = self.slots.get_mut(&key).filter(|_| !early.is_empty()) else { return };
        slot.behind.splice(0..0, early);
        if !is_reading {
            slot.is_refreshing = true;
            self.outputs.push(Output::Refresh { key });
        }
    }

    /// What waits for a message need not wait any more.
    pub(super) fn bring_all_behind(&mut self, now_ms: u64, key: InstanceKey) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        for behind in std::mem::take(&mut slot.behind) {
            self.bring(now_ms, key, behind.what);
        }
    }

    fn bring(&mut self, now_ms: u64, key: InstanceKey, late: Late) {
        match late {
            Late::Request(request_id, request) => self.ask(now_ms, request_id, key, request),
            Late::Ask(asker, question) => self.put_question(now_ms, key, asker, question),
        }
    }

    /// An id was looked up for a request.
    pub fn handle_found(&mut self, now_ms: u64, request_id: RequestId, row: Option<InstanceRow>) {
        let Some((request, after)) = self.lookups.remove(&request_id) else { return };
        self.answer_found(now_ms, request_id, request, after, row);
        if self.lookups.is_empty() {
            self.ended_lately.clear();
        }
    }

    fn answer_found(
        &mut self,
        now_ms: u64,
        request_id: RequestId,
        request: Request,
        after: Option<InboxNumber>,
        row: Option<InstanceRow>,
    ) {
        let Some(row) = row.filter(|row| request.is_meant_for(row.key)) else {
            return self.reply(request_id, Answer::NotFound);
        };
        let request = request.unbound();
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
        self.ask_in_order(now_ms, request_id, row.key, request, after);
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
            Request::Raise { name, payload, key, trace } => {
                Message::Job(Job::ExternalEvent { name, payload, key, trace })
            }
            Request::Cancel { reason } => {
                Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms })
            }
            Request::Terminate { reason } => Message::Terminate { reason },
            Request::Retry => Message::Retry,
            Request::AwaitEnd => return self.waiters.entry(key).or_default().push(request_id),
            Request::Ask(question) => {
                return self.put_question(now_ms, key, Asker::Request(request_id), question);
            }
            Request::Start(_) | Request::Bound { .. } => return,
        };
        let Some(slot) = self.slots.get(&key) else { return };
        let unread = slot.unread_events();
        let is_full = unread >= self.options.max_unread || slot.is_full();
        if is_full && matches!(message, Message::Job(Job::ExternalEvent { .. })) {
            return self.reply(request_id, Answer::Full { unread });
        }
        if matches!(message, Message::Retry) && !slot.is_blocked() {
            return self.reply(request_id, Answer::NotBlocked);
        }
        self.enqueue(now_ms, key, Queued::new(message, Origin::Caller(request_id), now_ms));
    }
}
