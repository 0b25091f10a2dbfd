//! Tasks as nodes take, renew, finish and give them back.

use std::sync::Arc;

use perennial_core::store::{Served, SessionId, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState};

use super::tables::{Change, Tables};

impl Tables {
    pub(super) fn take_tasks(
        &mut self,
        holder: SessionId,
        served: &Served,
        limit: usize,
        now_ms: u64,
        lease_ms: u64,
    ) -> Vec<TaskRow> {
        self.end_leases(now_ms);
        let queued = self.tasks.values().filter(|row| row.state == TaskState::Queued);
        let mine = queued.filter(|row| served.serves(&row.name, row.tag.as_deref())).take(limit);
        let lease = |row: &TaskRow| {
            let mut row = row.clone();
            row.lease(holder, now_ms, now_ms + lease_ms);
            row
        };
        let taken: Vec<TaskRow> = mine.map(lease).collect();
        taken.iter().for_each(|row| self.write(Change::Task(row.clone())));
        taken
    }

    /// Queues tasks with expired leases again. Cancelled ones are deleted.
    fn end_leases(&mut self, now_ms: u64) {
        let is_over = |row: &&TaskRow| {
            matches!(row.state, TaskState::Leased { .. }) && row.due_ms.is_some_and(|due| due <= now_ms)
        };
        for mut row in self.tasks.values().filter(is_over).cloned().collect::<Vec<_>>() {
            if is_cancelled(&row) {
                self.write(Change::TaskGone(row.id));
                continue;
            }
            row.queue_after_lease(now_ms, |holder| self.is_live(holder, now_ms));
            self.hints.tasks.insert(row.shard);
            self.write(Change::Task(row));
        }
    }

    fn queue_again(&mut self, mut row: TaskRow, now_ms: u64) {
        if is_cancelled(&row) {
            return self.write(Change::TaskGone(row.id));
        }
        self.hints.tasks.insert(row.shard);
        row.queue_again(now_ms);
        self.write(Change::Task(row));
    }

    pub(super) fn held_tasks(&self, holder: SessionId) -> Vec<TaskRow> {
        self.tasks.values().filter(|row| is_held(row, holder)).cloned().collect()
    }

    fn held(&self, holder: SessionId, id: TaskId) -> Option<TaskRow> {
        self.tasks.get(&id).filter(|row| is_held(row, holder)).cloned()
    }

    pub(super) fn renew_task(
        &mut self,
        holder: SessionId,
        report: &TaskReport,
        now_ms: u64,
        until_ms: u64,
    ) -> TaskRenewal {
        let Some(mut row) = self.held(holder, report.task) else { return TaskRenewal::Gone };
        let is_cancelled = is_cancelled(&row);
        report.apply(&mut row, holder, now_ms);
        self.write(Change::Task(TaskRow { due_ms: Some(until_ms), ..row }));
        if is_cancelled { TaskRenewal::Cancelled } else { TaskRenewal::Kept }
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
        self.write(Change::TaskGone(id));
        self.append_result(id.key, body, now_ms);
        true
    }

    pub(super) fn give_back_task(&mut self, holder: SessionId, id: TaskId, now_ms: u64) {
        if let Some(row) = self.held(holder, id) {
            self.queue_again(row, now_ms);
        }
    }
}

fn is_cancelled(row: &TaskRow) -> bool {
    matches!(row.state, TaskState::Leased { cancelled: true, .. })
}

fn is_held(row: &TaskRow, holder: SessionId) -> bool {
    matches!(row.state, TaskState::Leased { holder: of, .. } if of == holder)
}
