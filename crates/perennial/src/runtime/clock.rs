//! The clocks of the machine. Turn time is derived from the store's clock in the lane. The system clock is
//! only compared with it, because times written by a machine with a wrong clock mislead people.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perennial_core::log;

use crate::store_url::system_now_ms;
use perennial_core::ErrorCode;
use perennial_core::Timestamp;

/// The difference from the store's clock above which a warning about the system clock is logged.
const WARN_OFF_MS: u64 = 5_000;

/// How often the warning is repeated.
const WARN_EVERY: Duration = Duration::from_secs(3_600);

/// The clocks of the machine that a node reads. Tests supply their own.
pub trait LocalClock: Send + Sync + 'static {
    /// Milliseconds since 1970 by the system clock. It may jump.
    fn system_ms(&self) -> u64;

    /// Time since boot, including sleep. Never decreases.
    fn running(&self) -> Duration;

    /// How long a thread has to sleep to wake up after `pause` by this clock.
    fn patience(&self, pause: Duration) -> Duration {
        pause
    }

    /// Registers a callback for when a test moves the clock.
    fn when_moved(&self, _look: Arc<dyn Fn() + Send + Sync>) {}
}

/// The machine's clocks.
pub(crate) struct MachineClock {
    #[cfg(not(target_os = "linux"))]
    since: std::time::Instant,
}

impl MachineClock {
    pub(crate) fn new() -> MachineClock {
        MachineClock {
            #[cfg(not(target_os = "linux"))]
            since: std::time::Instant::now(),
        }
    }
}

impl LocalClock for MachineClock {
    fn system_ms(&self) -> u64 {
        system_now_ms()
    }

    #[cfg(target_os = "linux")]
    fn running(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default()
    }

    #[cfg(not(target_os = "linux"))]
    fn running(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Warns about clocks that are wrong. The store returns its time with every renewal. A warning is logged
/// once, again when the difference changes, and again after a while.
#[derive(Default)]
pub(super) struct ClockCheck {
    warned: Mutex<Option<Warned>>,
    /// The machine's clock less the store's, in milliseconds, as last compared.
    offset_ms: AtomicI64,
}

#[derive(Clone, Copy)]
struct Warned {
    at: Duration,
    off_ms: u64,
    set_back_ms: u64,
}

impl ClockCheck {
    /// Checks the store's clock: its time, and how far it is behind turn time if it was set back.
    pub(super) fn check(&self, clock: &dyn LocalClock, store_ms: u64, set_back_ms: Option<u64>) {
        let (system_ms, set_back_ms) = (clock.system_ms(), set_back_ms.unwrap_or(0));
        self.offset_ms.store(system_ms.wrapping_sub(store_ms).cast_signed(), Ordering::Relaxed);
        let off_ms = Some(system_ms.abs_diff(store_ms)).filter(|off_ms| *off_ms > WARN_OFF_MS).unwrap_or(0);
        if !self.is_news(Warned { at: clock.running(), off_ms, set_back_ms }) {
            return;
        }
        if set_back_ms > 0 {
            tracing::warn!(
                target: log::NODE,
                seconds = set_back_ms / 1_000,
                code = ErrorCode::ClockFarOff.as_str(),
                "store clock set back: it is behind turn time; timers continue by this machine's steady clock"
            );
        }
        if off_ms > 0 {
            let (own, store) = (Timestamp::from_millis(system_ms), Timestamp::from_millis(store_ms));
            tracing::warn!(
                target: log::NODE,
                seconds = off_ms / 1_000,
                code = ErrorCode::ClockFarOff.as_str(),
                "clock far off: this machine's clock says {own} and the store's {store}; timers use the \
                 store's clock, correct the machine's (NTP)"
            );
        }
    }

    /// How far the machine's clock is ahead of the store's.
    pub(super) fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Relaxed)
    }

    fn is_news(&self, now: Warned) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if now.off_ms == 0 && now.set_back_ms == 0 {
            *warned = None;
            return false;
        }
        let is_known = |before: Warned| {
            now.at.saturating_sub(before.at) < WARN_EVERY
                && now.off_ms.abs_diff(before.off_ms) <= WARN_OFF_MS
                && now.set_back_ms.abs_diff(before.set_back_ms) <= WARN_OFF_MS
        };
        let is_news = !warned.is_some_and(is_known);
        if is_news {
            *warned = Some(now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g9_a_clock_that_stays_off_is_not_warned_about_with_every_renewal() {
        let check = ClockCheck::default();
        let is_news = |seconds, off_ms, set_back_ms| {
            check.is_news(Warned { at: Duration::from_secs(seconds), off_ms, set_back_ms })
        };
        assert!(is_news(0, 60_000, 0) && !is_news(3, 61_000, 0) && !is_news(6, 59_000, 0));
        assert!(is_news(9, 70_000, 0), "it has grown");
        assert!(is_news(12, 70_000, 9_000), "and another one");
        assert!(is_news(3_700, 70_000, 9_000), "and once in a while");
        assert!(!is_news(3_703, 0, 0) && is_news(3_706, 70_000, 9_000), "it was well in between");
    }
}
