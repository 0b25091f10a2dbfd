//! Repeats a test with one fault per run, and compares the outcomes.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::TestEnvironment;
use super::faults::Faults;

pub use super::faults::CrashPoint;

/// The runs that [`crash_everywhere`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// The number of commits in the test. It was repeated with a crash before and after each.
    pub commits: usize,
    /// The number of activity attempts in the test. It was repeated with each attempt run twice, and with a
    /// crash during each.
    pub activities: usize,
    /// The number of runs, including the one without a fault.
    pub runs: usize,
}

/// The runs whose outcome differs from that of the run without a fault.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashFailure {
    /// The outcome of the run without a fault.
    pub expected: String,
    /// The number of runs, including the one without a fault.
    pub runs: usize,
    /// The runs with another outcome.
    pub differences: Vec<CrashDifference>,
}

/// One run with another outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashDifference {
    /// The fault that was injected.
    pub point: CrashPoint,
    /// The content of the commit, or the activity.
    pub at: String,
    /// The outcome of this run.
    pub found: String,
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.differences.len();
        let faults = self.runs - 1;
        write!(f, "{count} of {faults} faults changed the outcome\n  without a fault: {}", self.expected)?;
        for CrashDifference { point, at, found } in &self.differences {
            write!(f, "\n  {point}: {found}\n    at {at}")?;
        }
        write!(
            f,
            "\n  what to do: use only the input and the context in orchestrations, and in activities that may run \
             twice recognize the repetition by `idempotency_key`"
        )
    }
}

/// The same text as `Display`, so that `unwrap` in a test shows it.
impl fmt::Debug for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CrashFailure {}

/// Runs a test once without faults, then once for each fault: a crash before and after every commit, a crash
/// during every attempt of an activity, and every attempt run twice. Every run must have the same outcome.
///
/// A crash drops everything in memory, including effects of a commit that were still to follow it; a new
/// owner takes over from the store. The scenario gets a new environment in each run and returns the values to
/// compare: the result, and the sum of the side effects. Create the things that activities write to inside
/// the scenario, too.
///
/// ```
/// use perennial::prelude::*;
/// use perennial_testkit::{TestEnvironment, crash_everywhere};
///
/// #[activity]
/// async fn charge(_: ActivityContext, cents: u64) -> Result<u64, String> {
///     Ok(cents)
/// }
///
/// #[orchestration]
/// async fn pay_twice(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
///     let first = ctx.schedule_activity(charge, cents).await?;
///     ctx.schedule_timer(Duration::from_secs(30 * 86_400)).await;
///     Ok(first + ctx.schedule_activity(charge, cents).await?)
/// }
///
/// let report = crash_everywhere(|env| {
///     env.register(pay_twice).register(charge).run(pay_twice, 500)
/// });
/// let report = report.unwrap();
/// assert_eq!((report.commits, report.activities), (4, 2));
/// assert_eq!(report.runs, 1 + 2 * 4 + 2 * 2);
/// ```
///
/// # Panics
///
/// If the run without faults panics.
pub fn crash_everywhere<T: PartialEq + fmt::Debug>(
    scenario: impl Fn(TestEnvironment) -> T,
) -> Result<CrashReport, CrashFailure> {
    let without_faults = Arc::new(Faults::default());
    let expected = scenario(TestEnvironment::with_faults(Arc::clone(&without_faults)));
    let (commits, activities) = (without_faults.commits(), without_faults.activities());
    let before = (1..).zip(&commits).map(|(number, at)| (CrashPoint::BeforeCommit(number), at));
    let after = (1..).zip(&commits).map(|(number, at)| (CrashPoint::AfterCommit(number), at));
    let twice = (1..).zip(&activities).map(|(number, at)| (CrashPoint::ActivityTwice(number), at));
    let during = (1..).zip(&activities).map(|(number, at)| (CrashPoint::DuringActivity(number), at));
    let (mut differences, mut runs) = (Vec::new(), 1);
    for (point, at) in before.chain(after).chain(during).chain(twice) {
        runs += 1;
        let with_fault = || scenario(TestEnvironment::with_faults(Arc::new(Faults::at(point))));
        let found = match catch_unwind(AssertUnwindSafe(with_fault)) {
            Ok(found) if found == expected => continue,
            Ok(found) => format!("{found:?}"),
            Err(panic) => format!("the test panicked: {}", panic_words(&*panic)),
        };
        differences.push(CrashDifference { point, at: at.clone(), found });
    }
    if differences.is_empty() {
        Ok(CrashReport { commits: commits.len(), activities: activities.len(), runs })
    } else {
        Err(CrashFailure { expected: format!("{expected:?}"), runs, differences })
    }
}

fn panic_words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
