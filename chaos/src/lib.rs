//! Nodes as real processes, under a mixed load and under faults.
//!
//! A *node* process ([`node`]) runs the orchestrations of the load ([`kinds`]) over a store. The *director* ([`director`])
//! starts a server and several nodes, lets *callers* ([`callers`]) start, signal, update and cancel instances, and injects
//! *faults* ([`faults`]) at random moments: nodes are killed, paused past their leases, added and stopped, the server
//! crashes, connections are cut. In the end it heals everything, waits until all work has finished, and a *verdict*
//! ([`verdict`]) compares the database with the log that the callers kept ([`log`]). The verdict reads tables and
//! histories with SQL of its own, so that a bug in the store or the engine does not hide itself. Over a SQLite file
//! ([`embedded`]) one process owns the store at a time, and the faults are those of an owner and of a disk. Power
//! failures ([`power_loss`]) are computed from recordings of what such a process does to its files.
//!
//! `cargo xtask chaos` runs it for as long as wanted; the tests of this crate run slices of it with fixed seeds.

pub mod callers;
pub mod director;
pub mod embedded;
pub mod faults;
pub mod fleet;
pub mod idle;
pub mod journal;
pub mod kinds;
pub mod log;
pub mod node;
pub mod plan;
pub mod power_loss;
pub mod proxy;
pub mod small_disk;
pub mod snapshot;
pub mod sqlite_snapshot;
pub mod takeover;
pub mod verdict;

pub use plan::{Outcome, Plan};
