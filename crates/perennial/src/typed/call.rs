//! Marked functions: their metadata, and the future that they return.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use perennial_core::{ActivityOptions, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::uses::Used;
use crate::shared_state::StateType;

/// The metadata of a function marked with `#[activity]`.
pub trait ActivityMeta: 'static {
    /// The name under which it is registered.
    const NAME: &'static str;
    /// The names of its arguments after the context.
    const ARGUMENTS: &'static [&'static str] = &[];
    /// The options that apply unless the caller overrides them.
    fn options() -> ActivityOptions;
    /// The types of the state that it reads.
    fn state() -> Vec<StateType> {
        Vec::new()
    }
}

/// The metadata of a function marked with `#[orchestration]`.
pub trait OrchestrationMeta: 'static {
    /// The name under which it is registered.
    const NAME: &'static str;
    /// The version under which it is registered.
    const VERSION: &'static str;
    /// The names of its arguments after the context.
    const ARGUMENTS: &'static [&'static str] = &[];
    /// The activities and orchestrations that it declares in `uses(…)`.
    fn uses() -> Vec<Used> {
        Vec::new()
    }
}

/// The future of a marked function. Awaiting it runs the function directly, which is useful in unit tests.
#[must_use = "futures do nothing unless awaited"]
pub struct Call<M, F> {
    future: Pin<Box<F>>,
    meta: PhantomData<fn() -> M>,
}

impl<M, F> Call<M, F> {
    /// Wraps a future.
    pub fn new(future: F) -> Call<M, F> {
        Call { future: Box::pin(future), meta: PhantomData }
    }

    /// Unwraps the future.
    pub fn into_future(self) -> Pin<Box<F>> {
        self.future
    }
}

impl<M, F: Future> Future for Call<M, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<M, F> fmt::Debug for Call<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// Types that can be written into a history and read back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written into a history",
    label = "not serialisable",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it",
    note = "for an error type of another crate, `#[activity(error = \"message\")]` records its message"
)]
pub trait Recordable: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Recordable for T {}

/// The return type of a marked function: a [`Result`], or an alias of one.
#[diagnostic::on_unimplemented(
    message = "orchestrations and activities must return a `Result<T, E>`",
    label = "not a `Result`"
)]
pub trait Returned {
    /// The type of a success.
    type Output;
    /// The type of a failure.
    type Error;
}

impl<T, E> Returned for Result<T, E> {
    type Output = T;
    type Error = E;
}

/// Compiles if the type is [`Recordable`].
#[doc(hidden)]
pub fn assert_recordable<T: Recordable>() {}

/// Runs code that blocks its thread on tokio's pool of blocking threads.
#[doc(hidden)]
pub async fn blocking<T: Send + 'static, E: Send + 'static>(
    f: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    // The code runs on another thread; its log lines belong to the span of the attempt.
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(f)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => panic!("the pool of blocking threads was shut down"),
        },
    }
}

/// Inputs that calls by name accept as JSON: a payload, a value, nothing, or the arguments of a function as a
/// tuple. Such calls also return a payload.
pub trait PayloadInput {
    /// Converts the input into the payload that is recorded.
    fn into_payload(self) -> Result<Payload, serde_json::Error>;
}

macro_rules! payload_inputs {
    ($($type:ty),*; $(($($part:ident),*)),*) => {
        $(impl PayloadInput for $type {
            fn into_payload(self) -> Result<Payload, serde_json::Error> {
                Ok(self.into())
            }
        })*

        $(impl<$($part: Serialize),*> PayloadInput for ($($part,)*) {
            fn into_payload(self) -> Result<Payload, serde_json::Error> {
                Payload::encode(&self)
            }
        })*
    };
}

payload_inputs!(Payload, serde_json::Value, (); (A, B), (A, B, C), (A, B, C, D));
