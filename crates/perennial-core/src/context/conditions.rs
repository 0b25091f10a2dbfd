//! Waiting for conditions of the execution itself, and handling events, updates, queries and cancellation.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::execution::condition::{Condition, Seat};
use crate::execution::mailbox::EventHandler;
use crate::execution::scheduler::{Scheduler, UnitFuture, Waiter};
use crate::execution::state::{
    Access, CancelHandler, ExecutionState, QueryHandler, UpdateHandler, Validator,
};
use crate::execution::turn_local;
use crate::history::{Decision, EventId, Payload};

use super::OrchestrationContext;
use super::state::State;

impl OrchestrationContext {
    /// Handles every event of this name in its own unit, including events that arrived earlier.
    pub fn on_event<F, Fut>(&self, name: impl Into<String>, handler: F)
    where
        F: Fn(Payload) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let name = name.into();
        let handler: EventHandler = Arc::new(move |payload| Box::pin(handler(payload)));
        self.call(
            "on_event",
            Access::Act,
            || (),
            |state| {
                if state.mailbox.has_handler(&name) || state.mailbox.has_waits(&name) {
                    let what = format!(
                        "the event {name:?} already has waits or a handler; a name has waits or one handler"
                    );
                    return Err(state.misuse(what));
                }
                for arrived in state.mailbox.install(&name, Arc::clone(&handler)) {
                    state.dispatch_event(&handler, &name, arrived);
                }
                Ok(())
            },
        );
    }

    /// Handles updates of this name. `validate` runs between turns and decides whether an update is accepted; it may
    /// only read. `handler` runs in its own unit, and its result is the reply.
    #[track_caller]
    pub fn on_update<V, F, Fut>(&self, name: impl Into<String>, validate: V, handler: F)
    where
        V: Fn(&Payload) -> Result<(), Payload> + Send + Sync + 'static,
        F: Fn(Payload) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Payload, Payload>> + Send + 'static,
    {
        let (ctx, location) = (self.clone(), Location::caller());
        let handler = move |source_event_id: EventId, payload: Payload| {
            let (ctx, answer) = (ctx.clone(), handler(payload));
            let unit: UnitFuture = Box::pin(async move {
                let result = answer.await;
                ctx.complete_update(source_event_id, result, location);
            });
            unit
        };
        let name = name.into();
        let pair: (Validator, UpdateHandler) = (Arc::new(validate), Arc::new(handler));
        self.call(
            "on_update",
            Access::Act,
            || (),
            |state| {
                if state.updates.contains_key(&name) {
                    return Err(state.misuse(format!("the update {name:?} already has a handler")));
                }
                state.updates.insert(name, pair.clone());
                Ok(())
            },
        );
    }

    /// Replaces the validator of the updates of this name. Used by the typed API.
    #[doc(hidden)]
    pub fn validate_update<V>(&self, name: &str, validate: V)
    where
        V: Fn(&Payload) -> Result<(), Payload> + Send + Sync + 'static,
    {
        let mut validator: Option<Validator> = Some(Arc::new(validate));
        let replaced = self.call(
            "validate",
            Access::Act,
            || None,
            |state| match (state.updates.get_mut(name), validator.take()) {
                (Some((current, _)), Some(validator)) => Ok(Some(std::mem::replace(current, validator))),
                _ => Err(state.misuse(format!("the update {name:?} has no handler"))),
            },
        );
        drop(replaced);
    }

    fn complete_update(
        &self,
        source_event_id: EventId,
        result: Result<Payload, Payload>,
        location: &'static Location<'static>,
    ) {
        let decision = Decision::UpdateCompleted { source_event_id, result };
        self.call("on_update", Access::Act, || (), |state| state.emit(decision, location).map(|_| ()));
    }

    /// Answers queries of this name. The handler may only read, usually a [`State`].
    pub fn on_query<F>(&self, name: impl Into<String>, handler: F)
    where
        F: Fn(Payload) -> Result<Payload, Payload> + Send + Sync + 'static,
    {
        let name = name.into();
        let handler: QueryHandler = Arc::new(handler);
        self.call(
            "on_query",
            Access::Act,
            || (),
            |state| {
                if state.queries.contains_key(&name) {
                    return Err(state.misuse(format!("the query {name:?} already has a handler")));
                }
                state.queries.insert(name, Arc::clone(&handler));
                Ok(())
            },
        );
    }

    /// Takes over cancellation permanently: a cancel request then starts this handler in its own unit, and the code
    /// decides how the instance ends.
    pub fn on_cancel<F, Fut>(&self, handler: F)
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let mut handler: Option<CancelHandler> = Some(Box::new(move || Box::pin(handler())));
        self.call(
            "on_cancel",
            Access::Act,
            || (),
            |state| {
                state.cancel.taken_over = true;
                state.add_cancel_handler(handler.take());
                Ok(())
            },
        );
    }

    /// Takes over cancellation permanently: resolves with the reason when cancellation is requested. The code decides
    /// how the instance ends, for example with [`end_cancelled`](Self::end_cancelled).
    pub fn cancelled(&self) -> Cancelled {
        self.call(
            "cancelled",
            Access::Act,
            || (),
            |state| {
                state.cancel.taken_over = true;
                Ok(())
            },
        );
        Cancelled { ctx: self.clone(), seat: None }
    }

    /// Whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.call("is_cancelled", Access::Look, || false, |state| Ok(state.cancel.requested.is_some()))
    }

    /// The reason for the requested cancellation, or `None` if it was not requested or has not been delivered to the
    /// code.
    pub fn cancel_reason(&self) -> Option<String> {
        self.call("cancel_reason", Access::Look, || None, |state| Ok(state.cancel.requested.clone()))
    }

    /// Resolves when no handler is running, other than the one that calls this.
    pub fn handlers_idle(&self) -> HandlersIdle {
        HandlersIdle { ctx: self.clone(), seat: None }
    }

    /// Waits for a condition of the execution.
    fn await_condition(
        &self,
        cx: &Context<'_>,
        seat: &mut Option<Seat>,
        which: Which,
        is_met: impl FnOnce(&ExecutionState) -> bool,
    ) -> Poll<()> {
        let mut waker = Some(cx.waker().clone());
        let (poll, old) = self.call(
            "poll",
            Access::Act,
            || (Poll::Pending, None),
            |state| {
                if is_met(state) {
                    return Ok((Poll::Ready(()), which.leave(state, seat)));
                }
                let waiter = waker.take().map(|waker| Waiter::new(state.unit.clone(), waker));
                Ok((Poll::Pending, which.park(state, seat, waiter)))
            },
        );
        drop(old);
        poll
    }

    fn leave_condition(&self, seat: &mut Option<Seat>, which: Which) {
        if seat.is_some() {
            drop(turn_local::with(&self.flags, |state| which.leave(state, seat)));
        }
    }
}

/// A condition of the execution.
#[derive(Clone, Copy)]
enum Which {
    Cancelled,
    HandlersIdle,
    State(usize),
}

impl Which {
    fn park(
        self,
        state: &mut ExecutionState,
        seat: &mut Option<Seat>,
        waiter: Option<Waiter>,
    ) -> Option<Waiter> {
        let (condition, scheduler) = self.of(state);
        condition.park(seat, waiter, scheduler)
    }

    fn leave(self, state: &mut ExecutionState, seat: &mut Option<Seat>) -> Option<Waiter> {
        let (condition, scheduler) = self.of(state);
        condition.leave(seat.take()?, scheduler)
    }

    fn of(self, state: &mut ExecutionState) -> (&mut Condition, &mut Scheduler) {
        let ExecutionState { scheduler, cancel, idle, states, .. } = state;
        let condition = match self {
            Which::Cancelled => &mut cancel.condition,
            Which::HandlersIdle => idle,
            Which::State(id) => &mut states[id],
        };
        (condition, scheduler)
    }
}

/// See [`OrchestrationContext::cancelled`].
#[must_use = "futures do nothing unless awaited"]
pub struct Cancelled {
    ctx: OrchestrationContext,
    seat: Option<Seat>,
}

impl Future for Cancelled {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        let Cancelled { ctx, seat } = &mut *self;
        let requested =
            ctx.await_condition(cx, seat, Which::Cancelled, |state| state.cancel.requested.is_some());
        requested.map(|()| ctx.cancel_reason().unwrap_or_default())
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.ctx.leave_condition(&mut self.seat, Which::Cancelled);
    }
}

/// See [`OrchestrationContext::handlers_idle`].
#[must_use = "futures do nothing unless awaited"]
pub struct HandlersIdle {
    ctx: OrchestrationContext,
    seat: Option<Seat>,
}

impl Future for HandlersIdle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let HandlersIdle { ctx, seat } = &mut *self;
        ctx.await_condition(cx, seat, Which::HandlersIdle, |state| {
            !state.scheduler.handlers_busy(&state.unit)
        })
    }
}

impl Drop for HandlersIdle {
    fn drop(&mut self) {
        self.ctx.leave_condition(&mut self.seat, Which::HandlersIdle);
    }
}

/// See [`OrchestrationContext::wait_until`].
#[must_use = "futures do nothing unless awaited"]
pub struct WaitUntil<T, P> {
    state: State<T>,
    condition: P,
    seat: Option<Seat>,
}

impl<T, P> WaitUntil<T, P> {
    pub(super) fn new(state: State<T>, condition: P) -> WaitUntil<T, P> {
        WaitUntil { state, condition, seat: None }
    }
}

impl<T, P: FnMut(&T) -> bool> Future for WaitUntil<T, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let WaitUntil { state, condition, seat } = &mut *self;
        let is_met = state.read(condition);
        state.ctx.await_condition(cx, seat, Which::State(state.id), |_| is_met)
    }
}

impl<T, P> Drop for WaitUntil<T, P> {
    fn drop(&mut self) {
        self.state.ctx.leave_condition(&mut self.seat, Which::State(self.state.id));
    }
}

impl<T, P> Unpin for WaitUntil<T, P> {}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").finish_non_exhaustive()
    }
}

impl fmt::Debug for HandlersIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlersIdle").finish_non_exhaustive()
    }
}

impl<T, P> fmt::Debug for WaitUntil<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitUntil").field("state", &self.state).finish_non_exhaustive()
    }
}
