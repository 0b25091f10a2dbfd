//! Waiting for the first of several futures; the others are dropped, which cancels them.
//!
//! Operands whose results are already recorded are polled first, in the order in which the results were recorded, then
//! the others in argument order, until one is ready. Pass `&mut future` to keep a loser.

use std::fmt;
use std::future::{Future, Pending, PollFn, Ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::execution::operations::Outlook;
use crate::execution::state::{Access, ExecutionState};
use crate::history::EventId;

use super::{
    ActivityFuture, Branches, Cancelled, ChildFuture, ChildStarted, ContinueAsNewFuture, DeliveryFuture,
    EndCancelledFuture, HandlersIdle, Join, Join2, Join3, OrchestrationContext, Shield, SystemCallFuture,
    Timeout, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil,
};

/// A future that a select can order among others because it knows whether its result is already recorded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand of a select",
    label = "not an operand",
    note = "put async blocks and other futures into `std::pin::pin!(…)` or `Box::pin(…)`"
)]
pub trait Operand: Future + Unpin {
    /// The event whose result this future would return if it were polled now.
    fn stored_event(&self) -> Option<EventId>;

    /// Whether polling is pointless unless there is a [stored event](Self::stored_event), because the task already
    /// waits for the result. A select in a loop skips such operands.
    fn is_parked(&self, _cx: &Context<'_>) -> bool {
        false
    }

    /// Whether futures of this type only ever wait for the result of one operation.
    #[doc(hidden)]
    const IS_OPERATION: bool = false;

    /// The operation that it waits for. A wide select uses it to find its operand.
    #[doc(hidden)]
    fn token(&self) -> Option<usize> {
        None
    }
}

impl<O: Operand> Operand for &mut O {
    const IS_OPERATION: bool = O::IS_OPERATION;

    fn stored_event(&self) -> Option<EventId> {
        (**self).stored_event()
    }

    fn is_parked(&self, cx: &Context<'_>) -> bool {
        (**self).is_parked(cx)
    }

    fn token(&self) -> Option<usize> {
        (**self).token()
    }
}

/// The operands of a select: a `Vec` or an array of futures; or `&mut` of one, or of a slice, which keeps the losers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a collection of operands",
    label = "not a collection of operands",
    note = "pass a `Vec`, an array, or `&mut` of either; collect iterators into a `Vec`"
)]
pub trait Operands {
    /// The futures.
    type Operand: Operand;

    /// The operands.
    fn operands(&self) -> &[Self::Operand];

    /// The operands, to be polled.
    fn operands_mut(&mut self) -> &mut [Self::Operand];
}

macro_rules! collections_of_operands {
    ($($(const $size:ident for)? $collection:ty),*) => {$(
        impl<O: Operand $(, const $size: usize)?> Operands for $collection {
            type Operand = O;

            fn operands(&self) -> &[O] {
                &self[..]
            }

            fn operands_mut(&mut self) -> &mut [O] {
                &mut self[..]
            }
        }
    )*};
}

collections_of_operands!(Vec<O>, &mut Vec<O>, &mut [O], const N for [O; N], const N for &mut [O; N]);

/// Any future can be an operand after pinning it with [`pin!`](std::pin::pin). It is treated as having no recorded
/// result.
impl<F: Future + ?Sized> Operand for Pin<&mut F> {
    fn stored_event(&self) -> Option<EventId> {
        None
    }
}

/// Any boxed future can be an operand. It is treated as having no recorded result.
impl<F: Future + ?Sized> Operand for Pin<Box<F>> {
    fn stored_event(&self) -> Option<EventId> {
        None
    }
}

macro_rules! operands_with_results {
    ($($name:ident $(<$type:ident>)?),*) => {$(
        impl$(<$type>)? Operand for $name$(<$type>)? {
            const IS_OPERATION: bool = true;

            fn stored_event(&self) -> Option<EventId> {
                $name::stored_event(self)
            }

            fn is_parked(&self, cx: &Context<'_>) -> bool {
                $name::is_parked(self, cx)
            }

            fn token(&self) -> Option<usize> {
                $name::token(self)
            }
        }
    )*};
}

operands_with_results!(
    ActivityFuture<T>,
    TimerFuture,
    WaitFuture<T>,
    ChildFuture<T>,
    ChildStarted,
    DeliveryFuture
);

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
    EndCancelledFuture<T>,
    Cancelled,
    HandlersIdle,
    Timeout<F>,
    WaitUntil<T, P>,
    Join<F: Future>,
    Join2<A: Future, B: Future>,
    Join3<A: Future, B: Future, C: Future>,
    TryJoin<F, T>,
    Select<L>,
    Select2<A, B>,
    Select3<A, B, C>,
    Race<L>,
    Ready<T>,
    Pending<T>,
    PollFn<F>
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

impl<T> Either<T, T> {
    /// The winner's output, whichever it was.
    pub fn into_inner(self) -> T {
        match self {
            Either::First(value) | Either::Second(value) => value,
        }
    }
}

impl<T> Either3<T, T, T> {
    /// The winner's output, whichever it was.
    pub fn into_inner(self) -> T {
        match self {
            Either3::First(value) | Either3::Second(value) | Either3::Third(value) => value,
        }
    }
}

impl OrchestrationContext {
    /// Waits for the first of two futures. Durable futures and combinators of them are passed directly; any other
    /// future, for example an async block, must be pinned first.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::time::Duration;
    /// # use perennial_core::{OrchestrationContext, Payload};
    /// async fn reminded(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ///     let asked = async {
    ///         ctx.schedule_activity("ask", ()).await.ok();
    ///         ctx.schedule_wait("answer").await
    ///     };
    ///     let given_up = async {
    ///         ctx.schedule_timer(Duration::from_secs(60)).await;
    ///         Payload::from("no answer")
    ///     };
    ///     Ok(ctx.select2(pin!(asked), pin!(given_up)).await.into_inner())
    /// }
    /// ```
    pub fn select2<A: Operand, B: Operand>(&self, a: A, b: B) -> Select2<A, B> {
        Select2 { operands: Some((a, b)) }
    }

    /// Waits for the first of three futures.
    pub fn select3<A: Operand, B: Operand, C: Operand>(&self, a: A, b: B, c: C) -> Select3<A, B, C> {
        Select3 { operands: Some((a, b, c)) }
    }

    /// Waits for the first of many futures and returns its output with its index.
    ///
    /// Pass `&mut futures` to keep the losers. In a loop over the remaining futures, each result examines only a few of
    /// the activities, timers, events and sub-orchestrations, as long as no other unit waits for such operations and
    /// all of them have been polled; otherwise it examines all of them. [`completions`](Self::completions) has no such
    /// condition.
    pub fn select<L: Operands>(&self, operands: L) -> Select<L> {
        Select { ctx: self.clone(), operands: Some(operands) }
    }

    /// Waits for the first of many futures and returns its output.
    pub fn race<L: Operands>(&self, operands: L) -> Race<L> {
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

/// See [`OrchestrationContext::select`]. Without operands it never completes.
#[must_use = "futures do nothing unless awaited"]
pub struct Select<L> {
    ctx: OrchestrationContext,
    operands: Option<L>,
}

impl<L: Operands> Select<L> {
    fn operands(&self) -> &[L::Operand] {
        self.operands.as_ref().map_or(&[], Operands::operands)
    }

    /// The operand whose result was recorded first, among those with a recorded result.
    fn first_stored(&self) -> Option<usize> {
        let is_any = self.ctx.call("poll", Access::Look, || false, |state| Ok(state.anything_stored()));
        let stored = self.operands().iter().filter(|_| is_any).map(Operand::stored_event).enumerate();
        stored.filter_map(|(index, event)| Some((event?, index))).min().map(|(_, index)| index)
    }

    /// What is known without examining each operand, so that a loop of selects over the remaining operands does not
    /// examine all of them for every result.
    fn outlook(&self, cx: &Context<'_>) -> Outlook {
        if !L::Operand::IS_OPERATION {
            return Outlook::Unclear;
        }
        self.ctx.call("poll", Access::Look, || Outlook::Unclear, |state| Ok(state.outlook(cx.waker())))
    }

    /// The operand that waits for an operation. Its last known position, or its position among operands in schedule
    /// order, is tried first; if that fails, all are examined and their positions remembered.
    fn position(&self, token: usize, place: Option<usize>) -> Option<usize> {
        let is_it = |index: &usize| self.operands().get(*index).and_then(Operand::token) == Some(token);
        let scheduled = |token: usize| {
            self.ctx.call("poll", Access::Look, || None, |state| Ok(state.scheduled_by(token)))
        };
        let in_order = || {
            let event = scheduled(token)?;
            let before = |operand: &L::Operand| operand.token().and_then(scheduled) < Some(event);
            Some(self.operands().partition_point(before))
        };
        place.filter(is_it).or_else(|| in_order().filter(is_it)).or_else(|| {
            let tokens: Vec<Option<usize>> = self.operands().iter().map(Operand::token).collect();
            let note = |state: &mut ExecutionState| {
                state.note_places(&tokens);
                Ok(())
            };
            self.ctx.call("poll", Access::Look, || (), note);
            tokens.iter().position(|found| *found == Some(token))
        })
    }
}

impl<L: Operands> Future for Select<L> {
    type Output = (usize, <L::Operand as Future>::Output);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let known = match self.outlook(cx) {
            Outlook::AllWait => return Poll::Pending,
            Outlook::Result { token, place } => self.position(token, place),
            Outlook::Unclear => None,
        };
        let mut first = known.or_else(|| self.first_stored());
        loop {
            let Some(operands) = self.operands.as_mut().map(Operands::operands_mut) else {
                return Poll::Pending;
            };
            for index in first.into_iter().chain(0..operands.len()) {
                let operand = &mut operands[index];
                if first != Some(index) && operand.is_parked(cx) {
                    continue;
                }
                if let Poll::Ready(output) = Pin::new(operand).poll(cx) {
                    self.operands = None;
                    return Poll::Ready((index, output));
                }
            }
            // A sub-orchestration that is retried consumed its result and keeps waiting. Another operand may have a
            // result, and the unit is not woken for that result again.
            first = self.first_stored();
            if first.is_none() {
                return Poll::Pending;
            }
        }
    }
}

/// See [`OrchestrationContext::race`]. Without operands it never completes.
#[must_use = "futures do nothing unless awaited"]
pub struct Race<L> {
    select: Select<L>,
}

impl<L: Operands> Future for Race<L> {
    type Output = <L::Operand as Future>::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.select).poll(cx).map(|(_, output)| output)
    }
}

impl<A, B> Unpin for Select2<A, B> {}
impl<A, B, C> Unpin for Select3<A, B, C> {}
impl<L> Unpin for Select<L> {}
impl<L> Unpin for Race<L> {}

macro_rules! plain_debug {
    ($($name:ident<$($type:ident),*>),*) => {$(
        impl<$($type),*> fmt::Debug for $name<$($type),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

plain_debug!(Select2<A, B>, Select3<A, B, C>, Select<L>, Race<L>);
