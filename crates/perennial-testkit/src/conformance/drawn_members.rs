//! Drawn rows, members, messages and tasks of the model test.

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
        let commit = if self.known.rows.is_empty() || self.rng.percent(25) {
            let new = self.new_row();
            let mut commit = member(&new);
            commit.insert = Some(Box::new(new.clone()));
            // Later members of the batch can build on it.
            self.known.rows.push(new);
            if self.rng.percent(85) {
                commit.turn = Some(self.turn(commit.key));
            }
            commit
        } else if self.rng.percent(4) {
            let nobody = match self.known.gone.is_empty() {
                true => row(999_999, "nobody"),
                false => self.rng.pick(&self.known.gone).clone(),
            };
            let mut commit = member(&nobody);
            commit.turn = self.rng.percent(50).then(|| self.turn(commit.key));
            commit
        } else {
            let existing = self.rng.pick(&self.known.rows).clone();
            let mut commit = member(&existing);
            commit.turn = self.rng.percent(75).then(|| self.turn(commit.key));
            commit
        };
        self.rest_of(commit)
    }

    fn rest_of(&mut self, mut commit: Commit) -> Member {
        if self.rng.percent(40) {
            commit.change = self.change();
        }
        for _ in 0..self.rng.below(3) {
            commit.send.push(self.outgoing());
        }
        if self.rng.percent(35) {
            for _ in 0..self.rng.between(1, 3) {
                commit.tasks.push(self.task_change(&commit));
            }
        }
        if self.rng.percent(10) {
            // Messages arrive around the clock's start, and later.
            commit.fired_ms = Some(1_700_000_000_000 + 10 * self.rng.between(0, 4_000));
        }
        if self.rng.percent(3) {
            commit.epoch = 999;
        }
        let replies = if self.rng.percent(20) { self.request().into_iter().collect() } else { vec![] };
        let replies = replies.into_iter().map(|place| (place, word(&mut self.rng, &BODIES))).collect();
        let seen = self.waiting(commit.key, 15);
        Member { consumed: self.consumed(commit.key), seen, replies, commit }
    }

    /// Some of the messages that wait for an instance; sometimes one that no longer waits.
    fn consumed(&mut self, key: InstanceKey) -> Vec<usize> {
        let mut consumed = self.waiting(key, 25);
        if self.known.messages > 0 && self.rng.percent(6) {
            let any = self.rng.below(self.known.messages);
            if !self.known.waiting.values().flatten().any(|waiting| *waiting == any) {
                consumed.push(any);
            }
        }
        consumed
    }

    /// Each of the messages that wait for an instance, with this probability.
    fn waiting(&mut self, key: InstanceKey, percent: u64) -> Vec<usize> {
        let waiting = self.known.waiting.get(&key).cloned().unwrap_or_default();
        waiting.into_iter().filter(|_| self.rng.percent(percent)).collect()
    }

    fn new_row(&mut self) -> InstanceRow {
        self.drawn_rows += 1;
        let own_id = format!("order-{}", self.drawn_rows);
        let id = if self.rng.percent(50) { &own_id } else { word(&mut self.rng, &IDS) };
        let mut new = row(self.drawn_rows, id);
        new.name = word(&mut self.rng, &["checkout", "refund"]).to_owned();
        if self.rng.percent(30) {
            let (instance, parent) = (word(&mut self.rng, &IDS).to_owned(), self.key());
            let event_id = EventId(self.rng.between(2, 6));
            new.parent = Some(ParentLink { instance, key: parent.to_string(), execution: 1, event_id });
        }
        self.change().apply(&mut new);
        // Execution numbers start at 1.
        new.execution = 1;
        new
    }

    /// Usually the next turn.
    fn turn(&mut self, key: InstanceKey) -> TurnRow {
        let execution = if self.rng.percent(90) { 1 } else { 2 };
        let last = self.known.last_turns.entry((key, execution)).or_insert(0);
        let number = match self.rng.below(10) {
            0 => (*last).max(1),
            1 => self.rng.between(1, *last + 2),
            _ => {
                *last += 1;
                *last
            }
        };
        let body = bytes(word(&mut self.rng, &BODIES));
        let checksum = if self.rng.percent(97) { 1 } else { 2 };
        TurnRow { execution, number, bytes: body, checksum }
    }

    fn change(&mut self) -> RowChange {
        let rng = &mut self.rng;
        let mut change = RowChange::default();
        if rng.percent(30) {
            change.status = Some(*rng.pick(&[
                Status::Pending,
                Status::Running,
                Status::Running,
                Status::Completed,
                Status::Failed,
                Status::Terminated,
            ]));
        }
        if rng.percent(15) {
            change.execution = Some(rng.between(1, 2));
        }
        if rng.percent(10) {
            change.version = Some(word(rng, &["1.0.0", "2.0.0"]).to_owned());
        }
        if rng.percent(30) {
            change.owed = Some(rng.percent(50));
        }
        if rng.percent(30) {
            change.wake_at_ms = Some(rng.percent(70).then(|| rng.between(0, 8)));
        }
        if rng.percent(15) {
            change.blocked = Some(rng.percent(40).then(blocked));
        }
        if rng.percent(20) {
            change.full = Some(rng.percent(50));
        }
        if rng.percent(20) {
            let attribute = ("customer".to_owned(), payload(word(rng, &VALUES)));
            change.attributes = Some(rng.percent(70).then_some(attribute).into_iter().collect());
        }
        if rng.percent(10) {
            change.published = Some(rng.percent(60).then(|| payload("{\"step\":1}")));
        }
        if rng.percent(20) {
            change.ended_ms = Some(Some(rng.between(0, 8)));
        }
        change
    }

    fn outgoing(&mut self) -> Outgoing {
        let to = match self.known.rows.is_empty() {
            true => row(999_999, "nobody"),
            false => self.rng.pick(&self.known.rows).clone(),
        };
        match self.rng.below(10) {
            0..6 => {
                let (dedupe, urgent) = (self.dedupe(), self.rng.percent(25));
                Outgoing::ToKey { to: to.key, shard: to.shard, dedupe, urgent, body: self.body() }
            }
            6 => {
                let id = word(&mut self.rng, &IDS).to_owned();
                // Stores do not return the numbers of reports, by which this suite identifies messages;
                // separate rules cover them.
                let urgent = self.rng.percent(25);
                Outgoing::ToId { id, dedupe: self.dedupe(), urgent, body: self.body(), report: None }
            }
            _ => {
                // A repeated start, or a new one whose id may exist.
                let row = if self.rng.percent(15) { to } else { self.new_row() };
                let row = Box::new(InstanceRow { status: Status::Pending, ..row });
                let otherwise = self.rng.percent(70).then(|| self.body());
                let replaces_ended = self.rng.percent(30);
                Outgoing::Start { row, body: self.body(), otherwise, replaces_ended, started: None }
            }
        }
    }

    pub(super) fn send_request(&mut self) -> SendRequest {
        if self.rng.percent(20) {
            let row = Box::new(InstanceRow { status: Status::Pending, ..self.new_row() });
            return SendRequest::Start { row, body: self.body() };
        }
        let id = word(&mut self.rng, &IDS).to_owned();
        let urgent = self.rng.percent(25);
        let known = self.known.rows.iter().find(|row| row.id == id).map(|row| row.key);
        let key = match self.rng.below(10) {
            0 => Some(self.key()),
            1..3 => known,
            _ => None,
        };
        SendRequest::Message { id, key, dedupe: self.dedupe(), urgent, body: self.body() }
    }

    /// A change of a task of the committing instance, preferably of an existing one.
    fn task_change(&mut self, commit: &Commit) -> TaskChange {
        let there: Vec<_> =
            self.known.tasks.iter().map(|task| task.id).filter(|id| id.key == commit.key).collect();
        let id = match there.is_empty() || self.rng.percent(40) {
            true => self.task_id(commit.key),
            false => *self.rng.pick(&there),
        };
        if self.rng.percent(40) {
            return TaskChange::Cancel(id);
        }
        let state = match self.rng.below(10) {
            0..7 => TaskState::Queued,
            7 => TaskState::Waiting,
            _ => {
                TaskState::Leased { holder: session_id(self.any_session()), cancelled: self.rng.percent(10) }
            }
        };
        let due_ms = self.rng.percent(50).then(|| self.soon_ms());
        let details = self.details();
        let work = self.rng.percent(80).then(|| self.body());
        let rng = &mut self.rng;
        TaskChange::Put(Box::new(TaskRow {
            id,
            shard: commit.shard,
            attempt: u32::try_from(rng.between(1, 3)).expect("it is small"),
            state,
            due_ms,
            since_ms: rng.percent(80).then_some(1_700_000_000_000),
            details,
            heard_ms: rng.percent(20).then_some(1_700_000_000_001),
            interruptions: u32::try_from(rng.between(0, 2)).expect("it is small"),
            begun: rng.percent(30).then_some(perennial_core::store::SessionId(9)),
            name: word(rng, &ACTIVITIES).to_owned(),
            tag: rng.percent(40).then(|| word(rng, &TAGS).to_owned()),
            past: Default::default(),
            work,
        }))
    }
}
