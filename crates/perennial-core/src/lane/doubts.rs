//! Commits in doubt: what tells whether they were written.
//!
//! Most commits can be sent again as they are: a turn that is there already is recognized, and what a commit without one
//! writes can be written twice. A task that others may run is the exception. Between two writes of its row somebody may
//! have taken it, run it and finished it; the second write would bring it back.

use std::sync::Arc;

use crate::shard::Message;
use crate::store::{
    Commit, CommitOutcome, Conflict, InstanceRow, LoadedInstance, PageLimit, TaskChange, TaskRow, TaskState,
    TurnRow,
};

use super::call::{StoreCall, StoreResponse};

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
fn was_written(commit: &Commit, stored: &LoadedInstance) -> bool {
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

/// What was read to find out about a commit.
#[derive(Debug)]
pub(super) enum Evidence {
    /// The turn of the commit's number.
    Turn(Option<TurnRow>),
    /// The instance that has the id.
    Row(Option<Box<InstanceRow>>),
    /// The commit's instance, without its turns.
    Instance(Option<Box<LoadedInstance>>),
}

impl Evidence {
    /// What the store answered to the call of [`read_back`].
    pub(super) fn of(answered: StoreResponse) -> Option<Evidence> {
        match answered {
            StoreResponse::Turns(turns) => Some(Evidence::Turn(turns.into_iter().next())),
            StoreResponse::Found(row) => Some(Evidence::Row(row)),
            StoreResponse::Loaded(loaded) => Some(Evidence::Instance(loaded)),
            _ => None,
        }
    }
}

/// What came of a commit that was in doubt and is refused now, if nothing that is stored can tell.
pub(super) fn unread_outcome(commit: &Commit, reason: &str) -> Option<CommitOutcome> {
    if commit.turn.is_some() || commit.insert.is_some() || is_written_once(commit) {
        return None;
    }
    // Without messages of its own it can be made again from what is stored; with them, callers are told that their outcome
    // is unknown.
    Some(match commit.send.is_empty() {
        true => CommitOutcome::Conflict(Conflict::OtherTurn),
        false => CommitOutcome::Rejected(reason.to_owned()),
    })
}

/// What came of a commit by what is stored, and by the reason for which it was refused since. `None` if it has to be sent
/// again.
pub(super) fn outcome(commit: &Commit, refused: Option<String>, evidence: Evidence) -> Option<CommitOutcome> {
    let durable = || CommitOutcome::Durable { sent: vec![None; commit.send.len()] };
    let rejected = |refused: Option<String>| CommitOutcome::Rejected(refused.unwrap_or_default());
    Some(match evidence {
        Evidence::Turn(Some(stored)) if commit.turn.as_ref() == Some(&stored) => durable(),
        Evidence::Turn(Some(_)) => CommitOutcome::Conflict(Conflict::OtherTurn),
        Evidence::Row(Some(row)) => CommitOutcome::Conflict(Conflict::IdTaken(row)),
        Evidence::Turn(None) | Evidence::Row(None) => rejected(refused),
        Evidence::Instance(None) => CommitOutcome::Conflict(Conflict::NoInstance),
        Evidence::Instance(Some(stored)) if was_written(commit, &stored) => durable(),
        Evidence::Instance(Some(_)) => return refused.map(CommitOutcome::Rejected),
    })
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
            since_ms: None,
            details,
            heard_ms: None,
            interruptions: 1,
            begun: None,
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

    #[test]
    fn g7_a_stored_turn_tells_whether_its_commit_was_written() {
        let turn = |checksum| TurnRow { execution: 1, number: 2, bytes: [].into(), checksum };
        let commit = Commit { turn: Some(turn(7)), ..Commit::empty(InstanceKey::new(1, 1), ShardId(0)) };
        let of = |stored| outcome(&commit, Some("no".to_owned()), Evidence::Turn(stored));
        assert_eq!(of(Some(turn(7))), Some(CommitOutcome::Durable { sent: Vec::new() }));
        assert_eq!(of(Some(turn(8))), Some(CommitOutcome::Conflict(Conflict::OtherTurn)));
        assert_eq!(of(None), Some(CommitOutcome::Rejected("no".to_owned())));
        assert_eq!(unread_outcome(&commit, "no"), None, "what is stored tells");
    }

    #[test]
    fn n10_what_must_not_be_written_twice_is_sent_again_only_if_it_is_not_there() {
        let commit = commit();
        let of = |refused, stored| outcome(&commit, refused, Evidence::Instance(stored));
        let there = || Some(Box::new(stored(vec![task(TaskState::Queued)], Vec::new())));
        let missing = || Some(Box::new(stored(Vec::new(), Vec::new())));
        assert_eq!(of(None, there()), Some(CommitOutcome::Durable { sent: Vec::new() }));
        assert_eq!(of(None, missing()), None);
        assert_eq!(of(Some("no".to_owned()), missing()), Some(CommitOutcome::Rejected("no".to_owned())));
        assert_eq!(of(None, None), Some(CommitOutcome::Conflict(Conflict::NoInstance)));
    }
}
