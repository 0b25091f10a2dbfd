//! Tasks and their leases.

use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::store::session::SessionId;
use crate::store::task::{Served, TaskChange, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState};

use super::tables::{Message, Tables};

impl Tables {
    pub(super) fn change_task(&mut self, change: &TaskChange) {
        match change {
            TaskChange::Put(row) => {
                if row.state == TaskState::Queued {
                    self.changes.tasks.insert(row.shard);
                }
                self.tasks.insert(row.id, TaskRow::clone(row));
            }
            TaskChange::Cancel(id) => match self.tasks.get_mut(id) {
                Some(TaskRow { state: TaskState::Leased { cancelled, .. }, due_ms: Some(_), .. }) => {
                    *cancelled = true;
                }
                _ => {
                    self.tasks.remove(id);
                }
            },
        }
    }

    pub(super) fn take_tasks(
        &mut self,
        holder: SessionId,
        served: &Served,
        limit: usize,
        now_ms: u64,
        until_ms: u64,
    ) -> Vec<TaskRow> {
        self.end_leases(now_ms);
        let is_takeable = |row: &&mut TaskRow| {
            row.state == TaskState::Queued && served.serves(&row.name, row.tag.as_deref())
        };
        let taken = self.tasks.values_mut().filter(is_takeable).take(limit);
        taken
            .map(|row| {
                row.lease(holder, now_ms, until_ms);
                row.clone()
            })
            .collect()
    }

    /// Queues tasks with an expired lease again. Cancelled ones are deleted.
    fn end_leases(&mut self, now_ms: u64) {
        let sessions = &self.ownership.sessions;
        let is_live = |holder: SessionId| sessions.get(&holder).is_some_and(|it| it.expires_ms >= now_ms);
        let is_over = |row: &TaskRow| row.due_ms.is_some_and(|until_ms| until_ms <= now_ms);
        self.tasks.retain(|_, row| {
            !(matches!(row.state, TaskState::Leased { cancelled: true, .. }) && is_over(row))
        });
        for row in self.tasks.values_mut() {
            if matches!(row.state, TaskState::Leased { .. }) && is_over(row) {
                let before = row.interruptions;
                row.queue_after_lease(now_ms, is_live);
                if flaws::is(Flaw::UncountedInterruptions) {
                    row.interruptions = before;
                }
                self.changes.tasks.insert(row.shard);
            }
        }
    }

    pub(super) fn held_tasks(&self, holder: SessionId) -> Vec<TaskRow> {
        self.tasks.values().filter(|row| is_held(row, holder)).cloned().collect()
    }

    /// The task, if it is leased to a holder.
    fn held(&mut self, holder: SessionId, id: TaskId) -> Option<&mut TaskRow> {
        self.tasks.get_mut(&id).filter(|row| is_held(row, holder))
    }

    pub(super) fn renew_task(
        &mut self,
        holder: SessionId,
        report: &TaskReport,
        now_ms: u64,
        until_ms: u64,
    ) -> TaskRenewal {
        let Some(row) = self.held(holder, report.task) else { return TaskRenewal::Gone };
        row.due_ms = Some(until_ms);
        report.apply(row, holder, now_ms);
        match row.state {
            TaskState::Leased { cancelled: true, .. } => TaskRenewal::Cancelled,
            _ => TaskRenewal::Kept,
        }
    }

    pub(super) fn finish_task(
        &mut self,
        holder: SessionId,
        id: TaskId,
        attempt: u32,
        body: &Arc<[u8]>,
        now_ms: u64,
    ) -> bool {
        if self.held(holder, id).is_none_or(|row| row.attempt != attempt) {
            return false;
        }
        self.tasks.remove(&id);
        if let Some(row) = self.instances.get(&id.key).filter(|row| !row.status.is_final()) {
            let message = Message::to(row, body, now_ms);
            if let Ok(number) = self.append(message) {
                self.tell_of_message(number);
            }
        }
        true
    }

    pub(super) fn give_back_task(&mut self, holder: SessionId, id: TaskId, now_ms: u64) {
        let Some(row) = self.held(holder, id) else { return };
        match row.state {
            TaskState::Leased { cancelled: true, .. } => {
                self.tasks.remove(&id);
            }
            _ => {
                row.queue_again(now_ms);
                let shard = row.shard;
                self.changes.tasks.insert(shard);
            }
        }
    }
}

fn is_held(row: &TaskRow, holder: SessionId) -> bool {
    matches!(row.state, TaskState::Leased { holder: of, .. } if of == holder)
}
