//! A point in time as recorded: whole milliseconds since 1970, UTC.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;

const DAY_MS: u64 = 86_400_000;

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

/// RFC 3339 in UTC, with milliseconds unless they are zero: `2026-11-16T12:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0 / DAY_MS);
        let (second, millis) = (self.0 % DAY_MS / 1_000, self.0 % 1_000);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}") };
        f.pad(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
    }
}

/// The date of a day counted from 1970, computed by eras of 400 years that begin on March 1.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let month = if is_next_year { month - 9 } else { month + 3 };
    (era * 400 + year_of_era + u64::from(is_next_year), month, day)
}

/// The day of a date, counted from 1970; `None` if there is no such date.
fn day_of(year: u64, month: u64, day: u64) -> Option<u64> {
    let (shifted_year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    (date_of(days) == (year, month, day)).then_some(days)
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
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-').zip([4, 2, 2]).map(|(part, length)| number(part, length));
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if date.len() != 10 || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let midnight_ms = day_of(year, month, day)? * DAY_MS;
    match time {
        Some(time) => midnight_ms.checked_add_signed(read_time(time)?),
        None => Some(midnight_ms),
    }
}

/// Milliseconds since midnight in UTC.
fn read_time(text: &str) -> Option<i64> {
    let place = text.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = text.split_at(place);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let millis: String = fraction.chars().chain("00".chars()).take(3).collect();
    let millis = number(&millis, 3).filter(|_| fraction.bytes().all(|byte| byte.is_ascii_digit()))?;
    let offset_minutes = match zone {
        "Z" | "z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let minutes = number(hours, 2)? * 60 + number(minutes, 2)?;
            i64::try_from(minutes).ok()? * if zone.starts_with('-') { -1 } else { 1 }
        }
    };
    let of_day = i64::try_from((hour * 3_600 + minute * 60 + second) * 1_000 + millis).ok()?;
    Some(of_day - offset_minutes * 60_000)
}

/// A number with exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
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
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
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
            "2026-11-16T12:00:00",
            "2026-11-16T24:00:00Z",
            "2026-11-16T12:00:00.Zx",
            "1969-12-31",
            "2026-11-16T1:00:00Z",
            "26-11-16",
            "2026-11-16T12:00:00+0100",
            "2026-11-16-01",
            "1970-01-01T00:00:00+01:00",
            "2026-11-16T12:00:00Zulu",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_shown() {
        for day in 0..146_097 {
            let time = Timestamp::from_millis(day * DAY_MS);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn arithmetic_ends_at_the_ends_of_time() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::UNIX_EPOCH - Duration::from_secs(1), Timestamp::UNIX_EPOCH);
        assert_eq!(Timestamp::UNIX_EPOCH - Timestamp::MAX, Duration::ZERO);
        assert!(!Timestamp::MAX.to_string().is_empty());
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::from(before), Timestamp::UNIX_EPOCH);
        let time = Timestamp::from_millis(1_794_830_400_123);
        assert_eq!(time.to_system_time().map(Timestamp::from), Some(time));
    }
}
