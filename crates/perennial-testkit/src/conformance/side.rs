//! One of the two stores of the model test, with what it has given out.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use perennial_core::InstanceKey;
use perennial_core::store::{
    AskAnswer, AskNumber, AskOutcome, AskRow, Commit, CommitOutcome, InboxNumber, InboxRow, LoadedInstance,
    SendOutcome, SessionId, StoreError, TaskChange, TaskRow, TaskState,
};

use super::operation::{AskPlace, Member, MessagePlace, Operation, SessionPlace, at_place};
use super::subject::{Make, Subject};

/// One of the two, with what it has given out.
pub(super) struct Side {
    pub(super) subject: Subject,
    pub(super) sessions: Vec<SessionId>,
    /// The number of each message, by its place.
    pub(super) messages: Vec<InboxNumber>,
    places: BTreeMap<InboxNumber, MessagePlace>,
    /// The number of each request, by its place.
    pub(super) asks: Vec<AskNumber>,
}

impl Side {
    pub(super) fn new(make: Make<'_>) -> Side {
        Side {
            subject: Subject::new(make),
            sessions: Vec::new(),
            messages: Vec::new(),
            places: BTreeMap::new(),
            asks: Vec::new(),
        }
    }

    /// Makes the call; gives the answer in words that mean the same for every store.
    pub(super) fn perform(&mut self, operation: &Operation) -> String {
        let subject = &self.subject;
        match operation.clone() {
            Operation::Advance(ms) => {
                subject.clock.advance(ms);
                String::new()
            }
            Operation::OpenSession(lease_ms) => {
                let session = subject.try_open_session(lease_ms).expect("a session");
                self.sessions.push(session.id);
                text(&session.lease)
            }
            Operation::RenewSession(session) => text(&subject.renew(self.sessions[session])),
            Operation::EndSession(session) => text(&subject.end(self.sessions[session])),
            Operation::ClaimShards(session, at_most) => text(&subject.claim(self.sessions[session], at_most)),
            Operation::Commit(session, members) => {
                let batch: Vec<Commit> = members.into_iter().map(|member| self.member(member)).collect();
                let outcomes = subject.try_commit(self.sessions[session], batch);
                self.outcomes(outcomes)
            }
            Operation::Send(requests) => {
                let outcomes = subject.try_send(requests);
                self.send_outcomes(outcomes)
            }
            Operation::ReadInbox(session, from, limit) => {
                let from = from.map_or(0, |place| self.messages[place]);
                let rows = subject.inbox(self.sessions[session], from, limit);
                text(&self.places_of(rows))
            }
            Operation::ReadDue(session, before_ms, after, limit) => {
                text(&subject.due(self.sessions[session], before_ms, after, limit))
            }
            Operation::ReadOwed(session, after, limit) => {
                text(&subject.owed(self.sessions[session], after, limit))
            }
            Operation::Find(id) => text(&subject.find(id)),
            Operation::Load(key, after_turn) => {
                let loaded = subject.load(key, after_turn);
                text(&loaded.map(|LoadedInstance { row, turns, inbox, tasks }| {
                    (row, turns, self.places_of(inbox), self.tasks_of(tasks))
                }))
            }
            Operation::ReadTurns(key, execution, after_turn, limit) => {
                text(&subject.turns(key, execution, after_turn, limit))
            }
            Operation::List(filter, after, limit) => text(&subject.list(&filter, after, limit)),
            Operation::Count(filter, at_most) => text(&subject.count(&filter, at_most)),
            Operation::Stats => text(&subject.stats()),
            Operation::Delete(keys) => text(&subject.delete(keys)),
            other => self.perform_of_tasks_and_asks(other),
        }
    }

    fn perform_of_tasks_and_asks(&mut self, operation: Operation) -> String {
        let subject = &self.subject;
        match operation {
            Operation::TakeTasks(holder, served, lease_ms) => {
                // All that there are: which come first is the store's choice.
                let taken = subject.take(self.sessions[holder], &served, 10_000, lease_ms);
                let mut taken = self.tasks_of(taken);
                taken.sort_by_key(|task| task.id);
                format!("took {taken:?}")
            }
            Operation::RenewTasks(holder, tasks, lease_ms) => {
                format!("renewals {:?}", subject.renew_tasks(self.sessions[holder], tasks, lease_ms))
            }
            Operation::FinishTask(holder, task, attempt, body) => {
                let finished = subject.finish(self.sessions[holder], task, attempt, body);
                format!("finished {finished} {:?}", self.place_of_result(task.key))
            }
            Operation::GiveBackTasks(holder, tasks) => text(&subject.give_back(self.sessions[holder], tasks)),
            Operation::Ask(id, from_now_ms, body) => {
                match subject.try_ask(id, subject.clock.now_ms() + from_now_ms, body) {
                    AskOutcome::Asked(number) => {
                        assert!(self.asks.last().is_none_or(|last| *last < number), "numbers count up");
                        self.asks.push(number);
                        "asked".to_owned()
                    }
                    AskOutcome::NoInstance => "asked nobody".to_owned(),
                }
            }
            Operation::ReadAsks(session, from, limit) => {
                let from = from.map_or(0, |place| self.asks[place]);
                let asks = subject.asks(self.sessions[session], from, limit);
                format!("asks {:?}", self.asks_of(asks))
            }
            Operation::ReadAnswer(place) => format!("answer {:?}", subject.answer_to(self.asks[place])),
            Operation::WithdrawAsk(place) => format!("withdrew {}", subject.withdraw(self.asks[place])),
            Operation::SweepAsks => text(&subject.sweep()),
            Operation::ReadNote(name) => format!("note {:?}", subject.note(name)),
            Operation::WriteNote(session, name, note) => {
                format!("noted {:?}", subject.write_note(self.sessions[session], name, note))
            }
            other => unreachable!("{other:?} is another kind"),
        }
    }

    /// The member with this store's sessions and numbers.
    fn member(&self, member: Member) -> Commit {
        let Member { mut commit, consumed, answers } = member;
        commit.consumed = consumed.iter().map(|place| self.messages[*place]).collect();
        let answer = |(place, body): (AskPlace, &str)| AskAnswer {
            number: self.asks[place],
            body: Arc::from(body.as_bytes()),
        };
        commit.answers = answers.into_iter().map(answer).collect();
        for change in &mut commit.tasks {
            if let TaskChange::Put(task) = change
                && let TaskState::Leased { holder, .. } = &mut task.state
            {
                *holder = self.sessions[usize::try_from(holder.0).expect("it is a place")];
            }
        }
        commit
    }

    fn outcomes(&mut self, outcomes: Result<Vec<CommitOutcome>, StoreError>) -> String {
        let mut words = Vec::new();
        for outcome in outcomes.expect("the commit is answered") {
            words.push(match outcome {
                CommitOutcome::Durable { sent } => {
                    let places: Vec<_> = sent.into_iter().map(|number| self.place_of(number)).collect();
                    format!("durable {places:?}")
                }
                other => text(&other),
            });
        }
        words.join("; ")
    }

    fn send_outcomes(&mut self, outcomes: Result<Vec<SendOutcome>, StoreError>) -> String {
        let mut words = Vec::new();
        for outcome in outcomes.expect("the send is answered") {
            words.push(match outcome {
                SendOutcome::Sent(number) => format!("sent {:?}", self.place_of(Some(number))),
                other => text(&other),
            });
        }
        words.join("; ")
    }

    /// The place of a message that was just sent.
    fn place_of(&mut self, number: Option<InboxNumber>) -> Option<MessagePlace> {
        let number = number?;
        assert!(self.messages.last().is_none_or(|last| *last < number), "numbers count up");
        self.places.insert(number, self.messages.len());
        self.messages.push(number);
        Some(self.messages.len() - 1)
    }

    /// The place of the message that a task's end has sent, whose number nobody was told.
    fn place_of_result(&mut self, key: InstanceKey) -> Option<MessagePlace> {
        let inbox = self.subject.load(key, 0)?.inbox;
        let new: Vec<InboxNumber> =
            inbox.iter().map(|row| row.number).filter(|number| !self.places.contains_key(number)).collect();
        assert!(new.len() <= 1, "one message for one task");
        self.place_of(new.first().copied())
    }

    pub(super) fn places_of(&self, rows: Vec<InboxRow>) -> Vec<(MessagePlace, impl Debug + use<>)> {
        let place = |row: InboxRow| (self.places[&row.number], (row.key, row.shard, Arc::clone(&row.body)));
        rows.into_iter().map(place).collect()
    }

    /// Tasks, with places of sessions.
    pub(super) fn tasks_of(&self, mut tasks: Vec<TaskRow>) -> Vec<TaskRow> {
        for task in &mut tasks {
            if let TaskState::Leased { holder, .. } = &mut task.state {
                *holder = at_place(self.place_of_session(*holder));
            }
        }
        tasks
    }

    fn place_of_session(&self, session: SessionId) -> SessionPlace {
        self.sessions.iter().position(|known| *known == session).expect("somebody who was told of it")
    }

    /// Requests, with their places for numbers.
    fn asks_of(&self, asks: Vec<AskRow>) -> Vec<AskRow> {
        let place = |number: AskNumber| self.asks.binary_search(&number).expect("somebody was told of it");
        let with_place =
            |ask: AskRow| AskRow { number: u64::try_from(place(ask.number)).expect("a usize fits"), ..ask };
        asks.into_iter().map(with_place).collect()
    }
}

fn text(answer: &impl Debug) -> String {
    format!("{answer:?}")
}
