//! Typed calls: functions, names and descriptions that stand for activities, orchestrations and events.
//!
//! One set of methods serves all of them. A function marked with `#[activity]` or `#[orchestration]` is passed itself
//! and brings its types; a name takes and gives strings, or payloads; [`Activity`], [`Orchestration`], [`ExternalEvent`],
//! [`Query`] and [`Update`] are typed where the code is not at hand.
//!
//! The traits are bounds of methods; programs do not implement them. Each kind has one trait for calls. A second one
//! exists where a method is given no input to infer the types from.
//!
//! | kind | calls | other uses |
//! |---|---|---|
//! | activity | [`ActivityTarget`] | |
//! | orchestration | [`OrchestrationTarget`] | [`RunTarget`]: existing instances, filters |
//! | event | [`EventTarget`] | [`EventContent`]: what is sent with it |
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

/// Ways in which something is passed. They tell one implementation from another, and are inferred.
pub mod by {
    /// By a function without arguments after its context.
    #[derive(Debug)]
    pub struct Function0;
    /// By a function with one argument.
    #[derive(Debug)]
    pub struct Function1;
    /// By a function with two arguments, given as a tuple.
    #[derive(Debug)]
    pub struct Function2;
    /// By a function with three arguments, given as a tuple.
    #[derive(Debug)]
    pub struct Function3;
    /// By a function with four arguments, given as a tuple.
    #[derive(Debug)]
    pub struct Function4;
    /// By its name, with strings.
    #[derive(Debug)]
    pub struct Name;
    /// By its name, with payloads.
    #[derive(Debug)]
    pub struct Payloads;
    /// By a description with types.
    #[derive(Debug)]
    pub struct Described;
}
