//! Something that several units can wait for at once: a state that changes, a cancel request, idle handlers.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use super::scheduler::{Scheduler, Waiter};

/// The place of one waiting future.
pub(crate) type Seat = u64;

#[derive(Default)]
pub(crate) struct Condition {
    next_seat: Seat,
    waiters: BTreeMap<Seat, Option<Waiter>>,
}

impl Condition {
    /// Lets a future wait here. Returns the waiter it replaces, to be dropped where user code may run.
    #[must_use]
    pub(crate) fn park(
        &mut self,
        seat: &mut Option<Seat>,
        waiter: Option<Waiter>,
        scheduler: &mut Scheduler,
    ) -> Option<Waiter> {
        let seat = *seat.get_or_insert_with(|| {
            self.next_seat += 1;
            self.next_seat
        });
        scheduler.park(self.waiters.entry(seat).or_default(), waiter)
    }

    /// A future no longer waits here.
    #[must_use]
    pub(crate) fn leave(&mut self, seat: Seat, scheduler: &mut Scheduler) -> Option<Waiter> {
        let waiter = self.waiters.remove(&seat).flatten();
        scheduler.lose_interest(waiter.as_ref());
        waiter
    }

    /// Everyone who waits here, to be woken where user code may run.
    #[must_use]
    pub(crate) fn take_all(&mut self, scheduler: &mut Scheduler) -> Vec<Waker> {
        let waiters: Vec<Waiter> = mem::take(&mut self.waiters).into_values().flatten().collect();
        waiters.iter().for_each(|waiter| scheduler.lose_interest(Some(waiter)));
        waiters.into_iter().map(|waiter| waiter.waker).collect()
    }
}
