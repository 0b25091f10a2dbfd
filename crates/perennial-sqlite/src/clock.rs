//! The store's clock: the machine's clock, except that it never goes backwards.
//!
//! An embedded store uses the clock of its machine, which people and programs can set. While its owner runs and the
//! clock was set back, the store's clock continues with the steady clock. After a restart it continues from the latest
//! time written in the file, also with the steady clock, until the machine's clock has caught up; so a timer that is
//! due in a minute is due in a minute, whatever happened to the clock in between. If the clock was years ahead for a
//! while, the store stays years ahead: everything continues at its normal pace, and only dates are wrong.
//!
//! The time is written with commits, every few seconds at most, and when a session ends; an idle owner writes nothing.
//! The record also contains how far the store is ahead of the machine's clock. Guests use it, so that all users of the
//! file have the same time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perennial_core::log;
use rusqlite::{Connection, OptionalExtension};

use crate::inspect::{Owner, owner};
use crate::options::{Clock, SqliteOptions, SteadyClock};
use crate::requests::{READ_SETTING, write_setting};
use perennial_core::ErrorCode;

/// The setting with the time.
pub(crate) const SETTING: &str = "perennial.clock";
/// The time is written at most this often, unless there is another reason.
const WRITTEN_EVERY_MS: u64 = 3_000;
/// Guests are notified if the lead of the store's clock changes by this much.
const AHEAD_STEP_MS: u64 = 1_000;
/// A warning is logged if the machine's clock was set back by more than this.
const WARN_SET_BACK_MS: u64 = 5_000;

/// The time record of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The latest time that was written.
    pub(crate) at_ms: u64,
    /// How far the store's clock was ahead of the machine's then.
    pub(crate) ahead_ms: u64,
}

impl Mark {
    fn encode(self) -> Vec<u8> {
        let mut bytes = [self.at_ms.to_le_bytes(), self.ahead_ms.to_le_bytes()].concat();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// A damaged record is ignored: it could set the clock to any time.
    fn decode(bytes: &[u8]) -> Option<Mark> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let (at_ms, ahead_ms) = body.split_first_chunk::<8>()?;
        let is_whole = crc32fast::hash(body) == u32::from_le_bytes(*crc);
        let ahead_ms = u64::from_le_bytes(ahead_ms.try_into().ok()?);
        is_whole.then_some(Mark { at_ms: u64::from_le_bytes(*at_ms), ahead_ms })
    }

    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<Mark>> {
        let mut statement = connection.prepare_cached(READ_SETTING)?;
        let written = statement.query_row([SETTING], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        let mark = written.as_deref().and_then(Mark::decode);
        if written.is_some() && mark.is_none() {
            tracing::error!(target: log::STORE, "stored time is damaged; using the clock of the machine");
        }
        Ok(mark)
    }

    pub(crate) fn write(self, connection: &Connection) -> rusqlite::Result<()> {
        write_setting(connection, SETTING, Some(&self.encode()))
    }

    /// Whether a transaction should write this record, given the last one.
    pub(crate) fn is_due(self, written: Option<Mark>, session_ends: bool) -> bool {
        let Some(written) = written else { return true };
        self.is_news(written)
            || self.at_ms >= written.at_ms.saturating_add(WRITTEN_EVERY_MS)
            || (session_ends && self.at_ms > written.at_ms)
    }

    /// Whether guests have to be notified immediately.
    pub(crate) fn is_news(self, written: Mark) -> bool {
        self.ahead_ms.abs_diff(written.ahead_ms) >= AHEAD_STEP_MS
    }
}

pub(crate) struct StoreClock {
    system: Clock,
    steady: SteadyClock,
    state: Mutex<State>,
}

enum State {
    /// A reading of the store's clock at a moment of the steady clock: the store's clock shows at least that plus the
    /// time that has passed since.
    Owner {
        since: Duration,
        at_ms: u64,
    },
    Guest {
        path: PathBuf,
        mark: Option<Mark>,
    },
}

impl StoreClock {
    /// The clock of the store's owner, which continues from the time in the file.
    pub(crate) fn of_owner(options: &SqliteOptions, path: &Path, mark: Option<Mark>) -> StoreClock {
        let (system_ms, since) = ((options.clock)(), (options.steady)());
        let at_ms = mark.map_or(system_ms, |mark| mark.at_ms.max(system_ms));
        let set_back_ms = at_ms - system_ms;
        if set_back_ms > WARN_SET_BACK_MS {
            tracing::warn!(
                target: log::STORE,
                seconds = set_back_ms / 1_000,
                code = ErrorCode::ClockFarOff.as_str(),
                "clock set back: this machine's clock is behind the time that {} was last used at; the store goes on from there \
                 by the steady clock",
                path.display()
            );
        }
        StoreClock::new(options, State::Owner { since, at_ms })
    }

    /// The clock of a guest.
    pub(crate) fn of_guest(options: &SqliteOptions, path: &Path, mark: Option<Mark>) -> StoreClock {
        StoreClock::new(options, State::Guest { path: path.to_owned(), mark })
    }

    fn new(options: &SqliteOptions, state: State) -> StoreClock {
        let (system, steady) = (Arc::clone(&options.clock), Arc::clone(&options.steady));
        StoreClock { system, steady, state: Mutex::new(state) }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.mark().at_ms
    }

    /// The time, and how far it is ahead of the machine's clock.
    pub(crate) fn mark(&self) -> Mark {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that a later reading is not processed before an earlier one.
        let system_ms = (self.system)();
        let now_ms = match &mut *state {
            State::Owner { since, at_ms } => {
                let steady = (self.steady)();
                let passed = u64::try_from(steady.saturating_sub(*since).as_millis()).unwrap_or(u64::MAX);
                let least_ms = at_ms.saturating_add(passed);
                if system_ms >= least_ms {
                    (*since, *at_ms) = (steady, system_ms);
                }
                system_ms.max(least_ms)
            }
            State::Guest { path, mark } => match mark {
                Some(mark) if mark.ahead_ms > 0 || system_ms < mark.at_ms => match owner(path) {
                    Owner::Alive(_) => system_ms.saturating_add(mark.ahead_ms),
                    // The next owner continues from there.
                    Owner::Died(_) | Owner::Nobody => system_ms.max(mark.at_ms),
                },
                _ => system_ms,
            },
        };
        Mark { at_ms: now_ms, ahead_ms: now_ms - system_ms }
    }

    /// Reads what the owner has written, for a guest.
    pub(crate) fn look(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Guest { mark, .. } = &mut *state {
            *mark = Mark::read(connection)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const NOON_MS: u64 = 1_800_000_000_000;
    const HOUR_MS: u64 = 3_600_000;

    /// Clocks that are set by hand: the machine's, and the steady one.
    fn clocks() -> (Arc<AtomicU64>, Arc<AtomicU64>, SqliteOptions) {
        let (system, steady) = (Arc::new(AtomicU64::new(NOON_MS)), Arc::new(AtomicU64::new(0)));
        let (machine, passed) = (Arc::clone(&system), Arc::clone(&steady));
        let options = SqliteOptions::default()
            .clock(move || machine.load(Ordering::Relaxed))
            .steady_clock(move || Duration::from_millis(passed.load(Ordering::Relaxed)));
        (system, steady, options)
    }

    #[test]
    fn g9_a_clock_that_is_set_back_is_lived_through_on_the_steady_clock() {
        let (system, steady, options) = clocks();
        let clock = StoreClock::of_owner(&options, Path::new("shop.db"), None);
        system.store(NOON_MS - HOUR_MS, Ordering::Relaxed);
        steady.store(2_000, Ordering::Relaxed);
        assert_eq!(clock.mark(), Mark { at_ms: NOON_MS + 2_000, ahead_ms: HOUR_MS + 2_000 });
        system.store(NOON_MS + 3_000, Ordering::Relaxed);
        assert_eq!(clock.mark(), Mark { at_ms: NOON_MS + 3_000, ahead_ms: 0 }, "it has caught up");
    }

    #[test]
    fn g9_an_owner_goes_on_from_the_time_that_was_written() {
        let (_, steady, options) = clocks();
        let mark = Mark { at_ms: NOON_MS + HOUR_MS, ahead_ms: 0 };
        let clock = StoreClock::of_owner(&options, Path::new("shop.db"), Some(mark));
        steady.store(60_000, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), NOON_MS + HOUR_MS + 60_000);
        let earlier = Mark { at_ms: NOON_MS - HOUR_MS, ahead_ms: 5 * HOUR_MS };
        let clock = StoreClock::of_owner(&options, Path::new("shop.db"), Some(earlier));
        assert_eq!(clock.now_ms(), NOON_MS, "how far it was ahead once makes no difference");
    }

    #[test]
    fn e3_a_damaged_time_is_none() {
        let mark = Mark { at_ms: NOON_MS, ahead_ms: 7 };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Some(mark));
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert_eq!(Mark::decode(&damaged), None);
            assert_eq!(Mark::decode(&bytes[..place]), None);
        }
    }

    #[test]
    fn g10_the_time_is_written_every_few_seconds_and_when_a_session_ends() {
        let mark = |at_ms, ahead_ms| Mark { at_ms, ahead_ms };
        let written = Some(mark(NOON_MS, 0));
        assert!(mark(NOON_MS, 0).is_due(None, false));
        assert!(!mark(NOON_MS + 2_999, 999).is_due(written, false));
        assert!(mark(NOON_MS + 3_000, 0).is_due(written, false));
        assert!(mark(NOON_MS + 1, 0).is_due(written, true) && !mark(NOON_MS, 0).is_due(written, true));
        assert!(mark(NOON_MS, 1_000).is_due(written, false), "guests have to know");
    }
}
