//! The Timekeeper: wakes the lanes and the node at the times they requested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use perennial_core::lane::Moment;

use super::clock::LocalClock;
use super::driver::{Driver, lock};
use super::lanes::LaneIndex;

/// How often a thread without a requested time wakes up.
const LONG_PAUSE: Duration = Duration::from_secs(3_600);

/// The component to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waker {
    Lane(LaneIndex),
    Node,
}

/// The next requested times, in microseconds of the steady clock; the maximum if there is none.
pub(super) struct Timekeeper {
    lanes_us: Box<[AtomicU64]>,
    node_us: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// An earlier time was requested, or the clock was moved.
    looks_again: bool,
    stopped: bool,
}

impl Timekeeper {
    pub(super) fn new(lanes: usize) -> Timekeeper {
        Timekeeper {
            lanes_us: (0..lanes).map(|_| AtomicU64::new(u64::MAX)).collect(),
            node_us: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Sets or clears the requested time of one of them. Called under its lock; otherwise the older of two
    /// requests could be stored last.
    pub(super) fn want(&self, waker: Waker, at: Option<Moment>) {
        // Rounded up, since a wake-up a fraction of a microsecond early would have no effect.
        let at_us =
            at.map_or(u64::MAX, |at| u64::try_from(at.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX));
        let before_us = self.place(waker).swap(at_us, Ordering::AcqRel);
        if at_us < before_us {
            self.look();
        }
    }

    fn place(&self, waker: Waker) -> &AtomicU64 {
        match waker {
            Waker::Lane(index) => &self.lanes_us[index],
            Waker::Node => &self.node_us,
        }
    }

    fn wakers(&self) -> impl Iterator<Item = Waker> + use<> {
        (0..self.lanes_us.len()).map(Waker::Lane).chain([Waker::Node])
    }

    /// Checks the clock and the requested times again.
    pub(super) fn look(&self) {
        lock(&self.state).looks_again = true;
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_one();
    }

    /// Runs until stopped or until the driver is dropped.
    pub(super) fn run(driver: Weak<Driver>) {
        let keep_time = move || {
            while let Some(driver) = driver.upgrade() {
                let now = driver.clock.running();
                for waker in driver.timekeeper.wakers() {
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

    /// Sleeps until a requested time. Returns whether to continue.
    fn sleep(&self, clock: &dyn LocalClock) -> bool {
        let mut state = lock(&self.state);
        let next_us = self.wakers().map(|waker| self.place(waker).load(Ordering::Acquire)).min();
        let pause = Duration::from_micros(next_us.unwrap_or(u64::MAX)).saturating_sub(clock.running());
        if state.stopped || std::mem::take(&mut state.looks_again) || pause.is_zero() {
            return !state.stopped;
        }
        let waited = self.changed.wait_timeout(state, clock.patience(pause.min(LONG_PAUSE)));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.looks_again = false;
        !state.stopped
    }
}
