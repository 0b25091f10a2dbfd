//! Clocks whose hands a test moves: the machine's steady clock, its system's clock, and the store's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial::LocalClock;

/// What the store's and the system's clocks say at first.
pub(crate) const NOON_MS: u64 = 1_800_000_000_000;

pub(crate) struct Hands {
    positions: Mutex<Positions>,
    looks: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

#[derive(Clone, Copy)]
struct Positions {
    running: Duration,
    system_ms: u64,
    store_ms: u64,
}

impl Hands {
    pub(crate) fn new() -> Arc<Hands> {
        let running = Duration::from_secs(1_000_000);
        let positions = Positions { running, system_ms: NOON_MS, store_ms: NOON_MS };
        Arc::new(Hands { positions: Mutex::new(positions), looks: Mutex::default() })
    }

    /// Time passes on all clocks, and nobody is told: whoever looks next will see.
    pub(crate) fn pass_unseen(&self, pause: Duration) {
        let pause_ms = u64::try_from(pause.as_millis()).unwrap();
        let mut positions = self.positions.lock().unwrap();
        positions.running += pause;
        positions.system_ms += pause_ms;
        positions.store_ms += pause_ms;
    }

    /// Time passes on all clocks.
    pub(crate) fn pass(&self, pause: Duration) {
        self.pass_unseen(pause);
        let looks = self.looks.lock().unwrap().clone();
        looks.iter().for_each(|look| look());
    }

    /// Somebody sets the system's clock.
    pub(crate) fn set_system_ms(&self, system_ms: u64) {
        self.positions.lock().unwrap().system_ms = system_ms;
    }

    /// Somebody sets the store's clock.
    pub(crate) fn set_store_ms(&self, store_ms: u64) {
        self.positions.lock().unwrap().store_ms = store_ms;
    }

    pub(crate) fn store_ms(&self) -> u64 {
        self.positions.lock().unwrap().store_ms
    }

    /// Seconds since the test began.
    pub(crate) fn seconds(&self) -> u64 {
        self.positions.lock().unwrap().running.as_secs() - 1_000_000
    }
}

impl LocalClock for Hands {
    fn system_ms(&self) -> u64 {
        self.positions.lock().unwrap().system_ms
    }

    fn running(&self) -> Duration {
        self.positions.lock().unwrap().running
    }

    fn patience(&self, _pause: Duration) -> Duration {
        // Threads wake up when the hands are moved.
        Duration::from_secs(3_600)
    }

    fn when_moved(&self, look: Arc<dyn Fn() + Send + Sync>) {
        self.looks.lock().unwrap().push(look);
    }
}
