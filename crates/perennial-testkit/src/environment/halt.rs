//! The reasons why a test environment stops before its goal.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use super::failure::Failure;

/// The reason why a drive stopped before its condition was met.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Halt {
    Blocked {
        id: String,
        report: String,
    },
    /// Nothing can happen any more.
    Stuck {
        waiting_for: String,
    },
    /// The test used more than its limits allow.
    Endless {
        turns: u64,
        attempts: u64,
        elapsed: Duration,
        busiest: String,
    },
    /// A real activity does not end.
    Hanging {
        activity: String,
        instance: String,
        attempt: u32,
        limit: Duration,
    },
}

impl<E> From<Halt> for Failure<E> {
    fn from(halt: Halt) -> Failure<E> {
        match halt {
            Halt::Blocked { id, report } => Failure::Blocked { id, report },
            Halt::Stuck { waiting_for } => Failure::Stuck { waiting_for },
            Halt::Endless { turns, attempts, elapsed, busiest } => {
                Failure::Endless { turns, attempts, elapsed, busiest }
            }
            Halt::Hanging { activity, instance, attempt, limit } => {
                Failure::Hanging { activity, instance, attempt, limit }
            }
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Failure::<Infallible>::from(self.clone()).fmt(f)
    }
}
