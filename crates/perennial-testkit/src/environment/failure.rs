//! The error of an orchestration under test.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use perennial_core::Payload;

/// The reason why an orchestration under test returned no result.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The orchestration returned this error.
    Failed(E),
    /// The orchestration was cancelled.
    Cancelled {
        /// The reason that was given.
        reason: String,
        /// The value that its code returned when it ended itself as cancelled.
        output: Option<Payload>,
    },
    /// The instance was terminated.
    Terminated {
        /// The reason that was given.
        reason: String,
    },
    /// An instance cannot take its next turn: its code panicked, made other decisions on replay, or is
    /// missing.
    Blocked {
        /// The blocked instance.
        id: String,
        /// The full report.
        report: String,
    },
    /// Nothing can happen any more, and the instance has not ended.
    Stuck {
        /// The events, activities and instances that are waited for.
        waiting_for: String,
    },
    /// The test used more turns and attempts, or more virtual time, than
    /// [`turn_limit`](crate::TestEnvironment::turn_limit) and
    /// [`time_limit`](crate::TestEnvironment::time_limit) allow. Most likely an orchestration loops forever.
    Endless {
        /// The number of turns of all instances in the test.
        turns: u64,
        /// The number of started attempts of activities.
        attempts: u64,
        /// The virtual time that has passed.
        elapsed: Duration,
        /// The instance with the most turns, or the activity with the most attempts.
        busiest: String,
    },
    /// A real activity ran for longer, in real time, than
    /// [`real_time_limit`](crate::TestEnvironment::real_time_limit) allows.
    Hanging {
        /// The activity's name.
        activity: String,
        /// The instance that scheduled it.
        instance: String,
        /// 1 for the first attempt.
        attempt: u32,
        /// The limit that was exceeded.
        limit: Duration,
    },
    /// The orchestration ended, but its result or error is not of the expected type.
    Unreadable {
        /// The decoding error.
        problem: String,
    },
}

/// The reason why the driver of a test stopped before its goal. No orchestration has ended with it.
pub(super) type Halt = Failure<Infallible>;

impl Halt {
    /// The same failure of an orchestration with errors of any type.
    pub(super) fn widen<E>(self) -> Failure<E> {
        match self {
            Failure::Failed(never) => match never {},
            Failure::Cancelled { reason, output } => Failure::Cancelled { reason, output },
            Failure::Terminated { reason } => Failure::Terminated { reason },
            Failure::Blocked { id, report } => Failure::Blocked { id, report },
            Failure::Stuck { waiting_for } => Failure::Stuck { waiting_for },
            Failure::Endless { turns, attempts, elapsed, busiest } => {
                Failure::Endless { turns, attempts, elapsed, busiest }
            }
            Failure::Hanging { activity, instance, attempt, limit } => {
                Failure::Hanging { activity, instance, attempt, limit }
            }
            Failure::Unreadable { problem } => Failure::Unreadable { problem },
        }
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |error, f| error.fmt(f))
    }
}

/// The same text as `Display`, so that `unwrap` in a test shows reports unescaped.
impl<E: fmt::Debug> fmt::Debug for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |error, f| write!(f, "Failed({error:?})"))
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Failure<E> {}

impl<E> Failure<E> {
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        own: impl FnOnce(&E, &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self {
            Failure::Failed(error) => own(error, f),
            Failure::Cancelled { reason, .. } => write!(f, "cancelled: {reason}"),
            Failure::Terminated { reason } => write!(f, "terminated: {reason}"),
            Failure::Blocked { id, report } => write!(f, "{id:?} is blocked: {report}"),
            Failure::Stuck { waiting_for } => {
                write!(f, "the test is stuck waiting for {waiting_for}")
            }
            Failure::Endless { turns, attempts, elapsed, busiest } => {
                let elapsed = in_words(*elapsed);
                let (turns, attempts) = (many(*turns, "turn"), many(*attempts, "attempt"));
                write!(
                    f,
                    "the test did not end after {turns}, {attempts} of activities and {elapsed} of virtual time; \
                     the busiest is {busiest}; if it needs more, raise `turn_limit` or `time_limit`"
                )
            }
            Failure::Hanging { activity, instance, attempt, limit } => write!(
                f,
                "the real activity {activity:?} of {instance:?}, attempt {attempt}, has not ended within {limit:?} of real \
                 time, during which the virtual clock does not move; mock it, run it on the virtual clock with \
                 `virtual_time`, or raise `real_time_limit`"
            ),
            Failure::Unreadable { problem } => {
                write!(f, "it ended, but its result is not of the expected type: {problem}")
            }
        }
    }
}

/// A span of virtual time in a readable unit.
fn in_words(span: Duration) -> String {
    let days = span.as_secs_f64() / 86_400.0;
    if days < 1.0 { format!("{span:?}") } else { format!("{days:.1} days") }
}

/// A number of things, with the right plural.
pub(super) fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_kit_one_turn_is_not_called_turns() {
        let busiest = format!("the instance \"o\" with {} in {}", many(1, "turn"), many(2, "execution"));
        let endless = Failure::<String>::Endless { turns: 1, attempts: 2, elapsed: Duration::ZERO, busiest };
        let text = endless.to_string();
        assert!(text.starts_with("the test did not end after 1 turn, 2 attempts of activities"), "{text}");
        assert!(text.contains("\"o\" with 1 turn in 2 executions"), "{text}");
    }
}
