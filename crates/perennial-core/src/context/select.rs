//! Waiting for the first of several futures; the others are dropped, hence cancelled.
//!
//! Operands whose results are recorded already are polled by the order in which those were recorded, then the others
//! in argument order, up to the first that is ready. Pass `&mut future` to keep a loser.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::execution::state::Access;
use crate::history::EventId;

use super::{
    ActivityFuture, Branches, Cancelled, ChildFuture, ContinueAsNewFuture, HandlersIdle,
    OrchestrationContext, Shield, SystemCallFuture, Timeout, TimerFuture, UnitHandle, WaitFuture, WaitUntil,
};

/// A future that a select can order among others: it knows whether its result is recorded already.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of a select",
    label = "not an operand",
    note = "put async blocks and other futures into `Box::pin(…)`, or let `ctx.spawn(…)` run them"
)]
pub trait Operand: Future + Unpin {
    /// The event whose result this future would return if it were polled now.
    fn stored_event(&self) -> Option<EventId>;

    /// Whether a poll could change nothing unless there is a [stored event](Self::stored_event): the task waits for the
    /// result already. A select in a loop leaves such operands alone.
    fn is_parked(&self, _cx: &Context<'_>) -> bool {
        false
    }
}

impl<O: Operand + ?Sized> Operand for &mut O {
    fn stored_event(&self) -> Option<EventId> {
        (**self).stored_event()
    }

    fn is_parked(&self, cx: &Context<'_>) -> bool {
        (**self).is_parked(cx)
    }
}

/// Any future, in a box, is an operand without a result of its own.
impl<F: Future + ?Sized> Operand for Pin<Box<F>> {
    fn stored_event(&self) -> Option<EventId> {
        None
    }
}

macro_rules! operands_with_results {
    ($($name:ident $(<$type:ident>)?),*) => {$(
        impl$(<$type>)? Operand for $name$(<$type>)? {
            fn stored_event(&self) -> Option<EventId> {
                $name::stored_event(self)
            }

            fn is_parked(&self, cx: &Context<'_>) -> bool {
                $name::is_parked(self, cx)
            }
        }
    )*};
}

operands_with_results!(ActivityFuture<T>, TimerFuture, WaitFuture<T>, ChildFuture<T>);

macro_rules! operands_without_results {
    ($($name:ident $(<$($type:ident $(: $bound:ident $(<$of:ident> )?)?),*>)?),*) => {$(
        impl$(<$($type $(: $bound $(<$of>)?)?),*>)? Operand for $name$(<$($type),*>)?
        where
            Self: Future + Unpin,
        {
            fn stored_event(&self) -> Option<EventId> {
                None
            }
        }
    )*};
}

operands_without_results!(
    Branches<T>,
    UnitHandle<T>,
    Shield<T>,
    SystemCallFuture<T>,
    ContinueAsNewFuture<T>,
    Cancelled,
    HandlersIdle,
    Timeout<F>,
    WaitUntil<T, P>
);

/// Which of two won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
}

/// Which of three won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either3<A, B, C> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
    /// The third.
    Third(C),
}

impl OrchestrationContext {
    /// Waits for the first of two futures.
    pub fn select2<A: Operand, B: Operand>(&self, a: A, b: B) -> Select2<A, B> {
        Select2 { operands: Some((a, b)) }
    }

    /// Waits for the first of three futures.
    pub fn select3<A: Operand, B: Operand, C: Operand>(&self, a: A, b: B, c: C) -> Select3<A, B, C> {
        Select3 { operands: Some((a, b, c)) }
    }

    /// Waits for the first of many futures, and says which it was.
    ///
    /// To take the results of many futures one after another, use [`completions`](Self::completions): a select in a loop
    /// looks at all that are left each time.
    pub fn select<O: Operand>(&self, operands: impl IntoIterator<Item = O>) -> Select<O> {
        Select { ctx: self.clone(), operands: operands.into_iter().collect() }
    }

    /// Waits for the first of many futures.
    pub fn race<O: Operand>(&self, operands: impl IntoIterator<Item = O>) -> Race<O> {
        Race { select: self.select(operands) }
    }
}

/// The order in which operands are polled.
fn poll_order(stored: impl IntoIterator<Item = Option<EventId>>) -> Vec<usize> {
    let mut order: Vec<(Option<EventId>, usize)> = stored.into_iter().zip(0..).collect();
    order.sort_by_key(|(stored, index)| (stored.is_none(), *stored, *index));
    order.into_iter().map(|(_, index)| index).collect()
}

/// See [`OrchestrationContext::select2`].
#[must_use = "futures do nothing unless awaited"]
pub struct Select2<A, B> {
    operands: Option<(A, B)>,
}

impl<A: Operand, B: Operand> Future for Select2<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((a, b)) = &mut self.operands else {
            return Poll::Pending;
        };
        for index in poll_order([a.stored_event(), b.stored_event()]) {
            let poll = match index {
                0 => Pin::new(&mut *a).poll(cx).map(Either::First),
                _ => Pin::new(&mut *b).poll(cx).map(Either::Second),
            };
            if poll.is_ready() {
                self.operands = None;
                return poll;
            }
        }
        Poll::Pending
    }
}

/// See [`OrchestrationContext::select3`].
#[must_use = "futures do nothing unless awaited"]
pub struct Select3<A, B, C> {
    operands: Option<(A, B, C)>,
}

impl<A: Operand, B: Operand, C: Operand> Future for Select3<A, B, C> {
    type Output = Either3<A::Output, B::Output, C::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((a, b, c)) = &mut self.operands else {
            return Poll::Pending;
        };
        for index in poll_order([a.stored_event(), b.stored_event(), c.stored_event()]) {
            let poll = match index {
                0 => Pin::new(&mut *a).poll(cx).map(Either3::First),
                1 => Pin::new(&mut *b).poll(cx).map(Either3::Second),
                _ => Pin::new(&mut *c).poll(cx).map(Either3::Third),
            };
            if poll.is_ready() {
                self.operands = None;
                return poll;
            }
        }
        Poll::Pending
    }
}

/// See [`OrchestrationContext::select`]. Of no operands, it never returns.
#[must_use = "futures do nothing unless awaited"]
pub struct Select<O> {
    ctx: OrchestrationContext,
    operands: Vec<O>,
}

impl<O: Operand> Select<O> {
    /// The operand whose result was recorded first, of those that have one.
    fn first_stored(&self) -> Option<usize> {
        let is_any = self.ctx.call("poll", Access::Look, || false, |state| Ok(state.anything_stored()));
        let stored = self.operands.iter().filter(|_| is_any).map(Operand::stored_event).enumerate();
        stored.filter_map(|(index, event)| Some((event?, index))).min().map(|(_, index)| index)
    }
}

impl<O: Operand> Future for Select<O> {
    type Output = (usize, O::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let first = self.first_stored();
        for index in first.into_iter().chain(0..self.operands.len()) {
            let operand = &mut self.operands[index];
            if first != Some(index) && operand.is_parked(cx) {
                continue;
            }
            if let Poll::Ready(output) = Pin::new(operand).poll(cx) {
                self.operands.clear();
                return Poll::Ready((index, output));
            }
        }
        Poll::Pending
    }
}

/// See [`OrchestrationContext::race`]. Of no operands, it never returns.
#[must_use = "futures do nothing unless awaited"]
pub struct Race<O> {
    select: Select<O>,
}

impl<O: Operand> Future for Race<O> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        Pin::new(&mut self.select).poll(cx).map(|(_, output)| output)
    }
}

impl<A, B> Unpin for Select2<A, B> {}
impl<A, B, C> Unpin for Select3<A, B, C> {}
impl<O> Unpin for Select<O> {}
impl<O> Unpin for Race<O> {}

macro_rules! plain_debug {
    ($($name:ident<$($type:ident),*>),*) => {$(
        impl<$($type),*> fmt::Debug for $name<$($type),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

plain_debug!(Select2<A, B>, Select3<A, B, C>, Select<O>, Race<O>);
