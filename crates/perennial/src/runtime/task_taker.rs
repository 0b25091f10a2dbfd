//! The TaskTaker: runs activities that other nodes, or earlier ones, left in the store for whoever can run them.
//!
//! A task is taken under a lease, which is renewed while it runs; a renewal also brings its heartbeats into the store
//! and says whether somebody still waits for it. Its result goes into the inbox of the instance's owner.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{StoreError, TaskId, TaskRenewal, TaskRow};
use perennial_core::{ActivityFailure, Payload};
use tokio_util::sync::CancellationToken;

use super::node::Node;

/// How many tasks are taken at a time.
const PAGE: usize = 100;
/// How long a task is taken for; it is renewed at a third of it.
const LEASE: Duration = Duration::from_secs(30);

impl Node {
    /// Takes tasks that this node can run, while it has room for them.
    pub(super) fn take_tasks(self: &Arc<Node>) {
        let served = self.options.shard.served.as_deref().cloned().unwrap_or_default();
        if served.names.is_empty() || !self.workers.has_room() {
            return;
        }
        let node = Arc::clone(self);
        let reply = move |taken: Result<Vec<TaskRow>, StoreError>| match taken {
            Ok(rows) => {
                let is_full = rows.len() == PAGE;
                for row in rows {
                    node.run_taken(&row);
                }
                if is_full {
                    node.take_tasks();
                }
            }
            // The next look comes by itself.
            Err(error) => node.reading_failed(&error, |_| ()),
        };
        let lease_ms = LEASE.as_millis() as u64;
        self.store.take_tasks(self.holder, served, PAGE, lease_ms, Box::new(reply));
    }

    fn run_taken(self: &Arc<Node>, row: &TaskRow) {
        match ActivityTask::from_row(row) {
            Ok(task) if task.interruptions > self.options.shard.max_interruptions => {
                self.finish_taken(&task, Err(ActivityFailure::Poisoned), task.details.clone());
            }
            Ok(task) => self.workers.run_taken(self, task),
            Err(error) => {
                tracing::error!(activity = row.name, %error, "a task cannot be read; a newer engine may have written it");
                let give_back = Box::new(|_| ());
                self.store.give_back_tasks(self.holder, vec![row.id], give_back);
            }
        }
    }

    /// Ends a task that was taken: its result goes to the owner of its instance.
    pub(super) fn finish_taken(
        self: &Arc<Node>,
        task: &ActivityTask,
        result: Result<Payload, ActivityFailure>,
        details: Option<Payload>,
    ) {
        let result = self.within_limits(result);
        let (execution, event, attempt) = (task.execution, task.event, task.attempt);
        let body = Message::Attempt { execution, event, attempt, result, details }.encode();
        self.send_result(TaskId { key: task.key, execution, event }, attempt, body);
    }

    fn send_result(self: &Arc<Node>, id: TaskId, attempt: u32, body: Arc<[u8]>) {
        let (node, again) = (Arc::clone(self), Arc::clone(&body));
        let reply = move |finished: Result<bool, StoreError>| match finished {
            Ok(true) => node.read_inbox(),
            Ok(false) => tracing::info!(event = %id.event, "the result of a task came after its lease"),
            // Sent again after an unknown outcome it is refused if it had arrived.
            Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                node.later(move |node| node.send_result(id, attempt, again));
            }
            Err(error) => node.reading_failed(&error, |_| ()),
        };
        self.store.finish_task(self.holder, id, attempt, body, Box::new(reply));
    }

    /// Gives a task back that was taken and not finished.
    pub(super) fn give_back_taken(self: &Arc<Node>, task: &ActivityTask) {
        let id = TaskId { key: task.key, execution: task.execution, event: task.event };
        // If this is lost, the lease runs out.
        self.store.give_back_tasks(self.holder, vec![id], Box::new(|_| ()));
    }

    /// Renews the lease of a task for as long as it runs.
    pub(super) async fn keep_lease(self: &Arc<Node>, task: &ActivityTask, cancellation: &CancellationToken) {
        loop {
            tokio::time::sleep(LEASE / 3).await;
            self.renew_taken(task, None, cancellation.clone());
        }
    }

    /// Renews a task's lease, writes what it reported, and tells it if nobody waits for it any more.
    pub(super) fn renew_taken(
        self: &Arc<Node>,
        task: &ActivityTask,
        details: Option<Payload>,
        cancellation: CancellationToken,
    ) {
        let id = TaskId { key: task.key, execution: task.execution, event: task.event };
        let reply = move |renewed: Result<Vec<TaskRenewal>, StoreError>| match renewed.as_deref() {
            // One that could not be renewed is tried again before its lease ends. That nobody waits for it, only an
            // answer says.
            Ok([TaskRenewal::Kept]) | Err(_) => {}
            Ok(_) => cancellation.cancel(),
        };
        let lease_ms = LEASE.as_millis() as u64;
        self.store.renew_tasks(self.holder, vec![(id, details)], lease_ms, Box::new(reply));
    }
}
