//! Jobs: what comes into an execution from outside of its code.

use serde::{Deserialize, Serialize};

use super::{ActivityError, ChildError, EventId, Payload, TraceContext, Trail, Why};

/// An event that came from outside the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Job {
    /// An activity returned.
    ActivityCompleted {
        /// The activity's schedule event.
        source_event_id: EventId,
        /// What it returned.
        result: Payload,
        /// How many attempts it took.
        attempts: u32,
        /// When and where they ran.
        #[serde(default, skip_serializing_if = "Trail::is_empty")]
        trail: Trail,
    },
    /// An activity failed for good.
    ActivityFailed {
        /// The activity's schedule event.
        source_event_id: EventId,
        /// Why.
        error: ActivityError,
        /// How many attempts were made.
        attempts: u32,
        /// When and where they ran.
        #[serde(default, skip_serializing_if = "Trail::is_empty")]
        trail: Trail,
    },
    /// A timer is due.
    TimerFired {
        /// The timer's creation event.
        source_event_id: EventId,
    },
    /// Somebody raised an event.
    ExternalEvent {
        /// The event's name.
        name: String,
        /// What came with it.
        payload: Payload,
        /// The sender's key against duplicates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The sender's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// A sub-orchestration returned.
    SubOrchestrationCompleted {
        /// The child's schedule event.
        source_event_id: EventId,
        /// What it returned.
        result: Payload,
    },
    /// A sub-orchestration did not return a result.
    SubOrchestrationFailed {
        /// The child's schedule event.
        source_event_id: EventId,
        /// Why.
        error: ChildError,
    },
    /// Somebody asked for the instance to be cancelled.
    OrchestrationCancelRequested {
        /// Why, in the caller's words.
        reason: String,
        /// For how long code that took cancellation over may clean up. It counts from the turn that delivers the request.
        grace_ms: u64,
    },
    /// Somebody asked for an event to be taken out: no code reads it, the next of its name takes its place.
    ExternalEventSkipped {
        /// The event. Nothing has read it before this turn.
        event_id: EventId,
    },
    /// A sub-orchestration exists, under its id. Only those whose schedule asks for it are reported.
    SubOrchestrationStarted {
        /// The child's schedule event.
        source_event_id: EventId,
    },
    /// What became of something that the code sent to another instance. Only what asks for it is reported.
    DeliveryReported {
        /// The event that sent it.
        source_event_id: EventId,
        /// What became of it.
        outcome: Delivery,
    },
    /// An update that a validator accepted.
    UpdateRequested {
        /// The update's name.
        name: String,
        /// What came with it.
        payload: Payload,
        /// The sender's key against duplicates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The sender's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// Somebody resumed the instance after a pause. It is for people to read; the code does not see it.
    InstanceResumed {
        /// Why, and by whom.
        why: Why,
        /// Since when it had been paused.
        paused_ms: u64,
        /// Why it had been paused, and by whom.
        paused: Why,
    },
    /// Somebody asked for a message to be deleted that nobody could read. It is for people to read; the code does not see
    /// it.
    MessageSkipped {
        /// The number that the message had in the inbox.
        number: u64,
        /// Why it could not be read.
        problem: String,
    },
}

impl Job {
    /// The names of all kinds, as they are recorded.
    pub const NAMES: [&'static str; 13] = [
        "ActivityCompleted",
        "ActivityFailed",
        "TimerFired",
        "ExternalEvent",
        "SubOrchestrationCompleted",
        "SubOrchestrationFailed",
        "OrchestrationCancelRequested",
        "UpdateRequested",
        "ExternalEventSkipped",
        "SubOrchestrationStarted",
        "DeliveryReported",
        "InstanceResumed",
        "MessageSkipped",
    ];

    /// The name of the kind, as it is recorded.
    pub fn name(&self) -> &'static str {
        Job::NAMES[match self {
            Job::ActivityCompleted { .. } => 0,
            Job::ActivityFailed { .. } => 1,
            Job::TimerFired { .. } => 2,
            Job::ExternalEvent { .. } => 3,
            Job::SubOrchestrationCompleted { .. } => 4,
            Job::SubOrchestrationFailed { .. } => 5,
            Job::OrchestrationCancelRequested { .. } => 6,
            Job::UpdateRequested { .. } => 7,
            Job::ExternalEventSkipped { .. } => 8,
            Job::SubOrchestrationStarted { .. } => 9,
            Job::DeliveryReported { .. } => 10,
            Job::InstanceResumed { .. } => 11,
            Job::MessageSkipped { .. } => 12,
        }]
    }

    /// The schedule event that this job completes, if it completes one.
    pub fn source_event_id(&self) -> Option<EventId> {
        match self {
            Job::ActivityCompleted { source_event_id, .. }
            | Job::ActivityFailed { source_event_id, .. }
            | Job::TimerFired { source_event_id }
            | Job::SubOrchestrationCompleted { source_event_id, .. }
            | Job::SubOrchestrationFailed { source_event_id, .. }
            | Job::DeliveryReported { source_event_id, .. } => Some(*source_event_id),
            Job::ExternalEvent { .. }
            | Job::SubOrchestrationStarted { .. }
            | Job::ExternalEventSkipped { .. }
            | Job::OrchestrationCancelRequested { .. }
            | Job::InstanceResumed { .. }
            | Job::MessageSkipped { .. }
            | Job::UpdateRequested { .. } => None,
        }
    }

    /// Whether it records a repair and nothing else.
    pub(crate) fn is_repair(&self) -> bool {
        matches!(self, Job::InstanceResumed { .. } | Job::MessageSkipped { .. })
    }

    /// The earlier event that it is about, whether that ends with it or not.
    pub(crate) fn subject(&self) -> Option<EventId> {
        match self {
            Job::SubOrchestrationStarted { source_event_id: event }
            | Job::ExternalEventSkipped { event_id: event } => Some(*event),
            job => job.source_event_id(),
        }
    }

    /// The sender's key, for the jobs that can have one.
    pub fn key(&self) -> Option<&str> {
        match self {
            Job::ExternalEvent { key, .. } | Job::UpdateRequested { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

/// The reason of an instance that was terminated because its time was up.
pub(crate) const TIMEOUT_REASON: &str = "timeout";

/// What became of something that an orchestration sent to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// It is in the inbox of the instance, or the instance that it starts exists now.
    Delivered,
    /// No instance has this id.
    NotFound,
    /// The instance with this id had ended.
    Ended,
    /// An instance with the id of a start existed already.
    AlreadyExists,
    /// The id of a start is not one.
    BadId,
}
