//! The store as its callers see it: calls go into queues, replies come from threads.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use perennial_core::store::{
    CheckedRows, Commit, CommitOutcome, Count, Criteria, DeleteOutcome, Directory, DueInstance, Imported,
    InboxPage, InboxQuery, InstanceRow, Lease, LoadedInstance, MovedKey, MovedRow, MovedTable, NewRequest,
    NewSession, OwnedShard, Page, PageKey, PageLimit, Replaced, Reply, RequestNumber, RequestOutcome,
    RequestPage, RowPlace, SendOutcome, SendRequest, Served, SessionId, ShardOwner, ShardSet, Store,
    StoreDetails, StoreError, StoreStats, Swept, TaskId, TaskRenewal, TaskReport, TaskRow, TurnRow, Watcher,
};
use perennial_core::{InstanceKey, ShardId};

use crate::calls::{
    Batch, Call, Claim, Pruning, ReadCall, Renewal, ReplyGuard, Setting, ShardNotes, Sweep, TaskEnd,
    TaskRenewals, TaskTake, Work, WriteCall,
};
use crate::clock::StoreClock;
use crate::open::{self, IN_MEMORY, Opened};
use crate::options::SqliteOptions;
use crate::queue::Queue;
use crate::read_queue::{ReadQueue, Takes};
use crate::reader::Reader;
use crate::watchers::Watchers;
use crate::writer::Writer;

/// A store in a SQLite file.
///
/// Replies and hints are called on the store's own threads, one after another: they must be short, and must not wait
/// for the store. Dropping the store closes it, and waits for that.
pub struct SqliteStore {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    threads: Vec<ThreadId>,
}

/// What the threads and the callers share.
pub(crate) struct Shared {
    pub(crate) queue: Queue<Work>,
    pub(crate) reads: ReadQueue<ReadCall>,
    pub(crate) watchers: Watchers,
    pub(crate) health: Health,
    pub(crate) clock: StoreClock,
    pub(crate) is_guest: bool,
    pub(crate) is_read_only: bool,
    /// Not in memory: other processes may change it.
    pub(crate) is_file: bool,
}

/// What a store may do with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Owner,
    Guest,
    ReadOnly,
}

/// Whether the store can continue. The first failure is permanent.
#[derive(Default)]
pub(crate) struct Health(OnceLock<StoreError>);

impl Health {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.0.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    pub(crate) fn fail(&self, failure: StoreError) {
        // The first failure is the one to report.
        let _ = self.0.set(failure);
    }
}

impl SqliteStore {
    /// Opens a file for the runtime that owns it, and creates it if necessary. The path `:memory:` keeps everything in
    /// memory, as long as the store is open.
    ///
    /// Only one runtime owns a file at a time: a second one gets [`StoreError::InUse`]. Sessions of an earlier owner
    /// have ended when this returns.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        if path.as_ref() == Path::new(IN_MEMORY) {
            return SqliteStore::start(open::in_memory(&options)?, options, Access::Owner);
        }
        SqliteStore::start(open::owner(path.as_ref(), &options)?, options, Access::Owner)
    }

    /// Opens a file beside its owner, if there is one, to read and to send messages. Sessions and commits are refused
    /// with [`StoreError::InUse`].
    pub fn open_guest(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        if path.as_ref() == Path::new(IN_MEMORY) {
            return Err(StoreError::CannotOpen(format!(
                "{IN_MEMORY}: a database in memory belongs to one process and cannot have guests"
            )));
        }
        SqliteStore::start(open::guest(path.as_ref(), &options)?, options, Access::Guest)
    }

    /// Opens a file read-only, for a short time. Every call that writes is refused with [`StoreError::InUse`]; the file
    /// needs no write permission, and no files are created next to it unless SQLite has to recover a log after a crash.
    ///
    /// If no runtime uses the file when it is opened, later changes are not seen.
    pub fn open_read_only(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        SqliteStore::start(open::read_only(path.as_ref(), &options)?, options, Access::ReadOnly)
    }

    fn start(opened: Opened, options: SqliteOptions, access: Access) -> Result<SqliteStore, StoreError> {
        let Opened { path, writer, data_version, readers, lock, log_number, identity, clock, mark } = opened;
        let shared = Arc::new(Shared {
            queue: Queue::new(),
            reads: ReadQueue::new(),
            watchers: Watchers::default(),
            health: Health::default(),
            clock,
            is_guest: access != Access::Owner,
            is_read_only: access == Access::ReadOnly,
            is_file: !readers.is_empty(),
        });
        let mut handles = Vec::new();
        for (connection, (name, takes)) in
            readers.into_iter().zip([("perennial-read", Takes::Engine), ("perennial-look", Takes::All)])
        {
            let reader = Reader { shared: Arc::clone(&shared), path: path.clone(), connection, takes };
            match spawn(name, move || reader.run()) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    shared.reads.close();
                    return Err(error);
                }
            }
        }
        let mut threads: Vec<ThreadId> = handles.iter().map(|handle| handle.thread().id()).collect();
        let writer = Writer {
            shared: Arc::clone(&shared),
            path,
            connection: writer,
            data_version,
            mark,
            options,
            lock,
            log_number,
            identity,
            readers: handles,
        };
        let reads = Arc::clone(&shared);
        let writer = spawn("perennial-write", move || writer.run()).inspect_err(|_| reads.reads.close())?;
        threads.push(writer.thread().id());
        Ok(SqliteStore { shared, writer: Mutex::new(Some(writer)), threads })
    }

    fn write(&self, request: WriteCall) {
        if self.shared.is_read_only {
            let reason = "this process opened the file read-only; it cannot change anything";
            return request.finish(&Err(StoreError::InUse(reason.to_owned())));
        }
        if let Err(failure) = self.shared.health.check() {
            return request.finish(&Err(failure));
        }
        if let Err(work) = self.shared.queue.push(Work::Write(request)) {
            work.refuse(StoreError::Closed);
        }
    }

    fn write_as_owner(&self, request: WriteCall) {
        if self.shared.is_guest {
            let reason = "this process opened the file as a guest, to read and send messages; only its owner takes turns";
            return request.finish(&Err(StoreError::InUse(reason.to_owned())));
        }
        self.write(request);
    }

    fn read(&self, request: ReadCall) {
        if let Err(failure) = self.shared.health.check() {
            return request.refuse(failure);
        }
        if self.shared.is_file {
            if let Err(request) = self.shared.reads.push(request.caller(), request) {
                request.refuse(StoreError::Closed);
            }
        } else if let Err(work) = self.shared.queue.push(Work::Read(request)) {
            work.refuse(StoreError::Closed);
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| StoreError::CannotOpen(format!("no thread for the store: {error}")))
}

impl Store for SqliteStore {
    fn open_session(&self, session: NewSession, reply: Reply<Lease>) {
        self.write_as_owner(WriteCall::OpenSession(Call::new(session, reply)));
    }

    fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>, reply: Reply<Lease>) {
        self.write_as_owner(WriteCall::RenewSession(Call::new(Renewal { session, info }, reply)));
    }

    fn end_session(&self, session: SessionId, reply: Reply<()>) {
        self.write_as_owner(WriteCall::EndSession(Call::new(session, reply)));
    }

    fn claim_shards(&self, session: SessionId, target: usize, reply: Reply<Vec<OwnedShard>>) {
        self.write_as_owner(WriteCall::ClaimShards(Call::new(Claim { session, target }, reply)));
    }

    fn release_shards(&self, session: SessionId, shards: ShardSet, reply: Reply<()>) {
        self.write_as_owner(WriteCall::ReleaseShards(Call::new((session, shards), reply)));
    }

    fn replace_session(&self, old: SessionId, new: NewSession, reply: Reply<Replaced>) {
        self.write_as_owner(WriteCall::ReplaceSession(Call::new((old, new), reply)));
    }

    fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
        reply: Reply<()>,
    ) {
        let arguments = ShardNotes { session, notes, is_steady };
        self.write_as_owner(WriteCall::WriteShardNotes(Call::new(arguments, reply)));
    }

    fn directory(&self, reply: Reply<Directory>) {
        if self.shared.is_guest {
            return self.read(ReadCall::Directory { reply: ReplyGuard::to(reply) });
        }
        // Leases are in the memory of the writer thread.
        self.write(WriteCall::Directory(Call::new((), reply)));
    }

    fn shard_owner(&self, shard: ShardId, reply: Reply<ShardOwner>) {
        self.read(ReadCall::ShardOwner { shard, reply: ReplyGuard::to(reply) });
    }

    fn commit(&self, session: SessionId, batch: Arc<[Commit]>, reply: Reply<Vec<CommitOutcome>>) {
        let arguments = Batch { session, members: batch };
        self.write_as_owner(WriteCall::Commit(Call::new(arguments, reply)));
    }

    fn send(&self, requests: Vec<SendRequest>, reply: Reply<Vec<SendOutcome>>) {
        self.write(WriteCall::Send(Call::new(requests, reply)));
    }

    fn read_inbox(&self, session: SessionId, query: InboxQuery, reply: Reply<InboxPage>) {
        self.read(ReadCall::Inbox { session, query, reply: ReplyGuard::to(reply) });
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
        self.read(ReadCall::Due { session, shards, before_ms, after, limit, reply: ReplyGuard::to(reply) });
    }

    fn read_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.read(ReadCall::Owed { session, shards, after, limit, reply: ReplyGuard::to(reply) });
    }

    fn read_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
        reply: Reply<Vec<(InstanceKey, ShardId)>>,
    ) {
        self.read(ReadCall::Blocked { session, shards, after, limit, reply: ReplyGuard::to(reply) });
    }

    fn find(&self, id: &str, reply: Reply<Option<InstanceRow>>) {
        self.read(ReadCall::Find { id: id.to_owned(), reply: ReplyGuard::to(reply) });
    }

    fn load(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
        reply: Reply<Option<LoadedInstance>>,
    ) {
        self.read(ReadCall::Load { key, after_turn, inbox, reply: ReplyGuard::to(reply) });
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
        self.read(ReadCall::Turns { key, execution, after_turn, limit, reply: ReplyGuard::to(reply) });
    }

    fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
        reply: Reply<Vec<TaskRow>>,
    ) {
        let arguments = TaskTake { holder, served, limit, lease_ms };
        self.write(WriteCall::TakeTasks(Call::new(arguments, reply)));
    }

    fn held_tasks(&self, holder: SessionId, reply: Reply<Vec<TaskRow>>) {
        self.read(ReadCall::HeldTasks { holder, reply: ReplyGuard::to(reply) });
    }

    fn renew_tasks(
        &self,
        holder: SessionId,
        tasks: Vec<TaskReport>,
        lease_ms: u64,
        reply: Reply<Vec<TaskRenewal>>,
    ) {
        let arguments = TaskRenewals { holder, tasks, lease_ms };
        self.write(WriteCall::RenewTasks(Call::new(arguments, reply)));
    }

    fn finish_task(
        &self,
        holder: SessionId,
        task: TaskId,
        attempt: u32,
        body: Arc<[u8]>,
        reply: Reply<bool>,
    ) {
        let arguments = TaskEnd { holder, task, attempt, body };
        self.write(WriteCall::FinishTask(Call::new(arguments, reply)));
    }

    fn give_back_tasks(&self, holder: SessionId, tasks: Vec<TaskId>, reply: Reply<()>) {
        self.write(WriteCall::GiveBackTasks(Call::new((holder, tasks), reply)));
    }

    fn put_request(&self, request: NewRequest, reply: Reply<RequestOutcome>) {
        self.write(WriteCall::PutRequest(Call::new(request, reply)));
    }

    fn read_requests(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
        reply: Reply<RequestPage>,
    ) {
        self.read(ReadCall::Requests { session, shards, from, limit, reply: ReplyGuard::to(reply) });
    }

    fn read_reply(&self, number: RequestNumber, reply: Reply<Option<Arc<[u8]>>>) {
        self.read(ReadCall::ReplyTo { number, reply: ReplyGuard::to(reply) });
    }

    fn withdraw_request(&self, number: RequestNumber, reply: Reply<bool>) {
        self.write(WriteCall::WithdrawRequest(Call::new(number, reply)));
    }

    fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize, reply: Reply<Page>) {
        self.read(ReadCall::List { filter, after, limit, reply: ReplyGuard::to(reply) });
    }

    fn count(&self, filter: Criteria, at_most: u64, reply: Reply<Count>) {
        self.read(ReadCall::Count { filter, at_most, reply: ReplyGuard::to(reply) });
    }

    fn list_tasks(&self, after: Option<TaskId>, limit: usize, reply: Reply<Vec<TaskRow>>) {
        self.read(ReadCall::ListTasks { after, limit, reply: ReplyGuard::to(reply) });
    }

    fn stats(&self, reply: Reply<StoreStats>) {
        self.read(ReadCall::Stats { reply: ReplyGuard::to(reply) });
    }

    fn details(&self, reply: Reply<StoreDetails>) {
        self.read(ReadCall::Details { reply: ReplyGuard::to(reply) });
    }

    fn check_rows(&self, after: Option<RowPlace>, rows: usize, reply: Reply<CheckedRows>) {
        self.read(ReadCall::Check { after, rows, reply: ReplyGuard::to(reply) });
    }

    fn delete(&self, instances: Vec<(ShardId, InstanceKey)>, reply: Reply<Vec<DeleteOutcome>>) {
        let keys = instances.into_iter().map(|(_, key)| key).collect();
        self.write(WriteCall::Delete(Call::new(keys, reply)));
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
        let arguments = Pruning { session, shard, key, execution, rows };
        self.write_as_owner(WriteCall::PruneExecutions(Call::new(arguments, reply)));
    }

    fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>, reply: Reply<Swept>) {
        self.write(WriteCall::Sweep(Call::new(Sweep { rows, keep_executions_ms }, reply)));
    }

    fn read_setting(&self, name: &str, reply: Reply<Option<Arc<[u8]>>>) {
        self.read(ReadCall::Setting { name: name.to_owned(), reply: ReplyGuard::to(reply) });
    }

    fn write_setting(
        &self,
        name: &str,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
        reply: Reply<bool>,
    ) {
        let arguments = Setting { name: name.to_owned(), read, value };
        self.write(WriteCall::WriteSetting(Call::new(arguments, reply)));
    }

    fn export_rows(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
        reply: Reply<Vec<MovedRow>>,
    ) {
        self.read(ReadCall::ExportRows { table, after, limit, reply: ReplyGuard::to(reply) });
    }

    fn import_rows(&self, session: SessionId, rows: Vec<MovedRow>, reply: Reply<Imported>) {
        self.write_as_owner(WriteCall::ImportRows(Call::new((session, rows), reply)));
    }

    fn watch(&self, watcher: Watcher) {
        self.shared.watchers.add(watcher);
        // The writer thread looks for changes only while somebody watches.
        self.shared.queue.wake();
    }

    fn close(&self, reply: Reply<()>) {
        // Earlier calls are still served.
        match self.shared.queue.close(Work::Close(ReplyGuard::to(reply))) {
            Ok(()) => self.shared.reads.close(),
            Err(work) => work.refuse(StoreError::Closed),
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close(Box::new(|_| {}));
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // If it is dropped in a reply, this runs on a thread of the store itself, which cannot wait for itself.
        if let Some(writer) = writer
            && !self.threads.contains(&thread::current().id())
        {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("is_guest", &self.shared.is_guest).finish_non_exhaustive()
    }
}
