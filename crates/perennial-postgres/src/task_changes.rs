//! Changes of tasks, transposed to columns.

use std::borrow::Cow;

use perennial_core::store::{TaskChange, TaskId, TaskRow, TaskState};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::arguments::{Arguments, Text};
use crate::row::{bound, json, shard, uuid};

#[derive(Default)]
pub(crate) struct Tasks<'c> {
    member: Vec<i32>,
    op: Vec<i16>,
    key: Vec<Uuid>,
    execution: Vec<i64>,
    event: Vec<i64>,
    shard: Vec<Option<i16>>,
    state: Vec<Option<i16>>,
    holder: Vec<Option<Uuid>>,
    cancelled: Vec<Option<bool>>,
    attempt: Vec<Option<i64>>,
    due: Vec<Option<i64>>,
    since: Vec<Option<i64>>,
    heard: Vec<Option<i64>>,
    interruptions: Vec<Option<i64>>,
    begun: Vec<Option<Uuid>>,
    name: Vec<Text<'c>>,
    tag: Vec<Text<'c>>,
    details: Vec<Text<'c>>,
    past: Vec<Text<'c>>,
    work: Vec<Option<&'c [u8]>>,
}

/// The combined effect of a member's changes on one task.
enum LastChange<'c> {
    /// Writes the row; marks it as cancelled if `cancelled`.
    Put {
        row: &'c TaskRow,
        cancelled: bool,
    },
    /// Deletes the task, or marks it as cancelled if another session runs it.
    Cancel(TaskId),
    Delete(TaskId),
}

/// Combines the changes of a member, so that each task occurs once.
fn last_changes(changes: &[TaskChange]) -> Vec<LastChange<'_>> {
    let mut places: FxHashMap<TaskId, usize> = FxHashMap::default();
    let mut last: Vec<LastChange<'_>> = Vec::with_capacity(changes.len());
    for change in changes {
        let (id, change) = match change {
            TaskChange::Put(row) => (row.id, LastChange::Put { row, cancelled: false }),
            TaskChange::Cancel(id) => (*id, LastChange::Cancel(*id)),
        };
        let Some(place) = places.get(&id).copied() else {
            places.insert(id, last.len());
            last.push(change);
            continue;
        };
        last[place] = match (&last[place], change) {
            (LastChange::Put { row, .. }, LastChange::Cancel(_)) => match row.state {
                TaskState::Leased { .. } if row.due_ms.is_some() => LastChange::Put { row, cancelled: true },
                _ => LastChange::Delete(id),
            },
            (LastChange::Delete(_), LastChange::Cancel(_)) => LastChange::Delete(id),
            (_, change) => change,
        };
    }
    last
}

impl<'c> Tasks<'c> {
    /// Adds the changes of a member.
    pub(crate) fn add_all(&mut self, member: i32, changes: &'c [TaskChange]) {
        for change in last_changes(changes) {
            self.add(member, change);
        }
    }

    pub(crate) fn add_arguments<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments
            .ints(&self.member)
            .shorts(&self.op)
            .uuids(&self.key)
            .longs(&self.execution)
            .longs(&self.event)
            .shorts(&self.shard);
        arguments
            .shorts(&self.state)
            .uuids(&self.holder)
            .bools(&self.cancelled)
            .longs(&self.attempt)
            .longs(&self.due);
        arguments
            .longs(&self.since)
            .longs(&self.heard)
            .longs(&self.interruptions)
            .uuids(&self.begun)
            .texts(&self.name);
        arguments.texts(&self.tag).texts(&self.details).texts(&self.past).bytes(&self.work);
    }

    fn add(&mut self, member: i32, change: LastChange<'c>) {
        let (op, id) = match &change {
            LastChange::Put { row, .. } => (1, row.id),
            LastChange::Cancel(id) => (2, *id),
            LastChange::Delete(id) => (3, *id),
        };
        self.member.push(member);
        self.op.push(op);
        self.key.push(uuid(id.key));
        self.execution.push(bound(id.execution));
        self.event.push(bound(id.event.0));
        match change {
            LastChange::Put { row, cancelled } => self.add_columns(row, cancelled),
            LastChange::Cancel(_) | LastChange::Delete(_) => self.add_nothing(),
        }
    }

    fn add_columns(&mut self, row: &'c TaskRow, is_cancelled: bool) {
        let (state, holder, cancelled) = match row.state {
            TaskState::Queued => (0, None, false),
            TaskState::Leased { holder, cancelled } => (1, Some(holder), cancelled),
            TaskState::Waiting => (2, None, false),
        };
        let past = if row.past.is_empty() { None } else { json(&row.past).ok() };
        self.shard.push(Some(shard(row.shard)));
        self.state.push(Some(state));
        self.holder.push(holder.map(|holder| Uuid::from_u128(holder.0)));
        self.cancelled.push(Some(cancelled || is_cancelled));
        self.attempt.push(Some(i64::from(row.attempt)));
        self.due.push(row.due_ms.map(bound));
        self.since.push(row.since_ms.map(bound));
        self.heard.push(row.heard_ms.map(bound));
        self.interruptions.push(Some(i64::from(row.interruptions)));
        self.begun.push(row.begun.map(|begun| Uuid::from_u128(begun.0)));
        self.name.push(Some(Cow::Borrowed(&row.name)));
        self.tag.push(row.tag.as_deref().map(Cow::Borrowed));
        self.details.push(row.details.as_ref().map(|details| Cow::Borrowed(details.as_json())));
        self.past.push(past.map(Cow::Owned));
        self.work.push(row.work.as_deref());
    }

    fn add_nothing(&mut self) {
        self.shard.push(None);
        self.state.push(None);
        self.holder.push(None);
        self.cancelled.push(None);
        self.attempt.push(None);
        self.due.push(None);
        self.since.push(None);
        self.heard.push(None);
        self.interruptions.push(None);
        self.begun.push(None);
        self.name.push(None);
        self.tag.push(None);
        self.details.push(None);
        self.past.push(None);
        self.work.push(None);
    }
}
