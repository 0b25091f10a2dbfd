//! A future with a time limit.

use crate::code::ErrorCode;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{OrchestrationContext, TimerFuture};

impl OrchestrationContext {
    /// Limits how long a future may take, counted from the call. If the result and the limit arrive together, the
    /// result wins.
    #[track_caller]
    pub fn timeout<F: Future>(&self, limit: Duration, future: F) -> Timeout<F> {
        Timeout { racers: Some((Box::pin(future), self.schedule_timer(limit))) }
    }
}

/// The time limit was reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{prefix}: the future did not complete in time", prefix = self.code().prefix())]
pub struct Elapsed;

/// See [`OrchestrationContext::timeout`].
#[must_use = "futures do nothing unless awaited"]
pub struct Timeout<F> {
    racers: Option<(Pin<Box<F>>, TimerFuture)>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((future, timer)) = &mut self.racers else {
            return Poll::Pending;
        };
        let outcome = match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => Pin::new(timer).poll(cx).map(|()| Err(Elapsed)),
        };
        if outcome.is_ready() {
            self.racers = None;
        }
        outcome
    }
}

impl<F> Unpin for Timeout<F> {}

impl<F> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").finish_non_exhaustive()
    }
}

impl Elapsed {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::Elapsed
    }
}

crate::error_model!(Elapsed);
