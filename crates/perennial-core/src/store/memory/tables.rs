//! All rows of the in-memory store, and the rules by which they change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::history::Payload;
use crate::instance::{InstanceKey, ShardId};
use crate::store::ask::{Ask, AskNumber, AskOutcome, AskRow};
use crate::store::commit::{
    Commit, CommitOutcome, Conflict, DeleteOutcome, InboxNumber, InboxRow, Outgoing, SendOutcome,
    SendRequest, TurnRow,
};
use crate::store::row::{InstanceRow, Status};
use crate::store::session::SessionId;
use crate::store::stats::{Count, StoreStats};
use crate::store::task::{Served, TaskChange, TaskId, TaskRenewal, TaskRow, TaskState};

use super::MAX_UNREAD;

/// All rows. Public to tests and the simulator through [`MemoryStore::tables`](super::MemoryStore::tables).
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Rows by key.
    pub instances: BTreeMap<InstanceKey, InstanceRow>,
    /// Keys by id.
    pub ids: BTreeMap<String, InstanceKey>,
    /// Turns by key, execution and number.
    pub turns: BTreeMap<(InstanceKey, u64, u64), Arc<[u8]>>,
    /// Messages by number.
    pub inbox: BTreeMap<InboxNumber, Message>,
    /// Tasks.
    pub tasks: BTreeMap<TaskId, TaskRow>,
    /// Requests without an answer, by number.
    pub asks: BTreeMap<AskNumber, AskRow>,
    /// Answers and when they are swept, by the request's number.
    pub answers: BTreeMap<AskNumber, (Arc<[u8]>, u64)>,
    /// What the engine noted.
    pub notes: BTreeMap<String, Arc<[u8]>>,
    pub(super) sessions: BTreeMap<SessionId, SessionRow>,
    pub(super) owners: BTreeMap<ShardId, SessionId>,
    pub(super) next_session: u128,
    pub(super) closed: bool,
    next_number: InboxNumber,
    next_ask: AskNumber,
}

/// A message as it is kept.
#[derive(Clone, Debug)]
pub struct Message {
    /// The instance it is bound to.
    pub to: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// Its key against duplicates.
    pub dedupe: Option<String>,
    /// Whether only a load shows it.
    pub parked: bool,
    /// What it says.
    pub body: Arc<[u8]>,
}

impl Message {
    pub(super) fn to_row(&self, number: InboxNumber) -> InboxRow {
        InboxRow { number, key: self.to, shard: self.shard, body: Arc::clone(&self.body) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SessionRow {
    pub(super) lease_ms: u64,
    pub(super) expires_ms: u64,
}

impl Tables {
    pub(super) fn owns(&self, session: SessionId, shard: ShardId) -> bool {
        self.sessions.contains_key(&session) && self.owners.get(&shard) == Some(&session)
    }

    pub(super) fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.owners.retain(|_, owner| *owner != session);
    }

    pub(super) fn commit(&mut self, session: SessionId, member: &Commit) -> CommitOutcome {
        if !self.owns(session, member.shard) {
            return CommitOutcome::Fenced;
        }
        if let Some(turn) = &member.turn {
            match self.check_turn(member, turn) {
                Ok(true) => {
                    return CommitOutcome::Durable { sent: vec![None; member.send.len()] };
                }
                Ok(false) => {}
                Err(conflict) => return CommitOutcome::Conflict(conflict),
            }
        }
        match &member.insert {
            Some(row) => {
                if let Some(key) = self.ids.get(&row.id) {
                    return CommitOutcome::Conflict(Conflict::IdTaken(Box::new(self.instances[key].clone())));
                }
            }
            None if !self.instances.contains_key(&member.key) => {
                return CommitOutcome::Conflict(Conflict::NoInstance);
            }
            None => {}
        }
        if member.consumed.iter().any(|number| !self.inbox.contains_key(number)) {
            return CommitOutcome::Conflict(Conflict::MessageGone);
        }
        if let Some(row) = &member.insert {
            self.insert_instance(row);
        }
        if let Some(turn) = &member.turn {
            self.turns.insert((member.key, turn.execution, turn.number), Arc::clone(&turn.bytes));
        }
        if let Some(row) = self.instances.get_mut(&member.key) {
            member.change.apply(row);
        }
        for number in &member.consumed {
            self.inbox.remove(number);
        }
        for change in &member.tasks {
            self.change_task(change);
        }
        for answer in &member.answers {
            if let Some(ask) = self.asks.remove(&answer.number) {
                self.answers.insert(answer.number, (Arc::clone(&answer.body), ask.deadline_ms));
            }
        }
        let sent = member.send.iter().map(|message| self.send_out(member, message)).collect();
        CommitOutcome::Durable { sent }
    }

    fn insert_instance(&mut self, row: &InstanceRow) {
        self.ids.insert(row.id.clone(), row.key);
        self.instances.insert(row.key, row.clone());
    }

    /// Whether the same turn is stored already; or why it cannot be.
    fn check_turn(&self, member: &Commit, turn: &TurnRow) -> Result<bool, Conflict> {
        match self.turns.get(&(member.key, turn.execution, turn.number)) {
            Some(stored) if *stored == turn.bytes => return Ok(true),
            Some(_) => return Err(Conflict::OtherTurn),
            None => {}
        }
        let follows = turn.number <= 1
            || self.turns.contains_key(&(member.key, turn.execution, turn.number.saturating_sub(1)));
        if follows { Ok(false) } else { Err(Conflict::MissingTurn) }
    }

    fn change_task(&mut self, change: &TaskChange) {
        match change {
            TaskChange::Put(row) => {
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

    fn send_out(&mut self, sender: &Commit, message: &Outgoing) -> Option<InboxNumber> {
        match message {
            Outgoing::ToKey { to, dedupe, urgent, body, .. } => {
                let row = self.instances.get(to).filter(|row| !row.status.is_final())?.clone();
                if *urgent {
                    self.make_due_if_blocked(row.key);
                }
                self.append(&row, dedupe.clone(), false, body)
            }
            Outgoing::ToId { id, dedupe, body } => {
                let row = self.instances.get(self.ids.get(id)?)?.clone();
                if row.status.is_final() {
                    return None;
                }
                self.append(&row, dedupe.clone(), false, body)
            }
            Outgoing::Start { row, body, otherwise } => match self.ids.get(&row.id) {
                Some(key) if *key == row.key => None,
                Some(_) => {
                    let sender =
                        self.instances.get(&sender.key).filter(|row| !row.status.is_final())?.clone();
                    self.append(&sender, None, false, otherwise.as_ref()?)
                }
                None => {
                    self.insert_instance(row);
                    self.append(row, None, row.wake_at_ms.is_some(), body)
                }
            },
        }
    }

    fn append(
        &mut self,
        to: &InstanceRow,
        dedupe: Option<String>,
        parked: bool,
        body: &Arc<[u8]>,
    ) -> Option<InboxNumber> {
        let is_same = |other: &Message| other.to == to.key && other.dedupe == dedupe;
        if dedupe.is_some() && self.inbox.values().any(is_same) {
            return None;
        }
        self.next_number += 1;
        let message = Message { to: to.key, shard: to.shard, dedupe, parked, body: Arc::clone(body) };
        self.inbox.insert(self.next_number, message);
        Some(self.next_number)
    }

    fn make_due_if_blocked(&mut self, key: InstanceKey) {
        if let Some(row) = self.instances.get_mut(&key).filter(|row| row.blocked.is_some()) {
            row.wake_at_ms = Some(0);
        }
    }

    pub(super) fn send(&mut self, request: SendRequest) -> SendOutcome {
        let (row, dedupe, parked, body) = match request {
            SendRequest::Start { row, body } => {
                if let Some(key) = self.ids.get(&row.id) {
                    return SendOutcome::IdTaken(Box::new(self.instances[key].clone()));
                }
                self.insert_instance(&row);
                let parked = row.wake_at_ms.is_some();
                (*row, None, parked, body)
            }
            SendRequest::Message { id, dedupe, urgent, body } => {
                let Some(row) = self.ids.get(&id).map(|key| self.instances[key].clone()) else {
                    return SendOutcome::NoInstance;
                };
                if row.status.is_final() {
                    return SendOutcome::Ended(Box::new(row));
                }
                let unread = self.inbox.values().filter(|message| message.to == row.key).count();
                if unread >= MAX_UNREAD {
                    return SendOutcome::Full(unread);
                }
                if urgent {
                    self.make_due_if_blocked(row.key);
                }
                (row, dedupe, false, body)
            }
        };
        self.append(&row, dedupe, parked, &body).map_or(SendOutcome::Duplicate, SendOutcome::Sent)
    }

    pub(super) fn owned_rows(&self, session: SessionId) -> impl Iterator<Item = &InstanceRow> {
        self.instances.values().filter(move |row| self.owns(session, row.shard) && !row.status.is_final())
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
                row.state = TaskState::Leased { holder, cancelled: false };
                row.due_ms = Some(until_ms);
                row.clone()
            })
            .collect()
    }

    /// Queues tasks again whose lease ran out; those that nobody waits for go.
    fn end_leases(&mut self, now_ms: u64) {
        let is_over = |row: &TaskRow| row.due_ms.is_some_and(|until_ms| until_ms <= now_ms);
        self.tasks.retain(|_, row| {
            !(matches!(row.state, TaskState::Leased { cancelled: true, .. }) && is_over(row))
        });
        for row in self.tasks.values_mut() {
            if matches!(row.state, TaskState::Leased { .. }) && is_over(row) {
                row.state = TaskState::Queued;
                row.due_ms = None;
                row.interruptions += 1;
            }
        }
    }

    /// The task, if it is leased to a holder.
    fn held(&mut self, holder: SessionId, id: TaskId) -> Option<&mut TaskRow> {
        let is_his =
            |row: &&mut TaskRow| matches!(row.state, TaskState::Leased { holder: his, .. } if his == holder);
        self.tasks.get_mut(&id).filter(is_his)
    }

    pub(super) fn renew_task(
        &mut self,
        holder: SessionId,
        id: TaskId,
        details: Option<Payload>,
        until_ms: u64,
    ) -> TaskRenewal {
        let Some(row) = self.held(holder, id) else { return TaskRenewal::Gone };
        row.due_ms = Some(until_ms);
        row.details = details.or_else(|| row.details.take());
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
    ) -> bool {
        if self.held(holder, id).is_none_or(|row| row.attempt != attempt) {
            return false;
        }
        self.tasks.remove(&id);
        if let Some(row) = self.instances.get(&id.key).filter(|row| !row.status.is_final()).cloned() {
            self.append(&row, None, false, body);
        }
        true
    }

    pub(super) fn give_back_task(&mut self, holder: SessionId, id: TaskId) {
        let Some(row) = self.held(holder, id) else { return };
        match row.state {
            TaskState::Leased { cancelled: true, .. } => {
                self.tasks.remove(&id);
            }
            _ => {
                row.state = TaskState::Queued;
                row.due_ms = None;
            }
        }
    }

    pub(super) fn ask(&mut self, ask: Ask) -> AskOutcome {
        let Some(row) = self.ids.get(&ask.instance).map(|key| &self.instances[key]) else {
            return AskOutcome::NoInstance;
        };
        self.next_ask += 1;
        let Ask { deadline_ms, body, .. } = ask;
        let (number, key, shard) = (self.next_ask, row.key, row.shard);
        self.asks.insert(number, AskRow { number, key, shard, deadline_ms, body });
        AskOutcome::Asked(number)
    }

    pub(super) fn sweep_asks(&mut self, now_ms: u64) {
        self.asks.retain(|_, ask| ask.deadline_ms > now_ms);
        self.answers.retain(|_, (_, deadline_ms)| *deadline_ms > now_ms);
    }

    pub(super) fn delete(&mut self, key: InstanceKey) -> DeleteOutcome {
        match self.instances.get(&key) {
            None => return DeleteOutcome::Gone,
            Some(row) if !row.status.is_final() => return DeleteOutcome::NotEnded,
            Some(_) => {}
        }
        if let Some(row) = self.instances.remove(&key) {
            self.ids.remove(&row.id);
        }
        self.turns.retain(|(owner, _, _), _| *owner != key);
        self.inbox.retain(|_, message| message.to != key);
        self.tasks.retain(|id, _| id.key != key);
        self.asks.retain(|_, ask| ask.key != key);
        DeleteOutcome::Deleted
    }

    pub(super) fn stats(&self, now_ms: u64) -> StoreStats {
        let count = |rows: usize| Count::bounded(rows as u64, Count::EXACT);
        let of_status = |status: Status| self.instances.values().filter(|row| row.status == status).count();
        let tasks = |name: &str| count(self.tasks.values().filter(|row| row.state.name() == name).count());
        let wakes = self.instances.values().filter(|row| !row.status.is_final() && row.blocked.is_none());
        let earliest_ms = wakes.filter_map(|row| row.wake_at_ms).min();
        StoreStats {
            instances: Status::ALL.into_iter().map(|status| (status, count(of_status(status)))).collect(),
            blocked: count(self.instances.values().filter(|row| row.blocked.is_some()).count()),
            inbox: count(self.inbox.len()),
            tasks_queued: tasks("queued"),
            tasks_leased: tasks("leased"),
            tasks_waiting: tasks("waiting"),
            asks: count(self.asks.len()),
            lag_ms: earliest_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms)),
        }
    }
}
