//! Durable execution for Rust.
//!
//! Orchestrations are ordinary async functions that survive crashes, restarts and deployments: what they decided and
//! what the world answered is recorded, and the code is run again against that record. Activities are ordinary async
//! code with side effects; they run at least once.
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
//!     // Scheduled, recorded, run; after a crash the code is run again up to here.
//!     Ok(ctx.schedule_activity(greet, name).await?)
//! }
//!
//! #[tokio::main]
//! async fn main() -> perennial::Result<()> {
//!     // "sqlite:greetings.db" for a file that outlives the process.
//!     let runtime = Runtime::open("memory:").register(greeting).register(greet).start().await?;
//!     let run = runtime.client().start(greeting, "greeting-1", "Ada".to_owned()).await?; // durable when this returns
//!     assert_eq!(run.result().await?, "Hello, Ada!");
//!     runtime.shutdown().await
//! }
//! ```
//!
//! Where to go from here: [`Runtime`] opens a store and runs what is registered; [`Client`] starts instances, reaches
//! them and looks at them; [`OrchestrationContext`] is what orchestrations call, [`ActivityContext`] what activities know.
//! The guide under `docs/` explains replay, and lists every error by its code.
//!
//! The [`prelude`] holds what most programs need. Beneath the types everything is a [`Payload`] of JSON, and calls by name
//! take and give payloads as they are. [`history`] is what is recorded; [`typed`] holds the traits behind the calls.

mod activity;
pub mod client;
pub mod codec;
mod error;
mod error_code;
mod export;
mod filter;
#[cfg(doctest)]
mod guide;
mod registrations;
mod runtime;
mod shared_state;
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

// The attributes name this crate by its name, also in its own documentation.
#[allow(unused_extern_crates, reason = "the attributes use it")]
extern crate self as perennial;

/// What the methods of [`OrchestrationContext`] return: futures, handles and what they resolve to.
pub mod context {
    pub use crate::typed::{OrchestrationContext, UpdateHandler};
    pub use perennial_core::{
        ActivityFuture, Branches, Cancelled, ChildFuture, ChildStarted, Completions, ContinueAsNewFuture,
        DeliveryFuture, Either, Either3, Elapsed, EndCancelledFuture, Events, HandlersIdle, Info, Join,
        Join2, Join3, Operand, Operands, Race, Receive, Select, Select2, Select3, Sent, Shield, State,
        SystemCallFuture, Timeout, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil,
    };
}

/// What is recorded of an instance: events in turns. [`Client::history`] reads it, [`replay::Replayer`] holds it against
/// code.
pub mod history {
    pub use perennial_core::{
        ActivityError, ActivityOptions, Attributes, Backoff, CancelRequest, ChildError, ChildOptions,
        ClosePolicy, CorruptHistory, Decision, Delivery, Ending, Event, EventId, EventKind, History,
        HistoryError, Job, Ledger, NotAUnitPath, OnTakenId, ParentLink, PastAttempt, Payload, Reset,
        RetryPolicy, Segment, StaleReason, Started, TimeoutKind, TraceContext, Trail, Turn, TurnFailure,
        UnitId, Why,
    };
}

/// How runtimes, executions and activities behave, beyond [`RuntimeOptions`]. The defaults need no tuning.
pub mod options {
    pub use crate::RuntimeOptions;
    pub use crate::registrations::VersionPolicy;
    pub use perennial_core::shard::{FailurePolicy, OnFailure, ShardOptions, TokenKey};
    pub use perennial_core::{ActivityOptions, ExecutionOptions, Limits};
}

/// Recorded histories against the current code: before a deployment ([`RuntimeBuilder::preflight`]), or one by one.
pub mod replay {
    pub use crate::runtime::{Incompatible, MissingVersion, PreflightProgress, PreflightReport};
    pub use perennial_core::{
        Handlers, HistoryError, Nondeterminism, OrchestrationHandler, ReplayReport, Replayer, Side,
        TurnFailure,
    };
}

/// Why an instance does not move. [`Client::explain`] answers it for one instance, [`Client::find_stuck`] for a store.
pub mod explain {
    pub use crate::client::{
        ActivityState, ActivityWait, Explanation, FailedAttempt, Finding, FindingKind, StuckReport, Wait,
        WaitReason,
    };
}

/// The contract between the engine and what keeps its rows, for stores of your own.
///
/// The guide's page "Write your own store" says how to go about it; `perennial-testkit` has the contract as tests.
pub mod store {
    pub use perennial_core::store::*;
    pub use perennial_core::{InstanceKey, NotAKey, SHARDS, ShardId};
}

/// Everything that a program with orchestrations and activities needs.
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
