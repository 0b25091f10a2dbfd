//! Options for opening a store.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Returns the time since a fixed moment. It never goes backwards.
pub(crate) type SteadyClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Options for opening a store. The defaults are the safe ones.
///
/// ```
/// use perennial_sqlite::{SqliteOptions, SqliteStore};
///
/// let cache = SqliteStore::open(":memory:", SqliteOptions::default())?;
/// # drop(cache);
/// # Ok::<(), perennial_core::store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct SqliteOptions {
    pub(crate) relaxed: bool,
    pub(crate) create: bool,
    pub(crate) clock: Clock,
    pub(crate) steady: SteadyClock,
    pub(crate) busy_patience: Duration,
    pub(crate) max_pages: Option<u32>,
}

impl SqliteOptions {
    /// Whether commits may skip the sync. Default: `false`.
    ///
    /// A relaxed store survives the death of the process, including `kill -9`, but not a power failure or a crash of
    /// the operating system: the latest acknowledged writes may then be lost, while the remaining data is consistent.
    /// It is meant for tests and caches.
    #[must_use]
    pub fn relaxed(mut self, relaxed: bool) -> SqliteOptions {
        self.relaxed = relaxed;
        self
    }

    /// Whether a file that does not exist is created. Default: `true`.
    #[must_use]
    pub fn create(mut self, create: bool) -> SqliteOptions {
        self.create = create;
        self
    }

    /// The clock of the store, in milliseconds since 1970. Default: the system clock, and the machine's steady clock
    /// while the system clock is set back. If a custom clock goes backwards, the store's clock stands still until it
    /// has caught up.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> SqliteOptions {
        self.clock = Arc::new(clock);
        self.steady = Arc::new(|| Duration::ZERO);
        self
    }

    /// The steady clock to use with a custom [`clock`](SqliteOptions::clock), for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn steady_clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> SqliteOptions {
        self.steady = Arc::new(clock);
        self
    }

    /// How long a call waits for another process that holds the file before it fails with
    /// [`StoreError::Unavailable`](perennial_core::store::StoreError::Unavailable). Default: 30 seconds.
    #[must_use]
    pub fn busy_patience(mut self, patience: Duration) -> SqliteOptions {
        self.busy_patience = patience;
        self
    }

    /// Limits the size of the database to this many pages, so that tests can fill it.
    #[doc(hidden)]
    #[must_use]
    pub fn max_pages(mut self, pages: u32) -> SqliteOptions {
        self.max_pages = Some(pages);
        self
    }
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            relaxed: false,
            create: true,
            clock: Arc::new(system_time_ms),
            steady: steady_clock(),
            busy_patience: Duration::from_secs(30),
            max_pages: None,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("relaxed", &self.relaxed)
            .field("create", &self.create)
            .finish_non_exhaustive()
    }
}

fn steady_clock() -> SteadyClock {
    let since = Instant::now();
    Arc::new(move || since.elapsed())
}

fn system_time_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
