//! Tasks that a node takes from the store: leased by the store's clock, renewed, finished, given back, or lost.

use std::sync::Arc;

use perennial_core::shard::{ActivityTask, Message};
use perennial_core::store::{SessionId, Store, StoreError, TaskId, TaskRenewal, TaskRow};
use perennial_core::{ActivityFailure, Payload};

use super::Simulation;
use super::activities::Run;
use super::store_calls::ask;

impl Simulation {
    fn task_lease_ms(&self) -> u64 {
        self.plan.lease_ms
    }

    /// A node takes what it can run and nobody runs.
    pub(super) fn take_tasks(&mut self, node: usize) {
        let Some(session) = self.nodes[node].session else { return };
        if self.nodes[node].is_stopping || self.is_past_deadline(node) {
            return;
        }
        let (served, lease_ms) = (self.plan.served[node].clone(), self.task_lease_ms());
        let effect = move |this: &mut Simulation| -> Result<Vec<TaskRow>, StoreError> {
            ask(|reply| this.store.take_tasks(session, served, 2, lease_ms, reply))
        };
        self.call(node, "take_tasks", effect, move |this, rows| {
            for row in rows.unwrap_or_default() {
                this.count("task taken");
                if this.nodes[node].is_stopping {
                    this.give_back(node, session, row.id);
                    continue;
                }
                let Ok(task) = ActivityTask::from_row(&row) else {
                    return this.fail(format!("S5: the work of {:?} cannot be read", row.id));
                };
                if row.interruptions > this.plan.shard.max_interruptions {
                    let poisoned = Err(ActivityFailure::Poisoned);
                    this.finish_taken(node, session, task, poisoned);
                    continue;
                }
                let number = this.admit(node, Run { shard: row.shard, task, holder: Some(session) });
                let lease_lost = this.faults(|faults| faults.lease_lost);
                if this.chance.percent(lease_lost) {
                    this.count("task lease lost");
                } else {
                    this.renew_taken_later(node, number, session);
                }
            }
        });
    }

    fn renew_taken_later(&mut self, node: usize, number: u64, holder: SessionId) {
        let pause_ms = self.task_lease_ms() / 3;
        self.later_on(node, pause_ms, format!("n{node} renews a task"), move |this| {
            if this.nodes[node].runs.all.contains_key(&number) {
                this.renew_taken(node, number, holder, None);
                this.renew_taken_later(node, number, holder);
            }
        });
    }

    pub(super) fn renew_taken(
        &mut self,
        node: usize,
        number: u64,
        holder: SessionId,
        details: Option<Payload>,
    ) {
        let Some(run) = self.nodes[node].runs.all.get(&number) else { return };
        let (id, lease_ms) = (task_id(&run.task), self.task_lease_ms());
        let effect = move |this: &mut Simulation| -> Result<Vec<TaskRenewal>, StoreError> {
            ask(|reply| this.store.renew_tasks(holder, vec![(id, details)], lease_ms, reply))
        };
        self.call(node, "renew_tasks", effect, move |this, renewals| {
            match renewals.unwrap_or_default().first() {
                None | Some(TaskRenewal::Kept) => {}
                Some(TaskRenewal::Cancelled) => {
                    if this.end_run(node, number).is_some() {
                        this.count("taken task cancelled");
                        this.give_back(node, holder, id);
                    }
                }
                Some(TaskRenewal::Gone) => {
                    if this.end_run(node, number).is_some() {
                        this.count("taken task gone");
                    }
                }
            }
        });
    }

    pub(super) fn give_back(&mut self, node: usize, holder: SessionId, id: TaskId) {
        let effect =
            move |this: &mut Simulation| ask(|reply| this.store.give_back_tasks(holder, vec![id], reply));
        self.call(node, "give_back_tasks", effect, move |this, given| {
            if given.is_err() {
                this.again(node, "give a task back", move |this| this.give_back(node, holder, id));
            }
        });
    }

    pub(super) fn finish_taken(
        &mut self,
        node: usize,
        holder: SessionId,
        task: ActivityTask,
        result: Result<Payload, ActivityFailure>,
    ) {
        let id = task_id(&task);
        let message = Message::Attempt {
            execution: task.execution,
            event: task.event,
            attempt: task.attempt,
            result: result.clone(),
            details: task.details.clone(),
        };
        let (body, attempt): (Arc<[u8]>, u32) = (message.encode(), task.attempt);
        let effect = move |this: &mut Simulation| {
            let last = this.store.tables().inbox.keys().next_back().copied().unwrap_or_default();
            let finished: Result<bool, StoreError> =
                ask(|reply| this.store.finish_task(holder, id, attempt, body, reply));
            let sent: Vec<u64> =
                this.store.tables().inbox.range(last + 1..).map(|(number, _)| *number).collect();
            this.witness.sent.extend(sent);
            this.hint();
            let unknown = this.faults(|faults| faults.unknown);
            if this.chance.percent(unknown) {
                this.count("finish unknown");
                return Err(StoreError::Unknown("simulated".to_owned()));
            }
            finished
        };
        self.call(node, "finish_task", effect, move |this, finished| match finished {
            Ok(true) => this.count("taken task finished"),
            Ok(false) => this.count("result of a lost task refused"),
            Err(_) => this.again(node, "finish a task", move |this| {
                this.finish_taken(node, holder, task, result);
            }),
        });
    }
}

pub(super) fn task_id(task: &ActivityTask) -> TaskId {
    TaskId { key: task.key, execution: task.execution, event: task.event }
}
