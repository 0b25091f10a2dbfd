//! What taking a turn gives.

use crate::history::{EventId, Job, StaleReason, Started, Turn};

/// A turn that was taken, to be committed before anything of it takes effect.
#[derive(Debug)]
pub struct TurnTaken {
    /// The turn, or nothing if all its jobs were stale.
    pub turn: Option<Turn>,
    /// Jobs that were dropped because nothing waits for them.
    pub stale: Vec<StaleJob>,
    /// What goes on, if the turn ended with continue-as-new.
    pub successor: Option<Successor>,
    /// Updates that can no longer be answered, if the execution ended.
    pub ended_updates: Vec<EventId>,
}

/// A job that was not recorded.
#[derive(Debug)]
pub struct StaleJob {
    /// The job.
    pub job: Job,
    /// Why it was dropped.
    pub reason: StaleReason,
}

/// What the next execution of an instance begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct Successor {
    /// Its first jobs: a cancel request that was taken over, then the events that nobody read, in order.
    pub jobs: Vec<Job>,
    /// The version asked for; the latest if none.
    pub version: Option<String>,
    pub(super) started: Started,
}

impl Successor {
    /// The started event of the next execution, at a resolved version and with a seed of its own.
    pub fn started(&self, version: impl Into<String>, seed: u64) -> Started {
        Started { version: version.into(), seed, ..self.started.clone() }
    }
}
