//! Receiving events without waiting, and as a stream.
//!
//! Both are waits: an event that is received immediately is recorded as a wait that completed in the step that made it,
//! and a stream has one open wait at a time. If there is no event to receive, nothing is recorded: which events have
//! arrived follows from the jobs of the turns, so a replay finds the same.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use crate::execution::state::Access;
use crate::history::{EventId, NotOfType, Payload, PayloadSource};

use super::operations::{Decode, decode_typed};
use super::{Operand, OrchestrationContext, WaitFuture};

impl OrchestrationContext {
    /// Receives the oldest unread event of this name, if there is one. Events held by an open wait are not received.
    #[track_caller]
    pub fn try_receive(&self, name: impl Into<String>) -> Option<Payload> {
        self.try_receive_by(name, Ok)
    }

    /// Like [`try_receive`](Self::try_receive), and converts the payload. A payload that cannot be converted fails the
    /// turn with the event and the type.
    #[doc(hidden)]
    #[track_caller]
    pub fn try_receive_by<T>(
        &self,
        name: impl Into<String>,
        decode: fn(Payload) -> Result<T, NotOfType>,
    ) -> Option<T> {
        let (name, location) = (name.into(), Location::caller());
        let taken = self.call("try_receive", Access::Act, || None, |state| state.try_receive(name, location));
        let (event, payload) = taken?;
        decode(payload)
            .inspect_err(|mismatch| self.fail_decoding(event, PayloadSource::RecordedEvent, mismatch))
            .ok()
    }

    /// The number of unread events of this name that no open wait holds: those that [`try_receive`](Self::try_receive)
    /// would return.
    pub fn unread(&self, name: impl AsRef<str>) -> usize {
        self.call("unread", Access::Look, || 0, |state| Ok(state.mailbox.unclaimed(name.as_ref())))
    }

    /// Whether anything is unread: events of any name, and events and updates whose handler has not started.
    /// Continue-as-new would carry these over, and an end would leave them unread.
    pub fn has_unread(&self) -> bool {
        self.call(
            "has_unread",
            Access::Look,
            || false,
            |state| Ok(state.mailbox.unread_count() > 0 || state.scheduler.has_unread()),
        )
    }

    /// The events of this name as a stream, including those that arrived earlier. The stream never ends.
    #[track_caller]
    pub fn events(&self, name: impl Into<String>) -> Events {
        let location = Location::caller();
        Events { ctx: self.clone(), name: name.into(), decode: Ok, wait: None, location }
    }
}

/// The events of one name, in the order in which they arrived.
///
/// A [`Stream`] that never ends, for the adapters of the `futures` crate; [`receive`](Events::receive) returns the next
/// event without them. Its wait is open from the moment the next event is requested until that event is returned; in
/// between, other waits for the same name can receive events. Dropping the stream closes its wait and loses no event.
#[must_use = "streams do nothing unless polled"]
pub struct Events<T = Payload> {
    ctx: OrchestrationContext,
    name: String,
    decode: Decode<T>,
    wait: Option<WaitFuture<T>>,
    location: &'static Location<'static>,
}

impl<T> Events<T> {
    /// Decodes the payloads. A payload that does not decode fails the turn with the event and the type.
    pub fn typed<U: DeserializeOwned>(self) -> Events<U> {
        self.read_by(decode_typed)
    }

    /// Converts the payloads. A payload that cannot be converted fails the turn with the event and the type.
    pub fn read_by<U>(self, decode: fn(Payload) -> Result<U, NotOfType>) -> Events<U> {
        let Events { ctx, name, wait, location, .. } = self;
        Events { ctx, name, decode, wait: wait.map(|wait| wait.read_by(decode)), location }
    }

    /// Waits for the next event. Dropping the returned future loses nothing: the stream keeps waiting.
    pub fn receive(&mut self) -> Receive<'_, T> {
        self.subscribe();
        Receive { events: self }
    }

    fn subscribe(&mut self) -> &mut WaitFuture<T> {
        let Events { ctx, name, decode, wait, location } = self;
        wait.get_or_insert_with(|| ctx.wait_at("receive", name.clone(), location).read_by(*decode))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let event = ready!(Pin::new(self.subscribe()).poll(cx));
        self.wait = None;
        Poll::Ready(event)
    }
}

impl<T> Unpin for Events<T> {}

impl<T> Stream for Events<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_receive(cx).map(Some)
    }
}

/// The next event of a stream. See [`Events::receive`].
#[must_use = "futures do nothing unless awaited"]
pub struct Receive<'a, T = Payload> {
    events: &'a mut Events<T>,
}

impl<T> Future for Receive<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.events.poll_receive(cx)
    }
}

impl<T> Operand for Receive<'_, T> {
    const IS_OPERATION: bool = true;

    fn stored_event(&self) -> Option<EventId> {
        self.events.wait.as_ref().and_then(Operand::stored_event)
    }

    fn is_parked(&self, cx: &Context<'_>) -> bool {
        self.events.wait.as_ref().is_some_and(|wait| Operand::is_parked(wait, cx))
    }

    fn token(&self) -> Option<usize> {
        self.events.wait.as_ref().and_then(Operand::token)
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receive<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("events", &self.events).finish()
    }
}
