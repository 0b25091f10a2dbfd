//! Branches, spawned units and shields: units that run concurrently with the one that creates them.
//!
//! A unit first runs in the round after the one that created it. Its output is stored in a slot that it shares with its
//! handle.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::execution::scheduler::{GroupId, UnitFuture, Waiter};
use crate::execution::shared_flags::SharedFlags;
use crate::execution::state::{Access, ExecutionState, Mode};
use crate::execution::turn_local;
use crate::history::UnitId;

use super::OrchestrationContext;

type Slot<T> = Arc<Mutex<Option<T>>>;

impl OrchestrationContext {
    /// Runs branches concurrently, each in its own unit. The results are in branch order.
    pub fn parallel<F>(&self, branches: impl IntoIterator<Item = F>) -> Branches<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Branches { units: self.start_units("parallel", branches) }
    }

    /// Runs a future in its own unit.
    pub fn spawn<F>(&self, future: F) -> UnitHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        UnitHandle { units: self.start_units("spawn", [future]) }
    }

    /// Runs a future in its own unit, which keeps running when the shield is dropped, so that nothing in it is
    /// cancelled.
    pub fn shield<F>(&self, future: F) -> Shield<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Shield { units: self.start_units("shield", [future]) }
    }

    /// Runs a future in its own unit, which keeps running when the shield is dropped and which a cancel request does
    /// not end either: if the code left cancellation to the engine, everything else is dropped, and the instance ends
    /// as cancelled when all such units have finished, within the grace period.
    pub fn uncancellable<F>(&self, future: F) -> Shield<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let units = self.start_units("uncancellable", [future]);
        self.call(
            "uncancellable",
            Access::Act,
            || (),
            |state| {
                units.ids.iter().for_each(|id| state.scheduler.make_uncancellable(id));
                Ok(())
            },
        );
        Shield { units }
    }

    fn start_units<F>(&self, call: &'static str, branches: impl IntoIterator<Item = F>) -> Units<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (slots, mut futures): (Vec<Slot<F::Output>>, Vec<UnitFuture>) =
            branches.into_iter().map(in_unit).unzip();
        let (group, ids) = self.call(
            call,
            Access::Act,
            || (None, Vec::new()),
            |state: &mut ExecutionState| {
                let Some(ids) = state.scheduler.next_branch_ids(&state.unit, futures.len()) else {
                    return Ok((None, Vec::new()));
                };
                let group = state.scheduler.add_group(ids.len());
                for (id, future) in ids.iter().zip(futures.drain(..)) {
                    state.scheduler.add(id.clone(), future, Some(group), &state.flags);
                }
                Ok((Some(group), ids))
            },
        );
        Units { flags: Arc::clone(&self.flags), ctx: self.clone(), group, ids, slots }
    }
}

/// Wraps a future so that it stores its output in a slot.
fn in_unit<F>(future: F) -> (Slot<F::Output>, UnitFuture)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let slot: Slot<F::Output> = Arc::default();
    let place = Arc::clone(&slot);
    let unit = async move {
        let output = future.await;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
    };
    (slot, Box::pin(unit))
}

/// Units and the right to their outputs.
struct Units<T> {
    flags: Arc<SharedFlags>,
    ctx: OrchestrationContext,
    /// `None` once released, or if it was made where no unit can run.
    group: Option<GroupId>,
    ids: Vec<UnitId>,
    slots: Vec<Slot<T>>,
}

impl<T> Units<T> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Vec<T>> {
        let Some(group) = self.group else {
            return Poll::Pending;
        };
        let mut waker = Some(cx.waker().clone());
        let (done, old) = self.ctx.call(
            "poll",
            Access::Act,
            || (false, None),
            |state| {
                if state.scheduler.group_is_done(group) {
                    return Ok((true, None));
                }
                let waiter = waker.take().map(|waker| Waiter::new(state.unit.clone(), waker));
                Ok((false, state.scheduler.await_group(group, waiter)))
            },
        );
        drop(old);
        if !done {
            return Poll::Pending;
        }
        self.release(true);
        let take = |slot: Slot<T>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        Poll::Ready(mem::take(&mut self.slots).into_iter().filter_map(take).collect())
    }

    /// Releases the units: they are detached and keep running, or they are dropped.
    fn release(&mut self, detach: bool) {
        let Some(group) = self.group.take() else { return };
        let released = turn_local::with(&self.flags, |state| {
            if state.mode == Mode::Step {
                return Some(state.scheduler.release_group(group, &self.ids, detach));
            }
            state.misuse("a unit's handle was dropped outside of a step; only running code may".to_owned());
            None
        });
        match released {
            Some(to_drop) => drop(to_drop),
            None if self.flags.is_inert() => {}
            None => {
                self.ctx.note_out_of_turn("the drop of a unit's handle");
            }
        }
    }
}

/// The outputs of parallel branches, in branch order. Dropping it drops the branches.
#[must_use = "dropping it drops the branches"]
pub struct Branches<T> {
    units: Units<T>,
}

impl<T> Future for Branches<T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<T>> {
        self.units.poll(cx)
    }
}

impl<T> Drop for Branches<T> {
    fn drop(&mut self) {
        self.units.release(false);
    }
}

/// The output of a spawned unit. Dropping it drops the unit, unless it is detached.
#[must_use = "dropping it drops the unit; detach() lets it go on"]
pub struct UnitHandle<T> {
    units: Units<T>,
}

impl<T> UnitHandle<T> {
    /// Detaches the unit: it keeps running until the root ends.
    pub fn detach(mut self) {
        self.units.release(true);
    }
}

impl<T> Future for UnitHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        poll_single(&mut self.units, cx)
    }
}

impl<T> Drop for UnitHandle<T> {
    fn drop(&mut self) {
        self.units.release(false);
    }
}

/// The output of a shielded future. Dropping it does not stop the future.
#[must_use = "futures do nothing unless awaited"]
pub struct Shield<T> {
    units: Units<T>,
}

impl<T> Future for Shield<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        poll_single(&mut self.units, cx)
    }
}

impl<T> Drop for Shield<T> {
    fn drop(&mut self) {
        self.units.release(true);
    }
}

fn poll_single<T>(units: &mut Units<T>, cx: &Context<'_>) -> Poll<T> {
    match units.poll(cx) {
        Poll::Ready(mut outputs) => outputs.pop().map_or(Poll::Pending, Poll::Ready),
        Poll::Pending => Poll::Pending,
    }
}

impl<T> fmt::Debug for Units<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.ids).finish()
    }
}

macro_rules! unit_futures {
    ($($name:ident),*) => {$(
        impl<T> Unpin for $name<T> {}

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.units).finish()
            }
        }
    )*};
}

unit_futures!(Branches, UnitHandle, Shield);
