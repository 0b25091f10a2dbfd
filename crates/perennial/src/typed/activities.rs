//! What stands for an activity in a call.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use perennial_core::{ActivityFailure, ActivityOptions, NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::by;
use super::call::PayloadInput;
use super::call::{ActivityMeta, Call};
use super::error::{ActivityError, activity_failure_text, text};
use crate::activity::ActivityContext;

/// Something that stands for an activity that takes an `I`: a function, a name, an [`Activity`].
#[diagnostic::on_unimplemented(
    message = "this is not an activity that takes this input",
    label = "not an activity with this input",
    note = "an orchestration is called with `schedule_sub_orchestration`",
    note = "pass a function marked with `#[activity]` and its input (several arguments as a tuple), a name and a string, \
            or an `Activity`"
)]
pub trait ActivityTarget<I, K> {
    /// What is awaited.
    type Outcome;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;

    /// How it is run where nothing else is said.
    fn options(&self) -> Option<ActivityOptions> {
        None
    }

    /// The input as it is recorded.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// The outcome of what is recorded.
    fn read(outcome: Result<Payload, ActivityFailure>) -> Result<Self::Outcome, NotOfType>;
}

/// A typed outcome.
fn read_typed<O: DeserializeOwned, E: DeserializeOwned>(
    outcome: Result<Payload, ActivityFailure>,
) -> Result<Result<O, ActivityError<E>>, NotOfType> {
    match outcome {
        Ok(payload) => payload.decode_as().map(Ok),
        Err(failure) => ActivityError::read(failure).map(Err),
    }
}

macro_rules! functions {
    ($($kind:ident($($type:ident),*) = $input:ty;)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> ActivityTarget<$input, by::$kind> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>>,
            O: DeserializeOwned,
            E: DeserializeOwned,
            $($type: Serialize,)*
        {
            type Outcome = Result<O, ActivityError<E>>;

            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }

            fn options(&self) -> Option<ActivityOptions> {
                Some(M::options()).filter(|options| *options != ActivityOptions::default())
            }

            fn encode(input: $input) -> Result<Payload, serde_json::Error> {
                Payload::encode(&input)
            }

            fn read(outcome: Result<Payload, ActivityFailure>) -> Result<Self::Outcome, NotOfType> {
                read_typed(outcome)
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
impl<I: Into<String>> ActivityTarget<I, by::Name> for $name {
    type Outcome = Result<String, String>;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self[..])
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Ok(Payload::from(input.into()))
    }

    fn read(outcome: Result<Payload, ActivityFailure>) -> Result<Self::Outcome, NotOfType> {
        Ok(text(outcome, |failure| activity_failure_text(&failure)))
    }
}

/// By name, with payloads as they are.
#[diagnostic::do_not_recommend]
impl<I: PayloadInput> ActivityTarget<I, by::Payloads> for $name {
    type Outcome = Result<Payload, ActivityFailure>;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self[..])
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Ok(input.into())
    }

    fn read(outcome: Result<Payload, ActivityFailure>) -> Result<Self::Outcome, NotOfType> {
        Ok(outcome)
    }
}
    )*};
}

names!(&str, &&str, &String, String);

/// An activity known by its name and types, without its code at hand.
///
/// ```
/// use perennial::typed::Activity;
///
/// const CHARGE: Activity<u64, String> = Activity::named("charge");
/// assert_eq!(CHARGE.name(), "charge");
/// ```
pub struct Activity<I, O, E = String> {
    name: &'static str,
    types: PhantomData<fn(I) -> Result<O, E>>,
}

impl<I, O, E> Activity<I, O, E> {
    /// The activity that is registered under a name.
    pub const fn named(name: &'static str) -> Activity<I, O, E> {
        Activity { name, types: PhantomData }
    }

    /// The registered name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<I, O, E> Clone for Activity<I, O, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O, E> Copy for Activity<I, O, E> {}

impl<I, O, E> fmt::Debug for Activity<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activity").field(&self.name).finish()
    }
}

#[diagnostic::do_not_recommend]
impl<I: Serialize, O: DeserializeOwned, E: DeserializeOwned> ActivityTarget<I, by::Described>
    for Activity<I, O, E>
{
    type Outcome = Result<O, ActivityError<E>>;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name)
    }

    fn encode(input: I) -> Result<Payload, serde_json::Error> {
        Payload::encode(&input)
    }

    fn read(outcome: Result<Payload, ActivityFailure>) -> Result<Self::Outcome, NotOfType> {
        read_typed(outcome)
    }
}
