//! The outcome of taking a turn.

use std::collections::BTreeSet;

use crate::history::{EventId, Job, StaleReason, Started, Turn};

/// A turn that was taken, to be committed before any of it takes effect.
#[derive(Debug, Default)]
pub struct TurnTaken {
    /// The turn, or `None` if all its jobs were stale.
    pub turn: Option<Turn>,
    /// Jobs that were dropped because nothing waits for them.
    pub stale: Vec<StaleJob>,
    /// The start of the next execution, if the turn ended with continue-as-new.
    pub successor: Option<Successor>,
    /// Updates that will never be answered, if the execution ended.
    pub ended_updates: Vec<EventId>,
    /// Updates whose handler had not started when the execution continued as new. The next execution answers them; each
    /// is among its first jobs exactly as here, with a key.
    pub carried_updates: Vec<(EventId, Job)>,
    /// The keys of events of this turn that came too late: the instance ended without reading them.
    pub late_events: BTreeSet<String>,
}

/// A job that was not recorded.
#[derive(Debug)]
pub struct StaleJob {
    /// The job that was dropped.
    pub job: Job,
    /// Why it was dropped.
    pub reason: StaleReason,
}

/// The start of the next execution of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Successor {
    /// Its first jobs: a cancel request that the code took over, then unread events and updates whose handler had not
    /// started, in order.
    pub jobs: Vec<Job>,
    /// The requested version; `None` for the latest.
    pub version: Option<String>,
    pub(super) started: Started,
}

impl Successor {
    /// Sets the grace period of a carried-over cancel request. The execution itself does not know the times in which
    /// the instance had no owner.
    pub fn set_grace(&mut self, grace: u64) {
        if let Some(Job::OrchestrationCancelRequested { grace_ms, .. }) = self.jobs.first_mut() {
            *grace_ms = grace;
        }
    }

    /// The started event of the next execution, with a resolved version and its own seed.
    pub fn started(&self, version: impl Into<String>, seed: u64) -> Started {
        Started { version: version.into(), seed, ..self.started.clone() }
    }
}
