//! The lease of a session: until when its owner may act, and when it has to be renewed.
//!
//! A lease counts from before its renewal was sent, on a clock that keeps running while the machine sleeps, minus a
//! margin. After that deadline its owner is suspended: it starts nothing and replies to nobody, but keeps its memory.
//! Only the store can tell that a session has ended.

use std::time::Duration;

use crate::flaws::{self, Flaw};
use crate::store::SessionId;

use super::clock::Moment;

/// The longest pause before a renewal is retried after a temporary failure.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A session and its lease.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    session: SessionId,
    length: Duration,
    standing: Standing,
    /// After this moment the owner is suspended.
    deadline: Moment,
    renew_at: Moment,
    is_renewing: bool,
    /// Since when it is not known what the session owns.
    unsure_since: Option<Moment>,
    /// Before this moment no shards are claimed; zero once it has passed and was noticed.
    claims_from: Moment,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is being opened.
    Opening,
    /// It exists, as far as is known.
    Live,
    /// It is being replaced by another.
    Replacing(SessionId),
    /// Its owner is ending it.
    Ending,
    /// Its owner has ended it.
    Ended,
}

impl LeaseKeeper {
    pub(crate) fn new(session: SessionId, lease_ms: u64) -> LeaseKeeper {
        LeaseKeeper {
            session,
            length: Duration::from_millis(lease_ms.max(1)),
            standing: Standing::Opening,
            deadline: Moment::ZERO,
            renew_at: Moment::MAX,
            is_renewing: false,
            unsure_since: None,
            claims_from: Moment::ZERO,
        }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX)
    }

    /// Until when the owner may act; zero if it may not.
    pub(crate) fn deadline(&self) -> Moment {
        match self.standing {
            Standing::Live if flaws::is(Flaw::ActsPastDeadline) => Moment::MAX,
            Standing::Live if self.unsure_since.is_none() => self.deadline,
            _ => Moment::ZERO,
        }
    }

    /// Whether the owner may act now.
    pub(crate) fn holds(&self, now: Moment) -> bool {
        now < self.deadline()
    }

    /// Since when there is a gap: the lease has expired, and as far as is known nobody has acted on that.
    pub(crate) fn gap_from(&self, now: Moment) -> Option<Moment> {
        let had_lease = matches!(self.standing, Standing::Live | Standing::Replacing(_));
        (now > self.deadline && had_lease).then_some(self.deadline)
    }

    /// Whether shards may be claimed now. After a gap of its own, a node waits for one lease, so that those that may
    /// have taken its shards over can keep them.
    pub(crate) fn may_claim(&self, now: Moment) -> bool {
        self.holds(now) && now >= self.claims_from
    }

    /// When [`LeaseKeeper::take_claim`] has something to do.
    pub(crate) fn claims_from(&self) -> Option<Moment> {
        (self.standing == Standing::Live && !self.claims_from.is_zero()).then_some(self.claims_from)
    }

    /// Whether claiming has just become possible. Returns `true` once.
    pub(crate) fn take_claim(&mut self, now: Moment) -> bool {
        let is_due = self.claims_from().is_some() && self.may_claim(now);
        if is_due {
            self.claims_from = Moment::ZERO;
        }
        is_due
    }

    /// When [`LeaseKeeper::take_renewal`] has something to do.
    pub(crate) fn next_wake(&self) -> Option<Moment> {
        (self.standing == Standing::Live && !self.is_renewing).then_some(self.renew_at)
    }

    /// Whether the session has to be renewed now; if so, the renewal counts as in progress.
    pub(crate) fn take_renewal(&mut self, now: Moment) -> bool {
        let is_due = self.next_wake().is_some_and(|at| now >= at);
        self.is_renewing |= is_due;
        is_due
    }

    /// Handles a new lease, which was requested at `sent`. Returns since when there was a gap, if there was one: the
    /// previous lease had expired, and others may have acted on that.
    pub(crate) fn handle_leased(&mut self, sent: Moment, now: Moment) -> Option<Moment> {
        let sent = if flaws::is(Flaw::LeaseFromAnswer) { now } else { sent };
        let gap_from = self.gap_from(now);
        if gap_from.is_some() {
            self.claims_from = now + self.length;
        }
        self.standing = Standing::Live;
        self.is_renewing = false;
        self.deadline = sent + self.length - self.length / 10;
        self.renew_at = sent + (self.length / 3).max(Duration::from_millis(1));
        gap_from
    }

    /// Suspends the owner until it is known what the session owns.
    pub(crate) fn handle_unsure(&mut self, now: Moment) {
        self.unsure_since = Some(now);
    }

    /// Handles a list of what the session owns. A list that was requested before the doubt arose does not settle it.
    pub(crate) fn handle_confirmed(&mut self, sent: Moment) {
        self.unsure_since = self.unsure_since.filter(|since| sent < *since);
    }

    /// Handles a temporary failure of a renewal.
    pub(crate) fn handle_not_renewed(&mut self, now: Moment) {
        self.is_renewing = false;
        self.renew_at = now + (self.length / 30).clamp(Duration::from_millis(1), MAX_RETRY_PAUSE);
    }

    /// Notes that it is being replaced.
    pub(crate) fn handle_replacing(&mut self, new: SessionId) {
        self.standing = Standing::Replacing(new);
        self.is_renewing = false;
    }

    /// Handles that it was replaced. Returns since when there was a gap, if there was one.
    pub(crate) fn handle_replaced(&mut self, sent: Moment, now: Moment) -> Option<Moment> {
        let Standing::Replacing(new) = self.standing else { return None };
        self.session = new;
        self.unsure_since = None;
        self.handle_leased(sent, now)
    }

    /// Handles that the session has ended; the next one is being opened. Others may own its shards.
    pub(crate) fn handle_gone(&mut self, next: SessionId, now: Moment) {
        self.session = next;
        self.standing = Standing::Opening;
        self.is_renewing = false;
        self.unsure_since = None;
        self.deadline = Moment::ZERO;
        self.claims_from = now + self.length;
    }

    pub(crate) fn handle_ending(&mut self) {
        self.standing = Standing::Ending;
    }

    pub(crate) fn handle_ended(&mut self) {
        self.standing = Standing::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    fn lease() -> LeaseKeeper {
        let mut lease = LeaseKeeper::new(SessionId(1), 10_000);
        lease.handle_leased(at(1_000), at(1_500));
        lease
    }

    #[test]
    fn g8_a_lease_counts_from_before_it_was_asked_for_less_a_margin() {
        let lease = lease();
        assert!(lease.holds(at(9_999)) && !lease.holds(at(10_000)));
        assert_eq!(lease.next_wake(), Some(at(1_000) + Duration::from_secs(10) / 3));
    }

    #[test]
    fn g8_a_renewal_is_asked_for_once_and_again_after_a_failure() {
        let mut lease = lease();
        assert!(!lease.take_renewal(at(4_000)));
        assert!(lease.take_renewal(at(4_400)) && !lease.take_renewal(at(4_500)));
        lease.handle_not_renewed(at(4_600));
        assert!(!lease.take_renewal(at(4_700)) && lease.take_renewal(at(5_000)));
        lease.handle_leased(at(5_000), at(5_001));
        assert!(lease.holds(at(13_999)));
    }

    #[test]
    fn g8_after_a_gap_of_its_own_a_node_waits_one_lease_before_it_claims() {
        let mut lease = lease();
        assert!(lease.may_claim(at(2_000)));
        lease.handle_leased(at(60_000), at(60_001));
        assert!(lease.holds(at(61_000)) && !lease.may_claim(at(61_000)));
        lease.handle_leased(at(65_000), at(65_001));
        assert_eq!(lease.claims_from(), Some(at(70_001)));
        assert!(!lease.take_claim(at(70_000)) && lease.take_claim(at(70_001)), "this is noticed");
        assert!(lease.may_claim(at(70_002)) && !lease.take_claim(at(70_002)), "and once");
    }

    #[test]
    fn n9_after_a_gap_an_owner_is_suspended_until_it_knows_what_it_owns() {
        let mut lease = lease();
        assert_eq!(lease.handle_leased(at(5_000), at(5_100)), None);
        assert!(lease.handle_leased(at(60_000), at(60_001)).is_some());
        lease.handle_unsure(at(60_001));
        assert!(!lease.holds(at(60_002)));
        lease.handle_confirmed(at(60_000));
        assert!(!lease.holds(at(60_003)), "it was asked for before the gap was noticed");
        lease.handle_confirmed(at(60_001));
        assert!(lease.holds(at(60_004)));
    }

    #[test]
    fn e23_a_gap_lasts_from_the_deadline_until_there_is_a_lease_again_or_nothing_is_held() {
        let mut lease = lease();
        assert_eq!((lease.gap_from(at(10_000)), lease.gap_from(at(10_001))), (None, Some(at(10_000))));
        lease.handle_replacing(SessionId(2));
        assert_eq!(lease.gap_from(at(20_000)), Some(at(10_000)));
        lease.handle_replaced(at(20_000), at(20_001));
        assert_eq!(lease.gap_from(at(20_002)), None);
        lease.handle_gone(SessionId(3), at(20_003));
        assert_eq!(lease.gap_from(at(90_000)), None);
    }

    #[test]
    fn n9_while_a_session_is_replaced_its_owner_is_suspended() {
        let mut lease = lease();
        lease.handle_replacing(SessionId(2));
        assert!(!lease.holds(at(2_000)) && lease.next_wake().is_none());
        lease.handle_replaced(at(3_000), at(3_100));
        assert!(lease.holds(at(3_200)) && lease.session() == SessionId(2));
    }
}
