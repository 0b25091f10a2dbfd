//! From typed functions and closures to what the engine runs.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::{NotOfType, OrchestrationHandler, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::by;
use super::call::{ActivityMeta, Call, OrchestrationMeta};
use super::context::OrchestrationContext;
use crate::activity::{ActivityContext, ActivityHandler};

/// What the engine calls.
type Boxed = Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>>;

/// Something that can be registered as it is: a function marked with `#[activity]` or `#[orchestration]`.
#[diagnostic::on_unimplemented(
    message = "this cannot be registered",
    label = "not a marked function",
    note = "mark the function with `#[activity]` or `#[orchestration]`, or register a closure with \
            `.activity_fn(name, …)` or `.orchestration_fn(name, version, …)`"
)]
pub trait Register<K> {
    /// What it is, for the runtime.
    #[doc(hidden)]
    fn registration(self) -> Registration;
}

/// A marked function as the engine sees it.
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
    },
    /// An activity.
    Activity {
        /// Its name.
        name: &'static str,
        /// Its code.
        handler: Arc<dyn ActivityHandler>,
    },
}

/// Code of an orchestration: a closure with types.
pub trait OrchestrationCode<K> {
    /// What the engine runs.
    #[doc(hidden)]
    fn into_handler(self) -> Arc<dyn OrchestrationHandler>;
}

/// Code of an activity: a closure with types.
pub trait ActivityCode<K> {
    /// What the engine runs.
    #[doc(hidden)]
    fn into_handler(self) -> Arc<dyn ActivityHandler>;
}

/// Runs typed code on payloads.
async fn on_payloads<O: Serialize + 'static, E: Serialize + 'static>(
    outcome: impl Future<Output = Result<O, E>>,
) -> Result<Payload, Payload> {
    let unwritable = |error: serde_json::Error| {
        Payload::from(format!("PER-0405 unwritable: what was returned cannot be written as JSON: {error}"))
    };
    match outcome.await {
        Ok(output) => encode(&output).map_err(unwritable),
        Err(error) => Err(encode(&error).unwrap_or_else(unwritable)),
    }
}

/// Writes a value; what is a payload already is taken as it is.
fn encode<T: Serialize + 'static>(value: &T) -> Result<Payload, serde_json::Error> {
    match (value as &dyn Any).downcast_ref::<Payload>() {
        Some(payload) => Ok(payload.clone()),
        None => Payload::encode(value),
    }
}

/// Reads a value; what is to be a payload is given as it is.
fn decode<T: DeserializeOwned + 'static>(payload: Payload) -> Result<T, NotOfType> {
    let mut payload = Some(payload);
    if let Some(same) = (&mut payload as &mut dyn Any).downcast_mut::<Option<T>>()
        && let Some(same) = same.take()
    {
        return Ok(same);
    }
    payload.unwrap_or_else(Payload::null).decode_as()
}

/// An input that is not what the code takes.
fn bad_input(error: &NotOfType) -> Payload {
    Payload::from(format!("PER-0406 bad input: {error}"))
}

macro_rules! functions {
    ($($kind:ident($($argument:ident: $type:ident),*) = $input:ty, $pattern:pat => ())*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> Register<(by::$kind, ActivityContext, $($type,)*)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut> + Send + Sync + 'static,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: Serialize + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn registration(self) -> Registration {
                let run = move |ctx: ActivityContext, input: Payload| -> Boxed {
                    match decode::<$input>(input) {
                        Ok($pattern) => Box::pin(on_payloads(self(ctx $(, $argument)*).into_future())),
                        Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
                    }
                };
                Registration::Activity { name: M::NAME, handler: Arc::new(run) }
            }
        }

        impl<Fun, M, Fut, O, E $(, $type)*> Register<(by::$kind, OrchestrationContext, $($type,)*)> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Call<M, Fut> + Send + Sync + 'static,
            M: OrchestrationMeta,
            Fut: Future<Output = Result<O, E>> + Send + 'static,
            O: Serialize + 'static,
            E: Serialize + 'static,
            $($type: DeserializeOwned + Send + 'static,)*
        {
            fn registration(self) -> Registration {
                let run = move |ctx: perennial_core::OrchestrationContext, input: Payload| -> Boxed {
                    match decode::<$input>(input) {
                        Ok($pattern) => {
                            let ctx = OrchestrationContext::new(ctx);
                            Box::pin(on_payloads(self(ctx $(, $argument)*).into_future()))
                        }
                        Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
                    }
                };
                let (name, version) = (M::NAME, M::VERSION);
                Registration::Orchestration { name, version, handler: Arc::new(run) }
            }
        }
    )*};
}

functions! {
    Function0() = (), () => ()
    Function1(a: A) = A, a => ()
    Function2(a: A, b: B) = (A, B), (a, b) => ()
    Function3(a: A, b: B, c: C) = (A, B, C), (a, b, c) => ()
    Function4(a: A, b: B, c: C, d: D) = (A, B, C, D), (a, b, c, d) => ()
}

impl<Fun, Fut, I, O, E> OrchestrationCode<(by::Function1, I)> for Fun
where
    Fun: Fn(OrchestrationContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Serialize + 'static,
{
    fn into_handler(self) -> Arc<dyn OrchestrationHandler> {
        Arc::new(move |ctx: perennial_core::OrchestrationContext, input: Payload| -> Boxed {
            match decode::<I>(input) {
                Ok(input) => Box::pin(on_payloads(self(OrchestrationContext::new(ctx), input))),
                Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
            }
        })
    }
}

impl<Fun, Fut, I, O, E> ActivityCode<(by::Function1, I, O, E)> for Fun
where
    Fun: Fn(ActivityContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: Serialize + 'static,
{
    fn into_handler(self) -> Arc<dyn ActivityHandler> {
        Arc::new(move |ctx: ActivityContext, input: Payload| -> Boxed {
            match decode::<I>(input) {
                Ok(input) => Box::pin(on_payloads(self(ctx, input))),
                Err(error) => Box::pin(std::future::ready(Err(bad_input(&error)))),
            }
        })
    }
}
