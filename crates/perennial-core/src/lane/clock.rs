//! Turn time: a lower bound of the store's clock.
//!
//! A reading of the store's clock was correct at some moment before the reply arrived. So from the reply on, the
//! store's clock is at least that reading plus the time that has passed since. The greatest of these lower bounds is
//! turn time: a slow call makes it late, never early, and it never goes backwards. If the store's clock is set back,
//! turn time continues with the node's own steady clock.

use std::time::Duration;

use crate::flaws::{self, Flaw};

/// A moment of the node's steady clock, which keeps running while the machine sleeps and never goes backwards.
pub type Moment = Duration;

/// If a reading is this far behind turn time, the store's clock was set back.
const SET_BACK_MS: u64 = 5_000;

/// The store's clock as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnClock {
    /// Turn time minus the steady clock, in microseconds, once there was a reading.
    offset_us: Option<i64>,
}

impl TurnClock {
    /// Turn time. It never goes backwards as long as `now` does not.
    pub fn now_ms(&self, now: Moment) -> u64 {
        let ahead_us = if flaws::is(Flaw::EarlyTimers) { 700_000 } else { 0 };
        let now_us = micros(now).saturating_add(self.offset_us()).saturating_add(ahead_us);
        u64::try_from(now_us / 1_000).unwrap_or(0)
    }

    /// Handles a reading of the store's clock whose reply arrived now. Returns how far the store's clock is behind turn
    /// time, if it was set back.
    pub fn handle_reading(&mut self, now: Moment, store_ms: u64) -> Option<u64> {
        let offset_us = millis_in_micros(store_ms).saturating_sub(micros(now));
        let behind_ms = match self.offset_us {
            Some(known) if known > offset_us => known.abs_diff(offset_us) / 1_000,
            _ => {
                self.offset_us = Some(offset_us);
                0
            }
        };
        (behind_ms > SET_BACK_MS).then_some(behind_ms)
    }

    /// Turn time minus the steady clock, in microseconds; zero before the first reading.
    pub fn offset_us(&self) -> i64 {
        self.offset_us.unwrap_or(0)
    }

    /// The moment at which turn time reaches a time. `None` if that is beyond the range of the steady clock.
    pub fn moment_of(&self, at_ms: u64) -> Option<Moment> {
        let at_us = at_ms.checked_mul(1_000)?.checked_add_signed(self.offset_us().checked_neg()?);
        // A time before the steady clock started is now.
        Some(Duration::from_micros(at_us.unwrap_or(0)))
    }
}

/// A moment in microseconds. `Duration::as_micros` uses 128 bits, and this is called for every input.
fn micros(moment: Moment) -> i64 {
    let seconds = i64::try_from(moment.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_mul(1_000_000).saturating_add(i64::from(moment.subsec_micros()))
}

fn millis_in_micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn g9_turn_time_runs_on_by_the_steady_clock() {
        let mut clock = TurnClock::default();
        clock.handle_reading(at(0), 1_000_000);
        assert_eq!(clock.now_ms(at(70)), 1_000_070);
        assert_eq!(clock.moment_of(1_000_500), Some(at(500)));
    }

    #[test]
    fn g9_a_slow_answer_makes_turn_time_late_and_never_early() {
        let mut clock = TurnClock::default();
        // The store read its clock 20 s before the reply arrived.
        clock.handle_reading(at(20_000), 1_000_000);
        assert_eq!(clock.now_ms(at(20_000)), 1_000_000);
        clock.handle_reading(at(20_100), 1_020_100);
        assert_eq!(clock.now_ms(at(20_100)), 1_020_100, "a better bound counts at once");
        clock.handle_reading(at(40_000), 1_021_000);
        assert_eq!(clock.now_ms(at(40_000)), 1_040_000, "a worse one changes nothing");
    }

    #[test]
    fn g9_a_clock_that_was_set_back_is_noticed_and_lived_through() {
        let mut clock = TurnClock::default();
        clock.handle_reading(at(0), 10_000_000);
        assert_eq!(clock.handle_reading(at(1_000), 10_000_900), None, "a slow call is not a clock set back");
        assert_eq!(clock.handle_reading(at(2_000), 6_402_000), Some(3_600_000));
        assert_eq!(clock.now_ms(at(3_000)), 10_003_000);
    }
}
