//! The rows, and the changes in a line of the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::store::{
    Changes, Gap, InboxNumber, InboxRow, InstanceRow, NewSession, RequestNumber, RequestRow, SessionId,
    SessionRole, TaskId, TaskRow, TurnRow,
};
use perennial_core::{InstanceKey, ShardId};
use serde::{Deserialize, Serialize};

use super::format::{
    InstanceFormat, RequestFormat, TaskFormat, TaskIdFormat, TurnFormat, hex, maybe_hex, maybe_session,
    session,
};

/// A row was written, replacing an older one, or deleted.
#[derive(Serialize, Deserialize)]
pub(super) enum Change {
    Instance(#[serde(with = "InstanceFormat")] InstanceRow),
    InstanceGone(InstanceKey),
    Turn(InstanceKey, #[serde(with = "TurnFormat")] TurnRow),
    TurnGone(InstanceKey, u64, u64),
    /// The execution before this one was continued at a time.
    Continued(InstanceKey, u64, u64),
    ContinuedGone(InstanceKey, u64),
    Message(Message),
    MessageGone(InboxNumber),
    /// No later message has this number or a lower one.
    LastMessage(InboxNumber),
    Task(#[serde(with = "TaskFormat")] TaskRow),
    TaskGone(#[serde(with = "TaskIdFormat")] TaskId),
    Request(#[serde(with = "RequestFormat")] RequestRow),
    RequestGone(RequestNumber),
    Reply(Reply),
    ReplyGone(RequestNumber),
    Setting(String, #[serde(with = "hex")] Arc<[u8]>),
    SettingGone(String),
    Session(Session),
    SessionGone(#[serde(with = "session")] SessionId),
    Shard(Shard),
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) number: InboxNumber,
    pub(super) key: InstanceKey,
    pub(super) shard: ShardId,
    pub(super) dedupe: Option<String>,
    /// Only a load returns it.
    pub(super) parked: bool,
    pub(super) urgent: bool,
    pub(super) arrived_ms: u64,
    #[serde(with = "hex")]
    pub(super) body: Arc<[u8]>,
}

impl Message {
    pub(super) fn to_row(&self) -> InboxRow {
        let Message { number, key, shard, arrived_ms, urgent, .. } = *self;
        InboxRow { number, key, shard, arrived_ms, urgent, body: Arc::clone(&self.body) }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) number: RequestNumber,
    pub(super) deadline_ms: u64,
    #[serde(with = "hex")]
    pub(super) body: Arc<[u8]>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Session {
    #[serde(with = "session")]
    pub(super) id: SessionId,
    pub(super) role: SessionRole,
    #[serde(with = "session")]
    pub(super) node: SessionId,
    pub(super) lease_ms: u64,
    pub(super) opened_ms: u64,
    pub(super) expires_ms: u64,
    #[serde(with = "hex")]
    pub(super) info: Arc<[u8]>,
}

impl Session {
    pub(super) fn new(new: NewSession, now_ms: u64) -> Session {
        let NewSession { id, role, node, lease_ms, info } = new;
        Session { id, role, node, lease_ms, opened_ms: now_ms, expires_ms: now_ms + lease_ms, info }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Shard {
    pub(super) shard: ShardId,
    #[serde(with = "maybe_session")]
    pub(super) owner: Option<SessionId>,
    pub(super) epoch: u64,
    pub(super) unclean_ends: u32,
    #[serde(with = "maybe_hex")]
    pub(super) note: Option<Arc<[u8]>>,
    pub(super) gaps: Vec<Gap>,
    /// The time since which no lane has owned it.
    pub(super) idle_since_ms: Option<u64>,
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) instances: BTreeMap<InstanceKey, InstanceRow>,
    pub(super) ids: BTreeMap<String, InstanceKey>,
    pub(super) turns: BTreeMap<(InstanceKey, u64, u64), TurnRow>,
    /// The start times of executions after the first.
    pub(super) continued: BTreeMap<(InstanceKey, u64), u64>,
    pub(super) inbox: BTreeMap<InboxNumber, Message>,
    pub(super) tasks: BTreeMap<TaskId, TaskRow>,
    pub(super) requests: BTreeMap<RequestNumber, RequestRow>,
    pub(super) replies: BTreeMap<RequestNumber, Reply>,
    pub(super) settings: BTreeMap<String, Arc<[u8]>>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// The last assigned numbers, so that none is reused.
    pub(super) last_message: InboxNumber,
    pub(super) last_request: RequestNumber,
    /// The changes of the current call: the next line of the file.
    pub(super) line: Vec<Change>,
    /// The hints for watchers once the line is on disk.
    pub(super) hints: Changes,
}

impl Tables {
    /// Changes a row, and adds the change to the line.
    pub(super) fn write(&mut self, change: Change) {
        self.apply(&change);
        self.line.push(change);
    }

    /// Changes a row. Opening the file applies all its lines.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Instance(row) => {
                self.ids.insert(row.id.clone(), row.key);
                self.instances.insert(row.key, row.clone());
            }
            Change::InstanceGone(key) => {
                if let Some(row) = self.instances.remove(key) {
                    self.ids.remove(&row.id);
                }
            }
            Change::Turn(key, turn) => {
                self.turns.insert((*key, turn.execution, turn.number), turn.clone());
            }
            Change::TurnGone(key, execution, number) => {
                self.turns.remove(&(*key, *execution, *number));
            }
            Change::Continued(key, execution, at_ms) => {
                self.continued.insert((*key, *execution), *at_ms);
            }
            Change::ContinuedGone(key, execution) => drop(self.continued.remove(&(*key, *execution))),
            Change::Message(message) => {
                self.last_message = self.last_message.max(message.number);
                self.inbox.insert(message.number, message.clone());
            }
            Change::LastMessage(number) => self.last_message = self.last_message.max(*number),
            Change::MessageGone(number) => drop(self.inbox.remove(number)),
            Change::Task(row) => drop(self.tasks.insert(row.id, row.clone())),
            Change::TaskGone(id) => drop(self.tasks.remove(id)),
            Change::Request(row) => {
                self.last_request = self.last_request.max(row.number);
                self.requests.insert(row.number, row.clone());
            }
            Change::RequestGone(number) => drop(self.requests.remove(number)),
            Change::Reply(reply) => drop(self.replies.insert(reply.number, reply.clone())),
            Change::ReplyGone(number) => drop(self.replies.remove(number)),
            Change::Setting(name, value) => drop(self.settings.insert(name.clone(), Arc::clone(value))),
            Change::SettingGone(name) => drop(self.settings.remove(name)),
            Change::Session(session) => drop(self.sessions.insert(session.id, session.clone())),
            Change::SessionGone(id) => drop(self.sessions.remove(id)),
            Change::Shard(shard) => drop(self.shards.insert(shard.shard, shard.clone())),
        }
    }

    pub(super) fn find(&self, id: &str) -> Option<&InstanceRow> {
        self.instances.get(self.ids.get(id)?)
    }

    pub(super) fn messages_of(&self, key: InstanceKey) -> impl Iterator<Item = &Message> {
        self.inbox.values().filter(move |message| message.key == key)
    }
}
