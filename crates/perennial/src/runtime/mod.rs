//! The runtime: drives the lanes and the node of this process with threads, activities and a store.
//!
//! [`Driver`] connects the parts. Each background role has its own file: TurnThreads run orchestration code,
//! Workers run activities, the Timekeeper wakes the lanes and the node at due times, Meters measure.

mod attempt_reports;
mod attempt_span;
mod builder;
mod callers;
mod clock;
mod driver;
mod heartbeat_monitor;
mod lanes;
mod meters;
mod observing;
mod preflight;
mod registry;
mod standalone_attempt;
mod standing;
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
