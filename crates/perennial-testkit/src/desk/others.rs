//! What other nodes do to the store: running tasks that the desk cannot, and deleting what has ended.

use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{DeleteOutcome, Served, SessionId, Store, TaskId, TaskRenewal, TaskRow};
use perennial_core::{ActivityFailure, Payload};

use super::{Desk, ask_store};

impl Desk {
    /// The session of a node that runs tasks and owns nothing.
    pub const WORKER: SessionId = SessionId(1_000_000);

    /// What serves these names and tags.
    pub fn served(names: &[&str], tags: &[&str]) -> Served {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Served { names: all(names), tags: all(tags) }
    }

    /// Another node takes the queued tasks of these names, for a time.
    pub fn take_tasks(&mut self, names: &[&str], lease_ms: u64) -> Vec<TaskRow> {
        let served = Desk::served(names, &["gpu"]);
        let take = |reply| self.store.take_tasks(Desk::WORKER, served, usize::MAX, lease_ms, reply);
        ask_store(take).expect("the store is open")
    }

    /// Another node ends the attempt that it took. Returns whether it was still its own.
    pub fn finish_task(&mut self, task: &TaskRow, result: Result<Payload, ActivityFailure>) -> bool {
        let work = ActivityTask::from_row(task).expect("a shard writes what can be run");
        let message = Message::Attempt {
            execution: work.execution,
            event: work.event,
            attempt: work.attempt,
            result,
            details: work.details,
        };
        let (id, attempt, body) = (task.id, task.attempt, message.encode());
        ask_store(|reply| self.store.finish_task(Desk::WORKER, id, attempt, body, reply))
            .expect("the store is open")
    }

    /// Another node renews its lease of a task, and reports how far it is.
    pub fn renew_task(&mut self, id: TaskId, details: Option<Payload>, lease_ms: u64) -> TaskRenewal {
        let renew = |reply| self.store.renew_tasks(Desk::WORKER, vec![(id, details)], lease_ms, reply);
        ask_store(renew).expect("the store is open").pop().expect("one answer per task")
    }

    /// Another node gives a task back.
    pub fn give_back_task(&mut self, id: TaskId) {
        ask_store(|reply| self.store.give_back_tasks(Desk::WORKER, vec![id], reply))
            .expect("the store is open");
    }

    /// Somebody deletes an instance that has ended.
    pub fn delete(&mut self, id: &str) -> DeleteOutcome {
        let key = self.row(id).key;
        let outcome = ask_store(|reply| self.store.delete(vec![key], reply));
        outcome.expect("the store is open").pop().expect("one outcome per key")
    }
}
