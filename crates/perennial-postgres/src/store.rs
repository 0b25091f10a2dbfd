//! The store's interface, and how its calls use connections.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::*;
use perennial_core::{InstanceKey, ShardId};
use tokio::runtime::Runtime;
use tokio_postgres::Row;

use crate::connection::{Argument, Connection};
use crate::failure::{Access, CallError, classify};
use crate::hints::Hints;
use crate::options::{PostgresOptions, Target};
use crate::pool::Pool;
use crate::reads::Reads;
use crate::row::bound;
use crate::send::{Sends, Unread};
use crate::{
    check, commit, export, import, list, passes, reads, requests, schema, send, sessions, stats, tasks,
    upkeep,
};

/// Maximum number of attempts if a transaction conflicts with another one.
const TRIES: u32 = 12;
/// Maximum number of attempts of a read whose connection is lost. A server that restarts has closed all idle
/// connections.
const READ_TRIES: u32 = 3;
/// Pause before the first retry, and the maximum. The pause doubles with each retry.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// More concurrent batches per process than this do not increase the server's throughput.
pub(crate) const MAX_LANES: usize = 4;

/// A store in a schema of a PostgreSQL database, for any number of nodes.
///
/// It implements [`AsyncStore`]: its calls run in the caller's tokio runtime. [`open`] returns a [`Store`] with a
/// runtime of its own.
pub struct PostgresStore {
    inner: Arc<Inner>,
}

/// State that all calls share.
pub(crate) struct Inner {
    pub(crate) target: Arc<Target>,
    pub(crate) pool: Pool,
    pub(crate) hints: Arc<Hints>,
    pub(crate) unread: Unread,
    pub(crate) sends: Sends,
    pub(crate) reads: Reads,
}

impl Inner {
    /// The time of the test clock; `None` outside of tests, where functions read the server's clock.
    pub(crate) fn at(&self) -> Option<i64> {
        self.target.options.clock.as_ref().map(|clock| bound(clock()))
    }

    /// Runs a statement, and retries it if it conflicts with another transaction.
    pub(crate) async fn call(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
        access: Access,
    ) -> Result<Vec<Row>, CallError> {
        if self.target.options.read_only && access != Access::Reads {
            let reason = "this process opened the store to read it; changes are refused";
            return Err(CallError::Store(StoreError::InUse(reason.to_owned())));
        }
        let mut pause = PAUSE.0;
        let mut tries = 1;
        loop {
            let connection = match access {
                Access::Commits => self.pool.get_for_commit().await,
                Access::Reads | Access::Writes => self.pool.get().await,
            };
            let mut connection = connection.map_err(CallError::Store)?;
            match connection.query(sql, arguments).await.map_err(|error| classify(&error, access)) {
                Err(CallError::Retry(_)) if tries < TRIES => {}
                Err(CallError::Lost(_)) if tries < READ_TRIES => {}
                answer => return answer,
            }
            drop(connection);
            // A random pause, so that the two transactions do not conflict again.
            let share = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
            tokio::time::sleep(pause * (128 + share) / 256).await;
            pause = (pause * 2).min(PAUSE.1);
            tries += 1;
        }
    }

    /// Like `call`, for statements whose arguments are small.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
        access: Access,
    ) -> Result<Vec<Row>, StoreError> {
        self.call(sql, arguments, access).await.map_err(CallError::into_error)
    }

    /// Reads with a plan made for these arguments.
    pub(crate) async fn query_planned(
        &self,
        sql: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let mut tries = 1;
        loop {
            let mut connection = self.pool.get().await?;
            let read = connection.query_planned(sql, arguments).await;
            match read.map_err(|error| classify(&error, Access::Reads)) {
                Err(CallError::Lost(_)) if tries < READ_TRIES => tries += 1,
                read => return read.map_err(CallError::into_error),
            }
        }
    }

    /// The row of a statement that always returns one.
    pub(crate) fn one<'r>(&self, rows: &'r [Row]) -> Result<&'r Row, StoreError> {
        rows.first().ok_or_else(|| StoreError::CorruptRow("the server returned no row".to_owned()))
    }
}

impl PostgresStore {
    /// Connects to the database of a URL, and creates or migrates its schema if necessary.
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
            drop(tokio::spawn(Arc::clone(&hints).poll()));
        }
        let (sends, reads) = (Sends::new(send::BOUNDS), Reads::default());
        let inner = Inner { target, pool, hints, unread: Unread::default(), sends, reads };
        Ok(PostgresStore { inner: Arc::new(inner) })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.inner.hints.close();
        self.inner.pool.close();
    }
}

/// Opens the store of a URL, with threads of its own for the connections. Blocks until the server has responded.
///
/// ```no_run
/// use perennial_postgres::{PostgresOptions, open};
///
/// let store = open("postgres://localhost/shop", PostgresOptions::default())?;
/// # drop(store);
/// # Ok::<(), perennial_core::store::StoreError>(())
/// ```
pub fn open(url: &str, options: PostgresOptions) -> Result<SpawnedStore<PostgresStore>, StoreError> {
    let cannot = |error: std::io::Error| {
        StoreError::CannotOpen(format!("cannot start threads for the store: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("perennial-postgres")
        .enable_all()
        .build()
        .map_err(cannot)?;
    let runtime = OwnRuntime(Some(runtime));
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let url = url.to_owned();
    // The caller may be inside another runtime, where `block_on` panics.
    runtime.spawn(Box::pin(async move {
        sender.send(PostgresStore::connect(&url, options).await).unwrap_or_default();
    }));
    let store =
        receiver.recv().map_err(|_| StoreError::Unavailable("opening was interrupted".to_owned()))??;
    Ok(SpawnedStore::new(store, move |task| runtime.spawn(task)))
}

/// Encoding and decoding rows needs far less CPU time than the server's work, so few threads are enough.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 4))
}

/// A runtime that can be dropped in any context.
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
    /// Each lane commits on its own connection. More lanes than cores would only make batches smaller.
    fn useful_lanes(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MAX_LANES)
    }

    async fn open_session(&self, session: NewSession) -> Result<Lease, StoreError> {
        sessions::open(&self.inner, session).await
    }

    async fn renew_session(&self, session: SessionId, info: Option<Arc<[u8]>>) -> Result<Lease, StoreError> {
        sessions::renew(&self.inner, session, info).await
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
        send::send(&self.inner, requests).await
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
        reads::find(&self.inner, id).await
    }

    async fn load(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        after_turn: u64,
        inbox: PageLimit,
    ) -> Result<Option<LoadedInstance>, StoreError> {
        reads::load(&self.inner, key, after_turn, inbox).await
    }

    async fn read_turns(
        &self,
        _shard: ShardId,
        key: InstanceKey,
        execution: u64,
        after_turn: u64,
        limit: PageLimit,
    ) -> Result<Vec<TurnRow>, StoreError> {
        reads::turns(&self.inner, key, execution, after_turn, limit).await
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

    async fn details(&self) -> Result<StoreDetails, StoreError> {
        stats::details(&self.inner).await
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
