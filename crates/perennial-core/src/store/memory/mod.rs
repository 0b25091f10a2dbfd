//! The in-memory store: for tests, caches and trying things out, and the model that other stores are compared with.
//!
//! It answers every call at once, on the caller's thread. Nothing survives the process.

mod tables;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::Payload;
use crate::instance::{InstanceKey, ShardId};

use super::ask::{Ask, AskNumber, AskOutcome, AskRow};
use super::commit::{Commit, CommitOutcome, DeleteOutcome, InboxNumber, InboxRow, SendOutcome, SendRequest};
use super::error::StoreError;
use super::filter::{Filter, Page, PageKey};
use super::row::InstanceRow;
use super::session::{Lease, Session, SessionId};
use super::stats::{Count, StoreStats};
use super::task::{Served, TaskId, TaskRenewal, TaskRow};
use super::{DueInstance, Hint, LoadedInstance, Reply, Store};

use tables::SessionRow;
pub use tables::{Message, Tables};

/// More unread messages than this refuse the next.
pub const MAX_UNREAD: usize = 10_000;

/// A store in memory.
pub struct MemoryStore {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    tables: Mutex<Tables>,
    hints: Mutex<Vec<Hint>>,
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
        let speaks = batch.iter().any(|member| !member.answers.is_empty());
        self.answer(reply, |tables, _| {
            Ok(batch.iter().map(|member| tables.commit(session, member)).collect())
        });
        if speaks {
            self.give_hints();
        }
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
                .filter(|(_, message)| tables.owns(session, message.shard))
                .filter(|(_, message)| !message.parked && !blocked.contains(&message.to))
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
                let of_execution = |task: &&TaskRow| task.id.key == key && task.id.execution == row.execution;
                let tasks = tables.tasks.values().filter(of_execution).cloned().collect();
                LoadedInstance { row, turns, inbox, tasks }
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

    fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
        reply: Reply<Vec<TaskRow>>,
    ) {
        self.answer(reply, |tables, now_ms| {
            Ok(tables.take_tasks(holder, &served, limit, now_ms, now_ms + lease_ms))
        });
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<(TaskId, Option<Payload>)>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        self.answer(reply, |tables, now_ms| {
            let renew = |(id, details)| tables.renew_task(holder, id, details, now_ms + lease_ms);
            Ok(tasks.into_iter().map(renew).collect())
        });
    }

    fn finish_task(
        &self,
        holder: SessionId,
        task: TaskId,
        attempt: u32,
        body: Arc<[u8]>,
        reply: Reply<bool>,
    ) {
        self.answer(reply, |tables, _| Ok(tables.finish_task(holder, task, attempt, &body)));
        self.give_hints();
    }

    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>) {
        self.answer(reply, |tables, _| {
            tasks.into_iter().for_each(|id| tables.give_back_task(holder, id));
            Ok(())
        });
        self.give_hints();
    }

    fn ask(&self, ask: Ask, reply: Reply<AskOutcome>) {
        self.answer(reply, |tables, _| Ok(tables.ask(ask)));
        self.give_hints();
    }

    fn read_asks(&self, session: SessionId, from: AskNumber, limit: usize, reply: Reply<Vec<AskRow>>) {
        self.answer(reply, |tables, now_ms| {
            let open = tables.asks.range(from..).map(|(_, ask)| ask);
            let mine = open.filter(|ask| ask.deadline_ms > now_ms && tables.owns(session, ask.shard));
            Ok(mine.take(limit).cloned().collect())
        });
    }

    fn read_answer(&self, number: AskNumber, reply: Reply<Option<Arc<[u8]>>>) {
        self.answer(reply, |tables, _| Ok(tables.answers.get(&number).map(|(body, _)| Arc::clone(body))));
    }

    fn withdraw_ask(&self, number: AskNumber, reply: Reply<bool>) {
        self.answer(reply, |tables, _| Ok(tables.asks.remove(&number).is_some()));
    }

    fn sweep_asks(&self, reply: Reply<()>) {
        self.answer(reply, |tables, now_ms| {
            tables.sweep_asks(now_ms);
            Ok(())
        });
    }

    fn read_note(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>) {
        self.answer(reply, |tables, _| Ok(tables.notes.get(name).cloned()));
    }

    fn write_note(&self, session: SessionId, name: &str, note: Option<Arc<[u8]>>, reply: Reply<()>) {
        self.answer(reply, |tables, _| {
            if !tables.sessions.contains_key(&session) {
                return Err(StoreError::SessionGone);
            }
            match note {
                Some(note) => tables.notes.insert(name.to_owned(), note),
                None => tables.notes.remove(name),
            };
            Ok(())
        });
    }

    fn list(&self, filter: Filter, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        let limit = limit.max(1);
        self.answer(reply, |tables, _| {
            let shown = tables.instances.values().filter(|row| filter.matches(row));
            let mut rows: Vec<InstanceRow> = if filter.newest_first {
                let behind = |row: &&InstanceRow| after.is_none_or(|after| row.key < after);
                shown.rev().filter(behind).take(limit.saturating_add(1)).cloned().collect()
            } else {
                let behind = |row: &&InstanceRow| after.is_none_or(|after| row.key > after);
                shown.filter(behind).take(limit.saturating_add(1)).cloned().collect()
            };
            let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
            rows.truncate(limit);
            Ok(Page { rows, next })
        });
    }

    fn count(&self, filter: Filter, at_most: u64, reply: Reply<Count>) {
        self.answer(reply, |tables, _| {
            let rows = tables.instances.values().filter(|row| filter.matches(row)).count();
            Ok(Count::bounded(rows as u64, at_most))
        });
    }

    fn stats(&self, reply: Reply<StoreStats>) {
        self.answer(reply, |tables, now_ms| Ok(tables.stats(now_ms)));
    }

    fn delete(&self, keys: Vec<InstanceKey>, reply: Reply<Vec<DeleteOutcome>>) {
        self.answer(reply, |tables, _| Ok(keys.into_iter().map(|key| tables.delete(key)).collect()));
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
