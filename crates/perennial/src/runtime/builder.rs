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
use super::driver::{Driver, Failure, Standing};
use super::registry::Registry;
use crate::activity::ActivityContext;
use crate::client::Client;
use crate::error::{Error, StartError};
use crate::registrations::Registrations;
use crate::store_url::open_owner;
use crate::typed::{ActivityCode, BlockingCode, OrchestrationCode, OrchestrationContext, Register};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a runtime waits for its store to close. One batch may be under way.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// For so long past its grace a runtime that stops waits for its store to write what is left.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Attempts that are told to stop and do not are dropped after their own grace; that takes no longer than this.
const DROPPING_PATIENCE: Duration = Duration::from_secs(1);

/// For so long a store that another process owns may take to be given up, and how often that is tried.
const OWNER_PATIENCE: Duration = Duration::from_secs(3);
const OWNER_PAUSE: Duration = Duration::from_millis(20);

/// A shorter lease would be spent on renewing it.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// Tunables of a runtime. The defaults need no tuning.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// What this node is called in messages. Default `node`.
    pub node: String,
    /// How shards and executions behave.
    pub shard: ShardOptions,
    /// How many threads run orchestration code. Default: as many as there are cores.
    pub turn_threads: usize,
    /// How long one turn may take. Default 10 s.
    pub turn_deadline: Duration,
    /// How many threads may be lost to turns that never end before the node stops. Default 16.
    pub max_lost_threads: usize,
    /// How many activities run at a time. Default 1,000.
    pub activity_slots: usize,
    /// Activities that ask for one of these tags run here, too. Those without a tag run anywhere. Default none.
    pub tags: Vec<String>,
    /// How long a cancelled activity may take to end by itself. Default 5 s.
    pub activity_cancel_grace: Duration,
    /// How many turns one transaction holds at most. Default 1,024.
    pub max_batch: usize,
    /// More commits than this in the queue make starts wait. Default 10,000.
    pub max_queued_commits: usize,
    /// How long the session lives without a renewal; it is renewed at a third of it. A node that was paused for longer
    /// does nothing until it has renewed it. Default 10 s, at least 1 s.
    pub lease: Duration,
    /// How many executions of an instance that continues as new are kept, the current one included; all if `None`.
    /// Default 10.
    pub keep_executions: Option<u64>,
    /// For how long an execution is kept after it was continued as new, even if it is among the last `keep_executions`;
    /// forever if `None`. Whichever limit is reached first counts, so with both `None` every execution is kept. Default
    /// `None`.
    pub keep_executions_for: Option<Duration>,
    /// Safe against the death of the process, but not against power loss. For tests and caches. Default false.
    pub relaxed: bool,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions {
            node: "node".to_owned(),
            shard: ShardOptions::default(),
            turn_threads: std::thread::available_parallelism().map_or(2, usize::from),
            turn_deadline: Duration::from_secs(10),
            max_lost_threads: 16,
            activity_slots: 1_000,
            tags: Vec::new(),
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

/// A store that the URL does not name.
pub(super) enum OwnStore {
    Ready(Arc<dyn Store>),
    /// Made once it is known where its calls run.
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

/// Registers what a runtime can run, and starts it. See [`Runtime::open`].
#[must_use = "nothing runs before it is started"]
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
    /// Sets the options.
    pub fn options(mut self, options: RuntimeOptions) -> RuntimeBuilder {
        self.options = options;
        self
    }

    /// Runs on a store of your own instead of one that the URL names. See [`store`](crate::store).
    pub fn store(mut self, store: Arc<dyn Store>) -> RuntimeBuilder {
        self.store = Some(OwnStore::Ready(store));
        self
    }

    /// Runs on a store of your own that is written with `async fn`. Its calls are tasks of the tokio runtime in which
    /// [`start`](RuntimeBuilder::start) is called; it needs more than one thread if the runtime is ever dropped instead of
    /// shut down, since dropping waits for the store to close.
    pub fn async_store(mut self, store: impl AsyncStore) -> RuntimeBuilder {
        let spawned = |handle: tokio::runtime::Handle| -> Arc<dyn Store> {
            Arc::new(SpawnedStore::new(store, move |task| drop(handle.spawn(task))))
        };
        self.store = Some(OwnStore::Async(Box::new(spawned)));
        self
    }

    /// Passes payloads through a codec on their way to the store and back: to compress, to encrypt, or to keep large ones
    /// elsewhere. Several are applied in the order in which they are added. See [`codec`](crate::codec).
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

    /// Sets the codecs, instead of adding them one by one: for a program that also opens clients with them.
    pub fn codecs(mut self, codecs: Codecs) -> RuntimeBuilder {
        self.codecs = codecs;
        self
    }

    /// Reads this clock instead of the machine's. For tests.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn LocalClock>) -> RuntimeBuilder {
        self.clock = Some(clock);
        self
    }

    /// Adds registrations, such as those that a program shares with its tests. See [`Registrations`].
    pub fn registrations(self, registrations: Registrations) -> RuntimeBuilder {
        self.registering(|own| own.merge(registrations))
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    /// See [`Registrations::register`].
    pub fn register<K>(self, function: impl Register<K>) -> RuntimeBuilder {
        self.registering(|own| own.register(function))
    }

    /// Gives activities a state to share, found by its type. See [`Registrations::state`].
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

    /// Registers code for all activities whose names begin alike and are not registered themselves.
    /// See [`Registrations::fallback_activity`].
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

    /// Registers code for all orchestrations whose names begin alike and are not registered themselves.
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

    /// The orchestrations that were registered, for a [`Replayer`](crate::replay::Replayer).
    /// See [`Registrations::handlers`].
    #[must_use]
    pub fn handlers(&self) -> Handlers {
        self.registrations.handlers()
    }

    fn registering(mut self, add: impl FnOnce(Registrations) -> Registrations) -> RuntimeBuilder {
        self.registrations = add(self.registrations);
        self
    }

    /// Does what it is asked and nothing by itself: for a client that owns a store for a moment while no runtime does.
    pub(crate) fn for_maintenance(mut self) -> RuntimeBuilder {
        self.role = SessionRole::Maintenance;
        self
    }

    /// What a preflight needs.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    pub(super) fn into_parts(
        mut self,
    ) -> (String, RuntimeOptions, Result<Registry, StartError>, Option<OwnStore>) {
        if !self.codecs.is_empty() {
            self.options.shard.codecs = self.codecs;
        }
        (self.url, self.options, self.registrations.into_registry(), self.store)
    }

    /// Opens the store, takes it over and goes on with everything that is unfinished in it.
    ///
    /// It has to be called within tokio, which runs the activities. What was registered twice, and a store that another
    /// process owns (and does not give up within three seconds) are errors here. So is what is declared and missing: state
    /// that an activity reads (`#[activity(state(…))]`), and what an orchestration uses (`#[orchestration(uses(…))]`).
    ///
    /// Open instances may need code that nothing declares. Of the 500 oldest unfinished instances and of 500 tasks, the
    /// names are compared with what live nodes have registered, and the log has a line at WARN (target `perennial::node`)
    /// for each that is missing. Histories are not read, and it is given up after half a second, so that a large store
    /// starts as fast as a small one. [`Client::find_stuck`] looks further.
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
        let is_settled = |standing: &Standing| standing.has_shards || standing.failure.is_some();
        let failure = match standing.wait_for(is_settled).await {
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

/// Opens a store as its owner. One that is about to be given up, by a process that stops or by a client that took it in
/// charge, is waited for.
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
    /// Prepares a runtime on a store: `sqlite:PATH`, `sqlite::memory:` or `memory:`.
    ///
    /// A file is made if there is none. Nothing is opened before [`RuntimeBuilder::start`].
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
    /// drop(runtime); // as safe as `shutdown`, and as a crash
    ///
    /// // The next process goes on with it.
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

    /// A client of this runtime. Cheap to make and to clone.
    pub fn client(&self) -> Client {
        Client::of_driver(Arc::clone(&self.driver))
    }

    /// What the runtime has seen that leaves no other trace, such as results that came too late.
    pub fn counters(&self) -> Counters {
        self.driver.counters()
    }

    /// Waits until the runtime stops by itself, and returns why: its store failed, or it lost too many threads. Nothing
    /// runs any more then; the next process goes on.
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
    ///     error = runtime.failed() => return Err(error), // let a supervisor start the process again
    /// }
    /// runtime.shutdown().await
    /// # }
    /// ```
    pub async fn failed(&self) -> Error {
        let mut standing = self.driver.standing();
        match standing.wait_for(|standing| standing.failure.is_some()).await {
            Ok(standing) => standing.failure.clone().map_or_else(|| StoreError::Closed.into(), Error::from),
            // The sender is in the driver, which this runtime holds.
            Err(_) => StoreError::Closed.into(),
        }
    }

    /// Why the runtime stopped by itself, if it did, without waiting: for a health check. See [`Runtime::failed`].
    pub fn failure(&self) -> Option<String> {
        self.driver.failure()
    }

    /// Stops with a grace of 10 s. See [`Runtime::shutdown_within`].
    pub async fn shutdown(self) -> Result<(), Error> {
        self.shutdown_within(Duration::from_secs(10)).await
    }

    /// Stops: takes no more work, lets running activities finish within the grace and cancels the rest, writes what
    /// is under way, and gives the store up. Killing the process instead is just as safe.
    ///
    /// It returns in time whatever the store does: five seconds after the grace at the latest, if activities had to be
    /// cancelled then [`activity_cancel_grace`](RuntimeOptions::activity_cancel_grace) and one second later, and if the store
    /// takes its time to close another five. The error says what was not done; the next owner does it. Dropping the future
    /// before it is done drops the runtime.
    pub async fn shutdown_within(mut self, grace: Duration) -> Result<(), Error> {
        let driver = Arc::clone(&self.driver);
        let last_words = driver.options.activity_cancel_grace.saturating_add(DROPPING_PATIENCE);
        driver.stop(StopPatience { grace, last_words, store: STORE_PATIENCE }).await;
        // Whoever does not wait for that drops the runtime.
        self.stopped = true;
        let Standing { failure, unfinished, .. } = driver.standing().borrow().clone();
        let commits = driver.queued_commits();
        driver.stop_threads();
        let closing = close(&driver.store);
        if let Some(unfinished) = unfinished {
            // It is closed when it answers again.
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
            Failure::Other(reason) => StoreError::Failed(reason).into(),
        }
    }
}

/// What was not done because the store did not answer.
fn not_done(Unfinished { lanes, tasks }: Unfinished, commits: usize) -> String {
    let mut parts = Vec::new();
    if commits > 0 {
        parts.push(format!("turns not written: {commits}"));
    }
    if tasks > 0 {
        parts.push(format!("tasks not given back: {tasks}"));
    }
    parts.push(match lanes {
        0 => "the node's session not ended".to_owned(),
        _ => "the shards not given up".to_owned(),
    });
    let parts = parts.join(", ");
    format!("the store did not answer in time ({parts}); the next owner goes on from what it holds")
}

/// Closes the store at once. The future is when that is done.
fn close(store: &Arc<dyn Store>) -> impl Future<Output = Result<(), StoreError>> + use<> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    store.close(Box::new(move |closed| drop(sender.send(closed))));
    async move { receiver.await.unwrap_or(Err(StoreError::Closed)) }
}

/// A runtime that is dropped stops at once, as safely as a process that is killed. The store is free afterwards.
impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.stopped {
            self.driver.fail(Failure::Other("the runtime was dropped".to_owned()));
            self.driver.abandon();
            let (sender, receiver) = std::sync::mpsc::channel();
            self.driver.store.close(Box::new(move |_| {
                let _ = sender.send(());
            }));
            let _ = receiver.recv_timeout(CLOSING_PATIENCE);
        }
    }
}
