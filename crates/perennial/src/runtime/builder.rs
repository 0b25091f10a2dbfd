//! Opening, starting and stopping a runtime.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perennial_core::Handlers;
use perennial_core::codec::{Codecs, PayloadCodec};
use perennial_core::node::{StopPatience, Unfinished};
use perennial_core::shard::{Counters, ShardOptions};
use perennial_core::store::{AsyncStore, SessionRole, SpawnedStore, Store, StoreError};

use super::clock::{LocalClock, MachineClock};
use super::driver::Driver;
use super::registry::Registry;
use super::standing::{Failure, Standing};
use crate::activity::ActivityContext;
use crate::client::Client;
use crate::error::{Error, StartError};
use crate::registrations::Registrations;
use crate::store_url::open_owner;
use crate::typed::{ActivityCode, BlockingCode, OrchestrationCode, OrchestrationContext, Register};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a runtime waits for its store to close, which may have to finish a batch.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// How long a stopping runtime waits, after its grace period, for the store to write the remaining commits.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Upper limit for dropping attempts that did not stop within their own grace period.
const DROPPING_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait for another process to release the store, and how often to try.
const OWNER_PATIENCE: Duration = Duration::from_secs(3);
const OWNER_PAUSE: Duration = Duration::from_millis(20);

/// A shorter lease would be spent on renewals.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// Tunables of a runtime. The defaults need no tuning.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The name of this node in explanations and lists. By default it is made of the machine's name and the process
    /// id, such as `web-1-4242`.
    pub node: String,
    /// Settings of shards and executions.
    pub shard: ShardOptions,
    /// Number of threads that run orchestration code. Default: the number of cores.
    pub turn_threads: usize,
    /// Time limit of one turn. Default 10 s.
    pub turn_deadline: Duration,
    /// Number of threads that may be lost to turns that never end before the node stops. Default 16.
    pub max_lost_threads: usize,
    /// Number of activities that may run concurrently. Default 1,000.
    pub activity_slots: usize,
    /// An activity that has waited this long for a free slot is queued for the other nodes of the store, if one of
    /// them can run it and has free slots. Default 1 s.
    pub spill_after: Duration,
    /// Tags of this node. It runs activities that require one of them, and activities without a tag. Default
    /// none.
    pub tags: Vec<String>,
    /// Whether this node owns shards and runs orchestrations. A node that does not is a worker: it runs the activities that
    /// it has registered for the other nodes of a PostgreSQL store. Default `true`.
    pub owns_shards: bool,
    /// Number of lanes, which commit side by side. 0 means as many as are useful: one on SQLite, which has one writer, and
    /// several on PostgreSQL, where nodes on one machine share them. Default 0.
    pub lanes: usize,
    /// How long a cancelled activity may take to end before it is dropped. Default 5 s.
    pub activity_cancel_grace: Duration,
    /// Maximum number of turns in one transaction. Default 1,024.
    pub max_batch: usize,
    /// Starts wait while more commits than this are queued. Default 10,000.
    pub max_queued_commits: usize,
    /// How long the session lives without a renewal; it is renewed after a third of that time. A node that
    /// was paused for longer does nothing until it has renewed its session. Default 10 s, at least 1 s.
    pub lease: Duration,
    /// Number of executions that are kept of an instance that continues as new, including the current one;
    /// `None` keeps all. Default 10.
    pub keep_executions: Option<u64>,
    /// How long an execution is kept after it was continued as new, even if it is among the last
    /// `keep_executions`; `None` sets no limit. The limit that is reached first applies, so with both `None`
    /// every execution is kept. Default `None`.
    pub keep_executions_for: Option<Duration>,
    /// Survives the death of the process, but not a power loss. For tests and caches. Default `false`.
    pub relaxed: bool,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions {
            node: String::new(),
            shard: ShardOptions::default(),
            turn_threads: std::thread::available_parallelism().map_or(2, usize::from),
            turn_deadline: Duration::from_secs(10),
            max_lost_threads: 16,
            activity_slots: 1_000,
            spill_after: Duration::from_secs(1),
            tags: Vec::new(),
            owns_shards: true,
            lanes: 0,
            activity_cancel_grace: Duration::from_secs(5),
            max_batch: 1_024,
            max_queued_commits: 10_000,
            lease: Duration::from_secs(10),
            keep_executions: Some(10),
            keep_executions_for: None,
            relaxed: false,
        }
    }
}

/// A store that was passed instead of being opened by URL.
pub(super) enum OwnStore {
    Ready(Arc<dyn Store>),
    /// Created at the start, with the tokio runtime that runs its calls.
    Async(Box<dyn FnOnce(tokio::runtime::Handle) -> Arc<dyn Store> + Send>),
}

impl OwnStore {
    pub(super) fn on(self, handle: tokio::runtime::Handle) -> Arc<dyn Store> {
        match self {
            OwnStore::Ready(store) => store,
            OwnStore::Async(make) => make(handle),
        }
    }
}

/// Registers code and starts a runtime. See [`Runtime::open`].
#[must_use = "nothing runs until `start` is called"]
pub struct RuntimeBuilder {
    url: String,
    options: RuntimeOptions,
    registrations: Registrations,
    store: Option<OwnStore>,
    clock: Option<Arc<dyn LocalClock>>,
    role: SessionRole,
    codecs: Codecs,
}

impl RuntimeBuilder {
    /// Sets the options of the runtime.
    pub fn options(mut self, options: RuntimeOptions) -> RuntimeBuilder {
        self.options = options;
        self
    }

    /// Uses your own store instead of the one of the URL. See [`store`](crate::store).
    pub fn store(mut self, store: Arc<dyn Store>) -> RuntimeBuilder {
        self.store = Some(OwnStore::Ready(store));
        self
    }

    /// Uses your own store, written with `async fn`. Its calls are tasks of the tokio runtime in which
    /// [`start`](RuntimeBuilder::start) is called. That runtime needs more than one thread if the `Runtime`
    /// is ever dropped instead of shut down, since dropping waits for the store to close.
    pub fn async_store(mut self, store: impl AsyncStore) -> RuntimeBuilder {
        let spawned = |handle: tokio::runtime::Handle| -> Arc<dyn Store> {
            Arc::new(SpawnedStore::new(store, move |task| drop(handle.spawn(task))))
        };
        self.store = Some(OwnStore::Async(Box::new(spawned)));
        self
    }

    /// Adds a codec, which encodes payloads before they are stored and decodes them afterwards: to compress,
    /// to encrypt, or to offload large ones. Codecs are applied in the order in which they are added. See
    /// [`codec`](crate::codec).
    ///
    /// ```
    /// use perennial::codec::{BlobDirectory, Offload};
    /// use perennial::prelude::*;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path();
    /// let blobs = BlobDirectory::open(path.join("blobs"))?;
    /// let runtime = Runtime::open("memory:")
    ///     .codec(Offload::above(64 << 10, blobs))
    ///     .orchestration("count", "1.0.0", |_: OrchestrationContext, text: String| async move {
    ///         Ok::<_, String>(text.len())
    ///     })
    ///     .start()
    ///     .await?;
    /// let book = "word ".repeat(100_000);
    /// assert_eq!(runtime.client().start("count", "book-1", book).await?.result().await?, "500000");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn codec(mut self, codec: impl PayloadCodec) -> RuntimeBuilder {
        self.codecs = self.codecs.with(codec);
        self
    }

    /// Sets all codecs at once, for a program that also opens clients with them.
    pub fn codecs(mut self, codecs: Codecs) -> RuntimeBuilder {
        self.codecs = codecs;
        self
    }

    /// Uses this clock instead of the system clock. For tests.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn LocalClock>) -> RuntimeBuilder {
        self.clock = Some(clock);
        self
    }

    /// Adds registrations, for example those that a program shares with its tests. See [`Registrations`].
    pub fn registrations(self, registrations: Registrations) -> RuntimeBuilder {
        self.registering(|own| own.merge(registrations))
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    /// See [`Registrations::register`].
    pub fn register<K>(self, function: impl Register<K>) -> RuntimeBuilder {
        self.registering(|own| own.register(function))
    }

    /// Sets state that activities share, identified by its type. See [`Registrations::state`].
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> RuntimeBuilder {
        self.registering(|own| own.state(state))
    }

    /// Registers a closure or an unmarked function as an orchestration, under a name and a version.
    /// See [`Registrations::orchestration`].
    pub fn orchestration<K>(
        self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> RuntimeBuilder {
        self.registering(|own| own.orchestration(name, version, code))
    }

    /// Registers a closure or an unmarked function as an activity, under a name.
    /// See [`Registrations::activity`].
    pub fn activity<K>(self, name: &str, code: impl ActivityCode<K>) -> RuntimeBuilder {
        self.registering(|own| own.activity(name, code))
    }

    /// Registers a closure or a function that blocks its thread as an activity, under a name.
    /// See [`Registrations::blocking_activity`].
    pub fn blocking_activity<K>(self, name: &str, code: impl BlockingCode<K>) -> RuntimeBuilder {
        self.registering(|own| own.blocking_activity(name, code))
    }

    /// Registers code for all activities with a common name prefix that are not registered themselves. See
    /// [`Registrations::fallback_activity`].
    pub fn fallback_activity<F, Fut, I, O, E>(self, pattern: &str, code: F) -> RuntimeBuilder
    where
        F: Fn(ActivityContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        self.registering(|own| own.fallback_activity(pattern, code))
    }

    /// Registers code for all orchestrations with a common name prefix that are not registered themselves.
    /// See [`Registrations::fallback_orchestration`].
    pub fn fallback_orchestration<F, Fut, I, O, E>(
        self,
        pattern: &str,
        version: &str,
        code: F,
    ) -> RuntimeBuilder
    where
        F: Fn(OrchestrationContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        self.registering(|own| own.fallback_orchestration(pattern, version, code))
    }

    /// The registered orchestrations, for a [`Replayer`](crate::replay::Replayer). See
    /// [`Registrations::handlers`].
    #[must_use]
    pub fn handlers(&self) -> Handlers {
        self.registrations.handlers()
    }

    fn registering(mut self, add: impl FnOnce(Registrations) -> Registrations) -> RuntimeBuilder {
        self.registrations = add(self.registrations);
        self
    }

    /// Handles requests but starts no work: for a client that owns a store briefly while no runtime does.
    pub(crate) fn for_maintenance(mut self) -> RuntimeBuilder {
        self.role = SessionRole::Maintenance;
        self
    }

    /// The parts that a preflight needs.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    pub(super) fn into_parts(
        mut self,
    ) -> (String, RuntimeOptions, Result<Registry, StartError>, Option<OwnStore>) {
        if !self.codecs.is_empty() {
            self.options.shard.codecs = self.codecs;
        }
        (self.url, self.options, self.registrations.into_replay_registry(), self.store)
    }

    /// Opens the store, takes ownership of it and continues all unfinished instances.
    ///
    /// Call it within tokio, which runs the activities. It returns an error if a name is registered twice, if
    /// another process owns the store and does not release it within three seconds, or if a declaration is
    /// not met: state that an activity reads (`#[activity(state(…))]`), or code that an orchestration uses
    /// (`#[orchestration(uses(…))]`).
    ///
    /// Unfinished instances may need code that is not declared anywhere. The start compares the names in 500
    /// tasks and in the 500 oldest unfinished instances and their histories with the registrations of live
    /// nodes, and logs each missing one at WARN (target `perennial::node`). It stops after half a second, and
    /// logs what it has found by then. [`Client::find_stuck`] checks more.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[tokio::main]
    /// # async fn main() {
    /// let error = Runtime::open("mysql://shop").start().await.err().unwrap();
    /// assert!(error.to_string().starts_with("PER-0602 unknown store"));
    /// # }
    /// ```
    pub async fn start(self) -> Result<Runtime, Error> {
        let RuntimeBuilder { url, mut options, registrations, store, clock, role, codecs } = self;
        options.lease = options.lease.max(MIN_LEASE);
        let registry = registrations.into_registry()?;
        if !codecs.is_empty() {
            options.shard.codecs = codecs;
        }
        options.shard.served = Some(Arc::new(registry.served(&options.tags)));
        let handle = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let clock = clock.unwrap_or_else(|| Arc::new(MachineClock::new()));
        let store = match store {
            Some(store) => store.on(handle.clone()),
            None if role == SessionRole::Maintenance => open_owner(&url, options.relaxed)?,
            None => open_patiently(&url, options.relaxed).await?,
        };
        let driver = Driver::new(options, registry, store, clock, handle, role);
        let runtime = Runtime { driver: Arc::clone(&driver), stopped: false };
        driver.begin(role);
        let mut standing = driver.standing();
        let failure = match standing.wait_for(Standing::is_settled).await {
            Ok(standing) => standing.failure.clone(),
            Err(_) => Some(Failure::Store(StoreError::Closed)),
        };
        match failure {
            None if role == SessionRole::Lane => {
                runtime.client().warn_of_unregistered().await;
                Ok(runtime)
            }
            None => Ok(runtime),
            Some(failure) => Err(failure.into()),
        }
    }
}

/// Opens a store as its owner. Waits for a process that is stopping, or a client that owns the store for
/// maintenance, to release it.
async fn open_patiently(url: &str, relaxed: bool) -> Result<Arc<dyn Store>, StartError> {
    let patience = Instant::now() + OWNER_PATIENCE;
    loop {
        match open_owner(url, relaxed) {
            Err(StartError::Store(StoreError::InUse(_))) if Instant::now() < patience => {
                tokio::time::sleep(OWNER_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// A node that runs orchestrations and activities in this process.
pub struct Runtime {
    driver: Arc<Driver>,
    stopped: bool,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("node", &self.driver.options.node).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Prepares a runtime on a store: `sqlite:PATH`, `sqlite::memory:`, `memory:`, or with the feature `postgres`,
    /// `postgres://…`.
    ///
    /// A file is created if it does not exist. Nothing is opened before [`RuntimeBuilder::start`].
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn nap(ctx: OrchestrationContext, ms: u64) -> Result<String, String> {
    ///     ctx.schedule_timer(Duration::from_millis(ms)).await;
    ///     Ok("rested".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("naps.db");
    /// # let path = path.display();
    /// let url = format!("sqlite:{path}");
    /// let runtime = Runtime::open(&url).register(nap).start().await?;
    /// runtime.client().start(nap, "nap-1", 50).await?;
    /// drop(runtime); // as safe as `shutdown`, like a crash
    ///
    /// // The next process continues the instance.
    /// let runtime = Runtime::open(&url).register(nap).start().await?;
    /// assert_eq!(runtime.client().result("nap-1").await?.to_text(), "rested");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn open(url: impl Into<String>) -> RuntimeBuilder {
        RuntimeBuilder {
            url: url.into(),
            options: RuntimeOptions::default(),
            registrations: Registrations::new(),
            store: None,
            clock: None,
            role: SessionRole::Lane,
            codecs: Codecs::default(),
        }
    }

    /// A client of this runtime. Cheap to create and to clone.
    pub fn client(&self) -> Client {
        Client::of_driver(Arc::clone(&self.driver))
    }

    /// Counters of occurrences that are recorded nowhere else, such as results that arrived too late.
    pub fn counters(&self) -> Counters {
        self.driver.counters()
    }

    /// Waits until the runtime stops because of an error, and returns it: the store failed, or too many
    /// threads were lost. No code runs afterwards; the next process continues.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[orchestration]
    /// # async fn order(_: OrchestrationContext) -> Result<(), String> { Ok(()) }
    /// # async fn serve() {}
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:").register(order).start().await?;
    /// tokio::select! {
    ///     () = serve() => {}
    ///     error = runtime.failed() => return Err(error), // a supervisor restarts the process
    /// }
    /// runtime.shutdown().await
    /// # }
    /// ```
    pub async fn failed(&self) -> Error {
        let mut standing = self.driver.standing();
        match standing.wait_for(|standing| standing.failure.is_some()).await {
            Ok(standing) => standing.failure.clone().map_or_else(|| StoreError::Closed.into(), Error::from),
            // The sender belongs to the driver, which this runtime owns.
            Err(_) => StoreError::Closed.into(),
        }
    }

    /// The error that stopped the runtime, if any, without waiting: for a health check. See
    /// [`Runtime::failed`].
    pub fn failure(&self) -> Option<String> {
        self.driver.failure()
    }

    /// Stops with a grace period of 10 s. See [`Runtime::shutdown_within`].
    pub async fn shutdown(self) -> Result<(), Error> {
        self.shutdown_within(Duration::from_secs(10)).await
    }

    /// Stops the runtime: accepts no more work, lets running activities finish within the grace period and
    /// cancels the rest, writes pending commits, and releases the store. Killing the process instead is
    /// equally safe.
    ///
    /// The time is limited even if the store does not respond: the call returns at most five seconds after
    /// the grace period, plus [`activity_cancel_grace`](RuntimeOptions::activity_cancel_grace) and one second
    /// if activities had to be cancelled, plus five seconds if the store is slow to close. The error says
    /// what was not done; the next owner does it. Dropping the future before it resolves drops the runtime.
    pub async fn shutdown_within(mut self, grace: Duration) -> Result<(), Error> {
        let driver = Arc::clone(&self.driver);
        let last_words = driver.options.activity_cancel_grace.saturating_add(DROPPING_PATIENCE);
        driver.stop(StopPatience { grace, last_words, store: STORE_PATIENCE }).await;
        // A caller that drops this future drops the runtime.
        self.stopped = true;
        let Standing { failure, unfinished, .. } = driver.standing().borrow().clone();
        let commits = driver.queued_commits();
        driver.stop_threads();
        let closing = close(&driver.store);
        if let Some(unfinished) = unfinished {
            // The store is closed when it responds again.
            return Err(StoreError::Unavailable(not_done(unfinished, commits)).into());
        }
        let closed = tokio::time::timeout(CLOSING_PATIENCE, closing).await;
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let late = "everything is written, but the store did not close in time".to_owned();
        closed.unwrap_or(Err(StoreError::Unavailable(late))).map_err(Error::from)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Store(error) => error.into(),
            failure => StoreError::Failed(failure.to_string()).into(),
        }
    }
}

/// Describes the work that was left because the store did not respond.
fn not_done(Unfinished { lanes, tasks }: Unfinished, commits: usize) -> String {
    let mut parts = Vec::new();
    if commits > 0 {
        parts.push(format!("turns not written: {commits}"));
    }
    if tasks > 0 {
        parts.push(format!("tasks not released: {tasks}"));
    }
    parts.push(match lanes {
        0 => "the node's session not ended".to_owned(),
        _ => "the shards not released".to_owned(),
    });
    let parts = parts.join(", ");
    format!("the store did not respond in time ({parts}); the next owner continues from the stored state")
}

/// Starts closing the store. The future resolves when it is closed.
fn close(store: &Arc<dyn Store>) -> impl Future<Output = Result<(), StoreError>> + use<> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    store.close(Box::new(move |closed| drop(sender.send(closed))));
    async move { receiver.await.unwrap_or(Err(StoreError::Closed)) }
}

/// Dropping a runtime stops it at once, which is as safe as killing the process. The store is released.
impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.stopped {
            self.driver.fail(Failure::Dropped);
            self.driver.abandon();
            let (sender, receiver) = std::sync::mpsc::channel();
            self.driver.store.close(Box::new(move |_| {
                let _ = sender.send(());
            }));
            let _ = receiver.recv_timeout(CLOSING_PATIENCE);
        }
    }
}
