//! An example of a store outside this project: all rows in memory, and every change in a file of JSON Lines.
//!
//! It uses only [`perennial_core::store`]. Each call that changes something is one line, synced before the
//! call is answered; a line is written completely or, if the process crashes meanwhile, not at all. Opening
//! reads the whole file. It is written to be read, not to be fast: the file only grows.

mod commits;
mod format;
mod moving;
mod ownership;
mod tables;
mod tasks;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perennial_core::store::{
    Changes, CheckedRows, Commit, CommitOutcome, Count, Criteria, DeleteOutcome, Directory, DueInstance,
    Imported, InboxPage, InboxQuery, InstanceRow, Lease, LoadedInstance, MovedKey, MovedRow, MovedTable,
    NewRequest, NewSession, OwnedShard, Page, PageFill, PageKey, PageLimit, Replaced, Reply, RequestNumber,
    RequestOutcome, RequestPage, RequestRow, RowPlace, SendOutcome, SendRequest, Served, SessionId,
    ShardOwner, ShardSet, Status, Store, StoreDetails, StoreError, StoreStats, Swept, TaskId, TaskRenewal,
    TaskReport, TaskRow, TurnRow, Watcher,
};
use perennial_core::{InstanceKey, ShardId};

use tables::{Change, Message, Tables};

/// A store in a file of JSON Lines.
pub(crate) struct JsonLinesStore {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
    watchers: Mutex<Vec<Watcher>>,
}

struct State {
    tables: Tables,
    /// `None` once the store is closed.
    file: Option<File>,
}

impl JsonLinesStore {
    /// Opens or creates a file.
    pub(crate) fn open(
        path: &Path,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> io::Result<JsonLinesStore> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let text = io::read_to_string(&file)?;
        // A line without an end was never acknowledged.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let mut tables = Tables::default();
        for line in text[..whole].lines() {
            let changes: Vec<Change> = serde_json::from_str(line)?;
            changes.iter().for_each(|change| tables.apply(change));
        }
        let state = Mutex::new(State { tables, file: Some(file) });
        Ok(JsonLinesStore { clock: Box::new(clock), state, watchers: Mutex::default() })
    }

    /// Makes a call: its changes are on disk before it is answered, and watchers are notified afterwards.
    fn call<T>(&self, reply: Reply<T>, f: impl FnOnce(&mut Tables, u64) -> Result<T, StoreError>) {
        let (answer, hints) = self.lock().call((self.clock)(), f);
        reply(answer);
        if !hints.is_empty() {
            let watchers = self.lock_watchers().clone();
            watchers.iter().for_each(|watcher| watcher(&hints));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn call<T>(
        &mut self,
        now_ms: u64,
        f: impl FnOnce(&mut Tables, u64) -> Result<T, StoreError>,
    ) -> (Result<T, StoreError>, Changes) {
        let Some(file) = &mut self.file else { return (Err(StoreError::Closed), Changes::default()) };
        let answer = f(&mut self.tables, now_ms);
        let (line, hints) = (std::mem::take(&mut self.tables.line), std::mem::take(&mut self.tables.hints));
        if !line.is_empty()
            && let Err(error) = append(file, &line)
        {
            // The state in memory may not be on disk, so no further call can be answered.
            self.file = None;
            return (Err(StoreError::Failed(error.to_string())), Changes::default());
        }
        (answer, hints)
    }
}

fn append(file: &mut File, line: &[Change]) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_data()
}

impl Store for JsonLinesStore {
    fn open_session(&self, session: NewSession, reply: Reply<Lease>) {
        self.call(reply, |tables, now_ms| tables.open_session(session, now_ms));
    }

    fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>, reply: Reply<Lease>) {
        self.call(reply, |tables, now_ms| tables.renew_session(session, info, now_ms));
    }

    fn end_session(&self, session: SessionId, reply: Reply<()>) {
        self.call(reply, |tables, now_ms| {
            tables.end_session(session, now_ms);
            Ok(())
        });
    }

    fn claim_shards(&self, session: SessionId, target: usize, reply: Reply<Vec<OwnedShard>>) {
        self.call(reply, |tables, now_ms| tables.claim_shards(session, target, now_ms));
    }

    fn release_shards(&self, session: SessionId, shards: ShardSet, reply: Reply<()>) {
        self.call(reply, |tables, now_ms| {
            tables.release_shards(session, &shards, now_ms);
            Ok(())
        });
    }

    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>) {
        self.call(reply, |tables, now_ms| tables.replace_session(old, new, now_ms));
    }

    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    ) {
        self.call(reply, |tables, _| tables.write_notes(session, notes, is_steady));
    }

    fn directory(&self, reply: Reply<Directory>) {
        self.call(reply, |tables, now_ms| Ok(tables.directory(now_ms)));
    }

    fn shard_owner(&self, shard: ShardId, reply: Reply<ShardOwner>) {
        self.call(reply, |tables, _| Ok(tables.shard_owner(shard)));
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        self.call(reply, |tables, now_ms| {
            Ok(batch.iter().map(|member| tables.commit(session, member, now_ms)).collect())
        });
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        self.call(reply, |tables, now_ms| {
            Ok(requests.into_iter().map(|request| tables.send(request, now_ms)).collect())
        });
    }

    fn read_inbox(&self, session: SessionId, query: InboxQuery, reply: Reply<InboxPage>) {
        self.call(reply, |tables, _| {
            tables.check(session, &query.shards)?;
            let is_blocked = |key| tables.instances.get(key).is_some_and(|row| row.blocked.is_some());
            let wanted = tables.inbox.range(query.from..).map(|(_, message)| message).filter(|message| {
                query.shards.contains(message.shard)
                    && !message.parked
                    && (message.urgent || !is_blocked(&message.key))
                    && query.known.binary_search(&message.number).is_err()
            });
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
        self.call(reply, |tables, _| {
            tables.check(session, &shards)?;
            let due = |row: &InstanceRow| {
                let wake_at_ms = row.wake_at_ms.filter(|at_ms| *at_ms < before_ms)?;
                Some(DueInstance { key: row.key, shard: row.shard, wake_at_ms })
            };
            let mut due: Vec<DueInstance> = unfinished(tables, shards).filter_map(due).collect();
            due.sort_by_key(|due| (due.wake_at_ms, due.key));
            due.retain(|due| after.is_none_or(|after| (due.wake_at_ms, due.key) > after));
            due.truncate(limit.max(1));
            Ok(due)
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
        self.call(reply, |tables, _| {
            tables.check(session, &shards)?;
            Ok(keys(unfinished(tables, shards).filter(|row| row.owed), after, limit))
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
        self.call(reply, |tables, _| {
            tables.check(session, &shards)?;
            Ok(keys(unfinished(tables, shards).filter(|row| row.blocked.is_some()), after, limit))
        });
    }

    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>) {
        self.call(reply, |tables, _| Ok(tables.find(id).cloned()));
    }

    fn load(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
        reply: Reply<Option<LoadedInstance>>,
    ) {
        self.call(reply, |tables, _| {
            let Some(row) = tables.instances.get(&key).cloned() else { return Ok(None) };
            let turns = turns(tables, key, row.execution, after_turn).cloned().collect();
            let inbox = inbox_page(tables.messages_of(key), inbox);
            let is_current = |task: &&TaskRow| task.id.key == key && task.id.execution == row.execution;
            let tasks = tables.tasks.values().filter(is_current).cloned().collect();
            Ok(Some(LoadedInstance { row, turns, inbox, tasks }))
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
        self.call(reply, |tables, _| {
            let mut page = PageFill::new(limit);
            let turns = turns(tables, key, execution, after_turn);
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
        self.call(reply, |tables, now_ms| Ok(tables.take_tasks(holder, &served, limit, now_ms, lease_ms)));
    }

    fn held_tasks(&self, holder: SessionId, reply: Reply<Vec<TaskRow>>) {
        self.call(reply, |tables, _| Ok(tables.held_tasks(holder)));
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        self.call(reply, |tables, now_ms| {
            let until_ms = now_ms + lease_ms;
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
        self.call(reply, |tables, now_ms| Ok(tables.finish_task(holder, task, attempt, &body, now_ms)));
    }

    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>) {
        self.call(reply, |tables, now_ms| {
            tasks.into_iter().for_each(|id| tables.give_back_task(holder, id, now_ms));
            Ok(())
        });
    }

    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>) {
        self.call(reply, |tables, now_ms| {
            let NewRequest { instance, key, patience_ms, after, body } = request;
            let row = tables.find(&instance).filter(|row| key.is_none_or(|key| key == row.key));
            let Some((key, shard)) = row.map(|row| (row.key, row.shard)) else {
                return Ok(RequestOutcome::NoInstance);
            };
            let (number, deadline_ms) = (tables.last_request + 1, now_ms.saturating_add(patience_ms));
            tables.hints.requests.insert(shard);
            tables.write(Change::Request(RequestRow { number, key, shard, deadline_ms, after, body }));
            Ok(RequestOutcome::Written(number))
        });
    }

    fn read_requests(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
        reply: Reply<RequestPage>,
    ) {
        self.call(reply, |tables, now_ms| {
            tables.check(session, &shards)?;
            let (mut fill, mut page) = (PageFill::new(limit), RequestPage::default());
            for request in tables.requests.range(from..).map(|(_, request)| request) {
                if request.deadline_ms <= now_ms || !shards.contains(request.shard) {
                    continue;
                }
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
        self.call(reply, |tables, _| Ok(tables.replies.get(&number).map(|it| Arc::clone(&it.body))));
    }

    fn withdraw_request(&self, number: RequestNumber, reply: Reply<bool>) {
        self.call(reply, |tables, _| {
            let is_there = tables.requests.contains_key(&number);
            if is_there {
                tables.write(Change::RequestGone(number));
            }
            Ok(is_there)
        });
    }

    fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        self.call(reply, |tables, _| {
            if let Some(place) = filter.by_end {
                let shown = tables.instances.values().filter(|row| filter.matches(row));
                return Ok(place.page(shown.cloned().collect(), limit));
            }
            let is_after = |key| match filter.newest_first {
                true => after.is_none_or(|after| key < after),
                false => after.is_none_or(|after| key > after),
            };
            let shown = tables.instances.values().filter(|row| filter.matches(row) && is_after(row.key));
            let mut rows: Vec<InstanceRow> = shown.cloned().collect();
            if filter.newest_first {
                rows.reverse();
            }
            let limit = limit.max(1);
            let next = (rows.len() > limit).then(|| rows[limit - 1].key);
            rows.truncate(limit);
            Ok(Page { rows, next })
        });
    }

    fn count(&self, filter: Criteria, at_most: u64, reply: Reply<Count>) {
        self.call(reply, |tables, _| {
            let rows = tables.instances.values().filter(|row| filter.matches(row)).count();
            Ok(Count::bounded(rows as u64, at_most))
        });
    }

    fn list_tasks(&self, after: Option<TaskId>, limit: usize, reply: Reply<Vec<TaskRow>>) {
        self.call(reply, |tables, _| {
            let listed = tables.tasks.values().filter(|row| after.is_none_or(|after| row.id > after));
            let without_payloads = |row: &TaskRow| TaskRow { work: None, details: None, ..row.clone() };
            Ok(listed.take(limit.max(1)).map(without_payloads).collect())
        });
    }

    fn stats(&self, reply: Reply<StoreStats>) {
        self.call(reply, |tables, now_ms| {
            let count = |rows: usize| Count::bounded(rows as u64, Count::EXACT);
            let rows = || tables.instances.values();
            let of_status = |status| (status, count(rows().filter(|row| row.status == status).count()));
            let tasks = |name| count(tables.tasks.values().filter(|row| row.state.name() == name).count());
            let can_go_on = |row: &&InstanceRow| !row.status.is_final() && row.blocked.is_none();
            let earliest_ms = rows().filter(can_go_on).filter_map(|row| row.wake_at_ms).min();
            Ok(StoreStats {
                instances: Status::ALL.into_iter().map(of_status).collect(),
                blocked: count(rows().filter(|row| row.blocked.is_some()).count()),
                inbox: count(tables.inbox.len()),
                tasks_queued: tasks("queued"),
                tasks_leased: tasks("leased"),
                tasks_waiting: tasks("waiting"),
                requests: count(tables.requests.len()),
                lag_ms: earliest_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms)),
            })
        });
    }

    fn details(&self, reply: Reply<StoreDetails>) {
        self.call(reply, |tables, _| {
            let blocked = tables.instances.values().filter_map(|row| row.blocked.as_ref());
            let begins: Vec<String> =
                blocked.map(|blocked| serde_json::to_string(blocked).expect("it is JSON")).collect();
            let counted = begins.iter().map(String::as_str).take(Count::EXACT as usize + 1);
            let wakes =
                tables.instances.values().filter(|row| !row.status.is_final() && row.blocked.is_none());
            let due = wakes.filter_map(|row| row.wake_at_ms.map(|due_ms| (row.shard.0, due_ms)));
            Ok(StoreDetails {
                blocked: StoreDetails::count_blocked(counted),
                bytes: Vec::new(),
                earliest: StoreDetails::earliest_of(due),
            })
        });
    }

    fn check_rows(&self, after: Option<RowPlace>, _: usize, reply: Reply<CheckedRows>) {
        // One page is enough: a file with a damaged line cannot be opened, and everything is in memory.
        self.call(reply, |tables, _| {
            Ok(match after {
                Some(_) => CheckedRows::default(),
                None => CheckedRows {
                    requests: tables.requests.values().cloned().collect(),
                    replies: tables
                        .replies
                        .values()
                        .map(|reply| (reply.number, reply.body.clone()))
                        .collect(),
                    ..CheckedRows::default()
                },
            })
        });
    }

    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>) {
        self.call(reply, |tables, _| Ok(instances.into_iter().map(|(_, key)| tables.delete(key)).collect()));
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
        self.call(reply, |tables, _| {
            tables.check(session, &ShardSet::from_iter([shard]))?;
            Ok(tables.prune(key, execution, rows))
        });
    }

    fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>, reply: Reply<Swept>) {
        self.call(reply, |tables, now_ms| Ok(tables.sweep(rows, keep_executions_ms, now_ms)));
    }

    fn read_setting(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>) {
        self.call(reply, |tables, _| Ok(tables.settings.get(name).cloned()));
    }

    fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
        reply: Reply<bool>,
    ) {
        self.call(reply, |tables, _| {
            if tables.settings.get(name) != read.as_ref() {
                return Ok(false);
            }
            let name = name.to_owned();
            tables.write(value.map_or(Change::SettingGone(name.clone()), |it| Change::Setting(name, it)));
            Ok(true)
        });
    }

    fn export_rows(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
        reply: Reply<Vec<MovedRow>>,
    ) {
        self.call(reply, |tables, _| Ok(tables.export(table, after.as_ref(), limit)));
    }

    fn import_rows(&self, session: SessionId, rows: Vec<MovedRow>, reply: Reply<Imported>) {
        self.call(reply, |tables, _| tables.import(session, rows));
    }

    fn watch(&self, watcher: Watcher) {
        self.lock_watchers().push(watcher);
    }

    fn close(&self, reply: Reply<()>) {
        let file = self.lock().file.take();
        self.lock_watchers().clear();
        reply(file.map(drop).ok_or(StoreError::Closed));
    }
}

fn inbox_page<'t>(messages: impl Iterator<Item = &'t Message>, limit: PageLimit) -> InboxPage {
    let (mut fill, mut page) = (PageFill::new(limit), InboxPage::default());
    for message in messages {
        if !fill.admits(message.body.len()) {
            page.next = Some(message.number);
            break;
        }
        page.rows.push(message.to_row());
    }
    page
}

fn unfinished(tables: &Tables, shards: ShardSet) -> impl Iterator<Item = &InstanceRow> {
    tables.instances.values().filter(move |row| shards.contains(row.shard) && !row.status.is_final())
}

fn keys<'t>(
    rows: impl Iterator<Item = &'t InstanceRow>,
    after: Option<InstanceKey>,
    limit: usize,
) -> Vec<(InstanceKey, ShardId)> {
    let rows = rows.filter(|row| after.is_none_or(|after| row.key > after));
    rows.take(limit.max(1)).map(|row| (row.key, row.shard)).collect()
}

fn turns(
    tables: &Tables,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
) -> impl Iterator<Item = &TurnRow> {
    let range = (key, execution, after_turn.saturating_add(1))..=(key, execution, u64::MAX);
    tables.turns.range(range).map(|(_, turn)| turn)
}
