//! Operations of the model test, drawn from a seed.
//!
//! Sessions and numbers of messages differ from store to store, so operations name them by their place in what has
//! been given out so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::store::{Commit, Filter, InstanceRow, Outgoing, RowChange, SendRequest, Status, TurnRow};
use perennial_core::{InstanceKey, Payload, SHARDS};

use super::instances::{blocked, bytes, key, member, row};
use crate::Chance;

/// Few, so that they collide.
const IDS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "order-1", "order-2", "order-10", "ö"];
const KEYS: [&str; 3] = ["k", "l", "m"];
const BODIES: [&str; 3] = ["x", "y", ""];

/// The place of a session among those that were opened.
pub(super) type SessionPlace = usize;
/// The place of a message among those that were sent.
pub(super) type MessagePlace = usize;

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Advance(u64),
    OpenSession(u64),
    RenewSession(SessionPlace),
    EndSession(SessionPlace),
    ClaimShards(SessionPlace, usize),
    Commit(SessionPlace, Vec<Member>),
    Send(Vec<SendRequest>),
    ReadInbox(SessionPlace, Option<MessagePlace>, usize),
    ReadDue(SessionPlace, u64, Option<(u64, InstanceKey)>, usize),
    ReadOwed(SessionPlace, Option<InstanceKey>, usize),
    Find(&'static str),
    Load(InstanceKey, u64),
    ReadTurns(InstanceKey, u64, u64, usize),
    List(Filter, Option<InstanceKey>, usize),
}

/// A member of a batch, with the places of the messages that it consumes.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) commit: Commit,
    pub(super) consumed: Vec<MessagePlace>,
}

/// What operations may name, so that most of them mean something.
#[derive(Default)]
pub(super) struct Known {
    /// How many sessions were opened.
    pub(super) sessions: usize,
    /// The session that claimed shards last.
    pub(super) owner: SessionPlace,
    /// How many messages were sent.
    pub(super) messages: usize,
    /// The rows that exist.
    pub(super) rows: Vec<InstanceRow>,
    /// The last turn of each execution that has any.
    pub(super) last_turns: BTreeMap<(InstanceKey, u64), u64>,
}

/// Draws operations.
pub(super) struct Operations {
    chance: Chance,
    /// How many rows were drawn; no two have the same key.
    drawn_rows: u64,
    pub(super) known: Known,
}

impl Operations {
    pub(super) fn new(seed: u64) -> Operations {
        Operations { chance: Chance::new(seed), drawn_rows: 0, known: Known::default() }
    }

    pub(super) fn draw(&mut self) -> Operation {
        if self.known.sessions == 0 {
            return Operation::OpenSession(60_005);
        }
        let session = self.session();
        let limit = *self.chance.pick(&[1, 2, 5, 1_000]);
        match self.chance.below(100) {
            // Times are multiples of ten and leases are not: nothing expires at the very moment of a call.
            0..4 => Operation::Advance(10 * self.chance.between(1, 400)),
            4..7 => Operation::OpenSession(*self.chance.pick(&[1_005, 5_005, 60_005])),
            7..12 => Operation::RenewSession(session),
            12..13 => Operation::EndSession(session),
            13..22 => Operation::ClaimShards(session, *self.chance.pick(&[1, 60, SHARDS, SHARDS])),
            22..60 => {
                let count = self.chance.between(1, 6);
                Operation::Commit(session, (0..count).map(|_| self.member()).collect())
            }
            60..75 => {
                let count = self.chance.between(1, 4);
                Operation::Send((0..count).map(|_| self.send_request()).collect())
            }
            75..80 => {
                let from = (self.known.messages > 0 && self.chance.percent(50))
                    .then(|| self.chance.below(self.known.messages));
                Operation::ReadInbox(session, from, limit)
            }
            80..84 => {
                let after = self.chance.percent(40).then(|| (self.wake_at_ms(), self.key()));
                Operation::ReadDue(session, self.wake_at_ms(), after, limit)
            }
            84..88 => Operation::ReadOwed(session, self.maybe_key(), limit),
            88..90 => Operation::Find(word(&mut self.chance, &IDS)),
            90..93 => Operation::Load(self.key(), self.chance.between(0, 3)),
            93..95 => {
                Operation::ReadTurns(self.key(), self.chance.between(1, 2), self.chance.between(0, 3), limit)
            }
            _ => Operation::List(self.filter(), self.maybe_key(), limit),
        }
    }

    /// Mostly one that owns something.
    fn session(&mut self) -> SessionPlace {
        match self.chance.below(10) {
            0 => self.chance.below(self.known.sessions),
            1 | 2 => self.known.sessions - 1,
            _ => self.known.owner,
        }
    }

    fn key(&mut self) -> InstanceKey {
        if self.known.rows.is_empty() || self.chance.percent(5) {
            return key(999_999);
        }
        self.chance.pick(&self.known.rows).key
    }

    fn maybe_key(&mut self) -> Option<InstanceKey> {
        self.chance.percent(40).then(|| self.key())
    }

    fn wake_at_ms(&mut self) -> u64 {
        self.chance.between(0, 8)
    }

    fn new_row(&mut self) -> InstanceRow {
        self.drawn_rows += 1;
        let own_id = format!("order-{}", self.drawn_rows);
        let id = if self.chance.percent(50) { &own_id } else { word(&mut self.chance, &IDS) };
        let mut new = row(self.drawn_rows, id);
        new.name = word(&mut self.chance, &["checkout", "refund"]).to_owned();
        self.change().apply(&mut new);
        // Executions begin with the first.
        new.execution = 1;
        new
    }

    fn member(&mut self) -> Member {
        let commit = if self.known.rows.is_empty() || self.chance.percent(25) {
            let new = self.new_row();
            let mut commit = member(&new);
            commit.insert = Some(Box::new(new.clone()));
            // The next members of the batch may go on from it.
            self.known.rows.push(new);
            if self.chance.percent(85) {
                commit.turn = Some(self.turn(commit.key));
            }
            commit
        } else if self.chance.percent(4) {
            let mut commit = member(&row(999_999, "nobody"));
            commit.turn = self.chance.percent(50).then(|| self.turn(commit.key));
            commit
        } else {
            let existing = self.chance.pick(&self.known.rows).clone();
            let mut commit = member(&existing);
            commit.turn = self.chance.percent(75).then(|| self.turn(commit.key));
            commit
        };
        self.rest_of(commit)
    }

    fn rest_of(&mut self, mut commit: Commit) -> Member {
        if self.chance.percent(40) {
            commit.change = self.change();
        }
        for _ in 0..self.chance.below(3) {
            commit.send.push(self.outgoing());
        }
        let consumes = if self.known.messages > 0 { self.chance.below(3) } else { 0 };
        let consumed = (0..consumes).map(|_| self.chance.below(self.known.messages)).collect();
        Member { commit, consumed }
    }

    /// Mostly the turn that comes next.
    fn turn(&mut self, key: InstanceKey) -> TurnRow {
        let execution = if self.chance.percent(90) { 1 } else { 2 };
        let last = self.known.last_turns.entry((key, execution)).or_insert(0);
        let number = match self.chance.below(10) {
            0 => (*last).max(1),
            1 => self.chance.between(1, *last + 2),
            _ => {
                *last += 1;
                *last
            }
        };
        TurnRow { execution, number, bytes: bytes(word(&mut self.chance, &BODIES)) }
    }

    fn change(&mut self) -> RowChange {
        let chance = &mut self.chance;
        let payload = |text: &str| Payload::from_json(text).expect("this is JSON");
        let mut change = RowChange::default();
        if chance.percent(30) {
            change.status = Some(*chance.pick(&[
                Status::Pending,
                Status::Running,
                Status::Running,
                Status::Completed,
                Status::Failed,
                Status::Terminated,
            ]));
        }
        if chance.percent(10) {
            change.execution = Some(chance.between(1, 2));
        }
        if chance.percent(10) {
            change.version = Some(word(chance, &["1.0.0", "2.0.0"]).to_owned());
        }
        if chance.percent(30) {
            change.owed = Some(chance.percent(50));
        }
        if chance.percent(30) {
            change.wake_at_ms = Some(chance.percent(70).then(|| chance.between(0, 8)));
        }
        if chance.percent(15) {
            change.blocked = Some(chance.percent(40).then(blocked));
        }
        if chance.percent(10) {
            let attribute = ("customer".to_owned(), payload(word(chance, &["1", "\"x\"", "null"])));
            change.attributes = Some(chance.percent(60).then_some(attribute).into_iter().collect());
        }
        if chance.percent(10) {
            change.published = Some(chance.percent(60).then(|| payload("{\"step\":1}")));
        }
        change
    }

    fn outgoing(&mut self) -> Outgoing {
        let to = match self.known.rows.is_empty() {
            true => row(999_999, "nobody"),
            false => self.chance.pick(&self.known.rows).clone(),
        };
        let (to, shard) = (to.key, to.shard);
        Outgoing::ToKey {
            to,
            shard,
            dedupe: self.dedupe(),
            urgent: self.chance.percent(25),
            body: self.body(),
        }
    }

    fn send_request(&mut self) -> SendRequest {
        if self.chance.percent(20) {
            let row = Box::new(InstanceRow { status: Status::Pending, ..self.new_row() });
            return SendRequest::Start { row, body: self.body() };
        }
        let id = word(&mut self.chance, &IDS).to_owned();
        let urgent = self.chance.percent(25);
        SendRequest::Message { id, dedupe: self.dedupe(), urgent, body: self.body() }
    }

    fn dedupe(&mut self) -> Option<String> {
        self.chance.percent(50).then(|| word(&mut self.chance, &KEYS).to_owned())
    }

    fn body(&mut self) -> Arc<[u8]> {
        bytes(word(&mut self.chance, &BODIES))
    }

    fn filter(&mut self) -> Filter {
        let chance = &mut self.chance;
        let mut filter = Filter::default();
        for status in Status::ALL {
            if chance.percent(20) {
                filter.statuses.push(status);
            }
        }
        if chance.percent(30) {
            filter.name = Some(word(chance, &["checkout", "refund", "none"]).to_owned());
        }
        if chance.percent(30) {
            filter.id_prefix = Some(word(chance, &["o", "order-1", "a", ""]).to_owned());
        }
        if chance.percent(30) {
            filter.blocked = Some(chance.percent(50));
        }
        filter
    }
}

fn word(chance: &mut Chance, words: &[&'static str]) -> &'static str {
    words[chance.below(words.len())]
}
