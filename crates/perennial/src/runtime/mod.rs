//! The runtime: a lane and a node of this process, driven by real threads, real activities and a real store.
//!
//! [`Driver`] is the glue. Each background role is one noun in a file of its own: TurnThreads run orchestration code,
//! Workers run activities, the Timekeeper brings the time.

mod builder;
mod callers;
mod clock;
mod driver;
mod heartbeat_monitor;
mod preflight;
mod registry;
mod standalone_attempt;
mod timekeeper;
mod turn_threads;
mod workers;

pub use builder::{Runtime, RuntimeBuilder, RuntimeOptions};
pub use clock::LocalClock;
pub(crate) use driver::Driver;
pub(crate) use heartbeat_monitor::HeartbeatMonitor;
pub use preflight::{Incompatible, MissingVersion, PreflightProgress, PreflightReport};
pub(crate) use registry::Registry;
pub use standalone_attempt::StandaloneAttempt;
