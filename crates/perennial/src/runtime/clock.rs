//! The machine's clocks. Turn time follows from the store's clock and is the lane's; the system's clock is only compared
//! with it, because a machine whose clock is far off writes times that mislead people.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perennial_core::log;

use crate::store_url::system_now_ms;
use perennial_core::ErrorCode;
use perennial_core::Timestamp;

/// Further off the store's clock than this, the system's clock is warned about.
const WARN_OFF_MS: u64 = 5_000;

/// How often a clock that stays off is warned about.
const WARN_EVERY: Duration = Duration::from_secs(3_600);

/// What a node reads of the machine's clocks. Tests bring clocks of their own.
pub trait LocalClock: Send + Sync + 'static {
    /// Milliseconds since 1970, as the system says. It may jump.
    fn system_ms(&self) -> u64;

    /// How long the machine has run, sleep included. It never goes back.
    fn running(&self) -> Duration;

    /// How long a thread sleeps that wants to wake up after `pause` by this clock.
    fn patience(&self, pause: Duration) -> Duration {
        pause
    }

    /// Asks to be called when the clock was moved by hand.
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

/// Warns about clocks that mislead. The store tells its time with every renewal; the warning comes once, and again when
/// the trouble grows or shrinks, or after a while.
#[derive(Default)]
pub(super) struct ClockCheck {
    warned: Mutex<Option<Warned>>,
}

#[derive(Clone, Copy)]
struct Warned {
    at: Duration,
    off_ms: u64,
    set_back_ms: u64,
}

impl ClockCheck {
    /// The store said just now what its clock is, and by how much it is behind turn time, if it was set back.
    pub(super) fn check(&self, clock: &dyn LocalClock, store_ms: u64, set_back_ms: Option<u64>) {
        let (system_ms, set_back_ms) = (clock.system_ms(), set_back_ms.unwrap_or(0));
        let off_ms = Some(system_ms.abs_diff(store_ms)).filter(|off_ms| *off_ms > WARN_OFF_MS).unwrap_or(0);
        if !self.is_news(Warned { at: clock.running(), off_ms, set_back_ms }) {
            return;
        }
        if set_back_ms > 0 {
            tracing::warn!(
                target: log::NODE,
                seconds = set_back_ms / 1_000,
                code = ErrorCode::ClockFarOff.as_str(),
                "store clock set back: it is behind the time of turns; timers go on by this machine's steady clock"
            );
        }
        if off_ms > 0 {
            let (own, store) = (Timestamp::from_millis(system_ms), Timestamp::from_millis(store_ms));
            tracing::warn!(
                target: log::NODE,
                seconds = off_ms / 1_000,
                code = ErrorCode::ClockFarOff.as_str(),
                "clock far off: this machine's clock says {own} and the store's {store}; timers go by the store's, set the other (NTP)"
            );
        }
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
