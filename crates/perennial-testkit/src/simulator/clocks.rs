//! Clocks: the store's clock, which can be set or stopped, and the monotonic clock of each process, which can
//! run fast or slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perennial_core::lane::Moment;

use super::Simulation;
use crate::Rng;

/// The maximum error of a monotonic clock, in parts per million.
pub(super) const MAX_DRIFT_PPM: i64 = 2_000;

/// The maximum distance by which the store's clock is set back, and the maximum time for which it stops.
pub(super) const MAX_SET_BACK_MS: u64 = 15_000;
pub(super) const MAX_STALL_MS: u64 = 6_000;

/// The clock that the store reads.
pub(super) struct StoreClock {
    shown_ms: Arc<AtomicU64>,
    /// The difference to the virtual time, in milliseconds.
    ahead_ms: i64,
    stands_until_ms: u64,
    last_ms: u64,
    /// The distance by which it was set back and will be corrected.
    wrong_by_ms: i64,
}

impl StoreClock {
    pub(super) fn new(now_ms: u64) -> StoreClock {
        StoreClock {
            shown_ms: Arc::new(AtomicU64::new(now_ms)),
            ahead_ms: 0,
            stands_until_ms: 0,
            last_ms: now_ms,
            wrong_by_ms: 0,
        }
    }

    pub(super) fn reader(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shown_ms = Arc::clone(&self.shown_ms);
        move || shown_ms.load(Ordering::Relaxed)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.shown_ms.load(Ordering::Relaxed)
    }

    /// Advances the clock with the virtual time.
    pub(super) fn pass(&mut self, at_ms: u64) {
        let stood_ms = self.stands_until_ms.min(at_ms).saturating_sub(self.last_ms);
        self.ahead_ms -= i64::try_from(stood_ms).unwrap_or(0);
        self.last_ms = at_ms;
        self.shown_ms.store(at_ms.saturating_add_signed(self.ahead_ms), Ordering::Relaxed);
    }

    fn set(&mut self, by_ms: i64) {
        self.ahead_ms += by_ms;
        self.pass(self.last_ms);
    }
}

/// The monotonic clock of a process: it never goes back, and runs while the process is suspended.
#[derive(Clone, Copy, Default)]
pub(super) struct SteadyClock {
    booted_ms: u64,
    first: Moment,
    drift_ppm: i64,
}

impl SteadyClock {
    pub(super) fn draw(rng: &mut Rng, drift_ppm: i64, now_ms: u64) -> SteadyClock {
        SteadyClock { booted_ms: now_ms, first: Moment::from_micros(rng.between(0, 1 << 40)), drift_ppm }
    }

    /// Its reading at a virtual time.
    pub(super) fn at(&self, now_ms: u64) -> Moment {
        let elapsed_us = (now_ms - self.booted_ms) * 1_000;
        self.first + Moment::from_micros(elapsed_us * self.rate() / 1_000_000)
    }

    /// The virtual time at which it reaches a reading, rounded up.
    pub(super) fn time_of(&self, moment: Moment) -> u64 {
        let elapsed_us =
            u64::try_from(moment.saturating_sub(self.first).as_micros()).unwrap_or(u64::MAX / 2_000_000);
        let elapsed_us = elapsed_us.min(u64::MAX / 2_000_000) * 1_000_000 / self.rate();
        self.booted_ms + elapsed_us.div_ceil(1_000)
    }

    fn rate(&self) -> u64 {
        1_000_000_u64.saturating_add_signed(self.drift_ppm)
    }
}

impl Simulation {
    /// The reading of the store's clock.
    pub(super) fn store_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The reading of a process's monotonic clock.
    pub(super) fn moment(&self, process: usize) -> Moment {
        self.processes[process].clock.at(self.now_ms)
    }

    /// Corrects a store's clock that is hours behind.
    pub(super) fn set_clock_right(&mut self) {
        let by_ms = std::mem::take(&mut self.clock.wrong_by_ms);
        self.clock.set(by_ms);
    }

    /// Draws the changes of the store's clock.
    pub(super) fn plan_clock(&mut self) {
        if let Some((at_ms, by_ms)) = self.plan.classes.hours_back {
            let by_ms = by_ms.cast_signed();
            self.later(at_ms, format!("the store's clock is set back by {by_ms}"), move |this| {
                if !this.is_healed {
                    this.count("store clock set back by hours");
                    this.clock.wrong_by_ms = by_ms;
                    this.clock.set(-by_ms);
                }
            });
        }
        for _ in 0..self.plan.faults.clock_leaps {
            let at_ms = self.rng.between(0, self.plan.faults_ms);
            let by_ms = i64::try_from(self.rng.between(100, 8_000)).unwrap_or(0);
            self.fault_later(at_ms, format!("the store's clock is set ahead by {by_ms}"), move |this| {
                this.count("store clock set ahead");
                this.clock.set(by_ms);
            });
        }
        for _ in 0..self.plan.faults.clock_set_backs {
            let at_ms = self.rng.between(0, self.plan.faults_ms);
            let by_ms = i64::try_from(self.rng.between(100, MAX_SET_BACK_MS)).unwrap_or(0);
            self.fault_later(at_ms, format!("the store's clock is set back by {by_ms}"), move |this| {
                this.count("store clock set back");
                this.clock.set(-by_ms);
            });
        }
        for _ in 0..self.plan.faults.clock_stalls {
            let at_ms = self.rng.between(0, self.plan.faults_ms);
            let for_ms = self.rng.between(100, MAX_STALL_MS);
            self.fault_later(at_ms, format!("the store's clock stands still for {for_ms}"), move |this| {
                this.count("store clock stalled");
                this.clock.stands_until_ms = this.now_ms + for_ms;
            });
        }
    }
}
