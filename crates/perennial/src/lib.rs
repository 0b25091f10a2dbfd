//! Durable execution for Rust.
//!
//! Orchestrations are ordinary async functions that survive crashes, restarts and deployments: what they decided and
//! what the world answered is recorded, and the code is run again against that record. Activities are ordinary async
//! code with side effects; they run at least once.
//!
//! ```
//! use perennial::{ActivityContext, OrchestrationContext, Payload, Runtime};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), perennial::Error> {
//! let runtime = Runtime::open("memory:")
//!     .orchestration("greeting", "1.0.0", |ctx: OrchestrationContext, name: Payload| async move {
//!         ctx.schedule_activity("greet", name).await.map_err(|_| Payload::from("nobody greets"))
//!     })
//!     .activity("greet", |_: ActivityContext, name: Payload| async move {
//!         let name: String = name.decode().map_err(|error| Payload::from(error.to_string()))?;
//!         Ok(Payload::from(format!("Hello, {name}!")))
//!     })
//!     .start()
//!     .await?;
//!
//! let client = runtime.client();
//! client.start("greeting", "greeting-1", "Ada").await?; // durable when this returns
//! assert_eq!(client.result("greeting-1").await?.as_json(), r#""Hello, Ada!""#);
//! runtime.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod activity;
mod client;
mod error;
#[cfg(doctest)]
mod guide;
mod runtime;
mod store_url;
pub mod typed;

pub use activity::{ActivityContext, ActivityFutureBox, ActivityHandler};
pub use client::{
    Action, Client, InstanceStatus, OnExisting, Progress, Prune, StartOptions, StartOutcome, Tree,
};
pub use error::{ClientError, Error, OrchestrationError, StartError};
pub use perennial_core::store::{Count, Filter, Page, PageKey, Status, StoreStats};
pub use perennial_core::*;
#[doc(hidden)]
pub use runtime::LocalClock;
pub use runtime::{Runtime, RuntimeBuilder, RuntimeOptions};

#[cfg(feature = "macros")]
pub use perennial_macros::{activity, orchestration};

// The attributes name this crate by its name, also in its own documentation.
#[allow(unused_extern_crates, reason = "the attributes use it")]
extern crate self as perennial;

/// Everything that a program with orchestrations and activities needs.
pub mod prelude {
    pub use std::time::Duration;

    pub use crate::typed::{
        Activity, ActivityError, ChildError, Event, Orchestration, OrchestrationContext, Run, RunError, Saga,
    };
    pub use crate::{
        ActivityContext, Client, ClientError, ClosePolicy, Either, Either3, Error, OnExisting, Payload,
        RetryPolicy, Runtime, RuntimeOptions, StartOptions, Status,
    };
    #[cfg(feature = "macros")]
    pub use crate::{activity, orchestration};
}
