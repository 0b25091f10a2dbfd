//! Which jobs a turn may record.

use crate::flaws::{self, Flaw};
use crate::history::{Decision, EventId, Job};

use super::Ledger;

/// Why a job is dropped before it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaleReason {
    /// Its source is unknown, already completed, or cancelled.
    #[error("its source is not open: it is unknown, already completed, or cancelled")]
    NotOpen,
    /// Its source is open, but is of another kind.
    #[error("its source is of another kind")]
    WrongKind,
    /// An event or update with this key was already accepted.
    #[error("an event or update with its key was already accepted")]
    KnownKey,
    /// Cancellation is already requested, and its grace period ends no later.
    #[error("cancellation is already requested, and its grace period ends no later")]
    AlreadyCancelling,
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
}

impl Ledger {
    /// Whether a job may be recorded in the current turn.
    pub fn admit(&self, job: &Job) -> Result<(), StaleReason> {
        self.admit_at(self.last_at_ms, job)
    }

    /// Whether a job may be recorded in a turn with this time.
    pub(crate) fn admit_at(&self, at_ms: u64, job: &Job) -> Result<(), StaleReason> {
        if self.ended.is_some() {
            return Err(StaleReason::Ended);
        }
        match job {
            Job::ActivityCompleted { source_event_id, .. } | Job::ActivityFailed { source_event_id, .. } => {
                self.admit_completion(*source_event_id, |open| {
                    matches!(open, Decision::ActivityScheduled { .. })
                })
            }
            Job::TimerFired { source_event_id } => {
                self.admit_completion(*source_event_id, |open| matches!(open, Decision::TimerCreated { .. }))
            }
            Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::SubOrchestrationFailed { source_event_id, .. } => self
                .admit_completion(*source_event_id, |open| {
                    matches!(open, Decision::SubOrchestrationScheduled { .. })
                }),
            Job::DeliveryReported { source_event_id, .. } => {
                self.admit_completion(*source_event_id, Decision::is_reported)
            }
            Job::SubOrchestrationStarted { source_event_id } => {
                match self.unreported_starts.contains(source_event_id) {
                    true => Ok(()),
                    false => Err(StaleReason::NotOpen),
                }
            }
            Job::ExternalEvent { key, .. } | Job::UpdateRequested { key, .. } => match key {
                Some(key) if self.keys.contains(key) && !flaws::is(Flaw::NoDedupe) => {
                    Err(StaleReason::KnownKey)
                }
                _ => Ok(()),
            },
            // Whether that event exists and is unread is known only to the execution.
            Job::ExternalEventSkipped { event_id } if event_id.0 > self.events => Err(StaleReason::NotOpen),
            Job::ExternalEventSkipped { .. } | Job::InstanceResumed { .. } | Job::MessageSkipped { .. } => {
                Ok(())
            }
            Job::OrchestrationCancelRequested { grace_ms, .. } => match &self.cancel {
                // Times in which the instance had no owner are not taken into account, so that a replay decides the
                // same.
                Some(earlier) if at_ms.saturating_add(*grace_ms) >= earlier.until_ms() => {
                    Err(StaleReason::AlreadyCancelling)
                }
                _ => Ok(()),
            },
        }
    }

    fn admit_completion(&self, source: EventId, fits: impl Fn(&Decision) -> bool) -> Result<(), StaleReason> {
        match self.open.get(source) {
            None => Err(StaleReason::NotOpen),
            Some(open) if !fits(open) => Err(StaleReason::WrongKind),
            Some(_) => Ok(()),
        }
    }

    /// The earliest time of a turn with this admitted job.
    pub(crate) fn not_before_ms(&self, job: &Job) -> u64 {
        match job {
            Job::TimerFired { source_event_id } => match self.open.get(*source_event_id) {
                Some(Decision::TimerCreated { due_ms }) => *due_ms,
                _ => 0,
            },
            _ => 0,
        }
    }
}
