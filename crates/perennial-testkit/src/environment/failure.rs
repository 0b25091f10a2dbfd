//! Why a run under test gave no result.

use std::fmt;
use std::time::Duration;

use perennial_core::Payload;

/// Why an orchestration under test gave no result.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Failure<E> {
    /// It returned this error.
    Failed(E),
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
        /// What its code left behind when it ended as cancelled by itself.
        output: Option<Payload>,
    },
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
    /// An instance cannot take its next turn: its code panicked, decided otherwise on replay, or is missing.
    Blocked {
        /// The instance.
        id: String,
        /// The whole report.
        report: String,
    },
    /// Nothing can happen any more, and it has not ended.
    Stuck {
        /// What is being waited for.
        waiting_for: String,
    },
    /// The test has taken more turns and attempts, or more virtual time, than
    /// [`turn_limit`](crate::TestEnvironment::turn_limit) and [`time_limit`](crate::TestEnvironment::time_limit) allow:
    /// probably an orchestration loops for ever.
    Endless {
        /// The turns that were taken, by all instances of the test.
        turns: u64,
        /// The attempts of activities that were begun.
        attempts: u64,
        /// The virtual time that has passed.
        elapsed: Duration,
        /// The instance with the most turns, or the activity with the most attempts.
        busiest: String,
    },
    /// A real activity has run for longer, in real time, than
    /// [`real_time_limit`](crate::TestEnvironment::real_time_limit) allows.
    Hanging {
        /// The activity's name.
        activity: String,
        /// The instance that scheduled it.
        instance: String,
        /// 1 for the first attempt.
        attempt: u32,
        /// The limit that it has passed.
        limit: Duration,
    },
    /// It ended, but what it returned is not of the expected type.
    Unreadable {
        /// Why.
        problem: String,
    },
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, |error, f| error.fmt(f))
    }
}

/// Reads like the message, so that `unwrap` in a test shows reports as they are meant.
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
                write!(f, "nothing can happen any more; still waiting for {waiting_for}")
            }
            Failure::Endless { turns, attempts, elapsed, busiest } => {
                let elapsed = in_words(*elapsed);
                write!(
                    f,
                    "no end after {turns} turns, {attempts} attempts of activities and {elapsed} of virtual time; the \
                     busiest is {busiest}; if the test needs more, raise `turn_limit` or `time_limit`"
                )
            }
            Failure::Hanging { activity, instance, attempt, limit } => write!(
                f,
                "the real activity {activity:?} of {instance:?}, attempt {attempt}, has not ended within {limit:?} of real \
                 time, in which the virtual clock stands still; mock it, let it wait by the virtual clock with \
                 `virtual_time`, or raise `real_time_limit`"
            ),
            Failure::Unreadable { problem } => {
                write!(f, "it ended, but what it returned cannot be read: {problem}")
            }
        }
    }
}

/// A span of virtual time, in the unit that people think in.
fn in_words(span: Duration) -> String {
    let days = span.as_secs_f64() / 86_400.0;
    if days < 1.0 { format!("{span:?}") } else { format!("{days:.1} days") }
}
