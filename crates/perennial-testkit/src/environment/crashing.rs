//! Crash-everywhere: a test again and again, each time with one disaster, and the same outcome each time.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::TestEnvironment;
use super::trouble::Trouble;

pub use super::trouble::CrashPoint;

/// How often a test was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// How many commits the test makes. It was repeated with a crash before and after each.
    pub commits: usize,
    /// How many attempts of activities it makes. It was repeated with each run twice, and with a crash during each.
    pub activities: usize,
    /// How many runs that were, with the undisturbed one.
    pub runs: usize,
}

/// Where a disturbed test came to another outcome.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashFailure {
    /// What the undisturbed test came to.
    pub expected: String,
    /// How many runs there were, with the undisturbed one.
    pub runs: usize,
    /// What others came to.
    pub differences: Vec<CrashDifference>,
}

/// One disturbed run that came to another outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashDifference {
    /// Where it was disturbed.
    pub point: CrashPoint,
    /// What the commit held, or which activity it was.
    pub at: String,
    /// What the run came to.
    pub found: String,
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.differences.len();
        let disturbed = self.runs - 1;
        write!(f, "{count} of {disturbed} disasters changed the outcome\n  undisturbed: {}", self.expected)?;
        for CrashDifference { point, at, found } in &self.differences {
            write!(f, "\n  {point}: {found}\n    at {at}")?;
        }
        write!(
            f,
            "\n  what to do: let orchestrations keep nothing but what follows from their input and their context, and let \
             activities that may run twice be told by `idempotency_key`"
        )
    }
}

/// Reads like the message, so that `unwrap` in a test shows it.
impl fmt::Debug for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CrashFailure {}

/// Runs a test once; then again with one disaster each: a crash before and after every commit it makes, a crash during
/// every attempt of an activity, and every attempt run twice. Each run has to come to the same outcome.
///
/// A crash drops everything that is in memory, what a commit was to set off with it; a new owner takes over from the
/// store. The scenario gets a fresh
/// environment each time, and returns whatever has to be the same: the result, and what side effects amount to. What
/// activities write to should therefore be made inside of the scenario, too.
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
/// If the undisturbed run does.
pub fn crash_everywhere<T: PartialEq + fmt::Debug>(
    scenario: impl Fn(TestEnvironment) -> T,
) -> Result<CrashReport, CrashFailure> {
    let undisturbed = Arc::new(Trouble::default());
    let expected = scenario(TestEnvironment::with_trouble(Arc::clone(&undisturbed)));
    let (commits, activities) = (undisturbed.commits(), undisturbed.activities());
    let before = (1..).zip(&commits).map(|(number, at)| (CrashPoint::BeforeCommit(number), at));
    let after = (1..).zip(&commits).map(|(number, at)| (CrashPoint::AfterCommit(number), at));
    let twice = (1..).zip(&activities).map(|(number, at)| (CrashPoint::ActivityTwice(number), at));
    let during = (1..).zip(&activities).map(|(number, at)| (CrashPoint::DuringActivity(number), at));
    let (mut differences, mut runs) = (Vec::new(), 1);
    for (point, at) in before.chain(after).chain(during).chain(twice) {
        runs += 1;
        let disturbed = || scenario(TestEnvironment::with_trouble(Arc::new(Trouble::at(point))));
        let found = match catch_unwind(AssertUnwindSafe(disturbed)) {
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
