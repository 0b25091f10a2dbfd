//! Rows and members for tests.

use std::sync::Arc;

use perennial_core::ErrorCode;
use perennial_core::store::{
    Blocked, Commit, Divergence, DivergenceRow, InboxNumber, InstanceRow, Outgoing, Pause, RequestNumber,
    RequestReply, RowChange, SendRequest, Status, TaskChange, TaskId, TaskRow, TaskState, TurnRow,
};
use perennial_core::{Attributes, EventId, InstanceKey, Payload, ShardId, Trail, Why};

/// The key of instance `number`. Keys have the order of their numbers.
pub fn key(number: u64) -> InstanceKey {
    InstanceKey::new(1_700_000_000_000 + number, u128::from(number))
}

/// A running instance.
pub fn row(number: u64, id: &str) -> InstanceRow {
    InstanceRow {
        key: key(number),
        id: id.to_owned(),
        shard: ShardId::of(id),
        name: "checkout".to_owned(),
        version: "1.0.0".to_owned(),
        status: Status::Running,
        execution: 1,
        owed: false,
        wake_at_ms: None,
        blocked: None,
        full: false,
        attributes: Attributes::new(),
        published: None,
        parent: None,
        created_ms: 1_700_000_000_000 + number,
        ended_ms: None,
        checksum: 0,
    }
    .sealed()
}

/// A blocked state for tests.
pub fn blocked() -> Blocked {
    Blocked {
        code: ErrorCode::Nondeterminism.to_string(),
        cause: "nondeterminism: ActivityScheduled differs in its \"name\"".to_owned(),
        reason: "nondeterminism".to_owned(),
        report: "the code went \"another\" way".to_owned(),
        divergence: Some(Box::new(Divergence {
            event: 4,
            neighbourhood: vec![DivergenceRow {
                event: EventId(4),
                recorded: "a".to_owned(),
                code: String::new(),
                parts: true,
            }],
            ..Divergence::default()
        })),
        event: Some(EventId(3)),
        message: Some(7),
        pause: Some(Box::new(Pause { why: Why::new("a \"repair\"").by("é"), orchestration: true })),
        waits_until_ms: None,
        tried_ms: None,
        since_ms: 1_700_000_000_123,
        attempts: 3,
    }
}

/// A member without effects.
pub fn member(row: &InstanceRow) -> Commit {
    Commit::empty(row.key, row.shard)
}

/// The first commit of a new instance: its row and turn 1.
pub fn start(row: &InstanceRow) -> Commit {
    member(row).inserting(row.clone()).turn(1, "started")
}

/// A message to the instance with an id.
pub fn message(id: &str, dedupe: Option<&str>, body: &str) -> SendRequest {
    SendRequest::Message {
        id: id.to_owned(),
        key: None,
        dedupe: dedupe.map(str::to_owned),
        urgent: false,
        body: bytes(body),
    }
}

/// A message that a blocked instance handles at once.
pub fn urgent(id: &str, dedupe: Option<&str>, body: &str) -> SendRequest {
    SendRequest::Message {
        id: id.to_owned(),
        key: None,
        dedupe: dedupe.map(str::to_owned),
        urgent: true,
        body: bytes(body),
    }
}

/// A message from a member to an existing instance.
pub fn outgoing(to: &InstanceRow, dedupe: Option<&str>, body: &str) -> Outgoing {
    Outgoing::ToKey {
        to: to.key,
        shard: to.shard,
        dedupe: dedupe.map(str::to_owned),
        urgent: false,
        body: bytes(body),
    }
}

/// A message that a blocked instance handles at once, sent by a member.
pub fn urgently(to: &InstanceRow, dedupe: Option<&str>, body: &str) -> Outgoing {
    Outgoing::ToKey {
        to: to.key,
        shard: to.shard,
        dedupe: dedupe.map(str::to_owned),
        urgent: true,
        body: bytes(body),
    }
}

/// A start by a client: the pending row and its message.
pub fn start_request(row: &InstanceRow, body: &str) -> SendRequest {
    let row = InstanceRow { status: Status::Pending, ..row.clone() };
    SendRequest::Start { row: Box::new(row), body: bytes(body) }
}

/// A start by a member: the pending row, its message, and the message to the sender if the id exists.
pub fn starting(row: &InstanceRow, body: &str, otherwise: Option<&str>) -> Outgoing {
    let row = InstanceRow { status: Status::Pending, ..row.clone() };
    let (row, body, otherwise) = (Box::new(row), bytes(body), otherwise.map(bytes));
    Outgoing::Start { row, body, otherwise, replaces_ended: false, started: None }
}

/// A queued task of an instance's first execution, for any node that registers `charge`.
pub fn task(row: &InstanceRow, event: u64) -> TaskRow {
    TaskRow {
        id: TaskId { key: row.key, execution: 1, event: EventId(event) },
        shard: row.shard,
        attempt: 1,
        state: TaskState::Queued,
        due_ms: None,
        since_ms: Some(1_699_999_999_000),
        details: None,
        heard_ms: None,
        interruptions: 0,
        begun: None,
        past: Trail::default(),
        name: "charge".to_owned(),
        tag: None,
        work: Some(bytes("work")),
    }
}

/// A turn whose checksum depends on its position and body.
pub fn turn_row(execution: u64, number: u64, body: &str) -> TurnRow {
    let place = (execution << 20 | number) as u32;
    let checksum = body.bytes().fold(!place, |sum, byte| sum.rotate_left(5) ^ u32::from(byte));
    TurnRow { execution, number, bytes: bytes(body), checksum }
}

/// The UTF-8 bytes of a text.
pub fn bytes(text: &str) -> Arc<[u8]> {
    Arc::from(text.as_bytes())
}

/// Builds a member step by step.
pub trait Build {
    /// Inserts a row.
    fn inserting(self, row: InstanceRow) -> Commit;
    /// Inserts a turn of the first execution.
    fn turn(self, number: u64, body: &str) -> Commit;
    /// Inserts a turn.
    fn turn_of(self, execution: u64, number: u64, body: &str) -> Commit;
    /// Changes the row.
    fn changing(self, change: RowChange) -> Commit;
    /// Consumes messages.
    fn consuming(self, numbers: impl IntoIterator<Item = InboxNumber>) -> Commit;
    /// Marks urgent messages as seen.
    fn having_seen(self, numbers: impl IntoIterator<Item = InboxNumber>) -> Commit;
    /// Fires the timers that are due up to a time.
    fn firing(self, fired_ms: u64) -> Commit;
    /// Sends messages.
    fn sending(self, messages: impl IntoIterator<Item = Outgoing>) -> Commit;
    /// Inserts or replaces tasks.
    fn putting(self, tasks: impl IntoIterator<Item = TaskRow>) -> Commit;
    /// Cancels tasks.
    fn cancelling(self, tasks: impl IntoIterator<Item = TaskId>) -> Commit;
    /// Replies to a request.
    fn replying(self, number: RequestNumber, body: &str) -> Commit;
}

impl Build for Commit {
    fn inserting(mut self, row: InstanceRow) -> Commit {
        self.insert = Some(Box::new(row));
        self
    }

    fn turn(self, number: u64, body: &str) -> Commit {
        self.turn_of(1, number, body)
    }

    fn turn_of(mut self, execution: u64, number: u64, body: &str) -> Commit {
        self.turn = Some(turn_row(execution, number, body));
        self
    }

    fn changing(mut self, change: RowChange) -> Commit {
        self.change = change;
        self
    }

    fn consuming(mut self, numbers: impl IntoIterator<Item = InboxNumber>) -> Commit {
        self.consumed.extend(numbers);
        self
    }

    fn having_seen(mut self, numbers: impl IntoIterator<Item = InboxNumber>) -> Commit {
        self.seen.extend(numbers);
        self
    }

    fn firing(mut self, fired_ms: u64) -> Commit {
        self.fired_ms = Some(fired_ms);
        self
    }

    fn sending(mut self, messages: impl IntoIterator<Item = Outgoing>) -> Commit {
        self.send.extend(messages);
        self
    }

    fn putting(mut self, tasks: impl IntoIterator<Item = TaskRow>) -> Commit {
        self.tasks.extend(tasks.into_iter().map(|task| TaskChange::Put(Box::new(task))));
        self
    }

    fn cancelling(mut self, tasks: impl IntoIterator<Item = TaskId>) -> Commit {
        self.tasks.extend(tasks.into_iter().map(TaskChange::Cancel));
        self
    }

    fn replying(mut self, number: RequestNumber, body: &str) -> Commit {
        self.replies.push(RequestReply { number, body: bytes(body) });
        self
    }
}

/// A change of only the status.
pub fn status(status: Status) -> RowChange {
    RowChange { status: Some(status), ..RowChange::default() }
}

/// Attributes with values from JSON.
pub fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let payload = |json: &str| Payload::from_json(json).expect("this is JSON");
    pairs.iter().map(|(name, json)| ((*name).to_owned(), payload(json))).collect()
}
