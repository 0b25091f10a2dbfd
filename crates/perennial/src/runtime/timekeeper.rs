//! The Timekeeper: brings the time to the lane and the node when they want it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use perennial_core::lane::Moment;

use super::clock::LocalClock;
use super::driver::{Driver, lock};

/// A thread that waits for no time in particular wakes up this often.
const LONG_PAUSE: Duration = Duration::from_secs(3_600);

/// Who wants the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waker {
    Lane,
    Node,
}

/// When each wants the time next, in microseconds of the steady clock; the maximum if not at all.
pub(super) struct Timekeeper {
    lane_us: AtomicU64,
    node_us: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody wants the time earlier than was known, or the clock was moved.
    looks_again: bool,
    stopped: bool,
}

impl Default for Timekeeper {
    fn default() -> Timekeeper {
        Timekeeper {
            lane_us: AtomicU64::new(u64::MAX),
            node_us: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Timekeeper {
    /// One of them wants the time then, or no more. To be called under its lock, or of two threads the one with the
    /// older wish could come last.
    pub(super) fn want(&self, waker: Waker, at: Option<Moment>) {
        // Rounded up, or the time would be brought a fraction of a microsecond too early.
        let at_us =
            at.map_or(u64::MAX, |at| u64::try_from(at.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX));
        let before_us = self.place(waker).swap(at_us, Ordering::AcqRel);
        if at_us < before_us {
            self.look();
        }
    }

    fn place(&self, waker: Waker) -> &AtomicU64 {
        match waker {
            Waker::Lane => &self.lane_us,
            Waker::Node => &self.node_us,
        }
    }

    /// Looks at the clock and at the wishes again.
    pub(super) fn look(&self) {
        lock(&self.state).looks_again = true;
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_one();
    }

    /// Runs until stopped or until the driver is gone.
    pub(super) fn run(driver: Weak<Driver>) {
        let keep_time = move || {
            while let Some(driver) = driver.upgrade() {
                let now = driver.clock.running();
                for waker in [Waker::Lane, Waker::Node] {
                    let at_us = driver.timekeeper.place(waker).load(Ordering::Acquire);
                    if at_us != u64::MAX && Duration::from_micros(at_us) <= now {
                        driver.bring_time(waker);
                    }
                }
                if !driver.timekeeper.sleep(&*driver.clock) {
                    return;
                }
            }
        };
        thread::Builder::new().name("perennial-time".to_owned()).spawn(keep_time).expect("a thread starts");
    }

    /// Sleeps until somebody wants the time. Returns whether to go on.
    fn sleep(&self, clock: &dyn LocalClock) -> bool {
        let mut state = lock(&self.state);
        let next_us = self.lane_us.load(Ordering::Acquire).min(self.node_us.load(Ordering::Acquire));
        let pause = Duration::from_micros(next_us).saturating_sub(clock.running());
        if state.stopped || std::mem::take(&mut state.looks_again) || pause.is_zero() {
            return !state.stopped;
        }
        let waited = self.changed.wait_timeout(state, clock.patience(pause.min(LONG_PAUSE)));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.looks_again = false;
        !state.stopped
    }
}
