//! The store: calls, and how they reach a connection.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::*;
use perennial_core::{InstanceKey, ShardId};
use tokio::runtime::Runtime;
use tokio_postgres::Row;

use crate::connection::{Argument, Connection};
use crate::failure::{Access, Trouble, trouble};
use crate::hints::Hints;
use crate::options::{PostgresOptions, Target};
use crate::pool::Pool;
use crate::row::bound;
use crate::send::Unread;
use crate::{
    check, commit, export, import, list, passes, requests, schema, send, sessions, stats, tasks, upkeep,
};

/// How often a call is made again that met another transaction.
const TRIES: u32 = 12;
/// How often something is read again whose connection was lost. A server that restarts has closed all of them.
const READ_TRIES: u32 = 3;
/// How long to wait before the next try at first; it doubles, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// The server works on a few batches of a process at a time with profit.
const MOST_LANES: usize = 4;

/// A store in a schema of a PostgreSQL database, for any number of nodes.
///
/// It is an [`AsyncStore`]: its calls run in the tokio runtime of whoever makes them. [`open`] makes a [`Store`] with a
/// runtime of its own.
pub struct PostgresStore {
    inner: Arc<Inner>,
}

/// What all calls share.
pub(crate) struct Inner {
    pub(crate) target: Arc<Target>,
    pub(crate) pool: Pool,
    pub(crate) hints: Arc<Hints>,
    pub(crate) unread: Unread,
}

impl Inner {
    /// Milliseconds in the place of the server's clock; nothing but in tests.
    pub(crate) fn at(&self) -> Option<i64> {
        self.target.options.clock.as_ref().map(|clock| bound(clock()))
    }

    /// Runs a statement, again if it met another transaction.
    pub(crate) async fn call(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
        access: Access,
    ) -> Result<Vec<Row>, Trouble> {
        if self.target.options.read_only && access == Access::Writes {
            let reason = "this process opened the store to read it; nothing can be changed through it";
            return Err(Trouble::Error(StoreError::InUse(reason.to_owned())));
        }
        let mut pause = PAUSE.0;
        let mut tries = 1;
        loop {
            let mut connection = self.pool.get().await.map_err(Trouble::Error)?;
            match connection.query(sql, arguments).await.map_err(|error| trouble(&error, access)) {
                Err(Trouble::Retry(_)) if tries < TRIES => {}
                Err(Trouble::Lost(_)) if tries < READ_TRIES => {}
                answer => return answer,
            }
            drop(connection);
            // Two that met do not meet again at the same moment.
            let share = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
            tokio::time::sleep(pause * (128 + share) / 256).await;
            pause = (pause * 2).min(PAUSE.1);
            tries += 1;
        }
    }

    /// The same, for calls that store nothing large.
    pub(crate) async fn ask(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
        access: Access,
    ) -> Result<Vec<Row>, StoreError> {
        self.call(sql, arguments, access).await.map_err(Trouble::into_error)
    }

    /// Reads with a plan for just these arguments.
    pub(crate) async fn look(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let mut tries = 1;
        loop {
            let mut connection = self.pool.get().await?;
            let read = connection.query_planned(sql, arguments).await;
            match read.map_err(|error| trouble(&error, Access::Reads)) {
                Err(Trouble::Lost(_)) if tries < READ_TRIES => tries += 1,
                read => return read.map_err(Trouble::into_error),
            }
        }
    }

    /// The row of a statement that gives one in any case.
    pub(crate) fn one<'r>(&self, rows: &'r [Row]) -> Result<&'r Row, StoreError> {
        rows.first().ok_or_else(|| StoreError::CorruptRow("the server gave no row".to_owned()))
    }
}

impl PostgresStore {
    /// Connects to the database of a URL, and brings its schema to the current version if need be.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), perennial_core::store::StoreError> {
    /// use perennial_postgres::{PostgresOptions, PostgresStore};
    ///
    /// let url = "postgres://me:secret@localhost/shop?schema=orders";
    /// let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let target = Arc::new(Target::parse(url, options)?);
        let mut connection = Connection::open(&target).await?;
        schema::prepare(&mut connection, &target).await?;
        let (pool, hints) = (Pool::new(Arc::clone(&target)), Arc::new(Hints::default()));
        if target.options.hints && !target.options.pooler {
            drop(tokio::spawn(Arc::clone(&hints).exchange(Arc::clone(&target))));
        } else {
            drop(tokio::spawn(Arc::clone(&hints).do_without()));
        }
        let inner = Inner { target, pool, hints, unread: Unread::default() };
        Ok(PostgresStore { inner: Arc::new(inner) })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.hints.close();
        self.inner.pool.close();
    }
}

/// Opens the store of a URL, with threads of its own for its connections. Blocks until the server has answered.
///
/// ```no_run
/// use perennial_postgres::{PostgresOptions, open};
///
/// let store = open("postgres://localhost/shop", PostgresOptions::default())?;
/// # drop(store);
/// # Ok::<(), perennial_core::store::StoreError>(())
/// ```
pub fn open(url: &str, options: PostgresOptions) -> Result<SpawnedStore<PostgresStore>, StoreError> {
    let cannot = |error: std::io::Error| StoreError::CannotOpen(format!("no threads for the store: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("perennial-postgres")
        .enable_all()
        .build()
        .map_err(cannot)?;
    let runtime = OwnRuntime(Some(runtime));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let url = url.to_owned();
    // The caller may be in another runtime, where nothing may block on this one.
    runtime.spawn(Box::pin(async move {
        sender.send(PostgresStore::connect(&url, options).await).unwrap_or_default();
    }));
    let store =
        receiver.recv().map_err(|_| StoreError::Unavailable("opening was interrupted".to_owned()))??;
    Ok(SpawnedStore::new(store, move |task| runtime.spawn(task)))
}

/// Encoding and decoding rows is little work beside what the server does with them.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 4))
}

/// A runtime that may be dropped anywhere.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn spawn(&self, task: StoreTask) {
        if let Some(runtime) = &self.0 {
            drop(runtime.spawn(task));
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl AsyncStore for PostgresStore {
    /// Lanes commit on connections of their own; more than there are cores would only make smaller batches.
    fn useful_lanes(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MOST_LANES)
    }

    async fn open_session(&self, session: NewSession) -> Result<Lease, StoreError> {
        sessions::open(&self.inner, session).await
    }

    async fn renew_session(&self, session: SessionId) -> Result<Lease, StoreError> {
        sessions::renew(&self.inner, session).await
    }

    async fn end_session(&self, session: SessionId) -> Result<(), StoreError> {
        sessions::end(&self.inner, session).await
    }

    async fn claim_shards(&self, session: SessionId, target: usize) -> Result<Vec<OwnedShard>, StoreError> {
        sessions::claim(&self.inner, session, target).await
    }

    async fn release_shards(&self, session: SessionId, shards: ShardSet) -> Result<(), StoreError> {
        sessions::release(&self.inner, session, shards).await
    }

    async fn replace_session(&self, old: SessionId, new: NewSession) -> Result<Replaced, StoreError> {
        sessions::replace(&self.inner, old, new).await
    }

    async fn write_shard_notes(
        &self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
    ) -> Result<(), StoreError> {
        sessions::note(&self.inner, session, notes, is_steady).await
    }

    async fn directory(&self) -> Result<Directory, StoreError> {
        sessions::directory(&self.inner).await
    }

    async fn shard_owner(&self, shard: ShardId) -> Result<ShardOwner, StoreError> {
        sessions::shard_owner(&self.inner, shard).await
    }

    async fn commit(
        &self,
        session: SessionId,
        batch: Arc<[Commit]>,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        commit::commit(&self.inner, session, &batch).await
    }

    async fn send(&self, requests: Vec<SendRequest>) -> Result<Vec<SendOutcome>, StoreError> {
        send::send(&self.inner, &requests).await
    }

    async fn read_inbox(&self, session: SessionId, query: InboxQuery) -> Result<InboxPage, StoreError> {
        passes::inbox(&self.inner, session, query).await
    }

    async fn read_due(
        &self,
        session: SessionId,
        shards: ShardSet,
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
        limit: usize,
    ) -> Result<Vec<DueInstance>, StoreError> {
        passes::due(&self.inner, session, shards, before_ms, after, limit).await
    }

    async fn read_owed(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
        passes::owed(&self.inner, session, shards, after, limit).await
    }

    async fn read_blocked(
        &self,
        session: SessionId,
        shards: ShardSet,
        after: Option<InstanceKey>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
        passes::blocked(&self.inner, session, shards, after, limit).await
    }

    async fn find(&self, id: String) -> Result<Option<InstanceRow>, StoreError> {
        passes::find(&self.inner, &id).await
    }

    async fn load(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
    ) -> Result<Option<LoadedInstance>, StoreError> {
        passes::load(&self.inner, key, after_turn, inbox).await
    }

    async fn read_turns(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
    ) -> Result<Vec<TurnRow>, StoreError> {
        passes::turns(&self.inner, key, execution, after_turn, limit).await
    }

    async fn take_tasks(
        &self,
        holder: SessionId,
        served: Served,
        limit: usize,
        lease_ms: u64,
    ) -> Result<Vec<TaskRow>, StoreError> {
        tasks::take(&self.inner, holder, served, limit, lease_ms).await
    }

    async fn held_tasks(&self, holder: SessionId) -> Result<Vec<TaskRow>, StoreError> {
        tasks::held(&self.inner, holder).await
    }

    async fn renew_tasks(
        &self,
        holder: SessionId,
        reports: Vec<TaskReport>,
        lease_ms: u64,
    ) -> Result<Vec<TaskRenewal>, StoreError> {
        tasks::renew(&self.inner, holder, reports, lease_ms).await
    }

    async fn finish_task(
        &self,
        holder: SessionId,
        task: TaskId,
        attempt: u32,
        body: Arc<[u8]>,
    ) -> Result<bool, StoreError> {
        tasks::finish(&self.inner, holder, task, attempt, body).await
    }

    async fn give_back_tasks(&self, holder: SessionId, given: Vec<TaskId>) -> Result<(), StoreError> {
        tasks::give_back(&self.inner, holder, given).await
    }

    async fn put_request(&self, request: NewRequest) -> Result<RequestOutcome, StoreError> {
        requests::put(&self.inner, request).await
    }

    async fn read_requests(
        &self,
        session: SessionId,
        shards: ShardSet,
        from: RequestNumber,
        limit: PageLimit,
    ) -> Result<RequestPage, StoreError> {
        requests::read(&self.inner, session, shards, from, limit).await
    }

    async fn read_reply(&self, number: RequestNumber) -> Result<Option<Arc<[u8]>>, StoreError> {
        requests::read_reply(&self.inner, number).await
    }

    async fn withdraw_request(&self, number: RequestNumber) -> Result<bool, StoreError> {
        requests::withdraw(&self.inner, number).await
    }

    async fn list(&self, filter: Criteria, after: Option<PageKey>, limit: usize) -> Result<Page, StoreError> {
        list::list(&self.inner, &filter, after, limit).await
    }

    async fn count(&self, filter: Criteria, at_most: u64) -> Result<Count, StoreError> {
        list::count(&self.inner, &filter, at_most).await
    }

    async fn list_tasks(&self, after: Option<TaskId>, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        tasks::list(&self.inner, after, limit).await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        stats::stats(&self.inner).await
    }

    async fn check_rows(&self, after: Option<RowPlace>, rows: usize) -> Result<CheckedRows, StoreError> {
        check::check(&self.inner, after, rows).await
    }

    async fn delete(&self, instances: Vec<(ShardId, InstanceKey)>) -> Result<Vec<DeleteOutcome>, StoreError> {
        upkeep::delete(&self.inner, instances).await
    }

    async fn prune_executions(
        &self,
        session: SessionId,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
        rows: usize,
    ) -> Result<Swept, StoreError> {
        upkeep::prune(&self.inner, session, shard, key, execution, rows).await
    }

    async fn sweep(&self, rows: usize, keep_executions_ms: Option<u64>) -> Result<Swept, StoreError> {
        upkeep::sweep(&self.inner, rows, keep_executions_ms).await
    }

    async fn read_setting(&self, name: String) -> Result<Option<Arc<[u8]>>, StoreError> {
        requests::read_setting(&self.inner, &name).await
    }

    async fn write_setting(
        &self,
        name: String,
        read: Option<Arc<[u8]>>,
        value: Option<Arc<[u8]>>,
    ) -> Result<bool, StoreError> {
        requests::write_setting(&self.inner, &name, read, value).await
    }

    async fn export_rows(
        &self,
        table: MovedTable,
        after: Option<MovedKey>,
        limit: PageLimit,
    ) -> Result<Vec<MovedRow>, StoreError> {
        export::export(&self.inner, table, after, limit).await
    }

    async fn import_rows(&self, session: SessionId, rows: Vec<MovedRow>) -> Result<Imported, StoreError> {
        import::import(&self.inner, session, rows).await
    }

    fn watch(&self, watcher: Watcher) {
        self.inner.hints.watch(watcher);
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.hints.close();
        self.inner.pool.close();
        Ok(())
    }
}
