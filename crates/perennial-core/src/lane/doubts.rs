//! Commits in doubt: what tells whether they were written.
//!
//! Most commits can be sent again as they are: a turn that is there already is recognized, and what a commit without one
//! writes can be written twice. A task that others may run is the exception. Between two writes of its row somebody may
//! have taken it, run it and finished it; the second write would bring it back.

use std::sync::Arc;

use crate::shard::Message;
use crate::store::{Commit, LoadedInstance, PageLimit, TaskChange, TaskRow, TaskState};

use super::call::StoreCall;

/// What tells whether a commit was written, if anything does.
pub(super) fn read_back(commit: &Commit, inbox: PageLimit) -> Option<StoreCall> {
    let (shard, key) = (commit.shard, commit.key);
    match (&commit.turn, &commit.insert) {
        (Some(turn), _) => {
            let (execution, after_turn) = (turn.execution, turn.number.saturating_sub(1));
            Some(StoreCall::ReadTurns { shard, key, execution, after_turn, limit: PageLimit::rows(1) })
        }
        (None, Some(row)) => Some(StoreCall::Find { id: Arc::from(row.id.as_str()) }),
        (None, None) => {
            shared_task(commit).map(|_| StoreCall::Load { shard, key, after_turn: u64::MAX, inbox })
        }
    }
}

/// Whether sending a commit again may undo what others did since it was written.
pub(super) fn is_written_once(commit: &Commit) -> bool {
    commit.turn.is_none() && commit.insert.is_none() && shared_task(commit).is_some()
}

/// The first task of a commit that others may run from then on.
fn shared_task(commit: &Commit) -> Option<&TaskRow> {
    commit.tasks.iter().find_map(|change| match change {
        TaskChange::Put(row) if is_shared(row) => Some(&**row),
        TaskChange::Put(_) | TaskChange::Cancel(_) => None,
    })
}

fn is_shared(row: &TaskRow) -> bool {
    match row.state {
        TaskState::Queued => true,
        TaskState::Leased { .. } => row.due_ms.is_some(),
        TaskState::Waiting => false,
    }
}

/// Whether such a commit was written, as the instance is stored now: its task is there, or the task's result is.
pub(super) fn was_written(commit: &Commit, stored: &LoadedInstance) -> bool {
    let Some(task) = shared_task(commit) else { return false };
    let is_task = |row: &TaskRow| {
        row.id == task.id
            && is_shared(row)
            && row.attempt == task.attempt
            && row.interruptions >= task.interruptions
    };
    let is_result = |body: &[u8]| {
        matches!(
            Message::decode(body),
            Ok(Message::Attempt { execution, event, attempt, .. })
                if (execution, event, attempt) == (task.id.execution, task.id.event, task.attempt)
        )
    };
    stored.tasks.iter().any(is_task) || stored.inbox.rows.iter().any(|row| is_result(&row.body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{EventId, Payload};
    use crate::instance::{InstanceKey, ShardId};
    use crate::store::{InboxPage, InboxRow, InstanceRow, SessionId, TaskId};

    fn task(state: TaskState) -> TaskRow {
        let id = TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(3) };
        let (details, tag, work) = (None, None, None);
        let (shard, name) = (ShardId(0), "a".to_owned());
        TaskRow {
            id,
            shard,
            attempt: 1,
            state,
            due_ms: None,
            details,
            interruptions: 1,
            name,
            tag,
            work,
            past: Default::default(),
        }
    }

    fn commit() -> Commit {
        let tasks = vec![TaskChange::Put(Box::new(task(TaskState::Queued)))];
        Commit { tasks, ..Commit::empty(InstanceKey::new(1, 1), ShardId(0)) }
    }

    fn stored(tasks: Vec<TaskRow>, bodies: Vec<Arc<[u8]>>) -> LoadedInstance {
        let key = InstanceKey::new(1, 1);
        let started = crate::history::Started::new("n", "1.0.0", Payload::null(), 7);
        let row = InstanceRow::pending(key, "i", &started, 1);
        let rows = (1..).zip(bodies).map(|(number, body)| InboxRow {
            number,
            key,
            shard: row.shard,
            arrived_ms: 1,
            urgent: false,
            body,
        });
        let inbox = InboxPage { rows: rows.collect(), next: None };
        LoadedInstance { row, turns: Vec::new(), inbox, tasks }
    }

    #[test]
    fn n10_a_task_that_others_took_or_finished_was_written() {
        let commit = commit();
        assert!(is_written_once(&commit));
        assert!(!was_written(&commit, &stored(Vec::new(), Vec::new())));
        assert!(!was_written(&commit, &stored(vec![task(TaskState::Waiting)], Vec::new())));
        let holder = SessionId(1);
        let taken = TaskRow { due_ms: Some(9), ..task(TaskState::Leased { holder, cancelled: false }) };
        assert!(was_written(&commit, &stored(vec![taken], Vec::new())));
        let (execution, event, attempt, result) = (1, EventId(3), 1, Ok(Payload::null()));
        let finished = Message::Attempt { execution, event, attempt, result, details: None, ran: None };
        assert!(was_written(&commit, &stored(Vec::new(), vec![finished.encode()])));
    }
}
