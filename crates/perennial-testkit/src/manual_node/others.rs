//! Actions of other nodes on the store: running tasks that this node cannot run, and deleting ended
//! instances.

use perennial_core::shard::{ActivityTask, Message, RanElsewhere};
use perennial_core::store::{
    DeleteOutcome, Served, SessionId, Store, TaskId, TaskRenewal, TaskReport, TaskRow,
};
use perennial_core::{ActivityError, Payload};

use super::{ManualNode, wait_for_store};

impl ManualNode {
    /// The session of a node that runs tasks and owns no shards.
    pub const WORKER: SessionId = SessionId(1_000_000);

    /// A worker's names and tags.
    pub fn served(names: &[&str], tags: &[&str]) -> Served {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Served { names: all(names), tags: all(tags), ..Served::default() }
    }

    /// Takes the queued tasks of these names as another node, with a lease.
    pub fn take_tasks(&mut self, names: &[&str], lease_ms: u64) -> Vec<TaskRow> {
        let served = ManualNode::served(names, &["gpu"]);
        let take = |reply| self.store.take_tasks(ManualNode::WORKER, served, usize::MAX, lease_ms, reply);
        wait_for_store(take).expect("the store is open")
    }

    /// Finishes a taken attempt as another node. Returns whether that node still held it.
    pub fn finish_task(&mut self, task: &TaskRow, result: Result<Payload, ActivityError>) -> bool {
        let work = ActivityTask::from_row(task).expect("a shard writes valid tasks");
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

    /// Reports a taken task that the other node cannot decode. Returns whether that node still held it.
    pub fn cannot_read_task(&mut self, task: &TaskRow) -> bool {
        let (TaskId { execution, event, .. }, attempt) = (task.id, task.attempt);
        let body = Message::Requeue { execution, event, attempt, past: task.past.clone() }.encode();
        wait_for_store(|reply| self.store.finish_task(ManualNode::WORKER, task.id, attempt, body, reply))
            .expect("the store is open")
    }

    /// Renews the lease of a task as another node, with heartbeat details.
    pub fn renew_task(&mut self, id: TaskId, details: Option<Payload>, lease_ms: u64) -> TaskRenewal {
        let report = TaskReport { details, ..TaskReport::of(id) };
        let renew = |reply| self.store.renew_tasks(ManualNode::WORKER, vec![report], lease_ms, reply);
        wait_for_store(renew).expect("the store is open").pop().expect("one answer per task")
    }

    /// Gives a task back as another node.
    pub fn give_back_task(&mut self, id: TaskId) {
        wait_for_store(|reply| self.store.give_back_tasks(ManualNode::WORKER, vec![id], reply))
            .expect("the store is open");
    }

    /// Deletes an instance that has ended.
    pub fn delete(&mut self, id: &str) -> DeleteOutcome {
        let row = self.row(id);
        let outcome = wait_for_store(|reply| self.store.delete(vec![(row.shard, row.key)], reply));
        outcome.expect("the store is open").pop().expect("one outcome per key")
    }
}
