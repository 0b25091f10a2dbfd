//! A store that runtimes come and go on: in memory, on SQLite or on PostgreSQL. Its rows are checked at the end.

use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use perennial::{Client, Runtime, RuntimeBuilder};
use perennial_core::Handlers;
use perennial_core::store::MemoryStore;
use perennial_testkit::invariants::{ClientLog, Snapshot, assert_invariants, assert_stored_invariants};

use super::tapped::Tapped;
use super::{Place, relaxed, soon};

pub(crate) struct Stage {
    place: Place,
    memory: Option<(Arc<MemoryStore>, Arc<Tapped>)>,
}

impl Stage {
    pub(crate) fn in_memory() -> Stage {
        let now_ms = || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            u64::try_from(since.as_millis()).unwrap()
        };
        let store = Arc::new(MemoryStore::new(now_ms));
        let kept = Tapped::like_a_file(Arc::clone(&store) as Arc<_>);
        Stage { place: Place::new(), memory: Some((store, kept)) }
    }

    /// The stages that outlive a process.
    pub(crate) fn lasting() -> impl Iterator<Item = Stage> {
        Place::each().into_iter().map(|place| Stage { place, memory: None })
    }

    /// The next runtime. The one before has to be gone.
    pub(crate) fn runtime(&self) -> RuntimeBuilder {
        match &self.memory {
            Some((_, kept)) => Runtime::open("memory:").store(Arc::clone(kept) as Arc<_>).options(relaxed()),
            None => Runtime::open(self.place.url()).options(relaxed()),
        }
    }

    /// A client of another process, where there can be one.
    pub(crate) fn guest(&self) -> Option<Client> {
        self.memory.is_none().then(|| self.place.guest())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        match &self.memory {
            Some((store, _)) => Snapshot::read_memory(store).unwrap(),
            None => self.place.snapshot(),
        }
    }

    /// Stops a runtime, which leaves everything in order.
    pub(crate) async fn finish(
        &self,
        runtime: Runtime,
        log: &ClientLog,
        orchestrations: impl Fn(RuntimeBuilder) -> RuntimeBuilder,
    ) {
        assert_eq!(runtime.failure(), None);
        runtime.shutdown().await.unwrap();
        self.check(log, &orchestrations(Runtime::open("memory:")).handlers());
    }

    /// Checks the invariants of all rows.
    #[track_caller]
    pub(crate) fn check(&self, log: &ClientLog, handlers: &Handlers) {
        match &self.memory {
            Some(_) => assert_invariants(&self.snapshot(), log, handlers),
            None => self.place.check(log, handlers),
        }
    }
}

impl Drop for Stage {
    /// The net under all tests, as it is for files.
    fn drop(&mut self) {
        if self.memory.is_some() && !thread::panicking() {
            assert_stored_invariants(&self.snapshot(), &ClientLog::default());
        }
    }
}

/// Runs a test on a store in memory, on SQLite and on PostgreSQL.
#[track_caller]
pub(crate) fn on_each_stage(test: impl AsyncFn(&Stage)) -> impl Future<Output = ()> {
    let stages: Vec<Stage> = std::iter::once(Stage::in_memory()).chain(Stage::lasting()).collect();
    soon(async move {
        for stage in stages {
            test(&stage).await;
        }
    })
}

/// Runs a test on SQLite and on PostgreSQL.
#[track_caller]
pub(crate) fn on_each_lasting_stage(test: impl AsyncFn(&Stage)) -> impl Future<Output = ()> {
    let stages: Vec<Stage> = Stage::lasting().collect();
    soon(async move {
        for stage in stages {
            test(&stage).await;
        }
    })
}
