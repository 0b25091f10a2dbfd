//! Runs the same operations on the store under test and on the model, and compares the answers.

use std::ops::Range;

use perennial_core::SHARDS;
use perennial_core::store::{Criteria, InstanceRow, MemoryStore, PageLimit, SessionRole};

use super::operation::{Operation, Operations, SETTINGS, Shards};
use super::side::Side;
use super::subject::{Candidate, Make};

/// The seeds of a short comparison.
const SEEDS: Range<u64> = 0..10;
const STEPS: usize = 300;

/// A session that claims this many shards probably owns the shard of the next operation.
const MANY_SHARDS: usize = 60;

/// The comparison as a rule, with a few seeds.
#[allow(missing_docs, reason = "it is named for the rule that it shows")]
pub fn s2_answers_are_those_of_the_model(make: Make<'_>) {
    compare_with_model(SEEDS, STEPS, make);
}

/// Draws this many operations from each seed, runs them on the store and on a [`MemoryStore`], and panics at
/// the first difference, naming the seed. Where the contract leaves a choice, the store must choose as the
/// model does: it claims the lowest free shards first. The order of queued tasks is not compared, because all
/// are taken at once.
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
    /// Returns the operation and the answer as text.
    fn step(&mut self, step: usize) -> String {
        let operation = self.operations.draw();
        let answers = (self.model.perform(&operation), self.store.perform(&operation));
        assert_eq!(answers.1, answers.0, "seed {}, step {step}: {operation:?}", self.seed);
        assert_eq!(self.store.messages.len(), self.model.messages.len());
        self.learn();
        self.learn_owner(&operation, &answers.0);
        format!("{operation:?} -> {}", answers.0)
    }

    fn learn_owner(&mut self, operation: &Operation, answer: &str) {
        let owner = &mut self.operations.known.owner;
        match *operation {
            Operation::ClaimShards(session, _) | Operation::ReplaceSession(_, session, _)
                if answer.matches("ShardId").count() >= MANY_SHARDS =>
            {
                *owner = Some(session);
            }
            Operation::EndSession(session) | Operation::ReplaceSession(session, ..)
                if *owner == Some(session) =>
            {
                *owner = None;
            }
            Operation::ClaimShards(session, _) | Operation::RenewSession(session)
                if *owner == Some(session) && answer.contains("SessionGone") =>
            {
                *owner = None;
            }
            _ => {}
        }
    }

    /// Reads the things that the next operations can refer to.
    fn learn(&mut self) {
        let (model, known) = (&self.model, &mut self.operations.known);
        known.messages = model.messages.len();
        known.requests = model.requests.len();
        let rows = model.subject.list(&Criteria::default(), None, 10_000).rows;
        let before = std::mem::replace(&mut known.rows, rows);
        let is_gone = |row: &InstanceRow| known.rows.iter().all(|now| now.key != row.key);
        known.gone.extend(before.into_iter().filter(is_gone));
        known.last_turns.clear();
        known.waiting.clear();
        known.tasks.clear();
        for row in &known.rows {
            for execution in 1..=2 {
                let turns = model.subject.turn_rows(row, execution, 0, PageLimit::rows(10_000));
                let last = turns.last().map_or(0, |turn| turn.number);
                known.last_turns.insert((row.key, execution), last);
            }
            let loaded = model.subject.load(row, 0).expect("it is in the list");
            let waiting = model.places_of(loaded.inbox).into_iter().map(|(place, _)| place).collect();
            known.waiting.insert(row.key, waiting);
            known.tasks.extend(loaded.tasks);
        }
    }

    fn compare_everything(&mut self) {
        let mut looks = vec![Operation::List(Criteria::default(), None, usize::MAX - 1), Operation::Stats];
        looks.extend((0..self.model.requests.len()).map(Operation::ReadReply));
        looks.extend(SETTINGS.map(Operation::ReadSetting));
        looks.push(Operation::Directory);
        let sessions = self.operations.known.sessions;
        for session in 0..sessions {
            looks.push(Operation::ReadInbox(session, Shards::Owned, None, vec![], 10_000));
            looks.push(Operation::ReadDue(session, Shards::Owned, u64::MAX, None, 10_000));
            looks.push(Operation::ReadOwed(session, Shards::Owned, None, 10_000));
            looks.push(Operation::ReadBlocked(session, Shards::Owned, None, 10_000));
            looks.push(Operation::ReadRequests(session, Shards::Owned, None, 10_000));
            looks.push(Operation::HeldTasks(session));
        }
        let known = &self.operations.known;
        for row in known.rows.iter().chain(&known.gone) {
            looks.push(Operation::Load(row.clone(), 0, 10_000));
            let turns = |execution| Operation::ReadTurns(row.clone(), execution, 0, 10_000);
            looks.extend([1, 2].map(turns));
        }
        // A final session claims the free shards, and so reads the content that the others could not.
        looks.push(Operation::OpenSession(sessions, SessionRole::Lane, 1_005));
        looks.push(Operation::ClaimShards(sessions, SHARDS));
        looks.push(Operation::ReadInbox(sessions, Shards::Owned, None, vec![], 10_000));
        looks.push(Operation::ReadRequests(sessions, Shards::Owned, None, 10_000));
        for look in looks {
            let answers = (self.model.perform(&look), self.store.perform(&look));
            assert_eq!(answers.1, answers.0, "seed {}, at the end: {look:?}", self.seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the drawn operations cover every kind of answer, without which a comparison proves little.
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
            "Conflict(MessageGone)",
            "Conflict(EarlierMessage)",
            "sent Some(",
            "-> duplicate of",
            "-> Full(",
            "-> IdTaken(",
            "-> NoInstance",
            "-> Ended(",
            "-> Err(SessionGone)",
            "-> Ok([DueInstance",
            "-> Ok([(",
            "blocked Ok([(",
            "opened Ok(",
            "opened in use",
            "replaced Ok(Replaced",
            "shards: [OwnedShard",
            "gaps: [Gap",
            "unclean_ends: 1",
            "Maintenance, 5005) -> opened Ok(",
            "role: Node",
            "holds [TaskRow",
            "pruned Ok(Swept { rows: 1, more: true })",
            "pruned Err(SessionGone)",
            "next: Some(",
            "took [TaskRow",
            "renewals [Kept",
            "renewals [Cancelled",
            "renewals [Gone",
            "finished true Some(",
            "finished true None",
            "finished false",
            "-> requested\n",
            "requested of nobody",
            "requests Ok(([RequestRow",
            "requests Err(SessionGone)",
            "reply Some(",
            "reply None",
            "withdrew true",
            "withdrew false",
            "note: Some(",
            "setting Some(",
            "noted Ok(",
            "noted Err(SessionGone)",
            "more: true",
            "Deleted",
            "NotEnded",
            "Gone]",
        ];
        let missing: Vec<_> = kinds.into_iter().filter(|kind| !met.contains(kind)).collect();
        assert_eq!(missing, Vec::<&str>::new(), "no operation was answered with these");
        let durable = met.matches("durable").count();
        assert!(durable > 600, "many members are durable: {durable}");
    }
}
