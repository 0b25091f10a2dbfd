//! The in-memory store: for tests, caches and trying things out, and the model that other stores are compared with.
//!
//! It answers every call at once, on the caller's thread. Nothing survives the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::instance::{InstanceKey, ShardId};

use super::commit::{
    Commit, CommitOutcome, Conflict, InboxNumber, InboxRow, Outgoing, SendOutcome, SendRequest, TurnRow,
};
use super::error::StoreError;
use super::filter::{Filter, Page, PageKey};
use super::row::InstanceRow;
use super::session::{Lease, Session, SessionId};
use super::{DueInstance, Hint, LoadedInstance, Reply, Store};

/// More unread messages than this refuse the next.
pub const MAX_UNREAD: usize = 10_000;

/// A store in memory.
pub struct MemoryStore {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    tables: Mutex<Tables>,
    hints: Mutex<Vec<Hint>>,
}

/// All rows. Public to tests and the simulator through [`MemoryStore::tables`].
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
    sessions: BTreeMap<SessionId, SessionRow>,
    owners: BTreeMap<ShardId, SessionId>,
    next_number: InboxNumber,
    next_session: u128,
    closed: bool,
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
    /// What it says.
    pub body: Arc<[u8]>,
}

impl Message {
    fn to_row(&self, number: InboxNumber) -> InboxRow {
        InboxRow { number, key: self.to, shard: self.shard, body: Arc::clone(&self.body) }
    }
}

#[derive(Clone, Debug)]
struct SessionRow {
    lease_ms: u64,
    expires_ms: u64,
}

impl MemoryStore {
    /// An empty store whose clock gives milliseconds since 1970.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> MemoryStore {
        MemoryStore { clock: Box::new(clock), tables: Mutex::default(), hints: Mutex::default() }
    }

    /// A look at all rows.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T>(&self, reply: Reply<T>, f: impl FnOnce(&mut Tables, u64) -> Result<T, StoreError>) {
        let now_ms = (self.clock)();
        let answer = {
            let mut tables = self.tables();
            if tables.closed { Err(StoreError::Closed) } else { f(&mut tables, now_ms) }
        };
        reply(answer);
    }

    fn give_hints(&self) {
        let hints: Vec<Hint> = self.hints.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hints.iter().for_each(|hint| hint());
    }
}

impl Tables {
    fn owns(&self, session: SessionId, shard: ShardId) -> bool {
        self.sessions.contains_key(&session) && self.owners.get(&shard) == Some(&session)
    }

    fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.owners.retain(|_, owner| *owner != session);
    }

    fn commit(&mut self, session: SessionId, member: &Commit) -> CommitOutcome {
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
                self.ids.insert(row.id.clone(), row.key);
                self.instances.insert(row.key, InstanceRow::clone(row));
            }
            None if !self.instances.contains_key(&member.key) => {
                return CommitOutcome::Conflict(Conflict::NoInstance);
            }
            None => {}
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
        CommitOutcome::Durable { sent: member.send.iter().map(|message| self.append(message)).collect() }
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

    fn append(&mut self, message: &Outgoing) -> Option<InboxNumber> {
        let Outgoing { to, shard, dedupe, body } = message.clone();
        if dedupe.is_some() && self.inbox.values().any(|other| other.to == to && other.dedupe == dedupe) {
            return None;
        }
        self.next_number += 1;
        self.inbox.insert(self.next_number, Message { to, shard, dedupe, body });
        Some(self.next_number)
    }

    fn send(&mut self, request: SendRequest) -> SendOutcome {
        let (row, dedupe, body) = match request {
            SendRequest::Start { row, body } => {
                if let Some(key) = self.ids.get(&row.id) {
                    return SendOutcome::IdTaken(Box::new(self.instances[key].clone()));
                }
                self.ids.insert(row.id.clone(), row.key);
                self.instances.insert(row.key, InstanceRow::clone(&row));
                (*row, None, body)
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
                if let Some(stored) = self.instances.get_mut(&row.key)
                    && urgent
                    && stored.blocked.is_some()
                {
                    stored.wake_at_ms = Some(0);
                }
                (row, dedupe, body)
            }
        };
        let message = Outgoing { to: row.key, shard: row.shard, dedupe, body };
        self.append(&message).map_or(SendOutcome::Duplicate, SendOutcome::Sent)
    }

    fn owned_rows(&self, session: SessionId) -> impl Iterator<Item = &InstanceRow> {
        self.instances.values().filter(move |row| self.owns(session, row.shard) && !row.status.is_final())
    }
}

impl Store for MemoryStore {
    fn open_session(&self, _node: &str, lease_ms: u64, reply: Reply<Session>) {
        self.answer(reply, |tables, now_ms| {
            tables.next_session += 1;
            let id = SessionId(tables.next_session);
            let expires_ms = now_ms + lease_ms;
            tables.sessions.insert(id, SessionRow { lease_ms, expires_ms });
            Ok(Session { id, lease: Lease { now_ms, expires_ms } })
        });
    }

    fn renew_session(&self, session: SessionId, reply: Reply<Lease>) {
        self.answer(reply, |tables, now_ms| {
            let row = tables.sessions.get_mut(&session).ok_or(StoreError::SessionGone)?;
            row.expires_ms = now_ms + row.lease_ms;
            Ok(Lease { now_ms, expires_ms: row.expires_ms })
        });
    }

    fn end_session(&self, session: SessionId, reply: Reply<()>) {
        self.answer(reply, |tables, _| {
            tables.end_session(session);
            Ok(())
        });
    }

    fn claim_shards(&self, session: SessionId, at_most: usize, reply: Reply<Vec<ShardId>>) {
        self.answer(reply, |tables, now_ms| {
            let expired: Vec<SessionId> = tables
                .sessions
                .iter()
                .filter(|(_, row)| row.expires_ms < now_ms)
                .map(|(id, _)| *id)
                .collect();
            expired.into_iter().for_each(|expired| tables.end_session(expired));
            if !tables.sessions.contains_key(&session) {
                return Err(StoreError::SessionGone);
            }
            let free: Vec<ShardId> =
                ShardId::all().filter(|shard| !tables.owners.contains_key(shard)).take(at_most).collect();
            tables.owners.extend(free.iter().map(|shard| (*shard, session)));
            Ok(free)
        });
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        self.answer(reply, |tables, _| {
            Ok(batch.iter().map(|member| tables.commit(session, member)).collect())
        });
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        self.answer(reply, |tables, _| {
            Ok(requests.into_iter().map(|request| tables.send(request)).collect())
        });
        self.give_hints();
    }

    fn read_inbox(&self, session: SessionId, from: InboxNumber, limit: usize, reply: Reply<Vec<InboxRow>>) {
        self.answer(reply, |tables, _| {
            let blocked: BTreeSet<InstanceKey> =
                tables.instances.values().filter(|row| row.blocked.is_some()).map(|row| row.key).collect();
            Ok(tables
                .inbox
                .range(from..)
                .filter(|(_, message)| tables.owns(session, message.shard) && !blocked.contains(&message.to))
                .take(limit)
                .map(|(number, message)| message.to_row(*number))
                .collect())
        });
    }

    fn read_due(
        &self,
        session: SessionId,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Reply<Vec<DueInstance>>,
    ) {
        self.answer(reply, |tables, _| {
            let mut due: Vec<(u64, InstanceKey, ShardId)> = tables
                .owned_rows(session)
                .filter_map(|row| row.wake_at_ms.map(|wake_at_ms| (wake_at_ms, row.key, row.shard)))
                .filter(|(at, key, _)| *at < before_ms && after.is_none_or(|after| (*at, *key) > after))
                .collect();
            due.sort();
            let instance = |(wake_at_ms, key, shard)| DueInstance { key, shard, wake_at_ms };
            Ok(due.into_iter().take(limit).map(instance).collect())
        });
    }

    fn read_owed(
        &self,
        session: SessionId,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.answer(reply, |tables, _| {
            let owed = tables
                .owned_rows(session)
                .filter(|row| row.owed && after.is_none_or(|after| row.key > after));
            Ok(owed.take(limit).map(|row| (row.key, row.shard)).collect())
        });
    }

    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>) {
        self.answer(reply, |tables, _| Ok(tables.ids.get(id).map(|key| tables.instances[key].clone())));
    }

    fn load(&self, key: InstanceKey, after_turn: u64, reply: Reply<Option<LoadedInstance>>) {
        self.answer(reply, |tables, _| {
            Ok(tables.instances.get(&key).cloned().map(|row| {
                let range =
                    (key, row.execution, after_turn.saturating_add(1))..=(key, row.execution, u64::MAX);
                let turns = tables.turns.range(range).map(|(_, bytes)| Arc::clone(bytes)).collect();
                let mine = tables.inbox.iter().filter(|(_, message)| message.to == key);
                let inbox = mine.map(|(number, message)| message.to_row(*number)).collect();
                LoadedInstance { row, turns, inbox }
            }))
        });
    }

    fn read_turns(
        &self,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: usize,
        reply: Reply<Vec<Arc<[u8]>>>,
    ) {
        self.answer(reply, |tables, _| {
            let range = (key, execution, after_turn.saturating_add(1))..=(key, execution, u64::MAX);
            Ok(tables.turns.range(range).take(limit).map(|(_, bytes)| Arc::clone(bytes)).collect())
        });
    }

    fn list(&self, filter: Filter, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        self.answer(reply, |tables, _| {
            let behind = |row: &&InstanceRow| after.is_none_or(|after| row.key > after);
            let mut rows: Vec<InstanceRow> = tables
                .instances
                .values()
                .filter(behind)
                .filter(|row| filter.matches(row))
                .take(limit.saturating_add(1))
                .cloned()
                .collect();
            let next =
                if rows.len() > limit { rows.get(limit.saturating_sub(1)).map(|row| row.key) } else { None };
            rows.truncate(limit);
            Ok(Page { rows, next })
        });
    }

    fn watch(&self, hint: Hint) {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner).push(hint);
    }

    fn close(&self, reply: Reply<()>) {
        self.answer(reply, |tables, _| {
            tables.closed = true;
            Ok(())
        });
        self.hints.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
