//! What callers and other processes want of an instance, in their senders' order.

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
    /// A caller wants something. It takes effect once the sender's message before it is in memory, or was consumed.
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
                // Whether there is room is known once its messages have been read, whichever these are.
                let what = Late::Request(request_id, request);
                self.behind.push(Waiting { after: 0, what, is_read_for: true });
                self.refresh(shared);
            }
            None => self.serve_request(shared, now_ms, request_id, request),
        }
    }

    /// Another process asks something.
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

    /// Whether a message may still have to be read from the inbox. What comes for a blocked or delayed instance is kept in
    /// its inbox, after that message; one that has ended takes neither.
    fn has_to_wait(&self, shared: &Shared, after: InboxNumber) -> bool {
        !matches!(self.phase, Phase::Blocked | Phase::Delayed)
            && !self.status().is_some_and(Status::is_final)
            && !flaws::is(Flaw::UnorderedSenders)
            && !shared.consumed.contains(after)
            && !self.knows_inbox(after)
    }

    /// Keeps something until the messages have been read. A read that is under way may have begun before the message was
    /// written.
    fn wait_behind(&mut self, shared: &mut Shared, after: InboxNumber, what: Late) {
        let is_reading = self.tasks.is_refreshing() || self.is_loading();
        self.behind.push(Waiting { after, what, is_read_for: !is_reading });
        // Whether a start makes the instance, or the id is another one's that has this message, is yet to be seen.
        let is_unborn = self.columns.is_none();
        if !is_reading && !is_unborn {
            self.refresh(shared);
        }
    }

    /// The messages before the number `cut` were read, or all of them: what waited for one of them is next. What came
    /// while they were being read, and waits for one that is not among them, has them read once more, if that is not
    /// under way.
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

    /// Has the messages read for what waits for one of them, unless they are being read. What fits into a read that is
    /// cut has been consumed when nothing is left to deliver, so that the next one brings more.
    pub(super) fn read_for_behind(&mut self, shared: &mut Shared) {
        if !self.behind.is_empty() && !self.tasks.is_refreshing() {
            self.behind.handle_read_begun();
            self.refresh(shared);
        }
    }

    /// What waits for a message need not wait any more.
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
