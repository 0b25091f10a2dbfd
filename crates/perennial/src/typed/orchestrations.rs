//! What stands for an orchestration in a call.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use perennial_core::{ChildFailure, NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::by;
use super::call::PayloadInput;
use super::call::{Call, OrchestrationMeta};
use super::context::OrchestrationContext;
use super::error::{ChildError, child_failure_text, text};

/// Something that stands for an orchestration that takes an `I`: a function, a name, an [`Orchestration`].
#[diagnostic::on_unimplemented(
    message = "this is not an orchestration that takes this input",
    label = "not an orchestration with this input",
    note = "an activity is called with `schedule_activity`, inside of an orchestration",
    note = "pass a function marked with `#[orchestration]` and its input (several arguments as a tuple), a name and a \
            string, or an `Orchestration`"
)]
pub trait OrchestrationTarget<I, K> {
    /// What it returns.
    type Output;
    /// The error that it returns.
    type Error;
    /// What a parent awaits.
    type Outcome;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;

    /// The input as it is recorded.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// What it returned, of what is recorded.
    fn read_output(payload: Payload) -> Result<Self::Output, NotOfType>;

    /// The error that it returned, of what is recorded.
    fn read_error(payload: Payload) -> Result<Self::Error, NotOfType>;

    /// What a parent is told, of what is recorded.
    fn read(outcome: Result<Payload, ChildFailure>) -> Result<Self::Outcome, NotOfType>;
}

fn read_typed<O: DeserializeOwned, E: DeserializeOwned>(
    outcome: Result<Payload, ChildFailure>,
) -> Result<Result<O, ChildError<E>>, NotOfType> {
    match outcome {
        Ok(payload) => payload.decode_as().map(Ok),
        Err(failure) => ChildError::read(failure).map(Err),
    }
}

/// What a typed orchestration returns is decoded.
macro_rules! reads_types {
    () => {
        type Output = O;
        type Error = E;
        type Outcome = Result<O, ChildError<E>>;

        fn read_output(payload: Payload) -> Result<O, NotOfType> {
            payload.decode_as()
        }

        fn read_error(payload: Payload) -> Result<E, NotOfType> {
            payload.decode_as()
        }

        fn read(outcome: Result<Payload, ChildFailure>) -> Result<Self::Outcome, NotOfType> {
            read_typed(outcome)
        }
    };
}

macro_rules! functions {
    ($($kind:ident($($type:ident),*) = $input:ty;)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> OrchestrationTarget<$input, by::$kind> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Call<M, Fut>,
            M: OrchestrationMeta,
            Fut: Future<Output = Result<O, E>>,
            O: DeserializeOwned,
            E: DeserializeOwned,
            $($type: Serialize,)*
        {
            reads_types!();

            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }

            fn encode(input: $input) -> Result<Payload, serde_json::Error> {
                Payload::encode(&input)
            }
        }
    )*};
}

functions! {
    Function0() = ();
    Function1(A) = A;
    Function2(A, B) = (A, B);
    Function3(A, B, C) = (A, B, C);
    Function4(A, B, C, D) = (A, B, C, D);
}

macro_rules! names {
    ($($name:ty),*) => {$(
/// By name: strings in, strings out. A result that is no string arrives as JSON text.
#[diagnostic::do_not_recommend]
impl<I: Into<String>> OrchestrationTarget<I, by::Name> for $name {
    type Output = String;
    type Error = String;
    type Outcome = Result<String, String>;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self[..])
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Ok(Payload::from(input.into()))
    }

    fn read_output(payload: Payload) -> Result<String, NotOfType> {
        Ok(payload.to_text())
    }

    fn read_error(payload: Payload) -> Result<String, NotOfType> {
        Ok(payload.to_text())
    }

    fn read(outcome: Result<Payload, ChildFailure>) -> Result<Self::Outcome, NotOfType> {
        Ok(text(outcome, child_failure_text))
    }
}

/// By name, with payloads as they are.
#[diagnostic::do_not_recommend]
impl<I: PayloadInput> OrchestrationTarget<I, by::Payloads> for $name {
    type Output = Payload;
    type Error = Payload;
    type Outcome = Result<Payload, ChildFailure>;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self[..])
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Ok(input.into())
    }

    fn read_output(payload: Payload) -> Result<Payload, NotOfType> {
        Ok(payload)
    }

    fn read_error(payload: Payload) -> Result<Payload, NotOfType> {
        Ok(payload)
    }

    fn read(outcome: Result<Payload, ChildFailure>) -> Result<Self::Outcome, NotOfType> {
        Ok(outcome)
    }
}
    )*};
}

names!(&str, &&str, &String, String);

/// An orchestration known by its name and types, without its code at hand.
///
/// ```
/// use perennial::typed::Orchestration;
///
/// const CHECKOUT: Orchestration<u64, String> = Orchestration::named("checkout");
/// assert_eq!(CHECKOUT.name(), "checkout");
/// ```
pub struct Orchestration<I, O, E = String> {
    name: &'static str,
    types: PhantomData<fn(I) -> Result<O, E>>,
}

impl<I, O, E> Orchestration<I, O, E> {
    /// The orchestration that is registered under a name.
    pub const fn named(name: &'static str) -> Orchestration<I, O, E> {
        Orchestration { name, types: PhantomData }
    }

    /// The registered name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<I, O, E> Clone for Orchestration<I, O, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O, E> Copy for Orchestration<I, O, E> {}

impl<I, O, E> fmt::Debug for Orchestration<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Orchestration").field(&self.name).finish()
    }
}

#[diagnostic::do_not_recommend]
impl<I: Serialize, O: DeserializeOwned, E: DeserializeOwned> OrchestrationTarget<I, by::Described>
    for Orchestration<I, O, E>
{
    reads_types!();

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name)
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Payload::encode(&input)
    }
}
