//! How a sub-orchestration is to be run: options that travel with its schedule.
//!
//! Timeout, retry and what happens to an id that exists are no part of a decision's identity: in a replay the recorded
//! ones win. Whether its start is reported is, since the code waits for the report.

use serde::{Deserialize, Serialize};

use super::RetryPolicy;
use super::event::is_false;

/// Timeout, retry and id of one sub-orchestration. The default is no timeout, one attempt, and an id that has to be free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChildOptions {
    /// How long one attempt may take, counted from the turn that schedules it, continue-as-new included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When a failed attempt is tried again. `None` means a single attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// What happens if the id exists.
    #[serde(skip_serializing_if = "OnTakenId::is_default")]
    pub on_existing: OnTakenId,
    /// Whether the code is told that the instance exists.
    #[serde(skip_serializing_if = "is_false")]
    pub reports_start: bool,
}

/// What happens if the id of a sub-orchestration is another instance's.
///
/// A parent waits for its own child and for nothing else, so the instance that exists is never taken as it is. A child has one
/// parent, which cancels it and gets its outcome; an instance that exists has another, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OnTakenId {
    /// The call fails: `ChildError::NotStarted`.
    #[default]
    Reject,
    /// An instance that has ended is deleted, with its children that have ended, and replaced; one that runs fails the call.
    ReplaceEnded,
    /// An instance that runs is terminated first; then it is replaced.
    TerminateAndReplace,
}

impl OnTakenId {
    fn is_default(&self) -> bool {
        *self == OnTakenId::default()
    }
}

impl ChildOptions {
    /// Whether one outcome may be followed by another attempt.
    pub(crate) fn may_repeat(&self) -> bool {
        self.retry.is_some() || self.on_existing == OnTakenId::TerminateAndReplace
    }
}
