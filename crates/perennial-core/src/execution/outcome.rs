//! What taking a turn gives.

use std::collections::BTreeSet;

use crate::history::{EventId, Job, StaleReason, Started, Turn};

/// A turn that was taken, to be committed before anything of it takes effect.
#[derive(Debug, Default)]
pub struct TurnTaken {
    /// The turn, or nothing if all its jobs were stale.
    pub turn: Option<Turn>,
    /// Jobs that were dropped because nothing waits for them.
    pub stale: Vec<StaleJob>,
    /// What goes on, if the turn ended with continue-as-new.
    pub successor: Option<Successor>,
    /// Updates that can no longer be answered, if the execution ended.
    pub ended_updates: Vec<EventId>,
    /// Updates that no handler had begun when the execution continued as new. The next execution answers them; each is
    /// among its first jobs as it is here, with a key.
    pub carried_updates: Vec<(EventId, Job)>,
    /// The keys of events of this turn that came too late: the instance ended without reading them.
    pub late_events: BTreeSet<String>,
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
    /// Its first jobs: a cancel request that was taken over, then the events that nobody read and the updates that no
    /// handler began, in order.
    pub jobs: Vec<Job>,
    /// The version asked for; the latest if none.
    pub version: Option<String>,
    pub(super) started: Started,
}

impl Successor {
    /// Sets the grace of a cancel request that crosses. What the execution knows of it leaves out the times in which
    /// nobody owned the instance.
    pub fn set_grace(&mut self, grace: u64) {
        if let Some(Job::OrchestrationCancelRequested { grace_ms, .. }) = self.jobs.first_mut() {
            *grace_ms = grace;
        }
    }

    /// The started event of the next execution, at a resolved version and with a seed of its own.
    pub fn started(&self, version: impl Into<String>, seed: u64) -> Started {
        Started { version: version.into(), seed, ..self.started.clone() }
    }
}
