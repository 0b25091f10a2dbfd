//! Activities, timers, waits and sub-orchestrations: calls that return a durable future.
//!
//! A decision is recorded when the call is made, in call order. Dropping a future before its result is recorded cancels
//! the operation.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::execution::operations::{Completion, Leftover, OperationKind, Token};
use crate::execution::state::Access;
use crate::execution::turn_local;
use crate::history::{
    ActivityError, ActivityOptions, ChildError, ClosePolicy, Decision, EventId, NotOfType, Payload,
    PayloadSource, RetryPolicy, whole_ms,
};

use crate::instance::check_name;

use super::OrchestrationContext;
use super::child_attempts::{Attempts, ChildStarted};
use super::sent::DeliveryFuture;

impl OrchestrationContext {
    /// Schedules an activity.
    #[track_caller]
    pub fn schedule_activity(&self, name: impl Into<String>, input: impl Into<Payload>) -> ActivityFuture {
        let decision =
            Decision::ActivityScheduled { name: name.into(), id: None, input: input.into(), options: None };
        ActivityFuture::new(self.schedule("schedule_activity", OperationKind::Activity, decision))
    }

    /// Waits for a duration, counted from the time of this turn and rounded up to whole milliseconds.
    #[track_caller]
    pub fn schedule_timer(&self, delay: Duration) -> TimerFuture {
        let location = Location::caller();
        let delay_ms = whole_ms(delay);
        let token = self.call(
            "schedule_timer",
            Access::Act,
            || None,
            |state| {
                let due_ms = state.now_ms.saturating_add(delay_ms);
                state.schedule(OperationKind::Timer, Decision::TimerCreated { due_ms }, location).map(Some)
            },
        );
        TimerFuture { operation: OperationFuture::new(self, token, location) }
    }

    /// Waits for an external event. Events that arrived earlier are kept and received first.
    #[track_caller]
    pub fn schedule_wait(&self, name: impl Into<String>) -> WaitFuture {
        self.wait_at("schedule_wait", name.into(), Location::caller())
    }

    pub(super) fn wait_at(
        &self,
        call: &'static str,
        name: String,
        location: &'static Location<'static>,
    ) -> WaitFuture {
        let token = self.call(call, Access::Act, || None, |state| state.subscribe(name, location).map(Some));
        WaitFuture::new(OperationFuture::new(self, token, location))
    }

    /// Schedules a sub-orchestration at the latest version, under an id derived from this instance's id.
    #[track_caller]
    pub fn schedule_sub_orchestration(
        &self,
        name: impl Into<String>,
        input: impl Into<Payload>,
    ) -> ChildFuture {
        self.schedule_child(name.into(), None, None, input.into())
    }

    /// Schedules a sub-orchestration under an id chosen by the caller.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<Payload>,
    ) -> ChildFuture {
        self.schedule_child(name.into(), None, Some(instance.into()), input.into())
    }

    /// Schedules a sub-orchestration at an exact version.
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: impl Into<String>,
        input: impl Into<Payload>,
    ) -> ChildFuture {
        self.schedule_child(name.into(), Some(version.into()), None, input.into())
    }

    /// Schedules a sub-orchestration at an exact version, under an id chosen by the caller.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id_versioned(
        &self,
        name: impl Into<String>,
        version: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<Payload>,
    ) -> ChildFuture {
        self.schedule_child(name.into(), Some(version.into()), Some(instance.into()), input.into())
    }

    #[track_caller]
    fn schedule_child(
        &self,
        name: String,
        version: Option<String>,
        instance: Option<String>,
        input: Payload,
    ) -> ChildFuture {
        let close = ClosePolicy::default();
        let options = None;
        let decision = Decision::SubOrchestrationScheduled { name, version, instance, input, close, options };
        ChildFuture::new(self.schedule("schedule_sub_orchestration", OperationKind::Child, decision))
    }

    #[track_caller]
    pub(super) fn schedule(
        &self,
        call: &'static str,
        kind: OperationKind,
        decision: Decision,
    ) -> OperationFuture {
        let location = Location::caller();
        let token =
            self.call(call, Access::Act, || None, |state| state.schedule(kind, decision, location).map(Some));
        OperationFuture::new(self, token, location)
    }
}

/// The common part of all durable futures: a token until the operation has completed.
pub(super) struct OperationFuture {
    pub(super) ctx: OrchestrationContext,
    /// `None` once it has completed, or if it was made where nothing can be scheduled.
    pub(super) token: Option<Token>,
    polled: bool,
    /// The outcome of an operation that was stopped in the step that scheduled it; nothing of it is recorded.
    settled: Option<Completion>,
    /// The address of the waker that waits for the result. The waker is kept alive, so nothing else can get that
    /// address.
    parked_with: Option<usize>,
    pub(super) location: &'static Location<'static>,
}

impl OperationFuture {
    pub(super) fn new(
        ctx: &OrchestrationContext,
        token: Option<Token>,
        location: &'static Location<'static>,
    ) -> OperationFuture {
        let (polled, settled, parked_with) = (false, None, None);
        OperationFuture { ctx: ctx.clone(), token, polled, settled, parked_with, location }
    }

    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<(EventId, Completion)> {
        let Some(token) = self.token else {
            return match self.settled.take() {
                Some(completion) => Poll::Ready((EventId(0), completion)),
                None => Poll::Pending,
            };
        };
        self.polled = true;
        // Combinators that poll all operands at every wake find most of them already waiting.
        if self.is_parked(cx)
            && self.ctx.call("poll", Access::Act, || true, |state| Ok(state.waits_with(token, cx.waker())))
        {
            return Poll::Pending;
        }
        let mut waker = Some(cx.waker().clone());
        let inert = || (Poll::Pending, Leftover::default());
        let (poll, leftover) =
            self.ctx.call("poll", Access::Act, inert, |state| Ok(state.poll_operation(token, &mut waker)));
        self.parked_with = Some(cx.waker().data().addr());
        if poll.is_ready() {
            self.token = None;
        }
        leftover.settle();
        poll
    }

    fn stored_event(&self) -> Option<EventId> {
        let token = self.token?;
        self.ctx.call("poll", Access::Look, || None, |state| Ok(state.stored_event(token)))
    }

    /// Whether the polling task already waits for the result, or the result is stored.
    fn is_parked(&self, cx: &Context<'_>) -> bool {
        self.token.is_some() && self.parked_with == Some(cx.waker().data().addr())
    }

    /// Requests that the operation stops, and keeps waiting for its outcome. An operation scheduled in the current step
    /// leaves no events and completes with `at_once`.
    #[track_caller]
    pub(super) fn stop(&mut self, request: impl FnOnce(EventId) -> Decision, at_once: Completion) {
        let (token, location) = (self.token, Location::caller());
        let Some(token) = token else { return };
        let withdraws =
            self.ctx.call("cancel", Access::Act, || false, |state| state.stop(token, location, request));
        if withdraws {
            self.withdraw(at_once);
        }
    }

    /// Abandons the operation, and completes with this.
    pub(super) fn withdraw(&mut self, at_once: Completion) {
        let Some(token) = self.token.take() else { return };
        let location = self.location;
        let leftover = self
            .ctx
            .call("cancel", Access::Act, Leftover::default, |state| Ok(state.abandon(token, location)));
        leftover.settle();
        self.settled = Some(at_once);
    }

    /// Changes the decision while it is not recorded yet.
    pub(super) fn amend(&mut self, change: impl FnOnce(&mut Decision)) {
        let (token, polled) = (self.token, self.polled);
        self.ctx.call(
            "option",
            Access::Act,
            || (),
            |state| {
                if polled {
                    let what =
                        "an option was set on a future after its first poll; set options in the call that schedules it";
                    return Err(state.misuse(what.to_owned()));
                }
                token.map_or(Ok(()), |token| state.amend(token, change))
            },
        );
    }

    /// Fails the turn because of an option that cannot be set.
    fn refuse(&self, what: String) {
        self.ctx.call("option", Access::Act, || (), |state| Err(state.misuse(what)));
    }

    /// The decoded value; a payload that does not decode fails the turn.
    pub(super) fn read<T>(
        &self,
        event: EventId,
        source: PayloadSource,
        read: Result<T, NotOfType>,
    ) -> Poll<T> {
        match read {
            Ok(value) => Poll::Ready(value),
            Err(mismatch) => {
                self.ctx.fail_decoding(event, source, &mismatch);
                Poll::Pending
            }
        }
    }
}

impl Drop for OperationFuture {
    fn drop(&mut self) {
        let Some(token) = self.token else { return };
        let location = self.location;
        match turn_local::with(&self.ctx.flags, |state| state.abandon(token, location)) {
            Some(leftover) => leftover.settle(),
            None if self.ctx.flags.is_inert() => {}
            None => {
                self.ctx.note_out_of_turn("the drop of a durable future");
            }
        }
    }
}

/// Converts a payload to the type that the code expects.
pub(super) type Decode<T> = fn(Payload) -> Result<T, NotOfType>;

pub(super) fn decode_typed<T: DeserializeOwned>(payload: Payload) -> Result<T, NotOfType> {
    payload.decode_as()
}

/// Converts the outcome of an operation to the type that the code expects.
type Read<F, R> = fn(Result<Payload, F>) -> Result<R, NotOfType>;

fn read_typed<T: DeserializeOwned, F>(outcome: Result<Payload, F>) -> Result<Result<T, F>, NotOfType> {
    outcome.map_or_else(|failure| Ok(Err(failure)), |payload| payload.decode_as().map(Ok))
}

/// The outcome of an activity, as recorded.
#[must_use = "dropping it cancels the activity"]
pub struct ActivityFuture<R = Result<Payload, ActivityError>> {
    operation: OperationFuture,
    read: Read<ActivityError, R>,
}

impl ActivityFuture {
    fn new(operation: OperationFuture) -> ActivityFuture {
        ActivityFuture { operation, read: Ok }
    }
}

impl<R> ActivityFuture<R> {
    /// Decodes the result. A result that does not decode fails the turn with the event and the type.
    pub fn typed<U: DeserializeOwned>(self) -> ActivityFuture<Result<U, ActivityError>> {
        self.read_by(read_typed)
    }

    /// Converts the outcome. An outcome that cannot be converted fails the turn with the event and the type.
    pub fn read_by<S>(
        self,
        read: fn(Result<Payload, ActivityError>) -> Result<S, NotOfType>,
    ) -> ActivityFuture<S> {
        ActivityFuture { operation: self.operation, read }
    }

    /// Sets options that apply where the call sets none.
    pub fn defaults(self, defaults: ActivityOptions) -> Self {
        self.option(|options| *options = defaults)
    }

    /// Retries the activity after failures.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.option(|options| options.retry = Some(policy))
    }

    /// Limits how long one attempt may run.
    pub fn timeout(self, attempt: Duration) -> Self {
        self.option(|options| options.attempt_timeout_ms = Some(whole_ms(attempt)))
    }

    /// Limits how long an attempt may wait for a worker.
    pub fn queue_timeout(self, wait: Duration) -> Self {
        self.option(|options| options.queue_timeout_ms = Some(whole_ms(wait)))
    }

    /// Limits how long all attempts together may take.
    pub fn total_timeout(self, total: Duration) -> Self {
        self.option(|options| options.total_timeout_ms = Some(whole_ms(total)))
    }

    /// Limits the time between two heartbeats.
    pub fn heartbeat_timeout(self, silence: Duration) -> Self {
        self.option(|options| options.heartbeat_timeout_ms = Some(whole_ms(silence)))
    }

    /// Lets only workers with this tag run the activity.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        let tag = tag.into();
        self.option(|options| options.tag = Some(tag))
    }

    /// Gives the activity an id of your choice: 1 to 200 bytes without control characters and without `::`. Histories,
    /// `perennial show` and the activity itself see it, so that people find "the charge of invoice 7" among a thousand.
    ///
    /// Two open activities of an execution cannot have the same id: scheduling the second fails the turn. The id is free
    /// again once the first has completed, or its future has been dropped. It is unrelated to the ids of instances and to
    /// the idempotency key, which stays what it was.
    ///
    /// The id is part of the decision, like the name and the input: code that is replayed has to give the same id, or none
    /// if none is recorded. Changing it is a change of the code, for [`patched`](OrchestrationContext::patched) or a new
    /// version.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        let chosen = id.into();
        match check_name(&chosen) {
            Ok(()) => self.operation.amend(|decision| {
                if let Decision::ActivityScheduled { id, .. } = decision {
                    *id = Some(chosen);
                }
            }),
            Err(error) => {
                self.operation.refuse(format!("{chosen:?} cannot be the id of an activity: {error}"))
            }
        }
        self
    }

    /// Requests that the activity stops, and keeps waiting: the future resolves once the running attempt has really
    /// ended, with its result or with `ActivityError::Cancelled`. It is not retried.
    #[track_caller]
    pub fn cancel(&mut self) {
        let stop = |source_event_id| Decision::ActivityStopRequested { source_event_id };
        self.operation.stop(stop, Completion::Activity(Err(ActivityError::Cancelled)));
    }

    /// Lets an attempt hand out a completion token and return before it has a result. The holder of the token completes
    /// the attempt later, within its timeouts.
    pub fn completes_later(self) -> Self {
        self.option(|options| options.completes_later = true)
    }

    fn option(mut self, set: impl FnOnce(&mut ActivityOptions)) -> Self {
        self.operation.amend(|decision| {
            if let Decision::ActivityScheduled { options, .. } = decision {
                set(options.get_or_insert_default());
            }
        });
        self
    }
}

impl<R> Future for ActivityFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        match ready!(self.operation.poll(cx)) {
            (event, Completion::Activity(outcome)) => {
                self.operation.read(event, PayloadSource::Other, (self.read)(outcome))
            }
            _ => Poll::Pending,
        }
    }
}

/// Resolves when a timer has fired.
#[must_use = "dropping it cancels the timer"]
pub struct TimerFuture {
    operation: OperationFuture,
}

impl Future for TimerFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.operation.poll(cx).map(|_| ())
    }
}

/// The payload of an external event.
#[must_use = "dropping it gives the wait up"]
pub struct WaitFuture<T = Payload> {
    operation: OperationFuture,
    decode: Decode<T>,
}

impl WaitFuture {
    fn new(operation: OperationFuture) -> WaitFuture {
        WaitFuture { operation, decode: Ok }
    }
}

impl<T> WaitFuture<T> {
    /// Decodes the payload. A payload that does not decode fails the turn with the event and the type.
    pub fn typed<U: DeserializeOwned>(self) -> WaitFuture<U> {
        self.read_by(decode_typed)
    }

    /// Converts the payload. A payload that cannot be converted fails the turn with the event and the type.
    pub fn read_by<U>(self, decode: fn(Payload) -> Result<U, NotOfType>) -> WaitFuture<U> {
        WaitFuture { operation: self.operation, decode }
    }
}

impl<T> Future for WaitFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let polled = self.operation.poll(cx);
        // The event of this wait is skipped: unless it is polled again, it must not be counted as waiting.
        self.operation.parked_with = None;
        match ready!(polled) {
            (event, Completion::Wait(payload)) => {
                self.operation.read(event, PayloadSource::RecordedEvent, (self.decode)(payload))
            }
            _ => Poll::Pending,
        }
    }
}

/// The result of a sub-orchestration.
#[must_use = "dropping it cancels the sub-orchestration"]
pub struct ChildFuture<R = Result<Payload, ChildError>> {
    /// The child, or the pause before it is scheduled again.
    pub(super) operation: OperationFuture,
    read: Read<ChildError, R>,
    /// `None` unless it has been scheduled more than once.
    pub(super) attempts: Option<Box<Attempts>>,
    /// Cancellation was requested: it is not scheduled again.
    pub(super) is_stopped: bool,
}

impl ChildFuture {
    fn new(operation: OperationFuture) -> ChildFuture {
        ChildFuture { operation, read: Ok, attempts: None, is_stopped: false }
    }
}

impl<R> ChildFuture<R> {
    /// Decodes the result. A result that does not decode fails the turn with the event and the type.
    pub fn typed<U: DeserializeOwned>(self) -> ChildFuture<Result<U, ChildError>> {
        self.read_by(read_typed)
    }

    /// Converts the outcome. An outcome that cannot be converted fails the turn with the event and the type.
    pub fn read_by<S>(self, read: fn(Result<Payload, ChildError>) -> Result<S, NotOfType>) -> ChildFuture<S> {
        let ChildFuture { operation, attempts, is_stopped, .. } = self;
        ChildFuture { operation, read, attempts, is_stopped }
    }

    /// Sets what happens to the child if this instance ends first.
    pub fn close_policy(mut self, policy: ClosePolicy) -> Self {
        self.operation.amend(|decision| {
            if let Decision::SubOrchestrationScheduled { close, .. } = decision {
                *close = policy;
            }
        });
        self
    }
}

impl<R> Future for ChildFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        loop {
            match ready!(self.operation.poll(cx)) {
                (event, Completion::Child(outcome, again)) => {
                    if again.is_some_and(|schedule| self.pause(&outcome, schedule)) {
                        continue;
                    }
                    return self.operation.read(event, PayloadSource::Other, (self.read)(outcome));
                }
                (_, Completion::Timer) => self.schedule_again(),
                _ => return Poll::Pending,
            }
        }
    }
}

macro_rules! durable_futures {
    ($($name:ident $(<$type:ident>)?),*) => {$(
        impl$(<$type>)? $name$(<$type>)? {
            pub(super) fn stored_event(&self) -> Option<EventId> {
                self.operation.stored_event()
            }

            pub(super) fn is_parked(&self, cx: &Context<'_>) -> bool {
                self.operation.is_parked(cx)
            }

            pub(super) fn token(&self) -> Option<usize> {
                self.operation.token
            }
        }

        impl$(<$type>)? fmt::Debug for $name$(<$type>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("location", self.operation.location).finish_non_exhaustive()
            }
        }
    )*};
}

durable_futures!(ActivityFuture<T>, TimerFuture, WaitFuture<T>, ChildFuture<T>, ChildStarted, DeliveryFuture);
