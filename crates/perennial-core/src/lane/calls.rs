//! Calls in progress, and calls that are repeated after a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::planned::Planned;
use crate::store::SessionId;

use super::call::CallId;
use super::clock::Moment;
use super::purpose::Purpose;

/// The shortest and the longest pause between two attempts to reach the store.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// A call in progress.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) purpose: Purpose,
    /// The session it was made under.
    pub(super) session: SessionId,
    pub(super) sent: Moment,
    /// Incremented when the lane gains or loses shards: a page that was read before such a change is read again.
    pub(super) ownership: u64,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    open: BTreeMap<CallId, Open>,
    planned: Planned<Purpose>,
    /// How many times in a row the store could not be reached.
    failures: u32,
}

impl Calls {
    pub(super) fn begin(&mut self, open: Open) -> CallId {
        self.next += 1;
        let id = CallId(self.next);
        self.open.insert(id, open);
        id
    }

    /// Ends a call. `None` if its result is no longer wanted.
    pub(super) fn end(&mut self, id: CallId) -> Option<Open> {
        self.open.remove(&id)
    }

    /// Whether a matching call is in progress or planned.
    pub(super) fn has(&self, is_it: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().map(|open| &open.purpose).chain(self.planned.iter()).any(is_it)
    }

    /// Whether a matching call made under a session is in progress.
    pub(super) fn is_open(&self, session: SessionId, is_it: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().any(|open| open.session == session && is_it(&open.purpose))
    }

    /// Notes that the store replied.
    pub(super) fn handle_reached(&mut self) {
        self.failures = 0;
    }

    /// Plans to repeat a call because the store could not be reached, after a growing pause.
    pub(super) fn again_later(&mut self, now: Moment, purpose: Purpose) {
        self.failures = (self.failures + 1).min(20);
        let pause = PAUSES.0.saturating_mul(1 << (self.failures - 1).min(10)).min(PAUSES.1);
        self.at(now + pause, purpose);
    }

    /// Plans a call for a time.
    pub(super) fn at(&mut self, at: Moment, purpose: Purpose) {
        self.planned.add(at, purpose);
    }

    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Purpose> {
        self.planned.take_due(now)
    }

    /// Takes the planned calls that waited until the lane may act.
    pub(super) fn take_commits(&mut self) -> Vec<Purpose> {
        self.planned.take_all(|purpose| matches!(purpose, Purpose::Commit))
    }

    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.planned.next_wake()
    }

    /// Forgets all calls in progress or planned: their results come too late.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.planned.clear();
    }
}
