//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Gives milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Gives the time since some moment. It never goes back.
pub(crate) type SteadyClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How a store is opened. The defaults are the safe ones.
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
    /// A relaxed store survives the death of the process, `kill -9` included, but not the loss of power or a crash of
    /// the operating system: what was acknowledged last may then be gone, though what is left is consistent. It is
    /// meant for tests and caches.
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

    /// The clock that the store goes by, in milliseconds since 1970. Default: the system's, and the machine's steady clock
    /// where that one was set back. Should a clock of your own go back, the store's stands still until it has caught
    /// up.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> SqliteOptions {
        self.clock = Arc::new(clock);
        self.steady = Arc::new(|| Duration::ZERO);
        self
    }

    /// The steady clock beside a [`clock`](SqliteOptions::clock), for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn steady_clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> SqliteOptions {
        self.steady = Arc::new(clock);
        self
    }

    /// How long a call waits for another process that holds the file before it is answered with
    /// [`StoreError::Unavailable`](perennial_core::store::StoreError::Unavailable). Default: 30 seconds.
    #[must_use]
    pub fn busy_patience(mut self, patience: Duration) -> SqliteOptions {
        self.busy_patience = patience;
        self
    }

    /// Lets the database grow to this many pages only, so that tests can fill it.
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
