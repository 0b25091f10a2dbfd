//! The LeaseKeeper: renews the node's session, and knows until when the node may act.
//!
//! A lease counts from before its renewal was sent, on a clock that runs while the machine sleeps, less a margin. Past
//! that deadline the node starts no turn, no activity and no commit, and no answer leaves: another node may own its
//! shards. All of it waits for the next renewal. Running activities go on until the session is known to be gone.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use perennial_core::ShardId;
use perennial_core::shard::{Answer, RequestId};
use perennial_core::store::{Lease, SessionId, StoreError};
use tokio::sync::Notify;

use super::clock::{Asked, LocalClock};
use super::node::Node;

/// The pause before a renewal that failed for a passing reason is tried again, at most.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// A thread that waits for no time in particular wakes up this often.
const LONG_PAUSE: Duration = Duration::from_secs(3_600);

pub(crate) struct LeaseKeeper {
    clock: Arc<dyn LocalClock>,
    /// Until when the node may act, in microseconds of the steady clock; 0 if it may not.
    deadline_us: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    renewed: Notify,
}

#[derive(Default)]
struct State {
    /// None while one session is being replaced by the next, and when it is gone.
    session: Option<SessionId>,
    renew_at: Duration,
    retry_pause: Duration,
    is_renewing: bool,
    /// Answers that wait for a renewal.
    held: Vec<(RequestId, Answer)>,
    stopped: bool,
}

impl LeaseKeeper {
    pub(super) fn new(clock: Arc<dyn LocalClock>) -> LeaseKeeper {
        LeaseKeeper {
            clock,
            deadline_us: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            renewed: Notify::new(),
        }
    }

    /// Runs until stopped or until the node is gone.
    pub(super) fn run(node: Weak<Node>) {
        let keep = move || {
            while let Some(node) = node.upgrade() {
                let Some(session) = node.lease_keeper.next_renewal() else {
                    return;
                };
                node.renew(session);
            }
        };
        thread::Builder::new().name("perennial-lease".to_owned()).spawn(keep).expect("a thread starts");
    }

    /// Whether the node may act now.
    pub(super) fn holds(&self) -> bool {
        let deadline_us = self.deadline_us.load(Ordering::Acquire);
        self.clock.running() < Duration::from_micros(deadline_us)
    }

    /// Whether the node may act now; if not, the session is renewed as soon as it is time to. A machine that slept
    /// has slept over that time.
    pub(super) fn holds_or_hurries(&self) -> bool {
        let holds = self.holds();
        if !holds {
            self.look();
        }
        holds
    }

    /// Keeps an answer back until the next renewal, or gives it back if it may leave now.
    pub(super) fn hold_back(&self, request: RequestId, answer: Answer) -> Option<Answer> {
        if self.holds() {
            return Some(answer);
        }
        let mut state = self.lock();
        // A renewal may have come in between.
        if self.holds() {
            return Some(answer);
        }
        if !state.stopped {
            state.held.push((request, answer));
        }
        drop(state);
        self.look();
        None
    }

    /// Waits until the node may act. Returns whether it ever will.
    pub(super) fn wait(&self) -> bool {
        if self.holds_or_hurries() {
            return true;
        }
        let mut state = self.lock();
        while !self.holds() && !state.stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.stopped
    }

    /// Resolves when the node may act.
    pub(super) async fn held(&self) {
        loop {
            let renewed = self.renewed.notified();
            if self.holds_or_hurries() {
                return;
            }
            renewed.await;
        }
    }

    /// Looks at the clock again.
    pub(super) fn look(&self) {
        // Whoever is about to wait has looked before, under this lock.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// The session has a lease. Returns the answers that may leave now.
    fn handle_leased(&self, session: SessionId, asked: Asked, lease: Lease) -> Vec<(RequestId, Answer)> {
        let length = Duration::from_millis(lease.expires_ms.saturating_sub(lease.now_ms));
        let deadline = asked.at + length - length / 10;
        let mut state = self.lock();
        if state.stopped {
            return Vec::new();
        }
        state.session = Some(session);
        state.renew_at = asked.at + (length / 3).max(Duration::from_millis(1));
        state.retry_pause = (length / 30).clamp(Duration::from_millis(1), RETRY_PAUSE);
        self.deadline_us.store(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
        let held = if self.holds() { mem::take(&mut state.held) } else { Vec::new() };
        drop(state);
        self.changed.notify_all();
        self.renewed.notify_waiters();
        held
    }

    /// The session is being ended.
    pub(super) fn handle_ended(&self) {
        let mut state = self.lock();
        self.deadline_us.store(0, Ordering::Release);
        state.session = None;
        state.is_renewing = false;
    }

    /// Renews no more. What waits gets no answer from here.
    pub(super) fn stop(&self) {
        let held = {
            let mut state = self.lock();
            state.stopped = true;
            mem::take(&mut state.held)
        };
        drop(held);
        self.changed.notify_all();
    }

    /// Waits until the session has to be renewed. None when stopped.
    fn next_renewal(&self) -> Option<SessionId> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let pause = match state.session {
                Some(session) if !state.is_renewing => {
                    let now = self.clock.running();
                    if now >= state.renew_at {
                        state.is_renewing = true;
                        return Some(session);
                    }
                    state.renew_at - now
                }
                _ => LONG_PAUSE,
            };
            let waited = self.changed.wait_timeout(state, self.clock.patience(pause));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A renewal was answered. Returns whether it still matters.
    fn end_renewal(&self, session: SessionId) -> bool {
        let mut state = self.lock();
        let matters = !state.stopped && state.is_renewing && state.session == Some(session);
        if matters {
            state.is_renewing = false;
        }
        matters
    }

    fn try_again(&self) {
        let mut state = self.lock();
        state.renew_at = self.clock.running() + state.retry_pause;
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    fn renew(self: &Arc<Node>, session: SessionId) {
        let (node, asked) = (Arc::clone(self), Asked::now(&*self.turn_clock.local));
        let reply = move |lease| node.renewal_answered(session, asked, lease);
        self.store.renew_session(session, Box::new(reply));
    }

    fn renewal_answered(
        self: &Arc<Node>,
        session: SessionId,
        asked: Asked,
        lease: Result<Lease, StoreError>,
    ) {
        if !self.lease_keeper.end_renewal(session) {
            return;
        }
        match lease {
            Ok(lease) => self.leased(session, asked, lease),
            Err(StoreError::SessionGone) => self.session_gone(),
            Err(error) if error.is_retryable() || matches!(error, StoreError::Unknown(_)) => {
                tracing::warn!(%error, "the session could not be renewed; trying again");
                self.lease_keeper.try_again();
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// The session lives for another lease: what waited for that goes on.
    pub(super) fn leased(self: &Arc<Node>, session: SessionId, asked: Asked, lease: Lease) {
        let sighting = asked.answered(&*self.turn_clock.local, lease.now_ms);
        if let Some(problem) = sighting.problem() {
            return self.fail(problem);
        }
        if self.turn_clock.handle_seen(&sighting) {
            self.timekeeper.look();
        }
        for (request, answer) in self.lease_keeper.handle_leased(session, asked, lease) {
            self.answer(request, answer);
        }
        self.go_on_committing();
        // Leases of tasks that others hold may have run out as well.
        self.take_tasks();
    }

    /// The session has ended without our doing: what the shards hold in memory may no longer be true.
    fn session_gone(self: &Arc<Node>) {
        self.lease_keeper.handle_ended();
        let reason = "PER-0504 session gone: another node may own this node's shards; start this one again";
        self.fail_and(reason.to_owned(), |node| {
            for shard in ShardId::all() {
                node.with_shard(shard, |shard, _| shard.handle_lost());
            }
        });
    }
}
