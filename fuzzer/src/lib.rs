//! Hostile inputs for everything that reads bytes: histories, replay, messages, stored rows, the command line and the HTTP
//! API.
//!
//! A *target* ([`Target`]) has a body that takes any bytes and panics if it finds a bug, and a corpus of inputs that reach
//! deep into it. A *campaign* ([`run`]) mutates the corpus ([`Mutator`]) on all cores, and watches for panics, on any thread,
//! and for inputs that take too long. It needs no special compiler; `fuzz` has targets for libFuzzer with the same bodies.

mod campaign;
#[cfg(feature = "surfaces")]
mod command;
#[cfg(feature = "surfaces")]
mod http;
mod messages;
mod mutator;
#[cfg(feature = "surfaces")]
mod rows;
mod target;

pub use campaign::{Campaign, Outcome, run};
pub use mutator::Mutator;
pub use target::Target;
