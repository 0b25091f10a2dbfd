//! The runtime: a node in this process.
//!
//! [`Node`] is the glue between shards, store, turn threads and workers. Each background role is one noun in a file
//! of its own: TurnThreads run orchestration code, Workers run activities, the TaskTaker takes those that others left, the Timekeeper brings the time, the
//! LeaseKeeper renews the session.

mod builder;
mod clock;
mod committing;
mod lease_keeper;
mod lone_attempt;
mod lone_gate;
mod node;
mod preflight;
mod pulse;
mod reading;
mod registry;
mod settling;
mod suspects;
mod suspicion;
mod task_taker;
mod timekeeper;
mod turn_threads;
mod workers;

pub use builder::{Runtime, RuntimeBuilder, RuntimeOptions};
pub use clock::LocalClock;
pub use lone_attempt::LoneAttempt;
pub(crate) use node::Node;
pub use preflight::{Incompatible, MissingVersion, PreflightProgress, PreflightReport};
pub(crate) use pulse::Pulse;
