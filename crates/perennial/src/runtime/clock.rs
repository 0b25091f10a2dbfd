//! The clocks of a node: its own, and turn time, which is the store's clock as far as it is known here.
//!
//! Turn time is estimated whenever the store tells its time, and runs by the node's own steady clock in between. The
//! system's clock is only compared with the store's: a node whose clock is far off writes times that mislead people.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::store_url::system_now_ms;

/// Further off the store's clock than this, the system's clock is warned about.
const WARN_OFF_MS: u64 = 5_000;
/// Further off than this, the node stops.
const STOP_OFF_MS: u64 = 300_000;

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

/// The clocks when a question was sent that the store answers with its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The steady clock.
    pub(super) at: Duration,
    system_ms: u64,
}

impl Asked {
    pub(super) fn now(clock: &dyn LocalClock) -> Asked {
        Asked { at: clock.running(), system_ms: clock.system_ms() }
    }

    /// The store said what its clock was between then and now.
    pub(super) fn answered(self, clock: &dyn LocalClock, store_ms: u64) -> Sighting {
        let Asked { at, system_ms } = self;
        Sighting { sent: at, answered: clock.running(), store_ms, system_ms: (system_ms, clock.system_ms()) }
    }
}

/// The store's clock, as it was at some moment of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    sent: Duration,
    answered: Duration,
    store_ms: u64,
    /// The system's clock before and after the call.
    system_ms: (u64, u64),
}

impl Sighting {
    /// How far the system's clock is off the store's at least.
    fn off_ms(&self) -> u64 {
        let (before, after) = self.system_ms;
        let (earliest, latest) = (before.min(after), before.max(after));
        self.store_ms.saturating_sub(latest).max(earliest.saturating_sub(self.store_ms))
    }

    /// Why the node cannot go on with its clock, if so.
    pub(super) fn problem(&self) -> Option<String> {
        let off_ms = self.off_ms();
        let (own, store) = (utc(self.system_ms.1), utc(self.store_ms));
        let seconds = off_ms / 1_000;
        if off_ms > STOP_OFF_MS {
            return Some(format!(
                "PER-0304 clock far off: this machine's clock says {own} and the store's {store}, {seconds} s apart; \
                 set this machine's clock (NTP) and start again"
            ));
        }
        if off_ms > WARN_OFF_MS {
            tracing::warn!("this machine's clock says {own} and the store's {store}, {seconds} s apart");
        }
        None
    }
}

/// Turn time.
pub(crate) struct TurnClock {
    pub(super) local: Arc<dyn LocalClock>,
    /// Turn time less the steady clock, in microseconds.
    offset_us: AtomicI64,
    last_ms: AtomicU64,
}

impl TurnClock {
    pub(super) fn new(local: Arc<dyn LocalClock>, sighting: &Sighting) -> TurnClock {
        let clock = TurnClock { local, offset_us: AtomicI64::new(0), last_ms: AtomicU64::new(0) };
        clock.handle_seen(sighting);
        clock
    }

    /// The time of turns. It never goes back.
    pub(super) fn now_ms(&self) -> u64 {
        let now_us = micros(self.local.running()).saturating_add(self.offset_us.load(Ordering::Relaxed));
        let now_ms = u64::try_from(now_us / 1_000).unwrap_or(0);
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    /// The store's clock was seen. Returns whether turn time was moved by more than clocks drift.
    ///
    /// It was read somewhere within the call, most likely in the middle. A slow call says little: an estimate that
    /// agrees with it is the better one, and stays.
    pub(super) fn handle_seen(&self, sighting: &Sighting) -> bool {
        let store_us = i64::try_from(sighting.store_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let (least, most) = (store_us - micros(sighting.answered), store_us - micros(sighting.sent));
        let old = self.offset_us.load(Ordering::Relaxed);
        if (least..=most).contains(&old) {
            return false;
        }
        let new = least + (most - least) / 2;
        self.offset_us.store(new, Ordering::Relaxed);
        new.abs_diff(old) > 2_000
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A time as people write it.
fn utc(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1_000 % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Running milliseconds and system milliseconds.
    #[derive(Default)]
    struct Hands(Mutex<(u64, u64)>);

    impl LocalClock for Hands {
        fn system_ms(&self) -> u64 {
            self.0.lock().unwrap().1
        }

        fn running(&self) -> Duration {
            Duration::from_millis(self.0.lock().unwrap().0)
        }
    }

    fn clock() -> (Arc<Hands>, TurnClock) {
        let hands = Arc::new(Hands::default());
        let seen = seen(&hands, 0, 0, 1_000_000);
        (Arc::clone(&hands), TurnClock::new(hands, &seen))
    }

    /// A call that was sent and answered at these times of the steady clock.
    fn seen(hands: &Hands, sent: u64, answered: u64, store_ms: u64) -> Sighting {
        hands.0.lock().unwrap().0 = sent;
        let asked = Asked::now(hands);
        hands.0.lock().unwrap().0 = answered;
        asked.answered(hands, store_ms)
    }

    #[test]
    fn g9_turn_time_runs_by_the_steady_clock_and_not_by_the_systems() {
        let (hands, turn_clock) = clock();
        *hands.0.lock().unwrap() = (70, 999_999_999);
        assert_eq!(turn_clock.now_ms(), 1_000_070);
    }

    #[test]
    fn g9_the_store_is_asked_in_the_middle_of_a_call() {
        let (hands, turn_clock) = clock();
        turn_clock.handle_seen(&seen(&hands, 100, 300, 1_005_000));
        assert_eq!(turn_clock.now_ms(), 1_005_100, "the call took 200 ms");
    }

    #[test]
    fn g9_a_slow_call_does_not_spoil_a_good_estimate() {
        let (hands, turn_clock) = clock();
        assert!(!turn_clock.handle_seen(&seen(&hands, 1_000, 9_000, 1_001_001)));
        assert_eq!(turn_clock.now_ms(), 1_009_000);
    }

    #[test]
    fn g9_turn_time_never_goes_back_when_the_stores_clock_does() {
        let (hands, turn_clock) = clock();
        hands.0.lock().unwrap().0 = 500;
        assert_eq!(turn_clock.now_ms(), 1_000_500);
        turn_clock.handle_seen(&seen(&hands, 500, 500, 1_000_300));
        assert_eq!(turn_clock.now_ms(), 1_000_500);
        hands.0.lock().unwrap().0 = 800;
        assert_eq!(turn_clock.now_ms(), 1_000_600, "it goes on once the store's clock has caught up");
    }

    #[test]
    fn times_are_written_as_people_do() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696_789), "2000-02-29T12:34:56Z");
        assert_eq!(utc(1_735_689_599_000), "2024-12-31T23:59:59Z");
    }
}
