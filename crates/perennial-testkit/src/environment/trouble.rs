//! What is to go wrong in a run, and how far the run came.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a run was disturbed. Commits and attempts are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashPoint {
    /// The process died just before a commit was written: all that led to it is lost and happens again.
    BeforeCommit(usize),
    /// The process died just after a commit was written: nobody has heard of it.
    AfterCommit(usize),
    /// An attempt of an activity ran twice; what the first returned was lost.
    ActivityTwice(usize),
    /// The process died while an attempt of an activity ran: after it had come to where it waits for something, or to
    /// its end if it waits for nothing.
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

/// The trouble of one run.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    point: Option<CrashPoint>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    commits: Vec<String>,
    activities: Vec<String>,
}

impl Trouble {
    pub(super) fn at(point: CrashPoint) -> Trouble {
        Trouble { point: Some(point), seen: Mutex::default() }
    }

    /// A commit is about to be written. Returns where the process dies with it, if it does.
    pub(super) fn note_commit(&self, words: String) -> Option<CrashPoint> {
        let mut seen = self.lock();
        seen.commits.push(words);
        let number = seen.commits.len();
        self.point.filter(|point| {
            [CrashPoint::BeforeCommit(number), CrashPoint::AfterCommit(number)].contains(point)
        })
    }

    /// An attempt is about to run. Returns what is to go wrong with it, if anything is.
    pub(super) fn note_activity(&self, words: String) -> Option<CrashPoint> {
        let mut seen = self.lock();
        seen.activities.push(words);
        let number = seen.activities.len();
        self.point.filter(|point| {
            [CrashPoint::ActivityTwice(number), CrashPoint::DuringActivity(number)].contains(point)
        })
    }

    /// What each commit held.
    pub(super) fn commits(&self) -> Vec<String> {
        self.lock().commits.clone()
    }

    /// What each attempt was.
    pub(super) fn activities(&self) -> Vec<String> {
        self.lock().activities.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
