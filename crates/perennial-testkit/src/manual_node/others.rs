//! What other nodes do to the store: running tasks that this one cannot, and deleting what has ended.

use perennial_core::shard::{ActivityTask, Message, RanElsewhere};
use perennial_core::store::{
    DeleteOutcome, Served, SessionId, Store, TaskId, TaskRenewal, TaskReport, TaskRow,
};
use perennial_core::{ActivityError, Payload};

use super::{ManualNode, wait_for_store};

impl ManualNode {
    /// The session of a node that runs tasks and owns nothing.
    pub const WORKER: SessionId = SessionId(1_000_000);

    /// What serves these names and tags.
    pub fn served(names: &[&str], tags: &[&str]) -> Served {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Served { names: all(names), tags: all(tags), ..Served::default() }
    }

    /// Another node takes the queued tasks of these names, for a time.
    pub fn take_tasks(&mut self, names: &[&str], lease_ms: u64) -> Vec<TaskRow> {
        let served = ManualNode::served(names, &["gpu"]);
        let take = |reply| self.store.take_tasks(ManualNode::WORKER, served, usize::MAX, lease_ms, reply);
        wait_for_store(take).expect("the store is open")
    }

    /// Another node ends the attempt that it took. Returns whether it was still its own.
    pub fn finish_task(&mut self, task: &TaskRow, result: Result<Payload, ActivityError>) -> bool {
        let work = ActivityTask::from_row(task).expect("a shard writes what can be run");
        let message = Message::Attempt {
            execution: work.execution,
            event: work.event,
            attempt: work.attempt,
            result,
            details: work.details,
            ran: Some(Box::new(RanElsewhere {
                node: "worker".to_owned(),
                queued_ms: work.queued_ms,
                took_ms: 0,
                past: work.past,
            })),
        };
        let (id, attempt, body) = (task.id, task.attempt, message.encode());
        wait_for_store(|reply| self.store.finish_task(ManualNode::WORKER, id, attempt, body, reply))
            .expect("the store is open")
    }

    /// Another node took a task that it cannot read. Returns whether it was still its own.
    pub fn cannot_read_task(&mut self, task: &TaskRow) -> bool {
        let (TaskId { execution, event, .. }, attempt) = (task.id, task.attempt);
        let body = Message::Requeue { execution, event, attempt, past: task.past.clone() }.encode();
        wait_for_store(|reply| self.store.finish_task(ManualNode::WORKER, task.id, attempt, body, reply))
            .expect("the store is open")
    }

    /// Another node renews its lease of a task, and reports how far it is.
    pub fn renew_task(&mut self, id: TaskId, details: Option<Payload>, lease_ms: u64) -> TaskRenewal {
        let report = TaskReport { details, ..TaskReport::of(id) };
        let renew = |reply| self.store.renew_tasks(ManualNode::WORKER, vec![report], lease_ms, reply);
        wait_for_store(renew).expect("the store is open").pop().expect("one answer per task")
    }

    /// Another node gives a task back.
    pub fn give_back_task(&mut self, id: TaskId) {
        wait_for_store(|reply| self.store.give_back_tasks(ManualNode::WORKER, vec![id], reply))
            .expect("the store is open");
    }

    /// Somebody deletes an instance that has ended.
    pub fn delete(&mut self, id: &str) -> DeleteOutcome {
        let row = self.row(id);
        let outcome = wait_for_store(|reply| self.store.delete(vec![(row.shard, row.key)], reply));
        outcome.expect("the store is open").pop().expect("one outcome per key")
    }
}
