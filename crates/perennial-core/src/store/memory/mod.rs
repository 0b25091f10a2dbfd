//! The in-memory store: for tests, caches and experiments, and the model that other stores are compared with.
//!
//! It replies to every call immediately, on the caller's thread. Nothing survives the process.

mod moving;
mod ownership;
mod tables;
mod tasks;
mod upkeep;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::instance::{InstanceKey, ShardId};

use super::change::{Changes, Watcher};
use super::check::{CheckedRows, RowPlace};
use super::commit::{
    Commit, CommitOutcome, DeleteOutcome, InboxNumber, InboxPage, InboxQuery, SendOutcome, SendRequest,
};
use super::criteria::{Criteria, Page, PageKey};
use super::error::StoreError;
use super::moving::{Imported, MovedKey, MovedRow, MovedTable};
use super::page::{PageFill, PageLimit};
use super::request::{NewRequest, RequestNumber, RequestOutcome, RequestPage};
use super::row::InstanceRow;
use super::session::{
    Directory, Lease, NewSession, OwnedShard, Replaced, SessionId, SessionRole, ShardOwner,
};
use super::shard_set::ShardSet;
use super::stats::{Count, StoreDetails, StoreStats};
use super::task::{Served, TaskId, TaskRenewal, TaskReport, TaskRow};
use super::turn::TurnRow;
use super::{DueInstance, LoadedInstance, Reply, Store, Swept};

pub use ownership::{Ownership, SessionEntry, ShardEntry};
pub use tables::{Message, StoredReply, Tables};

/// With this many unread messages, the next one is refused.
pub const MAX_UNREAD: usize = 10_000;

/// A store in memory.
pub struct MemoryStore {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    tables: Mutex<Tables>,
    watchers: Mutex<Vec<Watcher>>,
}

impl MemoryStore {
    /// Creates an empty store whose clock returns milliseconds since 1970.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> MemoryStore {
        MemoryStore { clock: Box::new(clock), tables: Mutex::default(), watchers: Mutex::default() }
    }

    /// Direct access to all rows.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T>(&self, reply: Reply<T>, f: impl FnOnce(&mut Tables, u64) -> Result<T, StoreError>) {
        let (answer, changes) = {
            let mut tables = self.tables();
            // Read under the lock, so that times are in call order.
            let now_ms = (self.clock)();
            let answer = if tables.closed { Err(StoreError::Closed) } else { f(&mut tables, now_ms) };
            (answer, std::mem::take(&mut tables.changes))
        };
        reply(answer);
        self.tell(&changes);
    }

    fn tell(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        let watchers: Vec<Watcher> = self.lock_watchers().clone();
        watchers.iter().for_each(|watcher| watcher(changes));
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn open_session(&self, session: NewSession, reply: Reply<Lease>) {
        self.answer(reply, |tables, now_ms| {
            tables.check_not_moved(session.role)?;
            if session.role == SessionRole::Node {
                tables.changes.owners = ShardSet::ALL;
            }
            tables.ownership.open(session, now_ms)
        });
    }

    fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>, reply: Reply<Lease>) {
        self.answer(reply, |tables, now_ms| tables.ownership.renew(session, info, now_ms));
    }

    fn end_session(&self, session: SessionId, reply: Reply<()>) {
        self.answer(reply, |tables, now_ms| {
            tables.changes.owners = ShardSet::ALL;
            tables.ownership.end(session, now_ms);
            Ok(())
        });
    }

    fn claim_shards(&self, session: SessionId, target: usize, reply: Reply<Vec<OwnedShard>>) {
        self.answer(reply, |tables, now_ms| tables.ownership.claim(session, target, now_ms));
    }

    fn release_shards(&self, session: SessionId, shards: ShardSet, reply: Reply<()>) {
        self.answer(reply, |tables, now_ms| {
            tables.changes.owners.extend_from(&shards);
            tables.ownership.release(session, &shards, now_ms);
            Ok(())
        });
    }

    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>) {
        self.answer(reply, |tables, now_ms| {
            tables.check_not_moved(new.role)?;
            tables.ownership.replace(old, new, now_ms)
        });
    }

    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    ) {
        self.answer(reply, |tables, _| tables.ownership.note(session, notes, is_steady));
    }

    fn directory(&self, reply: Reply<Directory>) {
        self.answer(reply, |tables, now_ms| Ok(tables.ownership.directory(now_ms)));
    }

    fn shard_owner(&self, shard: ShardId, reply: Reply<ShardOwner>) {
        self.answer(reply, |tables, _| Ok(tables.ownership.shard_owner(shard)));
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        self.answer(reply, |tables, now_ms| {
            Ok(batch.iter().map(|member| tables.commit(session, member, now_ms)).collect())
        });
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        self.answer(reply, |tables, now_ms| {
            Ok(requests.into_iter().map(|request| tables.send(request, now_ms)).collect())
        });
    }

    fn read_inbox(&self, session: SessionId, query: InboxQuery, reply: Reply<InboxPage>) {
        self.answer(reply, |tables, _| {
            tables.ownership.check(session, &query.shards)?;
            let blocked: BTreeSet<InstanceKey> =
                tables.instances.values().filter(|row| row.blocked.is_some()).map(|row| row.key).collect();
            let is_wanted = |number: &InboxNumber, message: &Message| {
                query.shards.contains(message.shard)
                    && !message.parked
                    && (message.urgent || !blocked.contains(&message.to))
                    && query.known.binary_search(number).is_err()
            };
            let wanted =
                tables.inbox.range(query.from..).filter(|(number, message)| is_wanted(number, message));
            Ok(inbox_page(wanted, query.limit))
        });
    }

    fn read_due(
        &self,
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
        reply: Reply<Vec<DueInstance>>,
    ) {
        self.answer(reply, |tables, _| {
            tables.ownership.check(session, &shards)?;
            let mut due: Vec<(u64, InstanceKey, ShardId)> = unfinished(tables, &shards)
                .filter_map(|row| row.wake_at_ms.map(|wake_at_ms| (wake_at_ms, row.key, row.shard)))
                .filter(|(at, key, _)| *at < before_ms && after.is_none_or(|after| (*at, *key) > after))
                .collect();
            due.sort();
            let instance = |(wake_at_ms, key, shard)| DueInstance { key, shard, wake_at_ms };
            Ok(due.into_iter().take(limit.max(1)).map(instance).collect())
        });
    }

    fn read_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.answer(reply, |tables, _| {
            tables.ownership.check(session, &shards)?;
            let owed = unfinished(tables, &shards).filter(|row| row.owed);
            Ok(keys_after(owed, after, limit))
        });
    }

    fn read_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.answer(reply, |tables, _| {
            tables.ownership.check(session, &shards)?;
            let blocked = unfinished(tables, &shards).filter(|row| row.blocked.is_some());
            Ok(keys_after(blocked, after, limit))
        });
    }

    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>) {
        self.answer(reply, |tables, _| Ok(tables.find(id).cloned()));
    }

    fn load(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
        reply: Reply<Option<LoadedInstance>>,
    ) {
        self.answer(reply, |tables, _| {
            Ok(tables.instances.get(&key).cloned().map(|row| {
                let turns = turns_after(tables, key, row.execution, after_turn).cloned().collect();
                let mine = tables.inbox.iter().filter(|(_, message)| message.to == key);
                let inbox = inbox_page(mine, inbox);
                let of_execution = |task: &&TaskRow| task.id.key == key && task.id.execution == row.execution;
                let tasks = tables.tasks.values().filter(of_execution).cloned().collect();
                LoadedInstance { row, turns, inbox, tasks }
            }))
        });
    }

    fn read_turns(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
        reply: Reply<Vec<TurnRow>>,
    ) {
        self.answer(reply, |tables, _| {
            if tables.graves.contains(&key) {
                return Ok(Vec::new());
            }
            let mut page = PageFill::new(limit);
            let turns = turns_after(tables, key, execution, after_turn);
            Ok(turns.take_while(|turn| page.admits(turn.bytes.len())).cloned().collect())
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
            Ok(tables.take_tasks(holder, &served, limit, now_ms, now_ms.saturating_add(lease_ms)))
        });
    }

    fn held_tasks(&self, holder: SessionId, reply: Reply<Vec<TaskRow>>) {
        self.answer(reply, |tables, _| Ok(tables.held_tasks(holder)));
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        self.answer(reply, |tables, now_ms| {
            let until_ms = now_ms.saturating_add(lease_ms);
            Ok(tasks.iter().map(|report| tables.renew_task(holder, report, now_ms, until_ms)).collect())
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
        self.answer(reply, |tables, now_ms| Ok(tables.finish_task(holder, task, attempt, &body, now_ms)));
    }

    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>) {
        self.answer(reply, |tables, now_ms| {
            tasks.into_iter().for_each(|id| tables.give_back_task(holder, id, now_ms));
            Ok(())
        });
    }

    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>) {
        self.answer(reply, |tables, now_ms| Ok(tables.put_request(request, now_ms)));
    }

    fn read_requests(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
        reply: Reply<RequestPage>,
    ) {
        self.answer(reply, |tables, now_ms| {
            tables.ownership.check(session, &shards)?;
            let open = tables.requests.range(from..).map(|(_, request)| request);
            let mut fill = PageFill::new(limit);
            let mut page = RequestPage::default();
            for request in open.filter(|it| it.deadline_ms > now_ms && shards.contains(it.shard)) {
                if !fill.admits(request.body.len()) {
                    page.next = Some(request.number);
                    break;
                }
                page.rows.push(request.clone());
            }
            Ok(page)
        });
    }

    fn read_reply(&self, number: RequestNumber, reply: Reply<Option<Arc<[u8]>>>) {
        self.answer(reply, |tables, _| Ok(tables.replies.get(&number).map(|it| Arc::clone(&it.body))));
    }

    fn withdraw_request(&self, number: RequestNumber, reply: Reply<bool>) {
        self.answer(reply, |tables, _| Ok(tables.requests.remove(&number).is_some()));
    }

    fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        let limit = limit.max(1);
        self.answer(reply, |tables, _| {
            let shown = tables.instances.values().filter(|row| filter.matches(row));
            if let Some(place) = filter.by_end {
                return Ok(place.page(shown.cloned().collect(), limit));
            }
            let mut rows: Vec<InstanceRow> = if filter.newest_first {
                let is_after = |row: &&InstanceRow| after.is_none_or(|after| row.key < after);
                shown.rev().filter(is_after).take(limit.saturating_add(1)).cloned().collect()
            } else {
                let is_after = |row: &&InstanceRow| after.is_none_or(|after| row.key > after);
                shown.filter(is_after).take(limit.saturating_add(1)).cloned().collect()
            };
            let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
            rows.truncate(limit);
            Ok(Page { rows, next })
        });
    }

    fn count(&self, filter: Criteria, at_most: u64, reply: Reply<Count>) {
        self.answer(reply, |tables, _| {
            let rows = tables.instances.values().filter(|row| filter.matches(row)).count();
            Ok(Count::bounded(rows as u64, at_most))
        });
    }

    fn list_tasks(&self, after: Option<TaskId>, limit: usize, reply: Reply<Vec<TaskRow>>) {
        self.answer(reply, |tables, _| {
            let listed = tables.tasks.values().filter(|row| after.is_none_or(|after| row.id > after));
            let without_payloads = |row: &TaskRow| TaskRow { work: None, details: None, ..row.clone() };
            Ok(listed.take(limit.max(1)).map(without_payloads).collect())
        });
    }

    fn stats(&self, reply: Reply<StoreStats>) {
        self.answer(reply, |tables, now_ms| Ok(tables.stats(now_ms)));
    }

    fn details(&self, reply: Reply<StoreDetails>) {
        self.answer(reply, |tables, _| Ok(tables.details()));
    }

    fn check_rows(&self, after: Option<RowPlace>, rows: usize, reply: Reply<CheckedRows>) {
        self.answer(reply, |tables, _| Ok(tables.check_rows(after, rows)));
    }

    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>) {
        self.answer(reply, |tables, _| {
            Ok(instances.into_iter().map(|(_, key)| tables.delete(key)).collect())
        });
    }

    fn prune_executions(
        &self,
        session: SessionId,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        rows: usize,
        reply: Reply<Swept>,
    ) {
        self.answer(reply, |tables, _| {
            tables.ownership.check(session, &[shard].into_iter().collect())?;
            Ok(tables.prune(key, execution, rows))
        });
    }

    fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>, reply: Reply<Swept>) {
        self.answer(reply, |tables, now_ms| Ok(tables.sweep(rows, keep_executions_ms, now_ms)));
    }

    fn read_setting(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>) {
        self.answer(reply, |tables, _| Ok(tables.settings.get(name).cloned()));
    }

    fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
        reply: Reply<bool>,
    ) {
        self.answer(reply, |tables, _| {
            let is_as_read = tables.settings.get(name) == read.as_ref();
            match value.filter(|_| is_as_read) {
                Some(value) => drop(tables.settings.insert(name.to_owned(), value)),
                None if is_as_read => drop(tables.settings.remove(name)),
                None => {}
            }
            Ok(is_as_read)
        });
    }

    fn export_rows(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
        reply: Reply<Vec<MovedRow>>,
    ) {
        self.answer(reply, |tables, _| Ok(tables.export(table, after.as_ref(), limit)));
    }

    fn import_rows(&self, session: SessionId, rows: Vec<MovedRow>, reply: Reply<Imported>) {
        self.answer(reply, |tables, _| tables.import(session, rows));
    }

    fn watch(&self, watcher: Watcher) {
        self.lock_watchers().push(watcher);
    }

    fn close(&self, reply: Reply<()>) {
        self.answer(reply, |tables, _| {
            tables.closed = true;
            Ok(())
        });
        self.lock_watchers().clear();
    }
}

fn inbox_page<'t>(
    messages: impl Iterator<Item = (&'t InboxNumber, &'t Message)>,
    limit: PageLimit,
) -> InboxPage {
    let mut fill = PageFill::new(limit);
    let mut page = InboxPage::default();
    for (number, message) in messages {
        if !fill.admits(message.body.len()) {
            page.next = Some(*number);
            break;
        }
        page.rows.push(message.to_row(*number));
    }
    page
}

fn unfinished<'t>(tables: &'t Tables, shards: &ShardSet) -> impl Iterator<Item = &'t InstanceRow> {
    let shards = *shards;
    tables.instances.values().filter(move |row| shards.contains(row.shard) && !row.status.is_final())
}

fn keys_after<'t>(
    rows: impl Iterator<Item = &'t InstanceRow>,
    after: Option<InstanceKey>,
    limit: usize,
) -> Vec<(InstanceKey, ShardId)> {
    let rows = rows.filter(|row| after.is_none_or(|after| row.key > after));
    rows.take(limit.max(1)).map(|row| (row.key, row.shard)).collect()
}

fn turns_after(
    tables: &Tables,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
) -> impl Iterator<Item = &TurnRow> {
    let range = (key, execution, after_turn.saturating_add(1))..=(key, execution, u64::MAX);
    tables.turns.range(range).map(|(_, turn)| turn)
}
