//! What callers ask for, in this process and from others.

use perennial_core::shard::{Message, Request, RequestId, StartRequest};
use perennial_core::store::{InstanceRow, SendOutcome, SendRequest, Status, Store};
use perennial_core::{Job, Payload, ShardId, Started};

use super::{Desk, ask_store};

impl Desk {
    /// Somebody starts an instance.
    pub fn start(&mut self, name: &str, id: &str, input: impl Into<Payload>) -> RequestId {
        let started = Started::new(name, Desk::VERSION, input, self.next_number);
        self.start_with(id, started)
    }

    /// Somebody starts an instance this way.
    pub fn start_with(&mut self, id: &str, started: Started) -> RequestId {
        let key = self.new_key();
        self.ask(id, Request::Start(Box::new(StartRequest { key, started })))
    }

    /// Somebody raises an event.
    pub fn raise(&mut self, id: &str, event: &str, payload: impl Into<Payload>) -> RequestId {
        self.ask(id, Request::Raise { name: event.to_owned(), payload: payload.into(), key: None })
    }

    /// Somebody raises an event with a key against duplicates.
    pub fn raise_once(&mut self, id: &str, event: &str, key: &str, payload: impl Into<Payload>) -> RequestId {
        let key = Some(key.to_owned());
        self.ask(id, Request::Raise { name: event.to_owned(), payload: payload.into(), key })
    }

    /// Somebody cancels an instance.
    pub fn cancel(&mut self, id: &str, reason: &str) -> RequestId {
        self.ask(id, Request::Cancel { reason: reason.to_owned() })
    }

    /// Somebody terminates an instance.
    pub fn terminate(&mut self, id: &str, reason: &str) -> RequestId {
        self.ask(id, Request::Terminate { reason: reason.to_owned() })
    }

    /// Somebody wants a blocked instance tried again.
    pub fn retry(&mut self, id: &str) -> RequestId {
        self.ask(id, Request::Retry)
    }

    /// Somebody waits for an instance to end.
    pub fn await_end(&mut self, id: &str) -> RequestId {
        self.ask(id, Request::AwaitEnd)
    }

    /// Somebody asks something.
    pub fn ask(&mut self, id: &str, request: Request) -> RequestId {
        let request_id = RequestId(self.number());
        self.with_shard(ShardId::of(id), |shard, now_ms| {
            shard.handle_request(now_ms, request_id, id, request)
        });
        request_id
    }

    /// Another process sends a start: a pending row and a message.
    pub fn send_start(&mut self, name: &str, id: &str, input: impl Into<Payload>) -> SendOutcome {
        let started = Started::new(name, Desk::VERSION, input, self.next_number);
        let row = InstanceRow {
            key: self.new_key(),
            id: id.to_owned(),
            shard: ShardId::of(id),
            name: started.name.clone(),
            version: started.version.clone(),
            status: Status::Pending,
            execution: started.execution,
            owed: false,
            wake_at_ms: None,
            blocked: None,
            attributes: started.attributes.clone(),
            published: None,
            parent: None,
            created_ms: self.now_ms(),
            ended_ms: None,
        };
        let body = Message::Start(Box::new(started)).encode();
        self.send(SendRequest::Start { row: Box::new(row), body })
    }

    /// Another process sends an event.
    pub fn send_event(&mut self, id: &str, event: &str, payload: impl Into<Payload>) -> SendOutcome {
        let job = Job::ExternalEvent { name: event.to_owned(), payload: payload.into(), key: None };
        self.send_message(id, &Message::Job(job))
    }

    /// Another process sends a message.
    pub fn send_message(&mut self, id: &str, message: &Message) -> SendOutcome {
        let dedupe = message.dedupe().map(str::to_owned);
        self.send(SendRequest::Message {
            id: id.to_owned(),
            dedupe,
            urgent: message.is_urgent(),
            body: message.encode(),
        })
    }

    /// Another process sends something.
    pub fn send(&mut self, request: SendRequest) -> SendOutcome {
        let outcomes = ask_store(|reply| self.store.send(vec![request], reply)).expect("the store is open");
        outcomes.into_iter().next().expect("one outcome per request")
    }
}
