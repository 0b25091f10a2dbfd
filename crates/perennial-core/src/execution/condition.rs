//! A condition that several units can wait for: a changed state, a cancel request, idle handlers.

use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use super::scheduler::{Scheduler, Waiter};

/// The slot of one waiting future.
pub(crate) type Seat = u64;

#[derive(Default)]
pub(crate) struct Condition {
    next_seat: Seat,
    waiters: BTreeMap<Seat, Option<Waiter>>,
}

impl Condition {
    /// Registers a waiting future. Returns the waiter that it replaces, to be dropped where user code may run.
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

    /// Removes a waiting future.
    #[must_use]
    pub(crate) fn leave(&mut self, seat: Seat, scheduler: &mut Scheduler) -> Option<Waiter> {
        let waiter = self.waiters.remove(&seat).flatten();
        scheduler.lose_interest(waiter.as_ref());
        waiter
    }

    /// Removes all waiters, to be woken where user code may run.
    #[must_use]
    pub(crate) fn take_all(&mut self, scheduler: &mut Scheduler) -> Vec<Waker> {
        let waiters: Vec<Waiter> = mem::take(&mut self.waiters).into_values().flatten().collect();
        waiters.iter().for_each(|waiter| scheduler.lose_interest(Some(waiter)));
        waiters.into_iter().map(|waiter| waiter.waker).collect()
    }
}
