//! All rows of the in-memory store, and the effects of commits and sends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::instance::{InstanceKey, ShardId};
use crate::store::change::Changes;
use crate::store::commit::{
    Commit, CommitOutcome, Conflict, InboxNumber, InboxRow, Outgoing, SendOutcome, SendRequest,
};
use crate::store::moving::MovedMessage;
use crate::store::request::{RequestNumber, RequestRow};
use crate::store::row::InstanceRow;
use crate::store::session::SessionId;
use crate::store::task::{TaskId, TaskRow};
use crate::store::turn::TurnRow;

use super::MAX_UNREAD;
use super::ownership::Ownership;

/// All rows. Tests and the simulator access them through [`MemoryStore::tables`](super::MemoryStore::tables).
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Rows by key.
    pub instances: BTreeMap<InstanceKey, InstanceRow>,
    /// Keys by id.
    pub ids: BTreeMap<String, InstanceKey>,
    /// Turns by key, execution and number.
    pub turns: BTreeMap<(InstanceKey, u64, u64), TurnRow>,
    /// Messages by number.
    pub inbox: BTreeMap<InboxNumber, Message>,
    /// Activities that have a row, by id.
    pub tasks: BTreeMap<TaskId, TaskRow>,
    /// Requests without a reply, by number.
    pub requests: BTreeMap<RequestNumber, RequestRow>,
    /// Replies by the request's number.
    pub replies: BTreeMap<RequestNumber, StoredReply>,
    /// Settings by name.
    pub settings: BTreeMap<String, Arc<[u8]>>,
    /// Sessions and shards.
    pub ownership: Ownership,
    /// Deleted instances whose turns have not been swept yet.
    pub graves: BTreeSet<InstanceKey>,
    /// When the previous execution was continued, by key and execution, as long as turns of it may be stored.
    pub continued: BTreeMap<(InstanceKey, u64), u64>,
    pub(super) closed: bool,
    /// Changes that watchers have not been notified of.
    pub(super) changes: Changes,
    pub(super) next_request: RequestNumber,
    next_number: InboxNumber,
}

/// A stored message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The receiving instance.
    pub to: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// Its deduplication key.
    pub dedupe: Option<String>,
    /// Whether only `load` returns it.
    pub parked: bool,
    /// Whether a blocked instance must examine it immediately.
    pub urgent: bool,
    /// When it was inserted.
    pub arrived_ms: u64,
    /// The encoded message.
    pub body: Arc<[u8]>,
}

/// A reply that waits for its caller to read it.
#[derive(Clone, Debug)]
pub struct StoredReply {
    /// The encoded reply.
    pub body: Arc<[u8]>,
    /// When it is swept.
    pub deadline_ms: u64,
}

impl Message {
    pub(super) fn to(row: &InstanceRow, body: &Arc<[u8]>, now_ms: u64) -> Message {
        Message {
            to: row.key,
            shard: row.shard,
            dedupe: None,
            parked: false,
            urgent: false,
            arrived_ms: now_ms,
            body: Arc::clone(body),
        }
    }

    /// The message that starts an instance.
    fn starting(row: &InstanceRow, body: &Arc<[u8]>, now_ms: u64) -> Message {
        Message { parked: row.wake_at_ms.is_some(), ..Message::to(row, body, now_ms) }
    }

    pub(super) fn moved(&self, number: InboxNumber) -> MovedMessage {
        MovedMessage { row: self.to_row(number), dedupe: self.dedupe.clone(), parked: self.parked }
    }

    pub(super) fn to_row(&self, number: InboxNumber) -> InboxRow {
        InboxRow {
            number,
            key: self.to,
            shard: self.shard,
            arrived_ms: self.arrived_ms,
            urgent: self.urgent,
            body: Arc::clone(&self.body),
        }
    }
}

impl Tables {
    pub(super) fn commit(&mut self, session: SessionId, member: &Commit, now_ms: u64) -> CommitOutcome {
        if !self.ownership.owns_at(session, member.shard, member.epoch) && !flaws::is(Flaw::NoFencing) {
            return CommitOutcome::Fenced;
        }
        match self.check(member) {
            Ok(false) => {}
            Ok(true) => return CommitOutcome::Durable { sent: vec![None; member.send.len()] },
            Err(conflict) => return CommitOutcome::Conflict(conflict),
        }
        if let Some(row) = &member.insert {
            self.insert_instance(row);
        }
        for turn in member.turn.iter().chain(&member.more_turns) {
            self.turns.insert((member.key, turn.execution, turn.number), turn.clone());
        }
        if let Some(row) = self.instances.get_mut(&member.key) {
            member.change.apply(row);
            if let Some(execution) = member.change.execution {
                self.continued.insert((member.key, execution), now_ms);
            }
            let is_told = member.change.published.is_some()
                || (row.status.is_final() && (member.insert.is_some() || member.change.status.is_some()));
            if is_told {
                self.changes.endings.insert(member.shard);
            }
        }
        for number in &member.consumed {
            self.inbox.remove(number);
        }
        for number in &member.seen {
            if let Some(message) = self.inbox.get_mut(number) {
                message.urgent = false;
            }
        }
        for change in &member.tasks {
            self.change_task(change);
        }
        for reply in &member.replies {
            self.reply(reply);
        }
        let sent: Vec<Option<InboxNumber>> =
            member.send.iter().map(|message| self.send_out(member, message, now_ms)).collect();
        // The committer learns from the outcome what it sent to its own shards, so watchers are notified of other
        // shards only.
        for number in sent.iter().flatten() {
            let shard = self.inbox.get(number).map(|message| message.shard);
            if shard.is_some_and(|shard| self.ownership.owner(shard) != Some(session)) {
                self.tell_of_message(*number);
            }
        }
        CommitOutcome::Durable { sent }
    }

    /// Whether the same turn is already stored, or how the member conflicts with stored rows.
    fn check(&self, member: &Commit) -> Result<bool, Conflict> {
        if let Some(turn) = &member.turn
            && self.check_turn(member, turn)?
        {
            return Ok(true);
        }
        let is_there = |turn: &TurnRow| self.turns.contains_key(&(member.key, turn.execution, turn.number));
        if member.more_turns.iter().any(is_there) {
            return Err(Conflict::OtherTurn);
        }
        match &member.insert {
            Some(row) => {
                if let Some(key) = self.ids.get(&row.id) {
                    return Err(Conflict::IdTaken(Box::new(self.instances[key].clone())));
                }
            }
            None if !self.instances.contains_key(&member.key) => return Err(Conflict::NoInstance),
            None => {}
        }
        if let Some(fired_ms) = member.fired_ms.filter(|_| !flaws::is(Flaw::UnreadEventsOvertaken)) {
            let is_earlier = |(number, message): (&InboxNumber, &Message)| {
                message.to == member.key
                    && !message.parked
                    && message.arrived_ms < fired_ms
                    && !member.consumed.contains(number)
            };
            if self.inbox.iter().any(is_earlier) {
                return Err(Conflict::EarlierMessage);
            }
        }
        if member.consumed.iter().any(|number| !self.inbox.contains_key(number)) {
            return Err(Conflict::MessageGone);
        }
        Ok(false)
    }

    /// Whether the same turn is already stored, or why it cannot be inserted.
    fn check_turn(&self, member: &Commit, turn: &TurnRow) -> Result<bool, Conflict> {
        let stored = |number: u64| {
            let is_buried = self.graves.contains(&member.key);
            self.turns.get(&(member.key, turn.execution, number)).filter(|_| !is_buried)
        };
        match stored(turn.number) {
            Some(stored) if stored == turn => return Ok(true),
            Some(_) => return Err(Conflict::OtherTurn),
            None => {}
        }
        let follows = turn.number <= 1 || stored(turn.number - 1).is_some();
        if follows { Ok(false) } else { Err(Conflict::MissingTurn) }
    }

    pub(super) fn last_message(&self) -> InboxNumber {
        self.next_number
    }

    /// Makes sure that no later message gets this number.
    pub(super) fn set_last_message(&mut self, number: InboxNumber) {
        self.next_number = self.next_number.max(number);
    }

    pub(super) fn insert_instance(&mut self, row: &InstanceRow) {
        self.ids.insert(row.id.clone(), row.key);
        self.instances.insert(row.key, row.clone());
    }

    fn send_out(&mut self, sender: &Commit, message: &Outgoing, now_ms: u64) -> Option<InboxNumber> {
        match message {
            Outgoing::ToKey { to, dedupe, urgent, body, .. } => {
                let row = self.instances.get(to).filter(|row| !row.status.is_final())?;
                let (dedupe, urgent) = (dedupe.clone(), *urgent);
                self.append(Message { dedupe, urgent, ..Message::to(row, body, now_ms) }).ok()
            }
            Outgoing::ToId { id, dedupe, urgent, body, report } => {
                let found = self.find(id).map(|row| (row.status.is_final(), row.clone()));
                let (sent, told) = match &found {
                    Some((false, row)) => {
                        let (dedupe, urgent) = (dedupe.clone(), *urgent);
                        let message = Message { dedupe, urgent, ..Message::to(row, body, now_ms) };
                        (self.append(message).ok(), report.as_ref().map(|report| &report.delivered))
                    }
                    Some((true, _)) => (None, report.as_ref().map(|report| &report.ended)),
                    None => (None, report.as_ref().map(|report| &report.not_found)),
                };
                self.tell_sender(sender, told, now_ms);
                sent
            }
            Outgoing::Start { row, body, otherwise, replaces_ended, started } => {
                if *replaces_ended
                    && let Some(taken) = self.find(&row.id)
                    && taken.key != row.key
                    && (taken.status.is_final() || flaws::is(Flaw::ReplacesRunning))
                {
                    self.delete_family(taken.key);
                }
                match self.ids.get(&row.id) {
                    Some(key) if *key == row.key => None,
                    Some(_) => self.tell_sender(sender, otherwise.as_ref(), now_ms),
                    None => {
                        self.insert_instance(row);
                        let sent = self.append(Message::starting(row, body, now_ms)).ok();
                        self.tell_sender(sender, started.as_ref(), now_ms);
                        sent
                    }
                }
            }
        }
    }

    /// Sends a report to the instance of a member, if it has not ended.
    fn tell_sender(&mut self, sender: &Commit, body: Option<&Arc<[u8]>>, now_ms: u64) -> Option<InboxNumber> {
        let row = self.instances.get(&sender.key).filter(|row| !row.status.is_final())?;
        self.append(Message::to(row, body?, now_ms)).ok()
    }

    /// Appends a message. If a message with its deduplication key is waiting, returns that one's number and makes it
    /// urgent if this one is.
    pub(super) fn append(&mut self, message: Message) -> Result<InboxNumber, InboxNumber> {
        let is_same = |other: &Message| other.to == message.to && other.dedupe == message.dedupe;
        if message.dedupe.is_some()
            && let Some((number, waiting)) = self.inbox.iter_mut().find(|(_, other)| is_same(other))
        {
            if message.urgent && !waiting.urgent {
                waiting.urgent = true;
                self.changes.inbox.insert(waiting.shard);
            }
            return Err(*number);
        }
        self.next_number += 1;
        if flaws::is(Flaw::LostMessages) && self.next_number.is_multiple_of(10) {
            return Ok(self.next_number);
        }
        self.inbox.insert(self.next_number, message);
        Ok(self.next_number)
    }

    pub(super) fn tell_of_message(&mut self, number: InboxNumber) {
        if let Some(message) = self.inbox.get(&number) {
            self.changes.inbox.insert(message.shard);
        }
    }

    pub(super) fn send(&mut self, request: SendRequest, now_ms: u64) -> SendOutcome {
        let message = match request {
            SendRequest::Start { row, body } => {
                if let Some(existing) = self.find(&row.id) {
                    return SendOutcome::IdTaken(Box::new(existing.clone()));
                }
                self.insert_instance(&row);
                Message::starting(&row, &body, now_ms)
            }
            SendRequest::Message { id, key, dedupe, urgent, body } => {
                let is_meant = |row: &&InstanceRow| key.is_none_or(|key| key == row.key);
                let Some(row) = self.find(&id).filter(|row| is_meant(row) || flaws::is(Flaw::IdsConfused))
                else {
                    return SendOutcome::NoInstance;
                };
                if row.status.is_final() {
                    return SendOutcome::Ended(Box::new(row.clone()));
                }
                let message = Message { dedupe, urgent, ..Message::to(row, &body, now_ms) };
                if !urgent && let Some(refusal) = self.refusal(row, &message) {
                    return refusal;
                }
                message
            }
        };
        match self.append(message) {
            Ok(number) => {
                self.tell_of_message(number);
                SendOutcome::Sent(number)
            }
            Err(number) => SendOutcome::Duplicate(number),
        }
    }

    /// Why an instance refuses a message: it is full, unless the same message is already waiting.
    fn refusal(&self, row: &InstanceRow, message: &Message) -> Option<SendOutcome> {
        let mut waiting = self.inbox.values().filter(|other| other.to == row.key);
        let unread = waiting.clone().count();
        let is_full = row.full || unread >= MAX_UNREAD;
        let is_known = message.dedupe.is_some() && waiting.any(|other| other.dedupe == message.dedupe);
        (is_full && !is_known).then_some(SendOutcome::Full(unread))
    }

    pub(super) fn find(&self, id: &str) -> Option<&InstanceRow> {
        self.ids.get(id).and_then(|key| self.instances.get(key))
    }
}
