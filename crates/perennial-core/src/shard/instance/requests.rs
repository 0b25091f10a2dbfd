//! Requests of callers and calls of other processes, in the order of their senders.

use crate::flaws::{self, Flaw};
use crate::history::Job;
use crate::history::whole_ms;
use crate::store::{InboxNumber, Skippable, Status};

use super::super::message::Message;
use super::super::request::{InstanceCall, ReplyTo, Request, RequestId, Response};
use super::super::shared::Shared;
use super::Instance;
use super::behind::{Late, Wait, Waiting};
use super::in_flight::Phase;
use super::queued::{Origin, Queued};
use super::row_columns::RowColumns;

impl Instance {
    /// Handles a request. It takes effect once the sender's previous message is in memory, or was consumed.
    pub(in crate::shard) fn handle_request(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        request_id: RequestId,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        match after.filter(|after| self.has_to_wait(shared, *after)) {
            Some(after) => self.wait_behind(shared, after, Late::Request(request_id, request)),
            None if self.is_uncounted && matches!(request, Request::Raise { .. }) => {
                // Whether there is room is known only after its messages have been read.
                let what = Late::Request(request_id, request);
                self.behind.push(Waiting { after: 0, what, is_read_for: true });
                self.refresh(shared);
            }
            None => self.serve_request(shared, now_ms, request_id, request),
        }
    }

    /// Handles a call from another process.
    pub(in crate::shard) fn handle_call(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        reply_to: ReplyTo,
        call: InstanceCall,
        after: Option<InboxNumber>,
    ) {
        match after.filter(|after| self.has_to_wait(shared, *after)) {
            Some(after) => self.wait_behind(shared, after, Late::Call(reply_to, call)),
            None => self.queue_call(shared, now_ms, reply_to, call),
        }
    }

    fn queue_call(&mut self, shared: &mut Shared, now_ms: u64, reply_to: ReplyTo, call: InstanceCall) {
        let place = self.queue.next_place();
        self.pending_calls.push(reply_to, call, place);
        self.go_on(shared, now_ms);
    }

    /// Whether a message may still have to be read from the inbox. What arrives for a blocked or delayed instance is
    /// kept in its inbox, after that message; an ended instance takes neither.
    fn has_to_wait(&self, shared: &Shared, after: InboxNumber) -> bool {
        !matches!(self.phase, Phase::Blocked | Phase::Delayed)
            && !self.status().is_some_and(Status::is_final)
            && !flaws::is(Flaw::UnorderedSenders)
            && !shared.consumed.contains(after)
            && !self.knows_inbox(after)
    }

    /// Keeps a request until the messages have been read. A read in progress may have started before the message was
    /// written.
    fn wait_behind(&mut self, shared: &mut Shared, after: InboxNumber, what: Late) {
        let is_reading = self.tasks.is_refreshing() || self.is_loading();
        self.behind.push(Waiting { after, what, is_read_for: !is_reading });
        // It is not known yet whether this start creates the instance, or whether the id belongs to another instance
        // with this message.
        let is_unborn = self.columns.is_none();
        if !is_reading && !is_unborn {
            self.refresh(shared);
        }
    }

    /// Handles that the messages before the number `cut`, or all of them, were read: requests that waited for one of
    /// them are next. If a request arrived during the read and its message was not included, the messages are read once
    /// more, unless that is in progress.
    pub(super) fn bring_behind(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        cut: Option<InboxNumber>,
        is_reading: bool,
    ) {
        let (mut early, mut wants_read) = (Vec::new(), false);
        for waiting in self.behind.take_all() {
            let wait = waiting.wait_after_read(cut).filter(|_| self.has_to_wait(shared, waiting.after));
            match wait {
                Some(wait) => {
                    wants_read |= wait == Wait::ForAnotherRead;
                    early.push(waiting);
                }
                None => self.bring(shared, now_ms, waiting.what),
            }
        }
        if early.is_empty() {
            return;
        }
        self.behind.put_back(early);
        if wants_read && !is_reading {
            self.read_for_behind(shared);
        }
    }

    /// Starts a read of the messages for requests that wait for one, unless one is in progress. If a read was cut off,
    /// its messages have been consumed by the time nothing is left to deliver, so the next read returns more.
    pub(super) fn read_for_behind(&mut self, shared: &mut Shared) {
        if !self.behind.is_empty() && !self.tasks.is_refreshing() {
            self.behind.handle_read_begun();
            self.refresh(shared);
        }
    }

    /// Lets requests that wait for a message continue without it.
    pub(super) fn bring_all_behind(&mut self, shared: &mut Shared, now_ms: u64) {
        for waiting in self.behind.take_all() {
            self.bring(shared, now_ms, waiting.what);
        }
    }

    fn bring(&mut self, shared: &mut Shared, now_ms: u64, late: Late) {
        match late {
            Late::Request(request_id, request) => self.serve_request(shared, now_ms, request_id, request),
            Late::Call(reply_to, call) => self.queue_call(shared, now_ms, reply_to, call),
        }
    }

    fn serve_request(&mut self, shared: &mut Shared, now_ms: u64, request_id: RequestId, request: Request) {
        let message = match request {
            Request::Raise { name, payload, key, trace } => {
                Message::Job(Job::ExternalEvent { name, payload, key, trace })
            }
            Request::Cancel { reason, grace_ms } => {
                let grace_ms = grace_ms.unwrap_or(whole_ms(shared.options.cancel_grace));
                Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms })
            }
            Request::Terminate { reason } => Message::Terminate { reason },
            Request::Retry => Message::Retry,
            Request::Pause(pause) => Message::Pause(pause),
            Request::Resume(why) => Message::Resume(why),
            Request::Skip(Skippable::Event(event_id)) => Message::Job(Job::ExternalEventSkipped { event_id }),
            Request::Skip(Skippable::Message(number)) => Message::SkipMessage { number },
            Request::AwaitEnd => return shared.waiters.add(self.key, request_id),
            Request::Call(call) => {
                return self.queue_call(shared, now_ms, ReplyTo::Request(request_id), call);
            }
            Request::Start(_) | Request::Bound { .. } => return,
        };
        if matches!(message, Message::Job(Job::ExternalEvent { .. })) && self.is_full(shared) {
            shared.counters.events_refused += 1;
            return shared.reply(request_id, Response::Full { unread: self.unread_events() });
        }
        let is_paused = self.columns.as_ref().is_some_and(RowColumns::is_paused);
        let skipped = message.skipped();
        if (matches!(message, Message::Retry) || skipped.is_some()) && (is_paused || !self.is_blocked()) {
            return shared.reply(request_id, Response::NotBlocked);
        }
        if skipped.is_some() && skipped != self.skippable() {
            return shared.reply(request_id, Response::NotBlockedBy { blocking: self.skippable() });
        }
        self.queue.push(Queued::new(message, Origin::Caller(request_id), now_ms));
        self.go_on(shared, now_ms);
    }
}
