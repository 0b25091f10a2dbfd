//! Ways to refer to an activity, an orchestration, a query or an update in a call.
//!
//! A target is given by name with strings, by name with payloads, by name and types, or, where there is one,
//! by its marked function. Each way has a marker type ([`by`]), which keeps the implementations apart and is
//! inferred.

use std::borrow::Cow;
use std::future::Future;

use perennial_core::{ActivityError, ActivityOptions, ChildError, NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::by;
use super::call::{ActivityMeta, Call, OrchestrationMeta, PayloadInput};
use super::context::OrchestrationContext;
use super::described::{Activity, Orchestration, Query, Update};
use super::error::text;
use super::later::Awaited;
use crate::activity::ActivityContext;

/// Refers to an activity that takes an `I`: a function, a name, an [`Activity`].
#[diagnostic::on_unimplemented(
    message = "this is not an activity that takes this input",
    label = "not an activity with this input",
    note = "an orchestration is called with `schedule_sub_orchestration`",
    note = "pass a function marked with `#[activity]` and its input (several arguments as a tuple), or an `Activity` and \
            its input",
    note = "a name takes a string, a payload, `()` or a tuple; `Activity::<In, Out>::named` takes any type"
)]
pub trait ActivityTarget<I, K> {
    /// The type that the caller awaits.
    type Outcome;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;

    /// The options that apply unless the caller overrides them.
    fn options(&self) -> Option<ActivityOptions> {
        None
    }

    /// Encodes the input as it is recorded.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// Decodes the recorded outcome.
    fn read(outcome: Result<Payload, ActivityError>) -> Result<Self::Outcome, NotOfType>;
}

/// Refers to an orchestration that takes an `I`: a function, a name, an [`Orchestration`].
#[diagnostic::on_unimplemented(
    message = "this is not an orchestration that takes this input",
    label = "not an orchestration with this input",
    note = "an activity is called with `schedule_activity`, inside an orchestration",
    note = "pass a function marked with `#[orchestration]` and its input (several arguments as a tuple), or an \
            `Orchestration` and its input",
    note = "a name takes a string, a payload, `()` or a tuple; `Orchestration::<In, Out>::named` takes any type"
)]
pub trait OrchestrationTarget<I, K> {
    /// The type of its result.
    type Output;
    /// The type of its error.
    type Error;
    /// The type that a parent awaits.
    type Outcome;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;

    /// Encodes the input as it is recorded.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// Decodes the recorded result.
    fn read_output(payload: Payload) -> Result<Self::Output, NotOfType>;

    /// Decodes the recorded error.
    fn read_error(payload: Payload) -> Result<Self::Error, NotOfType>;

    /// Decodes the recorded outcome for a parent.
    fn read(outcome: Result<Payload, ChildError>) -> Result<Self::Outcome, NotOfType>;
}

/// Refers to a query that takes an `I`: a name, a [`Query`].
#[diagnostic::on_unimplemented(
    message = "this is not a query that takes this input",
    label = "not a query with this input",
    note = "pass a `Query` and its input, or a name and a string, a payload or `()`"
)]
pub trait QueryTarget<I, K> {
    /// The type of the answer.
    type Output;

    /// The name under which it is handled.
    fn name(&self) -> Cow<'_, str>;

    /// Encodes the input as it is sent.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// Decodes the answer.
    fn read_output(payload: Payload) -> Result<Self::Output, NotOfType>;
}

/// Refers to an update that takes an `I`: a name, an [`Update`].
#[diagnostic::on_unimplemented(
    message = "this is not an update that takes this input",
    label = "not an update with this input",
    note = "pass an `Update` and its input, or a name and a string, a payload or `()`"
)]
pub trait UpdateTarget<I, K> {
    /// The type of the answer.
    type Output;
    /// The type of the error that refuses it or that its handler returns.
    type Error;

    /// The name under which it is handled.
    fn name(&self) -> Cow<'_, str>;

    /// Encodes the input as it is sent.
    fn encode(input: I) -> Result<Payload, serde_json::Error>;

    /// Decodes the answer.
    fn read_output(payload: Payload) -> Result<Self::Output, NotOfType>;

    /// Decodes the error.
    fn read_error(payload: Payload) -> Result<Self::Error, NotOfType>;
}

/// Refers to a query when its handler is installed: a [`Query`] with its types, or a name with those of the
/// handler.
pub trait QueryHandled<I, O> {
    /// The name.
    fn name(&self) -> Cow<'_, str>;
}

/// Refers to an update when its handler is installed: an [`Update`] with its types, or a name with those of the
/// handler.
pub trait UpdateHandled<I, O, E> {
    /// The name.
    fn name(&self) -> Cow<'_, str>;
}

impl<I, O> QueryHandled<I, O> for Query<I, O> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Query::name(self))
    }
}

impl<I, O, E> UpdateHandled<I, O, E> for Update<I, O, E> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Update::name(self))
    }
}

/// Refers to the orchestration of an instance, and determines the types of its result: a marked function, an
/// [`Orchestration`], or a name (then payloads).
#[diagnostic::on_unimplemented(
    message = "this is not an orchestration",
    label = "not an orchestration",
    note = "pass a function marked with `#[orchestration]`, an `Orchestration`, or a name"
)]
pub trait RunTarget<K> {
    /// The type of its result.
    type Output;
    /// The type of its error.
    type Error;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;

    /// Decodes the recorded result.
    fn read_output(payload: Payload) -> Result<Self::Output, NotOfType>;

    /// Decodes the recorded error.
    fn read_error(payload: Payload) -> Result<Self::Error, NotOfType>;
}

/// Implements a trait for marked functions with the types `O` and `E` and the metadata `M`.
macro_rules! functions {
    ($target:ident($context:ident, $meta:ident) -> $output:ident $body:tt) => {
        functions!(@ $target, $context, $meta, $output, $body, Function0() = ());
        functions!(@ $target, $context, $meta, $output, $body, Function1(A) = A);
        functions!(@ $target, $context, $meta, $output, $body, Function2(A, B) = (A, B));
        functions!(@ $target, $context, $meta, $output, $body, Function3(A, B, C) = (A, B, C));
        functions!(@ $target, $context, $meta, $output, $body, Function4(A, B, C, D) = (A, B, C, D));
    };
    (@ $target:ident, $context:ident, $meta:ident, $output:ident, {$($body:tt)*}, $way:ident($($type:ident),*) = $input:ty) => {
        impl<Fun, M, Fut, O, E $(, $type)*> $target<$input, by::$way> for Fun
        where
            Fun: Fn($context $(, $type)*) -> Call<M, Fut>,
            M: $meta,
            Fut: Future<Output = Result<O, E>>,
            O: $output,
            E: DeserializeOwned,
            $($type: Serialize,)*
        {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }

            fn encode(input: $input) -> Result<Payload, serde_json::Error> {
                Payload::encode(&input)
            }

            $($body)*
        }
    };
}

/// Implements a trait for names with types.
macro_rules! described {
    ($target:ident for $described:ident<$($type:ident: $bound:ident),*> {$($body:tt)*}) => {
        #[diagnostic::do_not_recommend]
        impl<I: Serialize $(, $type: $bound)*> $target<I, by::Described> for $described<I $(, $type)*> {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed($described::name(self))
            }

            fn encode(input: I) -> Result<Payload, serde_json::Error> {
                Payload::encode(&input)
            }

            $($body)*
        }
    };
}

/// Implements a trait for names: with strings (a result that is not a string is returned as JSON text), or with
/// payloads.
macro_rules! names {
    ($target:ident, texts $texts:tt, payloads $payloads:tt) => {
        names!(@ $target, Name {Into<String>}, |input| Ok(Payload::from(input.into())), $texts, &str, &&str, &String, String);
        names!(@ $target, Payloads {PayloadInput}, PayloadInput::into_payload, $payloads, &str, &&str, &String, String);
    };
    (@ $target:ident, $way:ident $bound:tt, $encode:expr, $body:tt, $($name:ty),*) => {$(
        names!(@@ $target, $way $bound, $encode, $body, $name);
    )*};
    (@@ $target:ident, $way:ident {$bound:path}, $encode:expr, {$($body:tt)*}, $name:ty) => {
        #[diagnostic::do_not_recommend]
        impl<I: $bound> $target<I, by::$way> for $name {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self[..])
            }

            fn encode(input: I) -> Result<Payload, serde_json::Error> {
                let encode: fn(I) -> Result<Payload, serde_json::Error> = $encode;
                encode(input)
            }

            $($body)*
        }
    };
}

/// Implements the traits without an input for names.
macro_rules! bare_names {
    ($($name:ty),*) => {$(
        impl<I, O> QueryHandled<I, O> for $name {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self[..])
            }
        }

        impl<I, O, E> UpdateHandled<I, O, E> for $name {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self[..])
            }
        }

        impl RunTarget<by::Payloads> for $name {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self[..])
            }

            reads!(read_output, Output = Payload as payload);
            reads!(read_error, Error = Payload as payload);
        }
    )*};
}

/// Implements decoding of a result or an error: as its type, as text, or as a payload.
macro_rules! reads {
    ($read:ident, $name:ident = $type:ty as type) => {
        reads!(@ $read, $name = $type, |payload| payload.decode_as());
    };
    ($read:ident, $name:ident = $type:ty as text) => {
        reads!(@ $read, $name = $type, |payload| Ok(payload.to_text()));
    };
    ($read:ident, $name:ident = $type:ty as payload) => {
        reads!(@ $read, $name = $type, Ok);
    };
    (@ $read:ident, $name:ident = $type:ty, $how:expr) => {
        type $name = $type;

        fn $read(payload: Payload) -> Result<$type, NotOfType> {
            let read: fn(Payload) -> Result<$type, NotOfType> = $how;
            read(payload)
        }
    };
}

macro_rules! reads_activity {
    ($outcome:ty, $read:expr) => {
        type Outcome = $outcome;

        fn read(outcome: Result<Payload, ActivityError>) -> Result<Self::Outcome, NotOfType> {
            let read: fn(Result<Payload, ActivityError>) -> Result<$outcome, NotOfType> = $read;
            read(outcome)
        }
    };
}

macro_rules! reads_child {
    ($outcome:ty, $read:expr) => {
        type Outcome = $outcome;

        fn read(outcome: Result<Payload, ChildError>) -> Result<Self::Outcome, NotOfType> {
            let read: fn(Result<Payload, ChildError>) -> Result<$outcome, NotOfType> = $read;
            read(outcome)
        }
    };
}

fn read_activity<O: Awaited, E: DeserializeOwned>(
    outcome: Result<Payload, ActivityError>,
) -> Result<Result<O::Value, ActivityError<E>>, NotOfType> {
    match outcome {
        Ok(payload) => payload.decode_as().map(Ok),
        Err(failure) => failure.decode().map(Err),
    }
}

fn read_child<O: DeserializeOwned, E: DeserializeOwned>(
    outcome: Result<Payload, ChildError>,
) -> Result<Result<O, ChildError<E>>, NotOfType> {
    match outcome {
        Ok(payload) => payload.decode_as().map(Ok),
        Err(failure) => failure.decode().map(Err),
    }
}

functions!(ActivityTarget(ActivityContext, ActivityMeta) -> Awaited {
    reads_activity!(Result<O::Value, ActivityError<E>>, read_activity::<O, E>);

    fn options(&self) -> Option<ActivityOptions> {
        let options = ActivityOptions { completes_later: O::COMPLETES_LATER, ..M::options() };
        Some(options).filter(|options| *options != ActivityOptions::default())
    }
});
described!(ActivityTarget for Activity<O: Awaited, E: DeserializeOwned> {
    reads_activity!(Result<O::Value, ActivityError<E>>, read_activity::<O, E>);

    fn options(&self) -> Option<ActivityOptions> {
        O::COMPLETES_LATER.then(|| ActivityOptions { completes_later: true, ..ActivityOptions::default() })
    }
});
names!(
    ActivityTarget,
    texts { reads_activity!(Result<String, String>, |outcome| Ok(text(outcome, String::from))); },
    payloads { reads_activity!(Result<Payload, ActivityError<Payload>>, read_activity::<Payload, Payload>); }
);

functions!(OrchestrationTarget(OrchestrationContext, OrchestrationMeta) -> DeserializeOwned {
    reads!(read_output, Output = O as type);
    reads!(read_error, Error = E as type);
    reads_child!(Result<O, ChildError<E>>, read_child);
});
described!(OrchestrationTarget for Orchestration<O: DeserializeOwned, E: DeserializeOwned> {
    reads!(read_output, Output = O as type);
    reads!(read_error, Error = E as type);
    reads_child!(Result<O, ChildError<E>>, read_child);
});
names!(
    OrchestrationTarget,
    texts {
        reads!(read_output, Output = String as text);
        reads!(read_error, Error = String as text);
        reads_child!(Result<String, String>, |outcome| Ok(text(outcome, String::from)));
    },
    payloads {
        reads!(read_output, Output = Payload as payload);
        reads!(read_error, Error = Payload as payload);
        reads_child!(Result<Payload, ChildError<Payload>>, read_child);
    }
);

bare_names!(&str, &&str, &String, String);

macro_rules! run_functions {
    ($($way:ident($($type:ident),*);)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> RunTarget<(by::$way, $($type,)*)> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Call<M, Fut>,
            M: OrchestrationMeta,
            Fut: Future<Output = Result<O, E>>,
            O: DeserializeOwned,
            E: DeserializeOwned,
        {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }

            reads!(read_output, Output = O as type);
            reads!(read_error, Error = E as type);
        }
    )*};
}

run_functions! {
    Function0();
    Function1(A);
    Function2(A, B);
    Function3(A, B, C);
    Function4(A, B, C, D);
}

impl<I, O: DeserializeOwned, E: DeserializeOwned> RunTarget<by::Described> for Orchestration<I, O, E> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Orchestration::name(self))
    }

    reads!(read_output, Output = O as type);
    reads!(read_error, Error = E as type);
}

described!(QueryTarget for Query<O: DeserializeOwned> {
    reads!(read_output, Output = O as type);
});
names!(
    QueryTarget,
    texts { reads!(read_output, Output = String as text); },
    payloads { reads!(read_output, Output = Payload as payload); }
);

described!(UpdateTarget for Update<O: DeserializeOwned, E: DeserializeOwned> {
    reads!(read_output, Output = O as type);
    reads!(read_error, Error = E as type);
});
names!(
    UpdateTarget,
    texts {
        reads!(read_output, Output = String as text);
        reads!(read_error, Error = String as text);
    },
    payloads {
        reads!(read_output, Output = Payload as payload);
        reads!(read_error, Error = Payload as payload);
    }
);
