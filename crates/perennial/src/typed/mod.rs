//! Typed calls: the ways to refer to activities, orchestrations, events, queries and updates.
//!
//! The same methods accept all of them. A function marked with `#[activity]` or `#[orchestration]` is passed
//! itself and determines the types. A name takes and returns strings, or payloads. [`Activity`],
//! [`Orchestration`], [`ExternalEvent`], [`Query`] and [`Update`] add types to a name, for callers that do
//! not have the code.
//!
//! The traits are bounds of methods; programs do not implement them. Each kind has one trait for calls. A
//! second trait exists where a method has no input from which the types could be inferred.
//!
//! | kind | calls | other uses |
//! |---|---|---|
//! | activity | [`ActivityTarget`] | |
//! | orchestration | [`OrchestrationTarget`] | [`RunTarget`]: existing instances, filters |
//! | event | [`EventTarget`] | [`EventContent`]: its content |
//! | query | [`QueryTarget`] | [`QueryHandled`]: its handler |
//! | update | [`UpdateTarget`] | [`UpdateHandled`]: its handler |

mod arguments;
mod call;
mod context;
mod context_calls;
mod described;
mod error;
mod events;
pub(crate) mod fallback;
mod handlers;
mod later;
mod register;
mod run;
mod saga;
mod targets;
mod uses;

pub use crate::shared_state::StateType;
pub use call::{ActivityMeta, Call, OrchestrationMeta, PayloadInput, Recordable, Returned};
#[doc(hidden)]
pub use call::{assert_recordable, blocking};
pub use context::OrchestrationContext;
pub use described::{Activity, Orchestration, Query, Update};
pub use error::UpdateError;
pub use events::{EventContent, EventTarget, ExternalEvent};
pub use handlers::UpdateHandler;
#[doc(hidden)]
pub use later::assert_recordable_result;
pub use later::{ActivityReturn, Awaited, Later, RecordableResult};
pub use perennial_core::{ActivityError, ChildError};
#[doc(hidden)]
pub use register::Registration;
pub use register::{ActivityCode, BlockingCode, OrchestrationCode, Register};
pub use run::{Run, RunError};
pub use saga::Saga;
pub use targets::{
    ActivityTarget, OrchestrationTarget, QueryHandled, QueryTarget, RunTarget, UpdateHandled, UpdateTarget,
};
pub(crate) use uses::UsedKind;
#[doc(hidden)]
pub use uses::used;
pub use uses::{UseTarget, Used};

/// Marker types for the ways to refer to a target. They keep the trait implementations apart and are
/// inferred.
pub mod by {
    /// A function without arguments after its context.
    #[derive(Debug)]
    pub struct Function0;
    /// A function with one argument.
    #[derive(Debug)]
    pub struct Function1;
    /// A function with two arguments, passed as a tuple.
    #[derive(Debug)]
    pub struct Function2;
    /// A function with three arguments, passed as a tuple.
    #[derive(Debug)]
    pub struct Function3;
    /// A function with four arguments, passed as a tuple.
    #[derive(Debug)]
    pub struct Function4;
    /// A name, with strings.
    #[derive(Debug)]
    pub struct Name;
    /// A name, with payloads.
    #[derive(Debug)]
    pub struct Payloads;
    /// A name with types, such as [`Activity`](super::Activity).
    #[derive(Debug)]
    pub struct Described;
}
