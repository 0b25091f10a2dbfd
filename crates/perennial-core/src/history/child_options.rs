//! How a sub-orchestration is run: options recorded with its schedule event.
//!
//! Timeout, retry and the policy for an existing id are not part of a decision's identity: a replay uses the recorded
//! ones. `reports_start` is part of it, because the code waits for the report.

use serde::{Deserialize, Serialize};

use super::RetryPolicy;
use super::event::is_false;

/// Timeout, retry and id policy of one sub-orchestration. The default is no timeout, one attempt, and an error if the
/// id exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChildOptions {
    /// How long one attempt may take, counted from the turn that schedules it and including continue-as-new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When a failed attempt is tried again. `None` means a single attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// What happens if an instance with the id exists.
    #[serde(skip_serializing_if = "OnTakenId::is_default")]
    pub on_existing: OnTakenId,
    /// Whether the code is notified once the instance exists.
    #[serde(skip_serializing_if = "is_false")]
    pub reports_start: bool,
}

/// What happens if another instance has the id of a sub-orchestration.
///
/// There is no policy that adopts the existing instance: a child has exactly one parent, which cancels it and receives
/// its outcome, and an existing instance has another parent or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OnTakenId {
    /// The call fails: `ChildError::NotStarted`.
    #[default]
    Reject,
    /// An instance that has ended is deleted, together with its ended children, and replaced; if it is running, the
    /// call fails.
    ReplaceEnded,
    /// A running instance is terminated first, then replaced.
    TerminateAndReplace,
}

impl OnTakenId {
    fn is_default(&self) -> bool {
        *self == OnTakenId::default()
    }
}

impl ChildOptions {
    /// Whether an outcome may be followed by another attempt.
    pub(crate) fn may_repeat(&self) -> bool {
        self.retry.is_some() || self.on_existing == OnTakenId::TerminateAndReplace
    }
}
