//! Opening, starting and stopping a runtime.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::OrchestrationHandler;
use perennial_core::shard::{Counters, ShardOptions};
use perennial_core::store::{Session, StoreError};
use tokio::sync::oneshot;

use super::node::{Node, open_session};
use super::registry::Registry;
use super::timekeeper::Timekeeper;
use super::turn_threads::TurnThreads;
use crate::activity::ActivityHandler;
use crate::client::Client;
use crate::error::{Error, StartError};
use crate::store_url::open_owner;

/// How long a dropped runtime waits for its store to close. One batch may be under way.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

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
    /// How long a cancelled activity may take to end by itself. Default 5 s.
    pub activity_cancel_grace: Duration,
    /// How many turns one transaction holds at most. Default 1,024.
    pub max_batch: usize,
    /// More commits than this in the queue make starts wait. Default 10,000.
    pub max_queued_commits: usize,
    /// How long the session lives without a renewal. Embedded stores are owned by one process, so it never runs out.
    pub lease_ms: u64,
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
            activity_cancel_grace: Duration::from_secs(5),
            max_batch: 1_024,
            max_queued_commits: 10_000,
            lease_ms: 100 * 365 * 86_400_000,
            relaxed: false,
        }
    }
}

/// Registers what a runtime can run, and starts it. See [`Runtime::open`].
pub struct RuntimeBuilder {
    url: String,
    options: RuntimeOptions,
    registry: Result<Registry, StartError>,
}

impl RuntimeBuilder {
    /// Sets the options.
    #[must_use]
    pub fn options(mut self, options: RuntimeOptions) -> RuntimeBuilder {
        self.options = options;
        self
    }

    /// Registers an orchestration under a name and a version.
    #[must_use]
    pub fn orchestration(
        self,
        name: &str,
        version: &str,
        handler: impl OrchestrationHandler,
    ) -> RuntimeBuilder {
        self.register(|registry| registry.add_orchestration(name, version, Arc::new(handler)))
    }

    /// Registers an activity under a name.
    #[must_use]
    pub fn activity(self, name: &str, handler: impl ActivityHandler) -> RuntimeBuilder {
        self.register(|registry| registry.add_activity(name, Arc::new(handler)))
    }

    /// Keeps the first error for the start to report.
    fn register(mut self, add: impl FnOnce(&mut Registry) -> Result<(), StartError>) -> RuntimeBuilder {
        self.registry = self.registry.and_then(|mut registry| add(&mut registry).map(|()| registry));
        self
    }

    /// Opens the store, takes it over and goes on with everything that is unfinished in it.
    pub async fn start(self) -> Result<Runtime, Error> {
        let RuntimeBuilder { url, options, registry } = self;
        let registry = registry?;
        let handle = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoTokio)?;
        let store = open_owner(&url, options.relaxed)?;
        let (sender, receiver) = oneshot::channel();
        open_session(
            &store,
            &options,
            Box::new(move |session| {
                let _ = sender.send(session);
            }),
        );
        let session: Session = receiver.await.unwrap_or(Err(StoreError::Closed))?;
        let node = Arc::new(Node::new(options, registry, store, session, handle));
        TurnThreads::start(&node, node.options.turn_threads.max(1));
        let half_window = Duration::from_millis(node.options.shard.lookahead_ms / 2);
        Timekeeper::run(Arc::downgrade(&node), half_window);
        let weak = Arc::downgrade(&node);
        node.store.watch(Arc::new(move || {
            if let Some(node) = weak.upgrade() {
                node.read_inbox();
                node.read_due_now();
            }
        }));
        node.take_over();
        Ok(Runtime { node, stopped: false })
    }
}

/// A node that runs orchestrations and activities in this process.
pub struct Runtime {
    node: Arc<Node>,
    stopped: bool,
}

impl Runtime {
    /// Prepares a runtime on a store: `sqlite:PATH`, `sqlite::memory:` or `memory:`.
    pub fn open(url: impl Into<String>) -> RuntimeBuilder {
        RuntimeBuilder {
            url: url.into(),
            options: RuntimeOptions::default(),
            registry: Ok(Registry::default()),
        }
    }

    /// A client of this runtime. Cheap to make and to clone.
    pub fn client(&self) -> Client {
        Client::of_node(Arc::clone(&self.node))
    }

    /// What the runtime has seen that leaves no other trace, such as results that came too late.
    pub fn counters(&self) -> Counters {
        self.node.counters()
    }

    /// Why the runtime stopped by itself, if it did: its store failed, or it lost too many threads.
    pub fn failure(&self) -> Option<String> {
        self.node.failure()
    }

    /// Stops with a grace of 10 s. See [`Runtime::shutdown_within`].
    pub async fn shutdown(self) -> Result<(), Error> {
        self.shutdown_within(Duration::from_secs(10)).await
    }

    /// Stops: takes no more work, lets running activities finish within the grace and cancels the rest, writes what
    /// is under way, and gives the store up. Killing the process instead is just as safe.
    pub async fn shutdown_within(mut self, grace: Duration) -> Result<(), Error> {
        self.stopped = true;
        self.node.stop_taking();
        if tokio::time::timeout(grace, self.node.workers.finished()).await.is_err() {
            self.node.workers.abandon_all();
            let last_words = self.node.options.activity_cancel_grace + Duration::from_secs(1);
            let _ = tokio::time::timeout(last_words, self.node.workers.finished()).await;
        }
        while !self.node.is_quiet() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(self.node.release().await?)
    }
}

/// A runtime that is dropped stops at once, as safely as a process that is killed. The store is free afterwards.
impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.stopped {
            self.node.fail("the runtime was dropped".to_owned());
            let (sender, receiver) = std::sync::mpsc::channel();
            self.node.store.close(Box::new(move |_| {
                let _ = sender.send(());
            }));
            let _ = receiver.recv_timeout(CLOSING_PATIENCE);
        }
    }
}
