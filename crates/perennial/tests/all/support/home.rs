//! All stores behind one type: a test that says nothing of restarts runs on each of them.

use std::sync::Arc;

use perennial::{Runtime, RuntimeBuilder};
use perennial_core::Handlers;
use perennial_core::store::MemoryStore;
use perennial_testkit::invariants::{ClientLog, Snapshot, StoredInstance, assert_invariants};

use super::{Place, now_ms, relaxed, soon};

/// Where a runtime of a test keeps its rows.
pub(crate) enum Home {
    Memory(Arc<MemoryStore>),
    Lasting(Place),
}

impl Home {
    pub(crate) fn memory() -> Home {
        Home::Memory(Arc::new(MemoryStore::new(now_ms)))
    }

    /// The stores that outlive a runtime.
    pub(crate) fn lasting() -> impl Iterator<Item = Home> {
        Place::each().into_iter().map(Home::Lasting)
    }

    /// A runtime on it, with nothing registered.
    pub(crate) fn open(&self) -> RuntimeBuilder {
        match self {
            Home::Memory(store) => Runtime::open("memory:").store(Arc::clone(store) as _).options(relaxed()),
            Home::Lasting(place) => Runtime::open(place.url()).options(relaxed()),
        }
    }

    /// All rows of one moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match self {
            Home::Memory(store) => Snapshot::read_memory(store).unwrap(),
            Home::Lasting(place) => place.snapshot(),
        }
    }

    /// What is stored of an instance.
    pub(crate) fn stored(&self, id: &str) -> StoredInstance {
        self.snapshot().instance(id).unwrap_or_else(|| panic!("there is no {id}")).clone()
    }

    #[track_caller]
    pub(crate) fn check(&self, log: &ClientLog, handlers: &Handlers) {
        match self {
            Home::Memory(_) => assert_invariants(&self.snapshot(), log, handlers),
            Home::Lasting(place) => place.check(log, handlers),
        }
    }
}

/// Runs a test in memory, on SQLite and on PostgreSQL, each with a runtime that `build` completes. Checks the invariants
/// before and after that is shut down.
pub(crate) async fn on_each_store(
    build: impl Fn(RuntimeBuilder) -> RuntimeBuilder,
    test: impl AsyncFn(&Runtime, &Home, &mut ClientLog),
) {
    for home in std::iter::once(Home::memory()).chain(Home::lasting()) {
        let runtime = build(home.open());
        let handlers = &runtime.handlers();
        let runtime = runtime.start().await.unwrap();
        let mut log = ClientLog::default();
        soon(test(&runtime, &home, &mut log)).await;
        assert_eq!(runtime.failure(), None);
        home.check(&log, handlers);
        if let Home::Lasting(place) = home {
            soon(runtime.shutdown()).await.unwrap();
            place.check(&log, handlers);
        }
    }
}
