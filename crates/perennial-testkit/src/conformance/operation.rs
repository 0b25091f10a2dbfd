//! Operations of the model test, drawn from a seed.
//!
//! Message and request numbers differ between stores, so operations refer to them by their position among
//! those assigned so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::store::{
    Commit, Criteria, Evidence, InstanceRow, SendRequest, Served, SessionId, SessionRole, ShardSet, Status,
    TaskId, TaskReport, TaskRow, TaskState,
};
use perennial_core::{EventId, InstanceKey, Payload, SHARDS, ShardId};

use super::instances::{bytes, row};
use crate::Rng;

/// Few ids, so that they collide.
pub(super) const IDS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "order-1", "order-2", "order-10", "ö"];
pub(super) const KEYS: [&str; 3] = ["k", "l", "m"];
pub(super) const BODIES: [&str; 3] = ["x", "y", ""];
pub(super) const VALUES: [&str; 20] = [
    "1",
    "1.0",
    "\"x\"",
    "null",
    "-2.5",
    "\"xy\"",
    "true",
    "9007199254740993",
    "-0.0",
    "1e400",
    "18446744073709551615",
    "18446744073709551616",
    "-1e-400",
    "\"\"",
    "\"\\u0000\"",
    "\"x\\u0000\"",
    "\"\\ud800\"",
    "\"\u{10ffff}\"",
    "\"x\u{10ffff}y\"",
    "[1]",
];
const CONDITIONS: [&str; 20] = [
    "customer^=",
    "customer^=x\u{10ffff}",
    "customer^=\u{10ffff}",
    "customer^=\"\\u0000\"",
    "customer>\"\"",
    "customer<=\"\u{10ffff}\"",
    "customer=\"\\ud800\"",
    "customer>=0",
    "customer<=-0.0",
    "customer>18446744073709551615",
    "customer<1e400",
    "customer=[1]",
    "customer>=1",
    "customer<1",
    "customer>-2.5",
    "customer<=9007199254740992",
    "customer^=x",
    "customer>x",
    "customer=1",
    "customer>=false",
];
pub(super) const ACTIVITIES: [&str; 2] = ["charge", "ship"];
pub(super) const TAGS: [&str; 2] = ["gpu", "eu"];
pub(super) const SETTINGS: [&str; 2] = ["retention", "version"];

/// The position of a session among the opened ones.
pub(super) type SessionPlace = usize;
/// The position of a message among the sent ones.
pub(super) type MessagePlace = usize;
/// The position of a request among the written ones.
pub(super) type RequestPlace = usize;

/// The id of a session, which is chosen by its opener.
pub(super) fn session_id(session: SessionPlace) -> SessionId {
    SessionId(u128::try_from(session).expect("a usize fits") + 1)
}

/// The shards of a read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shards {
    /// The shards that its session was given.
    Owned,
    /// Some of them.
    OwnedAmong(ShardSet),
    /// All shards, whoever owns them.
    All,
}

/// A call of the store.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Advance(u64),
    /// Opens a session at the next position.
    OpenSession(SessionPlace, SessionRole, u64),
    RenewSession(SessionPlace),
    EndSession(SessionPlace),
    ClaimShards(SessionPlace, usize),
    ReleaseShards(SessionPlace, ShardSet),
    /// The new session takes the position after the old one.
    ReplaceSession(SessionPlace, SessionPlace, u64),
    WriteShardNotes(SessionPlace, Vec<(ShardId, Option<&'static str>)>, bool),
    Directory,
    Commit(SessionPlace, Vec<Member>),
    Send(Vec<SendRequest>),
    /// Starts at a message, and excludes known ones.
    ReadInbox(SessionPlace, Shards, Option<MessagePlace>, Vec<MessagePlace>, usize),
    ReadDue(SessionPlace, Shards, u64, Option<(u64, InstanceKey)>, usize),
    ReadOwed(SessionPlace, Shards, Option<InstanceKey>, usize),
    ReadBlocked(SessionPlace, Shards, Option<InstanceKey>, usize),
    Find(&'static str),
    Load(InstanceRow, u64, usize),
    ReadTurns(InstanceRow, u64, u64, usize),
    TakeTasks(SessionPlace, Served, u64),
    HeldTasks(SessionPlace),
    RenewTasks(SessionPlace, Vec<TaskReport>, u64),
    FinishTask(SessionPlace, TaskId, u32, &'static str),
    GiveBackTasks(SessionPlace, Vec<TaskId>),
    /// A request to an id, with a deadline in milliseconds.
    PutRequest(&'static str, u64, &'static str),
    ReadRequests(SessionPlace, Shards, Option<RequestPlace>, usize),
    ReadReply(RequestPlace),
    WithdrawRequest(RequestPlace),
    Sweep,
    /// Includes turns of executions that were continued this long ago.
    SweepExecutions(u64),
    PruneExecutions(SessionPlace, InstanceRow, u64, usize),
    ReadSetting(&'static str),
    WriteSetting(&'static str, Option<&'static str>),
    /// The second value is the expected current one.
    ReplaceSetting(&'static str, Option<&'static str>, Option<&'static str>),
    List(Criteria, Option<InstanceKey>, usize),
    Count(Criteria, u64),
    Stats,
    Delete(Vec<InstanceRow>),
}

/// A member of a batch, with the positions of its messages and requests.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) commit: Commit,
    pub(super) consumed: Vec<MessagePlace>,
    pub(super) seen: Vec<MessagePlace>,
    pub(super) replies: Vec<(RequestPlace, &'static str)>,
}

/// Existing things that operations can refer to, so that most of them have an effect.
#[derive(Default)]
pub(super) struct Known {
    /// The number of sessions opened, including failed ones.
    pub(super) sessions: usize,
    /// The session that last claimed many shards, unless it is known to be gone.
    pub(super) owner: Option<SessionPlace>,
    /// The number of sent messages.
    pub(super) messages: usize,
    /// The waiting messages.
    pub(super) waiting: BTreeMap<InstanceKey, Vec<MessagePlace>>,
    /// The number of written requests.
    pub(super) requests: usize,
    pub(super) rows: Vec<InstanceRow>,
    /// Deleted rows.
    pub(super) gone: Vec<InstanceRow>,
    /// The tasks of current executions.
    pub(super) tasks: Vec<TaskRow>,
    /// The last turn of each execution that has turns.
    pub(super) last_turns: BTreeMap<(InstanceKey, u64), u64>,
}

pub(super) struct Operations {
    pub(super) rng: Rng,
    /// The number of drawn rows, from which unique keys are made.
    pub(super) drawn_rows: u64,
    pub(super) known: Known,
}

type Draw = fn(&mut Operations) -> Operation;

/// Each kind of operation with its weight.
const DRAWS: &[(u64, Draw)] = &[
    // Times are multiples of ten, leases and deadlines are not: nothing expires exactly at the time of a
    // call.
    (40, |this| Operation::Advance(10 * this.rng.between(1, 400))),
    // Long enough for every lease to expire.
    (8, |_| Operation::Advance(100_000)),
    (30, |this| {
        let role = match this.rng.below(10) {
            0..3 => SessionRole::Node,
            3 => SessionRole::Maintenance,
            _ => SessionRole::Lane,
        };
        let lease_ms = *this.rng.pick(&[1_005, 5_005, 60_005]);
        Operation::OpenSession(this.new_session(), role, lease_ms)
    }),
    (5, |this| Operation::OpenSession(this.session(), SessionRole::Lane, 5_005)),
    (50, |this| Operation::RenewSession(this.session())),
    (10, |this| Operation::EndSession(this.session())),
    (90, |this| Operation::ClaimShards(this.session(), *this.rng.pick(&[1, 60, SHARDS, SHARDS]))),
    (20, |this| Operation::ReleaseShards(this.session(), this.some_shards())),
    (25, |this| {
        let new = if this.rng.percent(80) { this.new_session() } else { this.any_session() };
        Operation::ReplaceSession(this.session(), new, *this.rng.pick(&[5_005, 60_005]))
    }),
    (25, |this| {
        let count = this.rng.between(1, 4);
        let mut note = || {
            let shard = ShardId(u8::try_from(this.rng.below(8)).expect("it is small"));
            (shard, this.rng.percent(70).then(|| word(&mut this.rng, &BODIES)))
        };
        let notes = (0..count).map(|_| note()).collect();
        let session = if this.rng.percent(70) { this.session() } else { this.any_session() };
        Operation::WriteShardNotes(session, notes, this.rng.percent(30))
    }),
    (40, |_| Operation::Directory),
    (380, |this| {
        let (session, count) = (this.session(), this.rng.between(1, 6));
        Operation::Commit(session, (0..count).map(|_| this.member()).collect())
    }),
    (120, |this| {
        let count = this.rng.between(1, 4);
        Operation::Send((0..count).map(|_| this.send_request()).collect())
    }),
    (50, |this| {
        let from =
            (this.known.messages > 0 && this.rng.percent(50)).then(|| this.rng.below(this.known.messages));
        let known = match this.rng.percent(50) {
            true => (0..this.known.messages).filter(|_| this.rng.percent(40)).collect(),
            false => vec![],
        };
        Operation::ReadInbox(this.session(), this.shards(), from, known, this.limit())
    }),
    (40, |this| {
        let after = this.rng.percent(40).then(|| (this.soon_ms(), this.key()));
        Operation::ReadDue(this.session(), this.shards(), this.soon_ms(), after, this.limit())
    }),
    (30, |this| Operation::ReadOwed(this.session(), this.shards(), this.maybe_key(), this.limit())),
    (20, |this| Operation::ReadBlocked(this.session(), this.shards(), this.maybe_key(), this.limit())),
    (20, |this| Operation::Find(word(&mut this.rng, &IDS))),
    (30, |this| Operation::Load(this.row(), this.rng.between(0, 3), this.limit())),
    (20, |this| {
        let (execution, after_turn) = (this.rng.between(1, 2), this.rng.between(0, 3));
        Operation::ReadTurns(this.row(), execution, after_turn, this.limit())
    }),
    (50, |this| Operation::TakeTasks(this.any_session(), this.served(), this.rng.between(1_000, 9_000))),
    (20, |this| Operation::HeldTasks(this.any_session())),
    (50, Operations::renew_tasks),
    (50, |this| {
        let (holder, task, attempt) = this.held_task();
        Operation::FinishTask(holder, task, attempt, word(&mut this.rng, &BODIES))
    }),
    (20, |this| {
        let (holder, task, _) = this.held_task();
        let others = this.rng.below(2);
        let others: Vec<TaskId> = (0..others).map(|_| this.held_task().1).collect();
        Operation::GiveBackTasks(holder, [vec![task], others].concat())
    }),
    (60, |this| {
        let (id, body) = (word(&mut this.rng, &IDS), word(&mut this.rng, &BODIES));
        Operation::PutRequest(id, 10 * this.rng.between(0, 3_000) + 5, body)
    }),
    (50, |this| {
        let from = this.rng.percent(30).then(|| this.request()).flatten();
        Operation::ReadRequests(this.session(), this.shards(), from, this.limit())
    }),
    (40, |this| this.request().map_or(Operation::Sweep, Operation::ReadReply)),
    (30, |this| this.request().map_or(Operation::Sweep, Operation::WithdrawRequest)),
    (15, |_| Operation::Sweep),
    (15, |this| Operation::SweepExecutions(10 * this.rng.between(0, 3_000))),
    (40, |this| {
        let later: Vec<InstanceRow> =
            this.known.rows.iter().filter(|row| row.execution > 1).cloned().collect();
        let is_later = !later.is_empty() && this.rng.percent(80);
        let row = if is_later { this.rng.pick(&later).clone() } else { this.row() };
        let execution = this.rng.between(1, 3);
        Operation::PruneExecutions(this.session(), row, execution, *this.rng.pick(&[1, 2, 100]))
    }),
    (15, |this| Operation::ReadSetting(word(&mut this.rng, &SETTINGS))),
    (15, |this| {
        let name = word(&mut this.rng, &SETTINGS);
        let mut value = || this.rng.percent(70).then(|| word(&mut this.rng, &BODIES));
        let (read, value) = (value(), value());
        match this.rng.percent(50) {
            true => Operation::WriteSetting(name, value),
            false => Operation::ReplaceSetting(name, read, value),
        }
    }),
    (90, |this| Operation::List(this.filter(), this.maybe_key(), this.limit())),
    (20, |this| Operation::Count(this.filter(), *this.rng.pick(&[0, 1, 3, 10_000]))),
    (20, |_| Operation::Stats),
    (40, |this| {
        let count = this.rng.between(1, 3);
        Operation::Delete((0..count).map(|_| this.ended_row()).collect())
    }),
];

impl Operations {
    pub(super) fn new(seed: u64) -> Operations {
        Operations { rng: Rng::new(seed), drawn_rows: 0, known: Known::default() }
    }

    pub(super) fn draw(&mut self) -> Operation {
        if self.known.sessions == 0 {
            return Operation::OpenSession(self.new_session(), SessionRole::Lane, 60_005);
        }
        // Without an owner little can be written; even the newest session may be gone.
        if self.known.owner.is_none() {
            match self.rng.below(10) {
                0 => return Operation::OpenSession(self.new_session(), SessionRole::Maintenance, 5_005),
                1..3 => return Operation::OpenSession(self.new_session(), SessionRole::Lane, 60_005),
                3..7 => return Operation::ClaimShards(self.known.sessions - 1, SHARDS),
                _ => {}
            }
        }
        let draw = self.rng.weighted(DRAWS);
        draw(self)
    }

    fn limit(&mut self) -> usize {
        *self.rng.pick(&[1, 2, 5, 1_000])
    }

    /// Usually a session that owns shards.
    pub(super) fn session(&mut self) -> SessionPlace {
        match self.rng.below(10) {
            0 => self.rng.below(self.known.sessions),
            1 => self.known.sessions - 1,
            _ => self.known.owner.unwrap_or(0),
        }
    }

    fn new_session(&mut self) -> SessionPlace {
        self.known.sessions += 1;
        self.known.sessions - 1
    }

    fn some_shards(&mut self) -> ShardSet {
        ShardId::all().filter(|_| self.rng.percent(40)).collect()
    }

    fn shards(&mut self) -> Shards {
        match self.rng.below(10) {
            0 => Shards::All,
            1..4 => Shards::OwnedAmong(self.some_shards()),
            _ => Shards::Owned,
        }
    }

    /// Can be a session that is gone: any session can run tasks.
    pub(super) fn any_session(&mut self) -> SessionPlace {
        self.rng.below(self.known.sessions)
    }

    pub(super) fn key(&mut self) -> InstanceKey {
        self.row().key
    }

    fn row(&mut self) -> InstanceRow {
        if !self.known.gone.is_empty() && self.rng.percent(5) {
            return self.rng.pick(&self.known.gone).clone();
        }
        if self.known.rows.is_empty() || self.rng.percent(5) {
            return row(999_999, "nobody");
        }
        self.rng.pick(&self.known.rows).clone()
    }

    fn maybe_key(&mut self) -> Option<InstanceKey> {
        self.rng.percent(40).then(|| self.key())
    }

    /// Usually an instance that has ended.
    fn ended_row(&mut self) -> InstanceRow {
        let ended: Vec<&InstanceRow> = self.known.rows.iter().filter(|row| row.status.is_final()).collect();
        if ended.is_empty() || self.rng.percent(30) {
            return self.row();
        }
        let place = self.rng.below(ended.len());
        ended[place].clone()
    }

    pub(super) fn soon_ms(&mut self) -> u64 {
        self.rng.between(0, 8)
    }

    pub(super) fn request(&mut self) -> Option<RequestPlace> {
        // Old requests are gone.
        let recent = self.known.requests.min(6);
        (recent > 0).then(|| self.known.requests - 1 - self.rng.below(recent))
    }

    pub(super) fn task_id(&mut self, key: InstanceKey) -> TaskId {
        let execution = if self.rng.percent(85) { 1 } else { 2 };
        TaskId { key, execution, event: EventId(self.rng.between(2, 6)) }
    }

    /// Usually a leased task, with its holder and attempt.
    fn held_task(&mut self) -> (SessionPlace, TaskId, u32) {
        let held: Vec<(SessionPlace, TaskId, u32)> = self
            .known
            .tasks
            .iter()
            .filter_map(|task| Some((holder_of(task)?, task.id, task.attempt)))
            .collect();
        if held.is_empty() || self.rng.percent(10) {
            let key = self.key();
            return (self.session(), self.task_id(key), 1);
        }
        let (holder, task, attempt) = *self.rng.pick(&held);
        match self.rng.below(10) {
            0 => (self.session(), task, attempt),
            1 => (holder, task, attempt + 1),
            _ => (holder, task, attempt),
        }
    }

    fn renew_tasks(&mut self) -> Operation {
        let (holder, first, _) = self.held_task();
        let others = self.rng.below(3);
        let others: Vec<TaskId> = (0..others).map(|_| self.held_task().1).collect();
        let tasks = [vec![first], others].concat();
        let evidence = [None, None, Some(Evidence::Begins), Some(Evidence::Healthy)];
        let report = |task| TaskReport { task, details: self.details(), evidence: *self.rng.pick(&evidence) };
        let reports = tasks.into_iter().map(report).collect();
        Operation::RenewTasks(holder, reports, self.rng.between(1_000, 9_000))
    }

    pub(super) fn details(&mut self) -> Option<Payload> {
        self.rng.percent(50).then(|| payload(word(&mut self.rng, &VALUES)))
    }

    fn served(&mut self) -> Served {
        let mut some = |words: &[&str]| {
            words.iter().filter(|_| self.rng.percent(75)).map(|word| (*word).to_owned()).collect()
        };
        let (names, tags) = (some(&ACTIVITIES), some(&TAGS));
        // Prefixes of some names, and now and then of all.
        let prefixes = ["", "c", "ch", "s", "z"].into_iter().filter(|_| self.rng.percent(10));
        Served { names, tags, prefixes: prefixes.map(str::to_owned).collect() }
    }

    pub(super) fn dedupe(&mut self) -> Option<String> {
        self.rng.percent(50).then(|| word(&mut self.rng, &KEYS).to_owned())
    }

    pub(super) fn body(&mut self) -> Arc<[u8]> {
        bytes(word(&mut self.rng, &BODIES))
    }

    fn filter(&mut self) -> Criteria {
        let parent = self.rng.percent(10).then(|| self.key());
        let rng = &mut self.rng;
        let mut filter = Criteria { parent, newest_first: rng.percent(50), ..Criteria::default() };
        for status in Status::ALL {
            if rng.percent(15) {
                filter.statuses.push(status);
            }
        }
        if rng.percent(25) {
            filter.name = Some(word(rng, &["checkout", "refund", "none"]).to_owned());
        }
        if rng.percent(20) {
            filter.version = Some(word(rng, &["1.0.0", "2.0.0", "3.0.0"]).to_owned());
        }
        if rng.percent(25) {
            filter.id_prefix = Some(word(rng, &["o", "order-1", "a", ""]).to_owned());
        }
        if rng.percent(25) {
            filter.blocked = Some(rng.percent(50));
        }
        if rng.percent(10) {
            filter.paused = Some(rng.percent(50));
        }
        if rng.percent(15) {
            filter.attributes.insert("customer".to_owned(), payload(word(rng, &VALUES)));
        }
        while rng.percent(25) {
            filter.conditions.push(word(rng, &CONDITIONS).parse().expect("it is a condition"));
        }
        let created_ms = |rng: &mut Rng| 1_700_000_000_000 + rng.between(0, 60);
        filter.created_from_ms = rng.percent(15).then(|| created_ms(rng));
        filter.created_before_ms = rng.percent(15).then(|| created_ms(rng));
        filter.ended_before_ms = rng.percent(15).then(|| rng.between(0, 9));
        filter.ended_from_ms = rng.percent(15).then(|| rng.between(0, 9));
        filter
    }
}

/// The position of the session that runs a task.
fn holder_of(task: &TaskRow) -> Option<SessionPlace> {
    match task.state {
        TaskState::Leased { holder, .. } => Some(usize::try_from(holder.0 - 1).expect("it is a place")),
        TaskState::Queued | TaskState::Waiting => None,
    }
}

pub(super) fn payload(json: &str) -> Payload {
    Payload::from_json(json).expect("this is JSON")
}

pub(super) fn word(rng: &mut Rng, words: &[&'static str]) -> &'static str {
    words[rng.below(words.len())]
}
