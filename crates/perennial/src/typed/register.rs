//! Conversion of typed functions and closures into the handlers that the engine runs.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::{ErrorCode, NotOfType, OrchestrationHandler, Payload, log};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::call::{ActivityMeta, Call, OrchestrationMeta, blocking};
use super::context::OrchestrationContext;
use super::later::{ActivityReturn, activity_on_payloads};
use super::uses::Used;
use super::{arguments, by};
use crate::activity::{ActivityContext, ActivityHandler};
use crate::shared_state::StateType;

/// The future of a handler.
pub(super) type Boxed = Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;

/// Functions marked with `#[activity]` or `#[orchestration]`, which can be registered directly.
#[diagnostic::on_unimplemented(
    message = "this cannot be registered",
    label = "not a marked function",
    note = "mark the function with `#[activity]` or `#[orchestration]`, or register a closure with \
            `.activity(name, …)` or `.orchestration(name, version, …)`"
)]
pub trait Register<K> {
    /// The function as a handler, with its metadata.
    #[doc(hidden)]
    fn registration(self) -> Registration;
}

/// A marked function as a handler, with its metadata.
#[doc(hidden)]
pub enum Registration {
    /// An orchestration.
    Orchestration {
        /// Its name.
        name: &'static str,
        /// Its version.
        version: &'static str,
        /// Its code.
        handler: Arc<dyn OrchestrationHandler>,
        /// The activities and orchestrations that it declares in `uses(…)`.
        uses: Vec<Used>,
    },
    /// An activity.
    Activity {
        /// Its name.
        name: &'static str,
        /// Its code.
        handler: Arc<dyn ActivityHandler>,
        /// The types of the state that it reads.
        state: Vec<StateType>,
    },
}

/// Code of an orchestration: a closure or function that takes a context and up to four typed arguments, and
/// returns a future of a `Result`.
#[diagnostic::on_unimplemented(
    message = "this is not the code of an orchestration",
    label = "not the code of an orchestration",
    note = "pass a closure or a function that takes an `OrchestrationContext` and up to four arguments, with their types \
            written out, and returns a future of a `Result` that is `Send`"
)]
pub trait OrchestrationCode<K>: Sized {
    /// Converts the code into a handler.
    #[doc(hidden)]
    fn into_handler(self) -> Arc<dyn OrchestrationHandler> {
        self.into_handler_of(log_target::<Self>())
    }

    /// Converts the code into a handler that logs under `log_target`.
    #[doc(hidden)]
    fn into_handler_of(self, log_target: &'static str) -> Arc<dyn OrchestrationHandler>;
}

/// The `tracing` target of a function or closure: the module that it is defined in.
pub(super) fn log_target<F>() -> &'static str {
    log::module_of(std::any::type_name::<F>())
}

/// Code of an activity: a closure or function that takes a context and up to four typed arguments, and
/// returns a future of a `Result`.
#[diagnostic::on_unimplemented(
    message = "this is not the code of an activity",
    label = "not the code of an activity",
    note = "pass a closure or a function that takes an `ActivityContext` and up to four arguments, with their types \
            written out, and returns a future of a `Result` that is `Send`; without a future, use `blocking_activity`"
)]
pub trait ActivityCode<K> {
    /// Converts the code into a handler.
    #[doc(hidden)]
    fn into_handler(self) -> Arc<dyn ActivityHandler>;
}

/// Code of an activity that blocks its thread: a closure or function that takes a context and up to four
/// typed arguments, and returns a `Result`.
#[diagnostic::on_unimplemented(
    message = "this is not the code of a blocking activity",
    label = "not the code of a blocking activity",
    note = "pass a closure or a function that takes an `ActivityContext` and up to four arguments, with their types \
            written out, and returns a `Result`"
)]
pub trait BlockingCode<K> {
    /// Converts the code into a handler.
    #[doc(hidden)]
    fn into_handler(self) -> Arc<dyn ActivityHandler>;
}

/// Runs typed code on payloads.
pub(super) async fn on_payloads<O: Serialize + 'static, E: Serialize + 'static>(
    outcome: impl Future<Output = Result<O, E>>,
) -> Result<Payload, Payload> {
    let unwritable = |error: serde_json::Error| {
        Payload::from(
            ErrorCode::UnwritableResult
                .message(format_args!("what was returned cannot be written as JSON: {error}")),
        )
    };
    match outcome.await {
        Ok(output) => encode(&output).map_err(unwritable),
        Err(error) => Err(encode(&error).unwrap_or_else(unwritable)),
    }
}

/// Encodes a value. A payload is returned unchanged.
pub(super) fn encode<T: Serialize + 'static>(value: &T) -> Result<Payload, serde_json::Error> {
    match (value as &dyn Any).downcast_ref::<Payload>() {
        Some(payload) => Ok(payload.clone()),
        None => Payload::encode(value),
    }
}

/// Decodes a value. A payload is returned unchanged.
pub(super) fn decode<T: DeserializeOwned + 'static>(payload: Payload) -> Result<T, NotOfType> {
    let mut payload = Some(payload);
    if let Some(same) = (&mut payload as &mut dyn Any).downcast_mut::<Option<T>>()
        && let Some(same) = same.take()
    {
        return Ok(same);
    }
    payload.unwrap_or_else(Payload::null).decode_as()
}

/// An orchestration on payloads, with a check of its input type.
pub(super) struct TypedOrchestration<F> {
    pub(super) run: F,
    pub(super) check: fn(Payload) -> Result<(), NotOfType>,
    pub(super) log_target: &'static str,
}

impl<F> OrchestrationHandler for TypedOrchestration<F>
where
    F: Fn(perennial_core::OrchestrationContext, Payload) -> Boxed + Send + Sync + 'static,
{
    fn run(&self, ctx: perennial_core::OrchestrationContext, input: Payload) -> Boxed {
        (self.run)(ctx, input)
    }

    fn check_input(&self, input: &Payload) -> Result<(), NotOfType> {
        (self.check)(input.clone())
    }

    fn log_target(&self) -> &'static str {
        self.log_target
    }
}

/// The error of an activity whose input is of another type.
pub(super) fn bad_input(error: &NotOfType) -> Payload {
    let (expected, reason) = (error.type_name, error.reason());
    Payload::from(
        ErrorCode::BadActivityInput
            .message(format_args!("the activity takes a {expected}, and was given something else: {reason}")),
    )
}

/// Runs an activity on decoded arguments, or fails it if they cannot be decoded.
macro_rules! on_arguments {
    ($ctx:expr, $input:expr => $type:ty as $pattern:pat => $future:expr) => {
        match decode::<$type>($input) {
            Ok($pattern) => Box::pin(activity_on_payloads(Arc::clone(&$ctx.heartbeats), $future)),
            Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
        }
    };
}

macro_rules! functions {
    ($($way:ident($($argument:ident: $type:ident),*) = $input:ty as $pattern:pat,)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> Register<(by::$way, ActivityContext, $($type,)*)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut> + Send + Sync + 'static,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: ActivityReturn + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn registration(self) -> Registration {
                let code = move |ctx: ActivityContext $(, $argument: $type)*| self(ctx $(, $argument)*).into_future();
                let handler = ActivityCode::<(by::$way, $($type,)*)>::into_handler(code);
                let handler = arguments::activity(M::ARGUMENTS, handler);
                Registration::Activity { name: M::NAME, handler, state: M::state() }
            }
        }

        impl<Fun, M, Fut, O, E $(, $type)*> Register<(by::$way, OrchestrationContext, $($type,)*)> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Call<M, Fut> + Send + Sync + 'static,
            M: OrchestrationMeta,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: Serialize + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn registration(self) -> Registration {
                let code = move |ctx: OrchestrationContext $(, $argument: $type)*| self(ctx $(, $argument)*).into_future();
                let handler = OrchestrationCode::<(by::$way, $($type,)*)>::into_handler_of(code, log_target::<Fun>());
                let handler = arguments::orchestration(M::ARGUMENTS, handler);
                Registration::Orchestration { name: M::NAME, version: M::VERSION, handler, uses: M::uses() }
            }
        }

        impl<Fun, Fut, O, E $(, $type)*> OrchestrationCode<(by::$way, $($type,)*)> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: Serialize + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn into_handler_of(self, log_target: &'static str) -> Arc<dyn OrchestrationHandler> {
                let run = move |ctx: perennial_core::OrchestrationContext, input: Payload| -> Boxed {
                    match decode::<$input>(input) {
                        Ok($pattern) => Box::pin(on_payloads(self(OrchestrationContext::new(ctx) $(, $argument)*))),
                        Err(mismatch) => ctx.refuse_payload(&mismatch),
                    }
                };
                let check = |input| decode::<$input>(input).map(drop);
                Arc::new(TypedOrchestration { run, check, log_target })
            }
        }

        impl<Fun, Fut, O, E $(, $type)*> ActivityCode<(by::$way, $($type,)*)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: ActivityReturn + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn into_handler(self) -> Arc<dyn ActivityHandler> {
                Arc::new(move |ctx: ActivityContext, input: Payload| -> Boxed {
                    on_arguments!(ctx, input => $input as $pattern => self(ctx $(, $argument)*))
                })
            }
        }

        impl<Fun, O, E $(, $type)*> BlockingCode<(by::$way, $($type,)*)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Result<O, E> + Send + Sync + 'static,
            O: ActivityReturn + Send + 'static,
            E: Serialize + Send + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn into_handler(self) -> Arc<dyn ActivityHandler> {
                let code = Arc::new(self);
                Arc::new(move |ctx: ActivityContext, input: Payload| -> Boxed {
                    let code = Arc::clone(&code);
                    on_arguments!(ctx, input => $input as $pattern => blocking(move || code(ctx $(, $argument)*)))
                })
            }
        }
    )*};
}

functions! {
    Function0() = () as (),
    Function1(a: A) = A as a,
    Function2(a: A, b: B) = (A, B) as (a, b),
    Function3(a: A, b: B, c: C) = (A, B, C) as (a, b, c),
    Function4(a: A, b: B, c: C, d: D) = (A, B, C, D) as (a, b, c, d),
}
