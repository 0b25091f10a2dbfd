//! The clock of a store under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that moves only when it is advanced.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Creates a clock at some time in 2023.
    pub fn new() -> TestClock {
        TestClock(Arc::new(AtomicU64::new(1_700_000_000_000)))
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Advances the clock by this many milliseconds.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Default for TestClock {
    fn default() -> TestClock {
        TestClock::new()
    }
}
