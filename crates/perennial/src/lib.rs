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
mod client;
pub mod codec;
mod error;
mod export;
#[cfg(doctest)]
mod guide;
mod runtime;
mod store_url;
pub mod typed;

pub use activity::ActivityContext;
#[doc(hidden)]
pub use activity::{ActivityFutureBox, ActivityHandler, with_state};
pub use client::{
    Action, Cancel, Client, Damage, InstancePage, InstanceView, OnExisting, Progress, Prune, RaiseEvent,
    Resetting, SendUpdate, StartOptions, Tree, VerifyProgress, VerifyReport,
};
pub use error::{ClientError, Error, OrchestrationError, Result, StartError};
pub use export::{ExportedExecution, ExportedInstance};
pub use perennial_core::shard::{Counters, ResetReport, ShardOptions};
pub use perennial_core::store::{
    Blocked, Comparison, Condition, ConditionError, Count, Divergence, DivergenceRow, DivergenceSide, Filter,
    InstanceRow, Page, PageKey, Pause, PausedOrchestration, Skippable, Status, StoreError, StoreStats,
    attribute,
};
pub use perennial_core::{
    ActivityFuture, ActivityOptions, Attributes, Backoff, Branches, Cancelled, ChildFuture, ChildStarted,
    ClosePolicy, ContinueAsNewFuture, Delivery, DeliveryFuture, Either, Either3, Elapsed, EndCancelledFuture,
    Ending, EventId, Events, ExecutionOptions, Handlers, HandlersIdle, History, Info, InstanceKey, Join,
    Join2, Join3, Limits, NameError, NotOfType, OnTakenId, ParentLink, Payload, Race, Receive, ReplayReport,
    Replayer, RetryPolicy, Select, Select2, Select3, Sent, Shield, State, SystemCallFuture, Timeout,
    TimeoutKind, TimerFuture, TryJoin, UnitHandle, WaitFuture, WaitUntil, Why,
};
pub use runtime::{
    Incompatible, MissingVersion, PreflightProgress, PreflightReport, Runtime, RuntimeBuilder, RuntimeOptions,
};
#[doc(hidden)]
pub use runtime::{LocalClock, LoneAttempt};
#[doc(inline)]
pub use typed::{
    Activity, ActivityError, ChildError, Event, Later, Orchestration, OrchestrationContext, Query, Run,
    RunError, Saga, Update, UpdateError, UpdateHandler,
};

#[cfg(feature = "macros")]
pub use perennial_macros::{activity, orchestration};

// The attributes name this crate by its name, also in its own documentation.
#[allow(unused_extern_crates, reason = "the attributes use it")]
extern crate self as perennial;

/// What is recorded of an instance: events in turns. [`Client::history`] reads it, [`Replayer`] holds it against code.
pub mod history {
    pub use perennial_core::{
        ActivityFailure, ChildFailure, ChildOptions, Decision, Ending, Event, EventId, EventKind, History,
        HistoryError, Job, Ledger, ParentLink, PastAttempt, Reset, Started, TimeoutKind, TraceContext, Trail,
        Turn, TurnFailure, UnitId,
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
    pub use perennial_core::{InstanceKey, SHARDS, ShardId};
}

/// Everything that a program with orchestrations and activities needs.
///
/// ```
/// use perennial::prelude::*;
///
/// const PAID: Event<u64> = Event::named("paid");
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
        Delivery, Either, Either3, Elapsed, Error, Event, Later, OnExisting, OnTakenId, Orchestration,
        OrchestrationContext, OrchestrationError, Payload, Query, RetryPolicy, Run, RunError, Runtime,
        RuntimeOptions, Saga, StartOptions, Status, TimeoutKind, Update, UpdateError, Why,
    };
    #[cfg(feature = "macros")]
    pub use crate::{activity, orchestration};
}
