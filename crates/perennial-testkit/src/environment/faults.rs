//! Faults of a run, and the commits and attempts it made.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A fault in a run. Commits and attempts are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashPoint {
    /// The process crashed just before a commit was written: everything that led to it is lost and repeated.
    BeforeCommit(usize),
    /// The process crashed just after a commit was written, before anything reacted to it.
    AfterCommit(usize),
    /// An attempt of an activity ran twice; the result of the first run was lost.
    ActivityTwice(usize),
    /// The process crashed while an attempt of an activity ran: at its first wait, or at its end if it does
    /// not wait.
    DuringActivity(usize),
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashPoint::BeforeCommit(number) => write!(f, "crash before commit {number}"),
            CrashPoint::AfterCommit(number) => write!(f, "crash after commit {number}"),
            CrashPoint::ActivityTwice(number) => write!(f, "activity {number} run twice"),
            CrashPoint::DuringActivity(number) => write!(f, "crash during activity {number}"),
        }
    }
}

/// The fault of one run, and the steps that could have one.
#[derive(Debug, Default)]
pub(super) struct Faults {
    point: Option<CrashPoint>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    commits: Vec<String>,
    activities: Vec<String>,
}

impl Faults {
    pub(super) fn at(point: CrashPoint) -> Faults {
        Faults { point: Some(point), seen: Mutex::default() }
    }

    /// Records a commit that is about to be written. Returns the fault to inject there, if any.
    pub(super) fn note_commit(&self, words: String) -> Option<CrashPoint> {
        let mut seen = self.lock();
        seen.commits.push(words);
        let number = seen.commits.len();
        self.point.filter(|point| {
            [CrashPoint::BeforeCommit(number), CrashPoint::AfterCommit(number)].contains(point)
        })
    }

    /// Records an attempt that is about to run. Returns the fault to inject there, if any.
    pub(super) fn note_activity(&self, words: String) -> Option<CrashPoint> {
        let mut seen = self.lock();
        seen.activities.push(words);
        let number = seen.activities.len();
        self.point.filter(|point| {
            [CrashPoint::ActivityTwice(number), CrashPoint::DuringActivity(number)].contains(point)
        })
    }

    /// The contents of the commits.
    pub(super) fn commits(&self) -> Vec<String> {
        self.lock().commits.clone()
    }

    pub(super) fn activities(&self) -> Vec<String> {
        self.lock().activities.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
