//! Requests of callers, in this process and in others.

use perennial_core::shard::{CallReply, InstanceCall, Message, Request, RequestId, Start, StartRequest};
use perennial_core::store::{
    InboxNumber, InstanceRow, NewRequest, Pause, PausedOrchestrations, RequestNumber, RequestOutcome,
    SendOutcome, SendRequest, Store,
};
use perennial_core::{InstanceKey, Job, Payload, Started, Why};

use super::{ManualNode, wait_for_store};

impl ManualNode {
    /// Starts an instance.
    pub fn start(&mut self, name: &str, id: &str, input: impl Into<Payload>) -> RequestId {
        let started = Started::new(name, ManualNode::VERSION, input, self.next_number);
        self.start_with(id, started)
    }

    /// Starts an instance with these settings.
    pub fn start_with(&mut self, id: &str, started: Started) -> RequestId {
        self.start_with_jobs(id, started, Vec::new())
    }

    /// Starts an instance with these settings and first jobs.
    pub fn start_with_jobs(&mut self, id: &str, started: Started, jobs: Vec<Job>) -> RequestId {
        let key = self.new_key();
        self.request(id, Request::Start(Box::new(StartRequest { key, started, jobs })))
    }

    /// Sends a query.
    pub fn query(&mut self, id: &str, name: &str, payload: impl Into<Payload>) -> RequestId {
        let instance_call = InstanceCall::Query { name: name.to_owned(), payload: payload.into() };
        self.request(id, Request::Call(instance_call))
    }

    /// Sends an update, with or without an idempotency key.
    pub fn update(
        &mut self,
        id: &str,
        name: &str,
        key: Option<&str>,
        payload: impl Into<Payload>,
    ) -> RequestId {
        let (payload, key) = (payload.into(), key.map(str::to_owned));
        self.request(
            id,
            Request::Call(InstanceCall::Update { name: name.to_owned(), payload, key, trace: None }),
        )
    }

    /// Raises an event.
    pub fn raise(&mut self, id: &str, event: &str, payload: impl Into<Payload>) -> RequestId {
        self.request(
            id,
            Request::Raise { name: event.to_owned(), payload: payload.into(), key: None, trace: None },
        )
    }

    /// Raises an event with an idempotency key.
    pub fn raise_once(&mut self, id: &str, event: &str, key: &str, payload: impl Into<Payload>) -> RequestId {
        let key = Some(key.to_owned());
        self.request(id, Request::Raise { name: event.to_owned(), payload: payload.into(), key, trace: None })
    }

    /// Requests the cancellation of an instance.
    pub fn cancel(&mut self, id: &str, reason: &str) -> RequestId {
        self.request(id, Request::Cancel { reason: reason.to_owned(), grace_ms: None })
    }

    /// Terminates an instance.
    pub fn terminate(&mut self, id: &str, reason: &str) -> RequestId {
        self.request(id, Request::Terminate { reason: reason.to_owned() })
    }

    /// Retries a blocked instance.
    pub fn retry(&mut self, id: &str) -> RequestId {
        self.request(id, Request::Retry)
    }

    /// Pauses an instance.
    pub fn pause(&mut self, id: &str, reason: &str) -> RequestId {
        self.request(id, Request::Pause(Pause { why: Why::new(reason), orchestration: false }))
    }

    /// Resumes an instance.
    pub fn resume(&mut self, id: &str) -> RequestId {
        self.request(id, Request::Resume(Why::new("repaired").by("ada")))
    }

    /// Resets an instance to a turn; by default to the last one before its end.
    pub fn reset(&mut self, id: &str, to_turn: Option<u64>) -> RequestId {
        let instance_call = self.reset_call(id, to_turn);
        self.request(id, Request::Call(instance_call))
    }

    /// The call that resets an instance as it is stored now.
    pub fn reset_call(&self, id: &str, to_turn: Option<u64>) -> InstanceCall {
        let execution = self.row(id).execution;
        InstanceCall::Reset { execution, to_turn, version: None, why: Why::new("a test").by("somebody") }
    }

    /// Sets the paused orchestrations. Lanes learn of it when they renew their leases.
    pub fn set_paused(&mut self, names: &[&str]) -> &mut ManualNode {
        let mut paused = PausedOrchestrations::default();
        names.iter().for_each(|name| paused.pause(name, 1, Why::new("the orchestration is paused")));
        let value = paused.encode();
        let name = PausedOrchestrations::SETTING;
        let read = wait_for_store(|reply| self.store.read_setting(name, reply)).expect("the store is open");
        let written = wait_for_store(|reply| self.store.write_setting(name, read, value, reply));
        assert!(written.expect("the store is open"), "there is no other writer");
        self
    }

    /// Waits for the end of an instance.
    pub fn await_end(&mut self, id: &str) -> RequestId {
        self.request(id, Request::AwaitEnd)
    }

    /// Sends a request.
    pub fn request(&mut self, id: &str, request: Request) -> RequestId {
        self.request_after(id, request, None)
    }

    /// Sends a request after an acknowledged message to the instance.
    pub fn request_after(&mut self, id: &str, request: Request, after: Option<InboxNumber>) -> RequestId {
        let request_id = RequestId(self.number());
        self.feed(|lane, now| lane.handle_request(now, request_id, id, request, after));
        request_id
    }

    /// Drops a caller that no longer waits.
    pub fn abandon(&mut self, id: &str, request: RequestId) {
        self.feed(|lane, _| lane.handle_caller_gone(id, request));
    }

    /// Sends a start from another process: a pending row and a message.
    pub fn send_start(&mut self, name: &str, id: &str, input: impl Into<Payload>) -> SendOutcome {
        let started = Started::new(name, ManualNode::VERSION, input, self.next_number);
        let key = self.new_key();
        self.send_start_as(key, id, Start::new(started))
    }

    /// Sends a delayed start from another process.
    pub fn send_delayed_start(
        &mut self,
        name: &str,
        id: &str,
        input: impl Into<Payload>,
        at_ms: u64,
    ) -> SendOutcome {
        let started = Started::new(name, ManualNode::VERSION, input, self.next_number);
        let key = self.new_key();
        self.send_start_as(key, id, Start { not_before_ms: Some(at_ms), ..Start::new(started) })
    }

    /// Sends a start with a given key from another process.
    pub fn send_start_as(&mut self, key: InstanceKey, id: &str, start: Start) -> SendOutcome {
        let row = InstanceRow::pending(key, id, &start.started, self.now_ms());
        let row = InstanceRow { wake_at_ms: start.not_before_ms, ..row };
        let body = Message::Start(Box::new(start)).encode();
        self.send(SendRequest::Start { row: Box::new(row), body })
    }

    /// Sends a request with a deadline from another process.
    pub fn send_request(
        &mut self,
        id: &str,
        instance_call: &InstanceCall,
        patience_ms: u64,
    ) -> RequestOutcome {
        self.send_request_after(id, instance_call, patience_ms, None)
    }

    /// Sends a request from another process, after an acknowledged message to the instance.
    pub fn send_request_after(
        &mut self,
        id: &str,
        instance_call: &InstanceCall,
        patience_ms: u64,
        after: Option<InboxNumber>,
    ) -> RequestOutcome {
        let body = instance_call.encode();
        let request = NewRequest { instance: id.to_owned(), key: None, patience_ms, after, body };
        wait_for_store(|reply| self.store.put_request(request, reply)).expect("the store is open")
    }

    /// The reply to a request from another process, if there is one.
    pub fn reply(&self, number: RequestNumber) -> Option<CallReply> {
        let answer = wait_for_store(|reply| self.store.read_reply(number, reply)).expect("the store is open");
        answer.map(|body| CallReply::decode(&body).expect("a shard writes replies"))
    }

    /// Sends an event from another process.
    pub fn send_event(&mut self, id: &str, event: &str, payload: impl Into<Payload>) -> SendOutcome {
        let job =
            Job::ExternalEvent { name: event.to_owned(), payload: payload.into(), key: None, trace: None };
        self.send_message(id, &Message::Job(job))
    }

    /// Sends a message from another process.
    pub fn send_message(&mut self, id: &str, message: &Message) -> SendOutcome {
        let dedupe = message.dedupe().map(str::to_owned);
        self.send(SendRequest::Message {
            id: id.to_owned(),
            key: None,
            dedupe,
            urgent: message.is_urgent(),
            body: message.encode(),
        })
    }

    /// Writes a send request from another process.
    pub fn send(&mut self, request: SendRequest) -> SendOutcome {
        let outcomes =
            wait_for_store(|reply| self.store.send(vec![request], reply)).expect("the store is open");
        outcomes.into_iter().next().expect("one outcome per request")
    }
}
