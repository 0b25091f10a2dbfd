//! How an activity is run: options recorded with its schedule event.
//!
//! They are not part of a decision's identity: a replay uses the recorded options, so a deployment can change them for
//! activities that are scheduled after it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Payload;

/// Retry, timeouts and routing of one activity. The default is one attempt, no timeouts and no tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActivityOptions {
    /// When a failed attempt is tried again. `None` means a single attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may wait for a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_timeout_ms: Option<u64>,
    /// How long all attempts together may take, waiting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout_ms: Option<u64>,
    /// The longest silence between two heartbeats of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// Only workers that serve this tag run the activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether an attempt may hand out a completion token and return. The holder of the token completes it later.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completes_later: bool,
}

/// How many times and how soon a failed activity is retried.
///
/// ```
/// use std::time::Duration;
/// use perennial_core::RetryPolicy;
///
/// // 1 s, 2 s, 4 s, … up to 100 s, each 10 % more or less; five attempts in all.
/// let policy = RetryPolicy::exponential(5);
/// assert_eq!(policy.max_attempts, 5);
///
/// // 250 ms before each further attempt; a declined card is not asked again.
/// let policy = RetryPolicy::fixed(Duration::from_millis(250)).attempts(3).non_retryable(["Declined"]);
/// assert_eq!(policy.pause(1, 0), Duration::from_millis(250));
///
/// // 1 s, 2 s, 3 s, 3 s, … with up to a fifth of jitter, until it succeeds or is cancelled.
/// let policy = RetryPolicy::linear(Duration::from_secs(1), Duration::from_secs(3)).forever().jitter(20);
/// assert_eq!(policy.pause(7, u64::MAX), Duration::from_millis(3_600));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// The total number of attempts, including the first.
    pub max_attempts: u32,
    /// The pause between two attempts.
    pub backoff: Backoff,
    /// The largest deviation of a pause from its value, in percent.
    pub jitter_percent: u8,
    /// Errors whose kind is listed here are not retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_retryable: Vec<String>,
}

/// The pause before the next attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Backoff {
    /// The same pause each time.
    Fixed {
        /// How long to wait between two attempts.
        #[serde(rename = "pause_ms", with = "millis")]
        pause: Duration,
    },
    /// A pause that grows by the same amount each time.
    Linear {
        /// The first pause, and the amount that each further pause adds.
        #[serde(rename = "step_ms", with = "millis")]
        step: Duration,
        /// The longest pause.
        #[serde(rename = "max_ms", with = "millis")]
        max: Duration,
    },
    /// A pause that is multiplied each time.
    Exponential {
        /// The first pause.
        #[serde(rename = "first_ms", with = "millis")]
        first: Duration,
        /// The factor between two pauses, in percent: 200 doubles the pause.
        factor_percent: u32,
        /// The longest pause.
        #[serde(rename = "max_ms", with = "millis")]
        max: Duration,
    },
}

impl RetryPolicy {
    /// Up to `max_attempts` attempts with pauses that double from 1 s to 100 s, and 10 % jitter.
    pub fn exponential(max_attempts: u32) -> RetryPolicy {
        let backoff = Backoff::Exponential {
            first: Duration::from_secs(1),
            factor_percent: 200,
            max: Duration::from_secs(100),
        };
        RetryPolicy { max_attempts, backoff, jitter_percent: 10, non_retryable: Vec::new() }
    }

    /// The same pause before each retry. Turn it into a policy with [`Backoff::attempts`] or [`Backoff::forever`].
    pub fn fixed(pause: Duration) -> Backoff {
        Backoff::Fixed { pause }
    }

    /// Pauses that grow by `step` up to `max`. Turn it into a policy with [`Backoff::attempts`] or
    /// [`Backoff::forever`].
    pub fn linear(step: Duration, max: Duration) -> Backoff {
        Backoff::Linear { step, max }
    }

    /// Removes the limit on the number of attempts.
    #[must_use]
    pub fn forever(self) -> RetryPolicy {
        RetryPolicy { max_attempts: u32::MAX, ..self }
    }

    /// Stops retrying on errors of these kinds. See [`RetryPolicy::is_final`].
    #[must_use]
    pub fn non_retryable(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> RetryPolicy {
        self.non_retryable.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Randomises each pause by up to this percentage.
    #[must_use]
    pub fn jitter(mut self, percent: u8) -> RetryPolicy {
        self.jitter_percent = percent.min(100);
        self
    }

    /// Whether an error is not retried because its kind is listed.
    ///
    /// The kind of a string is the string itself. The kind of an object is its field `kind` or `type`, or its only key,
    /// which is how enums are serialised.
    pub fn is_final(&self, error: &Payload) -> bool {
        !self.non_retryable.is_empty()
            && error_kind(error).is_some_and(|kind| self.non_retryable.contains(&kind))
    }

    /// The pause after attempt `attempt`, with jitter derived from `random`.
    pub fn pause(&self, attempt: u32, random: u64) -> Duration {
        let pause_ms = self.backoff.pause_ms(attempt);
        let spread = u128::from(pause_ms) * u128::from(self.jitter_percent.min(100)) / 100;
        // Maps the random number to the range from `-spread` to `+spread`.
        let stray = (u128::from(random) * (2 * spread + 1)) >> 64;
        let pause_ms = (u128::from(pause_ms) + stray).saturating_sub(spread);
        Duration::from_millis(u64::try_from(pause_ms).unwrap_or(u64::MAX))
    }
}

impl Backoff {
    /// Up to `max_attempts` attempts, including the first, with these pauses and no jitter.
    pub fn attempts(self, max_attempts: u32) -> RetryPolicy {
        RetryPolicy { max_attempts, backoff: self, jitter_percent: 0, non_retryable: Vec::new() }
    }

    /// Unlimited attempts with these pauses and no jitter. Cancellation, the total timeout and non-retryable errors end
    /// them.
    pub fn forever(self) -> RetryPolicy {
        self.attempts(u32::MAX)
    }

    /// The pause after attempt `attempt`, counted from 1, in whole milliseconds.
    pub fn pause(&self, attempt: u32) -> Duration {
        Duration::from_millis(self.pause_ms(attempt))
    }

    fn pause_ms(&self, attempt: u32) -> u64 {
        match *self {
            Backoff::Fixed { pause } => whole_ms(pause),
            Backoff::Linear { step, max } => {
                whole_ms(step).saturating_mul(u64::from(attempt)).min(whole_ms(max))
            }
            Backoff::Exponential { first, factor_percent, max } => {
                let max_ms = whole_ms(max);
                let grow = |pause_ms: u64, _: u32| {
                    let grown = u128::from(pause_ms) * u128::from(factor_percent.max(100)) / 100;
                    u64::try_from(grown).unwrap_or(u64::MAX).min(max_ms)
                };
                // Limits the loop: by then the pause has reached its maximum.
                (1..attempt.min(1_000)).fold(whole_ms(first).min(max_ms), grow)
            }
        }
    }
}

/// Serialises durations as whole milliseconds, the format of histories.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::whole_ms(*duration))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Whole milliseconds, rounded up.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn error_kind(error: &Payload) -> Option<String> {
    match error.decode::<serde_json::Value>().ok()? {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Object(fields) => {
            let named =
                ["kind", "type"].iter().find_map(|name| fields.get(*name)?.as_str().map(str::to_owned));
            named.or_else(|| if fields.len() == 1 { fields.keys().next().cloned() } else { None })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g21_pauses_are_fixed_linear_or_exponential_and_bounded() {
        let pauses = |backoff: Backoff| [1, 2, 3, 4].map(|attempt| backoff.pause_ms(attempt));
        let ms = Duration::from_millis;
        assert_eq!(pauses(Backoff::Fixed { pause: ms(7) }), [7, 7, 7, 7]);
        assert_eq!(pauses(Backoff::Linear { step: ms(10), max: ms(25) }), [10, 20, 25, 25]);
        let exponential = Backoff::Exponential { first: ms(10), factor_percent: 200, max: ms(70) };
        assert_eq!(pauses(exponential), [10, 20, 40, 70]);
        let endless = Backoff::Exponential { first: ms(1), factor_percent: 300, max: Duration::MAX };
        assert_eq!(endless.pause_ms(u32::MAX), u64::MAX);
    }

    #[test]
    fn g21_jitter_strays_to_both_sides_by_its_share() {
        let policy = RetryPolicy::fixed(Duration::from_secs(1)).attempts(3).jitter(10);
        let pause = |random| policy.pause(1, random).as_millis();
        assert_eq!(pause(0), 900);
        assert_eq!(pause(u64::MAX), 1_100);
        assert_eq!(pause(u64::MAX / 2), 1_000);
        let steady = RetryPolicy::fixed(Duration::from_secs(1)).attempts(3);
        assert_eq!(steady.pause(1, u64::MAX), Duration::from_secs(1));
    }

    #[test]
    fn g21_the_kind_of_an_error_decides_whether_it_is_final() {
        let policy = RetryPolicy::fixed(Duration::from_millis(1))
            .attempts(3)
            .non_retryable(["Declined", "no such card"]);
        let is_final = |json: &str| policy.is_final(&Payload::from_json(json).unwrap());
        assert!(is_final(r#""no such card""#));
        assert!(is_final(r#"{"Declined":{"code":3}}"#));
        assert!(is_final(r#"{"kind":"Declined","code":3}"#));
        assert!(is_final(r#"{"type":"Declined","code":3}"#));
        assert!(!is_final(r#""Declined by a human""#));
        assert!(!is_final(r#"{"Declined":1,"code":3}"#));
        assert!(!is_final("17"));
    }
}
