//! Commits in doubt: finding out whether they were written.
//!
//! Most commits can simply be submitted again: a turn that is already stored is recognised, and everything that a
//! commit without a turn writes can be written twice. A task row that other nodes may take is the exception: between
//! the two writes a node may have taken, run and finished it, and the second write would bring it back.

use std::sync::Arc;

use crate::shard::Message;
use crate::store::{
    Commit, CommitOutcome, Conflict, InstanceRow, LoadedInstance, PageLimit, TaskChange, TaskRow, TaskState,
    TurnRow,
};

use super::call::{StoreCall, StoreResponse};

/// The call whose result tells whether a commit was written, if there is one.
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

/// Whether submitting a commit again may undo what others did after it was written.
pub(super) fn is_written_once(commit: &Commit) -> bool {
    commit.turn.is_none() && commit.insert.is_none() && shared_task(commit).is_some()
}

/// The first task of a commit that other nodes may take.
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

/// Whether such a commit was written, according to the stored instance: its task exists, or the task's result does.
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

/// The stored rows that tell whether a commit was written.
#[derive(Debug)]
pub(super) enum Evidence {
    /// The turn with the commit's number.
    Turn(Option<TurnRow>),
    /// The instance with the id.
    Row(Option<Box<InstanceRow>>),
    /// The commit's instance, without its turns.
    Instance(Option<Box<LoadedInstance>>),
}

impl Evidence {
    /// The result of the call of [`read_back`].
    pub(super) fn of(answered: StoreResponse) -> Option<Evidence> {
        match answered {
            StoreResponse::Turns(turns) => Some(Evidence::Turn(turns.into_iter().next())),
            StoreResponse::Found(row) => Some(Evidence::Row(row)),
            StoreResponse::Loaded(loaded) => Some(Evidence::Instance(loaded)),
            _ => None,
        }
    }
}

/// The outcome of a commit in doubt that is refused now, if no stored row can tell.
pub(super) fn unread_outcome(commit: &Commit, reason: &str) -> Option<CommitOutcome> {
    if commit.turn.is_some() || commit.insert.is_some() || is_written_once(commit) {
        return None;
    }
    // Without messages it can be produced again from what is stored; with them, callers learn that the outcome is
    // unknown.
    Some(match commit.send.is_empty() {
        true => CommitOutcome::Conflict(Conflict::OtherTurn),
        false => CommitOutcome::Rejected(reason.to_owned()),
    })
}

/// The outcome of a commit according to the stored rows and the reason why it was refused since. `None` if it has to be
/// submitted again.
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
