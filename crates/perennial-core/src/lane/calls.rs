//! Calls that are under way, and those that are made again after a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::SessionId;

use super::call::CallId;
use super::clock::Moment;
use super::purpose::Purpose;

/// The first and the longest pause between two tries to reach the store.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// A call that was made and not answered.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) purpose: Purpose,
    /// The session it was made under.
    pub(super) session: SessionId,
    pub(super) sent: Moment,
    /// Counts changes of what the lane owns: a page that was read before one is read again.
    pub(super) ownership: u64,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    open: BTreeMap<CallId, Open>,
    later: BTreeMap<(Moment, u64), Purpose>,
    /// How often in a row the store could not be reached.
    failures: u32,
}

impl Calls {
    pub(super) fn begin(&mut self, open: Open) -> CallId {
        self.next += 1;
        let id = CallId(self.next);
        self.open.insert(id, open);
        id
    }

    /// A call was answered. `None` if nobody waits for it any more.
    pub(super) fn end(&mut self, id: CallId) -> Option<Open> {
        self.open.remove(&id)
    }

    /// Whether a call for something like this is under way or planned.
    pub(super) fn has(&self, is_it: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().map(|open| &open.purpose).chain(self.later.values()).any(is_it)
    }

    /// Whether a call for something like this is under way that was made under a session.
    pub(super) fn is_open(&self, session: SessionId, is_it: impl Fn(&Purpose) -> bool) -> bool {
        self.open.values().any(|open| open.session == session && is_it(&open.purpose))
    }

    /// The store answered something.
    pub(super) fn handle_reached(&mut self) {
        self.failures = 0;
    }

    /// The store could not be reached: the call is made again after a pause that grows.
    pub(super) fn again_later(&mut self, now: Moment, purpose: Purpose) {
        self.failures = (self.failures + 1).min(20);
        let pause = PAUSES.0.saturating_mul(1 << (self.failures - 1).min(10)).min(PAUSES.1);
        self.at(now + pause, purpose);
    }

    /// Makes a call at a time.
    pub(super) fn at(&mut self, at: Moment, purpose: Purpose) {
        self.next += 1;
        self.later.insert((at, self.next), purpose);
    }

    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Purpose> {
        let later = self.later.split_off(&(now + Duration::from_nanos(1), 0));
        std::mem::replace(&mut self.later, later).into_values().collect()
    }

    /// The planned calls that waited for the lane to be able to act: they are made now.
    pub(super) fn take_commits(&mut self) -> Vec<Purpose> {
        let is_commit = |purpose: &Purpose| matches!(purpose, Purpose::Commit);
        if !self.later.values().any(is_commit) {
            return Vec::new();
        }
        let (commits, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(_, purpose)| is_commit(purpose));
        self.later = rest.into_iter().collect();
        commits.into_iter().map(|(_, purpose)| purpose).collect()
    }

    pub(super) fn next_wake(&self) -> Option<Moment> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Forgets all calls that are under way or planned: their answers are late.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.later.clear();
    }
}
