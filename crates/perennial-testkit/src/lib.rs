//! What Perennial is tested with.
//!
//! For users' code, behind the feature `environment`: `TestEnvironment` runs orchestrations under a virtual clock,
//! `crash_everywhere` repeats a test with a crash at every commit, and `TestEnvironment::assert_replays` is the gate
//! that holds recorded histories against the current code.
//!
//! For the engine itself:
//!
//! - [`Drive`]: one execution with its history, turn by turn.
//! - [`ManualNode`]: one node with its lane, output by output.
//! - [`Program`]: an orchestration as data, [generated](generate) from a seed and run by [`ProgramHandler`].
//! - [`World`]: drives a program to its end, in an order that a seed decides, and keeps the [`Recording`].
//! - [`mutants`]: what becomes of a history when one thing in it is changed; [`for_each_case`] runs such properties.
//! - [`conformance`]: the store contract as tests that any store can run.
//! - `invariants`: what has to hold of a store's rows, whatever happened.
//! - `simulator`: nodes with their shards over one store, through every disaster that a seed thinks of.
//! - [`fuzzing`]: any bytes as histories, for fuzz targets and for a bounded run of the same.

mod accumulator;
mod answers;
mod begin;
mod cases;
pub mod conformance;
mod disguise;
mod drive;
#[cfg(feature = "environment")]
mod environment;
mod features;
pub mod fuzzing;
mod generate;
mod interpret;
pub mod invariants;
mod manual_node;
mod mutate;
pub mod program;
mod recording;
mod renumber;
mod rng;
pub mod simulator;
mod world;

pub use accumulator::Accumulator;
pub use cases::{Case, for_each_case};
pub use disguise::disguised;
pub use drive::Drive;
#[cfg(feature = "environment")]
pub use environment::{
    ActivityRef, CrashDifference, CrashFailure, CrashPoint, CrashReport, Failure, MockTarget, ReplayCheck,
    ReplayDifference, TestEnvironment, TestHistory, TestRun, TokenTarget, crash_everywhere,
};
pub use features::Features;
pub use generate::generate;
pub use interpret::{Expectations, ProgramHandler, SideEffects};
pub use manual_node::{HeldResponse, ManualNode};
pub use mutate::{Mutant, Mutation, mutants};
pub use program::{Program, ProgramInput};
pub use recording::{RecordedExecution, Recording, View};
pub use rng::Rng;
pub use world::{INSTANCE, Unfinished, Why, World};
