//! Messages to other instances, and reports of their delivery.
//!
//! Sending is a decision that nothing waits for. Only if the code asks for a report does the commit that sends also
//! write one for the sender, in the same transaction.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::execution::operations::Completion;
use crate::execution::state::Access;
use crate::history::{Decision, Delivery};
use crate::instance::check_key;

use super::OrchestrationContext;
use super::operations::OperationFuture;
use crate::history::whole_ms;

impl OrchestrationContext {
    /// Requests cancellation of another instance. If it has ended or does not exist, nothing happens.
    #[track_caller]
    pub fn cancel_orchestration(&self, instance: impl Into<String>, reason: impl Into<String>) -> Sent {
        let (instance, reason) = (instance.into(), reason.into());
        let decision = Decision::CancelSent { instance, reason, grace_ms: None, reported: false };
        self.send("cancel_orchestration", decision)
    }

    /// Records a decision that sends something to another instance.
    #[track_caller]
    pub(super) fn send(&self, call: &'static str, decision: Decision) -> Sent {
        let location = Location::caller();
        let place = self.call(
            call,
            Access::Act,
            || None,
            |state| {
                let position = state.emit(decision, location)?;
                Ok(Some(Place { step: state.step_mark(), position }))
            },
        );
        Sent { ctx: self.clone(), place, location }
    }
}

/// A decision of a step.
#[derive(Clone, Copy, Debug)]
struct Place {
    step: (u64, u64),
    position: usize,
}

/// A message to another instance. Nothing waits for it unless [`delivered`](Sent::delivered) is called.
#[derive(Debug)]
pub struct Sent {
    ctx: OrchestrationContext,
    /// `None` if it was made where nothing can be sent.
    place: Option<Place>,
    location: &'static Location<'static>,
}

impl Sent {
    /// Resolves with the outcome of the delivery: the message is in the instance's inbox, or the instance does not
    /// exist or has ended. Call it in the step that sends.
    pub fn delivered(self) -> DeliveryFuture {
        let Sent { ctx, place, location } = self;
        let token = ctx.call(
            "delivered",
            Access::Act,
            || None,
            |state| match place {
                Some(place) if place.step != state.step_mark() => {
                    let what = "delivered() was called after the step that sent; call it in that step";
                    Err(state.misuse(what.to_owned()))
                }
                Some(place) => Ok(Some(state.await_delivery(place.position))),
                None => Ok(None),
            },
        );
        DeliveryFuture { operation: OperationFuture::new(&ctx, token, location) }
    }

    /// Deduplicates the event: the instance drops a second event with the same key, whoever raises it. For code that
    /// raises an event repeatedly in a loop, or again after continue-as-new. Has no effect on messages other than
    /// events.
    ///
    /// The instance remembers keys for the duration of an execution, and its last 1,000 keys through continue-as-new. A
    /// dropped duplicate is reported as [`Delivered`](Delivery::Delivered), like the first event.
    pub fn once(self, key: impl Into<String>) -> Sent {
        let wanted = key.into();
        let checked = check_key(&wanted);
        let sent = self.amended(|decision| {
            if let Decision::ExternalEventSent { key, .. } = decision {
                *key = Some(wanted);
            }
        });
        if let Err(problem) = checked {
            sent.ctx.call(
                "once",
                Access::Act,
                || (),
                |state| Err(state.misuse(format!("once(): {problem}"))),
            );
        }
        sent
    }

    fn amended(self, change: impl FnOnce(&mut Decision)) -> Sent {
        let (ctx, place) = (&self.ctx, self.place);
        ctx.call(
            "option",
            Access::Act,
            || (),
            |state| match place {
                Some(place) if place.step != state.step_mark() => {
                    let what = "an option was set after the step that sent; set options in the call that schedules it";
                    Err(state.misuse(what.to_owned()))
                }
                Some(place) => {
                    change(&mut state.step.emitted[place.position].decision);
                    Ok(())
                }
                None => Ok(()),
            },
        );
        self
    }

    /// Sets how long a cancelled instance may take to clean up before it is terminated. Has no effect on messages other
    /// than cancel requests.
    pub fn grace(self, grace: Duration) -> Sent {
        self.amended(|decision| {
            if let Decision::CancelSent { grace_ms, .. } = decision {
                *grace_ms = Some(whole_ms(grace));
            }
        })
    }
}

/// The outcome of a delivery. Dropping it does not take the message back.
#[must_use = "futures do nothing unless awaited"]
pub struct DeliveryFuture {
    pub(super) operation: OperationFuture,
}

impl Future for DeliveryFuture {
    type Output = Delivery;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery> {
        match ready!(self.operation.poll(cx)) {
            (_, Completion::Delivery(delivery)) => Poll::Ready(delivery),
            _ => Poll::Pending,
        }
    }
}
