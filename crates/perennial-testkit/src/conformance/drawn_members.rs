//! What the drawn operations of the model test write: rows, members, messages and tasks.

use perennial_core::ParentLink;
use perennial_core::store::{
    Commit, InstanceRow, Outgoing, RowChange, SendRequest, Status, TaskChange, TaskRow, TaskState, TurnRow,
};
use perennial_core::{EventId, InstanceKey};

use super::instances::{blocked, bytes, member, row};
use super::operation::{
    ACTIVITIES, BODIES, IDS, Member, Operations, TAGS, VALUES, payload, session_id, word,
};

impl Operations {
    pub(super) fn member(&mut self) -> Member {
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
            let nobody = match self.known.gone.is_empty() {
                true => row(999_999, "nobody"),
                false => self.chance.pick(&self.known.gone).clone(),
            };
            let mut commit = member(&nobody);
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
        if self.chance.percent(35) {
            for _ in 0..self.chance.between(1, 3) {
                commit.tasks.push(self.task_change(&commit));
            }
        }
        if self.chance.percent(10) {
            // Messages arrive around the beginning of the clock, and later.
            commit.fired_ms = Some(1_700_000_000_000 + 10 * self.chance.between(0, 4_000));
        }
        if self.chance.percent(3) {
            commit.epoch = 999;
        }
        let replies = if self.chance.percent(20) { self.request().into_iter().collect() } else { vec![] };
        let replies = replies.into_iter().map(|place| (place, word(&mut self.chance, &BODIES))).collect();
        let seen = self.waiting(commit.key, 15);
        Member { consumed: self.consumed(commit.key), seen, replies, commit }
    }

    /// Some of the messages that wait for an instance; sometimes one that does not wait any more.
    fn consumed(&mut self, key: InstanceKey) -> Vec<usize> {
        let mut consumed = self.waiting(key, 25);
        if self.known.messages > 0 && self.chance.percent(6) {
            let any = self.chance.below(self.known.messages);
            if !self.known.waiting.values().flatten().any(|waiting| *waiting == any) {
                consumed.push(any);
            }
        }
        consumed
    }

    /// Each of the messages that wait for an instance, with this chance.
    fn waiting(&mut self, key: InstanceKey, percent: u64) -> Vec<usize> {
        let waiting = self.known.waiting.get(&key).cloned().unwrap_or_default();
        waiting.into_iter().filter(|_| self.chance.percent(percent)).collect()
    }

    fn new_row(&mut self) -> InstanceRow {
        self.drawn_rows += 1;
        let own_id = format!("order-{}", self.drawn_rows);
        let id = if self.chance.percent(50) { &own_id } else { word(&mut self.chance, &IDS) };
        let mut new = row(self.drawn_rows, id);
        new.name = word(&mut self.chance, &["checkout", "refund"]).to_owned();
        if self.chance.percent(30) {
            let (instance, parent) = (word(&mut self.chance, &IDS).to_owned(), self.key());
            let event_id = EventId(self.chance.between(2, 6));
            new.parent = Some(ParentLink { instance, key: parent.to_string(), execution: 1, event_id });
        }
        self.change().apply(&mut new);
        // Executions begin with the first.
        new.execution = 1;
        new
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
        let body = bytes(word(&mut self.chance, &BODIES));
        let checksum = if self.chance.percent(97) { 1 } else { 2 };
        TurnRow { execution, number, bytes: body, checksum }
    }

    fn change(&mut self) -> RowChange {
        let chance = &mut self.chance;
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
        if chance.percent(15) {
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
        if chance.percent(20) {
            change.full = Some(chance.percent(50));
        }
        if chance.percent(20) {
            let attribute = ("customer".to_owned(), payload(word(chance, &VALUES)));
            change.attributes = Some(chance.percent(70).then_some(attribute).into_iter().collect());
        }
        if chance.percent(10) {
            change.published = Some(chance.percent(60).then(|| payload("{\"step\":1}")));
        }
        if chance.percent(20) {
            change.ended_ms = Some(Some(chance.between(0, 8)));
        }
        change
    }

    fn outgoing(&mut self) -> Outgoing {
        let to = match self.known.rows.is_empty() {
            true => row(999_999, "nobody"),
            false => self.chance.pick(&self.known.rows).clone(),
        };
        match self.chance.below(10) {
            0..6 => {
                let (dedupe, urgent) = (self.dedupe(), self.chance.percent(25));
                Outgoing::ToKey { to: to.key, shard: to.shard, dedupe, urgent, body: self.body() }
            }
            6 => {
                let id = word(&mut self.chance, &IDS).to_owned();
                // Nobody is told the numbers of reports, by which this suite knows messages; rules of their own show them.
                let urgent = self.chance.percent(25);
                Outgoing::ToId { id, dedupe: self.dedupe(), urgent, body: self.body(), report: None }
            }
            _ => {
                // The same start again, or a new one whose id may be taken.
                let row = if self.chance.percent(15) { to } else { self.new_row() };
                let row = Box::new(InstanceRow { status: Status::Pending, ..row });
                let otherwise = self.chance.percent(70).then(|| self.body());
                let replaces_ended = self.chance.percent(30);
                Outgoing::Start { row, body: self.body(), otherwise, replaces_ended, started: None }
            }
        }
    }

    pub(super) fn send_request(&mut self) -> SendRequest {
        if self.chance.percent(20) {
            let row = Box::new(InstanceRow { status: Status::Pending, ..self.new_row() });
            return SendRequest::Start { row, body: self.body() };
        }
        let id = word(&mut self.chance, &IDS).to_owned();
        let urgent = self.chance.percent(25);
        let known = self.known.rows.iter().find(|row| row.id == id).map(|row| row.key);
        let key = match self.chance.below(10) {
            0 => Some(self.key()),
            1..3 => known,
            _ => None,
        };
        SendRequest::Message { id, key, dedupe: self.dedupe(), urgent, body: self.body() }
    }

    /// A change of a task of the committing instance; those that are there already are likely.
    fn task_change(&mut self, commit: &Commit) -> TaskChange {
        let there: Vec<_> =
            self.known.tasks.iter().map(|task| task.id).filter(|id| id.key == commit.key).collect();
        let id = match there.is_empty() || self.chance.percent(40) {
            true => self.task_id(commit.key),
            false => *self.chance.pick(&there),
        };
        if self.chance.percent(40) {
            return TaskChange::Cancel(id);
        }
        let state = match self.chance.below(10) {
            0..7 => TaskState::Queued,
            7 => TaskState::Waiting,
            _ => TaskState::Leased {
                holder: session_id(self.any_session()),
                cancelled: self.chance.percent(10),
            },
        };
        let due_ms = self.chance.percent(50).then(|| self.soon_ms());
        let details = self.details();
        let work = self.chance.percent(80).then(|| self.body());
        let chance = &mut self.chance;
        TaskChange::Put(Box::new(TaskRow {
            id,
            shard: commit.shard,
            attempt: u32::try_from(chance.between(1, 3)).expect("it is small"),
            state,
            due_ms,
            since_ms: chance.percent(80).then_some(1_700_000_000_000),
            details,
            heard_ms: chance.percent(20).then_some(1_700_000_000_001),
            interruptions: u32::try_from(chance.between(0, 2)).expect("it is small"),
            begun: chance.percent(30).then_some(perennial_core::store::SessionId(9)),
            name: word(chance, &ACTIVITIES).to_owned(),
            tag: chance.percent(40).then(|| word(chance, &TAGS).to_owned()),
            past: Default::default(),
            work,
        }))
    }
}
