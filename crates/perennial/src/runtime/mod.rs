//! The runtime: a lane and a node of this process, driven by real threads, real activities and a real store.
//!
//! [`Driver`] is the glue. Each background role is one noun in a file of its own: TurnThreads run orchestration code,
//! Workers run activities, the Timekeeper brings the time.

mod builder;
mod callers;
mod clock;
mod driver;
mod lone_attempt;
mod preflight;
mod pulse;
mod registry;
mod timekeeper;
mod turn_threads;
mod workers;

pub use builder::{Runtime, RuntimeBuilder, RuntimeOptions};
pub use clock::LocalClock;
pub(crate) use driver::Driver;
pub use lone_attempt::LoneAttempt;
pub use preflight::{Incompatible, MissingVersion, PreflightProgress, PreflightReport};
pub(crate) use pulse::Pulse;
pub(crate) use registry::Registry;
