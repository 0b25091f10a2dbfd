//! A point in time as recorded: whole milliseconds since 1970, UTC.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;

/// A point in time, in whole milliseconds since the beginning of 1970, UTC.
///
/// Histories and stores hold times with this precision, so a `Timestamp` is the same value in every replay. It is
/// serialised as the number of milliseconds and displayed as RFC 3339.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use perennial_core::Timestamp;
///
/// let noon: Timestamp = "2026-11-16T12:00:00Z".parse()?;
/// assert_eq!((noon + Duration::from_millis(1_500)).to_string(), "2026-11-16T12:00:01.500Z");
/// assert_eq!(noon - Duration::from_secs(60) - Timestamp::UNIX_EPOCH, Duration::from_secs(1_794_830_340));
/// assert_eq!(serde_json::to_string(&noon)?, "1794830400000");
/// assert!(Timestamp::from(SystemTime::now()) > Timestamp::UNIX_EPOCH);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The beginning of 1970, UTC.
    pub const UNIX_EPOCH: Timestamp = Timestamp(0);
    /// The latest representable time. Timers that would be due later are due then.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The time this many milliseconds after the beginning of 1970.
    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis)
    }

    /// Milliseconds since the beginning of 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time since the beginning of 1970.
    pub const fn since_epoch(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The time since `earlier`; zero if that is not earlier.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The time as a `SystemTime`, if it can be represented.
    pub fn to_system_time(self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(self.since_epoch())
    }
}

/// Fractions of a millisecond are truncated; times before 1970 become 1970.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        Timestamp::UNIX_EPOCH + time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// Fractions of a millisecond are truncated. The result is at most [`Timestamp::MAX`].
impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Fractions of a millisecond are truncated; times before 1970 become 1970.
impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_sub(millis))
    }
}

/// The time between the two, see [`Timestamp::since`].
impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Timestamp) -> Duration {
        self.since(earlier)
    }
}

/// RFC 3339 in UTC, with milliseconds unless they are zero: `2026-11-16T12:00:00Z`. Times after the year 9999, which
/// RFC 3339 cannot represent, are displayed as a number of milliseconds.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known =
            i64::try_from(self.0).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        match known {
            Some(time) if self.0.is_multiple_of(1_000) => f.pad(&format!("{time:.0}")),
            Some(time) => f.pad(&format!("{time:.3}")),
            None => f.pad(&format!("{} ms after 1970", self.0)),
        }
    }
}

/// A text that is not a valid time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{prefix}: {0:?} is not a time; write it as 2026-11-16 or 2026-11-16T12:00:00Z", prefix = self.code().prefix())]
pub struct TimestampError(String);

impl TimestampError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::BadTime
    }
}

crate::error_model!(TimestampError);

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Parses RFC 3339, or a date, which stands for its midnight in UTC. Digits after the third of a fraction are
    /// ignored.
    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        read(text).map(Timestamp).ok_or_else(|| TimestampError(text.to_owned()))
    }
}

fn read(text: &str) -> Option<u64> {
    // Dates are parsed separately: jiff would also accept a date and time without an offset as a date, and drop the
    // time.
    let time = match text.contains(['T', 't', ' ']) {
        true => text.parse::<jiff::Timestamp>().ok()?,
        false => text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
    };
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (253_402_128_000_000, "9999-12-30T00:00:00Z"),
        ] {
            let time = Timestamp::from_millis(millis);
            assert_eq!((time.to_string().as_str(), text.parse()), (text, Ok(time)));
        }
        for (text, same) in [
            ("2026-11-16", "2026-11-16T00:00:00Z"),
            ("2026-11-16 12:00:00Z", "2026-11-16T12:00:00Z"),
            ("2026-11-16T12:00:00.5+01:00", "2026-11-16T11:00:00.500Z"),
            ("2026-11-15T23:30:00-01:00", "2026-11-16T00:30:00Z"),
            ("2026-11-16T12:00:00.1239Z", "2026-11-16T12:00:00.123Z"),
        ] {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), same);
        }
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-11-31",
            "2026-11-16T12:00",
            "2026-11-16 12:00:00",
            "2026-11-16T12:00:00",
            "2026-11-16T24:00:00Z",
            "2026-11-16T12:00:00.Zx",
            "1969-12-31",
            "2026-11-16T1:00:00Z",
            "26-11-16",
            "2026-11-16-01",
            "1970-01-01T00:00:00+01:00",
            "2026-11-16T12:00:00Zulu",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_ends_at_the_ends_of_time() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::UNIX_EPOCH - Duration::from_secs(1), Timestamp::UNIX_EPOCH);
        assert_eq!(Timestamp::UNIX_EPOCH - Timestamp::MAX, Duration::ZERO);
        assert_eq!(Timestamp::MAX.to_string(), "18446744073709551615 ms after 1970");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::from(before), Timestamp::UNIX_EPOCH);
        let time = Timestamp::from_millis(1_794_830_400_123);
        assert_eq!(time.to_system_time().map(Timestamp::from), Some(time));
    }
}
