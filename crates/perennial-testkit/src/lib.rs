//! Test tools for programs that use Perennial, and for Perennial itself.
//!
//! For programs, with the feature `environment`: `TestEnvironment` runs orchestrations on a virtual clock,
//! `crash_everywhere` repeats a test with a crash at every commit, and `TestEnvironment::assert_replays`
//! checks that recorded histories replay with the current code. With the
//! feature `postgres`: PostgreSQL servers for tests.
//!
//! For the engine itself:
//!
//! - [`Drive`]: one execution with its history, one turn at a time.
//! - [`ManualNode`]: one node with its lane, one output at a time.
//! - [`Program`]: an orchestration as data, [generated](generate) from a seed and run by [`ProgramHandler`].
//! - [`World`]: runs a program to its end in an order that a seed determines, and keeps the [`Recording`].
//! - [`mutants`]: copies of a history with one thing changed each; [`for_each_case`] runs such properties.
//! - [`conformance`]: the store contract as tests that any store can run.
//! - `invariants`: properties that the rows of a store always have.
//! - `simulator`: nodes with their shards over one store, with faults drawn from a seed.
//! - [`fuzzing`]: histories from arbitrary bytes, for fuzz targets and for a bounded run of them.

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
#[cfg(all(feature = "postgres", unix))]
pub mod postgres;
pub mod program;
mod recording;
mod renumber;
mod rng;
mod shorten;
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
