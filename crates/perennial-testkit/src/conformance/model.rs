//! The store under test beside the model: the same operations, and the same answers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use perennial_core::SHARDS;
use perennial_core::store::{
    Commit, CommitOutcome, Filter, InboxNumber, InboxRow, LoadedInstance, MemoryStore, SendOutcome,
    SessionId, StoreError,
};

use super::operation::{Member, MessagePlace, Operation, Operations};
use super::subject::{Candidate, Make, Subject};

/// How far a short comparison goes.
const SEEDS: Range<u64> = 0..6;
const STEPS: usize = 150;

/// The rule, with a few seeds.
#[allow(missing_docs, reason = "it is named for the rule that it shows")]
pub fn s2_answers_are_those_of_the_model(make: Make<'_>) {
    compare_with_model(SEEDS, STEPS, make);
}

/// Draws so many operations from each seed, makes them on the store and on a [`MemoryStore`], and panics at the first
/// answer that differs, naming the seed. Where the contract leaves a choice, the store has to choose as the model does:
/// shards are claimed from the lowest on.
pub fn compare_with_model(seeds: Range<u64>, steps: usize, make: Make<'_>) {
    let make_model = |clock: super::TestClock| Candidate::new(MemoryStore::new(move || clock.now_ms()));
    for seed in seeds {
        let (model, store) = (Side::new(&make_model), Side::new(make));
        let mut pair = Pair { seed, model, store, operations: Operations::new(seed) };
        for step in 0..steps {
            pair.step(step);
        }
        pair.compare_everything();
    }
}

struct Pair {
    seed: u64,
    model: Side,
    store: Side,
    operations: Operations,
}

impl Pair {
    /// Gives what was asked, and the answer.
    fn step(&mut self, step: usize) -> String {
        let operation = self.operations.draw();
        let answers = (self.model.perform(&operation), self.store.perform(&operation));
        assert_eq!(answers.1, answers.0, "seed {}, step {step}: {operation:?}", self.seed);
        assert_eq!(self.store.messages.len(), self.model.messages.len());
        let known = &mut self.operations.known;
        known.sessions = self.model.sessions.len();
        known.messages = self.model.messages.len();
        known.rows = self.model.subject.list(&Filter::default(), None, 10_000).rows;
        if let Operation::ClaimShards(session, _) = operation {
            known.owner = session;
        }
        known.last_turns.clear();
        for row in &known.rows {
            for execution in 1..=2 {
                let turns = self.model.subject.turns(row.key, execution, 0, 10_000).len();
                known
                    .last_turns
                    .insert((row.key, execution), u64::try_from(turns).expect("there are few turns"));
            }
        }
        format!("{operation:?} -> {}", answers.0)
    }

    fn compare_everything(&mut self) {
        let mut looks = vec![Operation::List(Filter::default(), None, usize::MAX - 1)];
        for session in 0..self.model.sessions.len() {
            looks.push(Operation::ReadInbox(session, None, 10_000));
            looks.push(Operation::ReadDue(session, u64::MAX, None, 10_000));
            looks.push(Operation::ReadOwed(session, None, 10_000));
        }
        for row in &self.operations.known.rows {
            looks.push(Operation::Load(row.key, 0));
            looks.extend([1, 2].map(|execution| Operation::ReadTurns(row.key, execution, 0, 10_000)));
        }
        // A last session takes what nobody owns, and so finds what the others could not see.
        looks.push(Operation::OpenSession(1_005));
        looks.push(Operation::ClaimShards(self.model.sessions.len(), SHARDS));
        looks.push(Operation::ReadInbox(self.model.sessions.len(), None, 10_000));
        for look in looks {
            let answers = (self.model.perform(&look), self.store.perform(&look));
            assert_eq!(answers.1, answers.0, "seed {}, at the end: {look:?}", self.seed);
        }
    }
}

/// One of the two, with what it has given out.
struct Side {
    subject: Subject,
    sessions: Vec<SessionId>,
    /// The number of each message, by its place.
    messages: Vec<InboxNumber>,
    places: BTreeMap<InboxNumber, MessagePlace>,
}

impl Side {
    fn new(make: Make<'_>) -> Side {
        Side {
            subject: Subject::new(make),
            sessions: Vec::new(),
            messages: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// Makes the call; gives the answer in words that mean the same for every store.
    fn perform(&mut self, operation: &Operation) -> String {
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
                text(
                    &loaded
                        .map(|LoadedInstance { row, turns, inbox, .. }| (row, turns, self.places_of(inbox))),
                )
            }
            Operation::ReadTurns(key, execution, after_turn, limit) => {
                text(&subject.turns(key, execution, after_turn, limit))
            }
            Operation::List(filter, after, limit) => text(&subject.list(&filter, after, limit)),
        }
    }

    fn member(&self, member: Member) -> Commit {
        let consumed = member.consumed.iter().map(|place| self.messages[*place]).collect();
        Commit { consumed, ..member.commit }
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

    fn places_of(&self, rows: Vec<InboxRow>) -> Vec<impl Debug + use<>> {
        let place = |row: InboxRow| (self.places[&row.number], row.key, row.shard, Arc::clone(&row.body));
        rows.into_iter().map(place).collect()
    }
}

fn text(answer: &impl Debug) -> String {
    format!("{answer:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the drawn operations meet, so that a comparison means something.
    #[test]
    fn s2_the_comparison_meets_every_kind_of_answer() {
        let make = |clock: super::super::TestClock| Candidate::new(MemoryStore::new(move || clock.now_ms()));
        let mut met = String::new();
        for seed in SEEDS {
            let (model, store) = (Side::new(&make), Side::new(&make));
            let mut pair = Pair { seed, model, store, operations: Operations::new(seed) };
            for step in 0..STEPS {
                met.push_str(&pair.step(step));
                met.push('\n');
            }
        }
        let kinds = [
            "durable []",
            "durable [None",
            "durable [Some(",
            "Fenced",
            "Conflict(IdTaken(",
            "Conflict(OtherTurn)",
            "Conflict(MissingTurn)",
            "Conflict(NoInstance)",
            "sent Some(",
            "-> Duplicate",
            "-> IdTaken(",
            "-> NoInstance",
            "-> Ended(",
            "-> Err(SessionGone)",
            "-> [DueInstance",
            "-> [(",
            "next: Some(",
        ];
        for kind in kinds {
            assert!(met.contains(kind), "no operation was answered with {kind}");
        }
        let durable = met.matches("durable").count();
        assert!(durable > 300, "many members go in: {durable}");
    }
}
