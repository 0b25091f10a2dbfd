//! Durable execution for Rust.
//!
//! Orchestrations are ordinary async functions that survive crashes, restarts and deployments: their
//! decisions and the results of the outside world are recorded, and the code is replayed against that record.
//! Activities are ordinary async code with side effects; they run at least once.
//!
//! ```
//! use perennial::prelude::*;
//!
//! #[activity]
//! async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! #[orchestration]
//! async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
//!     // The call and its result are recorded. After a crash the code is replayed up to here.
//!     Ok(ctx.schedule_activity(greet, name).await?)
//! }
//!
//! #[tokio::main]
//! async fn main() -> perennial::Result<()> {
//!     // "sqlite:greetings.db" stores the data in a file.
//!     let runtime = Runtime::open("memory:").register(greeting).register(greet).start().await?;
//!     let run = runtime.client().start(greeting, "greeting-1", "Ada".to_owned()).await?; // durable when this returns
//!     assert_eq!(run.result().await?, "Hello, Ada!");
//!     runtime.shutdown().await
//! }
//! ```
//!
//! Where to start: [`Runtime`] opens a store and runs the registered code. [`Client`] starts instances, sends
//! to them and reads them. [`OrchestrationContext`] is the handle that orchestration code calls;
//! [`ActivityContext`] is the one of activities. The guide under `docs/` explains replay and lists every
//! error by its code.
//!
//! The [`prelude`] exports the items that most programs need. Every input and result is recorded as a
//! [`Payload`] of JSON; calls by name can pass and return payloads without decoding them. [`history`]
//! contains the recorded events, [`typed`] the traits that the typed calls use.

mod activity;
mod change_hints;
pub mod client;
pub mod codec;
mod error;
mod error_code;
mod error_text;
mod export;
mod filter;
#[cfg(doctest)]
mod guide;
pub mod metrics;
pub mod moving;
mod registrations;
mod runtime;
mod shared_state;
mod similar;
mod store_url;
pub mod typed;

pub use activity::ActivityContext;
#[doc(hidden)]
pub use activity::{ActivityFutureBox, ActivityHandler};
#[doc(inline)]
pub use client::{Action, Client, InstancePage, InstanceView, OnExisting, Prune, StartOptions};
pub use error::{ClientError, Error, OrchestrationError, Result, StartError};
pub use filter::Filter;
pub use perennial_core::store::{Condition, FilterError, Status, StoreError, attribute};
pub use perennial_core::{
    Backoff, ClosePolicy, Delivery, Either, Either3, Elapsed, ErrorCode, InstanceKey, NameError, NotOfType,
    OnTakenId, Payload, RetryPolicy, TimeoutKind, Timestamp, TimestampError, Why,
};
pub use registrations::Registrations;
#[doc(hidden)]
pub use runtime::{LocalClock, StandaloneAttempt};
pub use runtime::{Runtime, RuntimeBuilder, RuntimeOptions};
#[doc(inline)]
pub use typed::{
    Activity, ActivityError, ChildError, ExternalEvent, Later, Orchestration, OrchestrationContext, Query,
    Run, RunError, Saga, Update, UpdateError,
};

#[cfg(feature = "macros")]
pub use perennial_macros::{activity, orchestration};

// The attributes expand to paths that begin with `perennial`, even inside this crate.
#[allow(unused_extern_crates, reason = "the attributes use it")]
extern crate self as perennial;

/// Futures and handles that the methods of [`OrchestrationContext`] return, and their outputs.
pub mod context {
    pub use crate::typed::{OrchestrationContext, UpdateHandler};
    pub use perennial_core::{
        ActivityFuture, Branches, Cancelled, ChildFuture, ChildStarted, Completions, ContinueAsNewFuture,
        DeliveryFuture, Either, Either3, Elapsed, EndCancelledFuture, Events, HandlersIdle, Info, Join,
        Join2, Join3, Operand, Operands, Race, Receive, Select, Select2, Select3, Sent, Shield, State,
        SystemCallFuture, Timeout, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil,
    };
}

/// The recorded history of an instance: events, grouped into turns. [`Client::history`] reads it,
/// [`replay::Replayer`] replays it against code.
pub mod history {
    pub use perennial_core::shard::child_id;
    pub use perennial_core::{
        ActivityError, ActivityOptions, Attributes, Backoff, CancelRequest, ChildError, ChildOptions,
        ClosePolicy, CorruptHistory, Decision, Delivery, Ending, Event, EventId, EventKind, History,
        HistoryError, Job, Ledger, NotAUnitPath, OnTakenId, ParentLink, PastAttempt, Payload, Reset,
        RetryPolicy, Segment, StaleReason, Started, TimeoutKind, TraceContext, Trail, Turn, TurnFailure,
        UnitId, Why,
    };
}

/// Distributed traces: connecting Perennial with the traces of a program. The guide's page "Traces" is an introduction, and
/// `perennial-otel` exports the spans.
pub mod traces {
    pub use perennial_core::TraceContext;
    pub use perennial_core::trace::{
        SourceAlreadySet, SpanContext, SpanId, TraceId, TraceSource, set_source, source,
    };
}

/// Settings of runtimes, executions and activities beyond [`RuntimeOptions`]. The defaults need no tuning.
pub mod options {
    pub use crate::RuntimeOptions;
    pub use crate::registrations::VersionPolicy;
    pub use perennial_core::shard::{FailurePolicy, OnFailure, ShardOptions, TokenKey};
    pub use perennial_core::{ActivityOptions, ExecutionOptions, Limits};
}

/// Replaying recorded histories against the current code: before a deployment
/// ([`RuntimeBuilder::preflight`]), or one by one.
pub mod replay {
    pub use crate::runtime::{Incompatible, MissingVersion, PreflightProgress, PreflightReport};
    pub use perennial_core::{
        Handlers, HistoryError, Nondeterminism, OrchestrationHandler, ReplayReport, Replayer, Side,
        TurnFailure,
    };
}

/// Reasons why an instance does not make progress. [`Client::explain`] covers one instance,
/// [`Client::find_stuck`] a store.
pub mod explain {
    pub use crate::client::{
        ActivityState, ActivityWait, Explanation, FailedAttempt, Finding, FindingKind, PastState,
        StuckReport, Wait, WaitReason,
    };
}

/// The contract between the engine and a store, for stores of your own.
///
/// The guide's page "Write your own store" is an introduction; `perennial-testkit` contains the contract as
/// tests.
pub mod store {
    pub use perennial_core::store::*;
    pub use perennial_core::{InstanceKey, NotAKey, SHARDS, ShardId};
}

/// The items that a program with orchestrations and activities needs.
///
/// ```
/// use perennial::prelude::*;
///
/// const PAID: ExternalEvent<u64> = ExternalEvent::named("paid");
///
/// #[orchestration]
/// async fn invoice(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
///     match ctx.timeout(Duration::from_secs(14 * 86_400), ctx.schedule_wait(PAID)).await {
///         Ok(paid) if paid >= cents => Ok("paid".to_owned()),
///         Ok(paid) => Err(format!("{} cents are missing", cents - paid)),
///         Err(_) => Err("not paid within two weeks".to_owned()),
///     }
/// }
/// ```
pub mod prelude {
    pub use std::time::Duration;

    pub use crate::{
        Activity, ActivityContext, ActivityError, Backoff, ChildError, Client, ClientError, ClosePolicy,
        Delivery, Either, Either3, Elapsed, Error, ExternalEvent, Later, OnExisting, OnTakenId,
        Orchestration, OrchestrationContext, OrchestrationError, Payload, Query, Registrations, RetryPolicy,
        Run, RunError, Runtime, RuntimeOptions, Saga, StartOptions, Status, TimeoutKind, Timestamp, Update,
        UpdateError, Why,
    };
    #[cfg(feature = "macros")]
    pub use crate::{activity, orchestration};
}
