//! Jobs: events that come into an execution from outside its code.

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
        /// The returned value.
        result: Payload,
        /// How many attempts it took.
        attempts: u32,
        /// When and where they ran.
        #[serde(default, skip_serializing_if = "Trail::is_empty")]
        trail: Trail,
    },
    /// An activity failed, and is not retried.
    ActivityFailed {
        /// The activity's schedule event.
        source_event_id: EventId,
        /// What is wrong with it.
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
    /// An external event was raised.
    ExternalEvent {
        /// The event's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// The deduplication key given by the sender.
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
        /// The returned value.
        result: Payload,
    },
    /// A sub-orchestration ended without a result.
    SubOrchestrationFailed {
        /// The child's schedule event.
        source_event_id: EventId,
        /// What is wrong with it.
        error: ChildError,
    },
    /// Cancellation of the instance was requested.
    OrchestrationCancelRequested {
        /// The reason given by the caller.
        reason: String,
        /// How long code that took over cancellation may clean up, counted from the turn that delivers the request.
        grace_ms: u64,
    },
    /// A person skipped an event: the code never reads it, and the next event of its name takes its place.
    ExternalEventSkipped {
        /// The skipped event. Nothing has read it before this turn.
        event_id: EventId,
    },
    /// A sub-orchestration has been created. Reported only if its schedule asks for it.
    SubOrchestrationStarted {
        /// The child's schedule event.
        source_event_id: EventId,
    },
    /// The outcome of something that the code sent to another instance. Reported only if the code asked for it.
    DeliveryReported {
        /// The event that sent it.
        source_event_id: EventId,
        /// Whether it was delivered, or why not.
        outcome: Delivery,
    },
    /// An update was accepted by its validator.
    UpdateRequested {
        /// The update's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// The deduplication key given by the sender.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The sender's trace context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Box<TraceContext>>,
    },
    /// The instance was resumed after a pause. Recorded for people; the code does not see it.
    InstanceResumed {
        /// The reason, and who gave it.
        why: Why,
        /// When it was paused.
        paused_ms: u64,
        /// Why it was paused, and by whom.
        paused: Why,
    },
    /// A person skipped a message that could not be read. Recorded for people; the code does not see it.
    MessageSkipped {
        /// The number of the message in the inbox.
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

    /// Whether it only records a repair.
    pub(crate) fn is_repair(&self) -> bool {
        matches!(self, Job::InstanceResumed { .. } | Job::MessageSkipped { .. })
    }

    /// The earlier event that it refers to, whether or not it completes that event.
    pub(crate) fn subject(&self) -> Option<EventId> {
        match self {
            Job::SubOrchestrationStarted { source_event_id: event }
            | Job::ExternalEventSkipped { event_id: event } => Some(*event),
            job => job.source_event_id(),
        }
    }

    /// The deduplication key, for the jobs that can have one.
    pub fn key(&self) -> Option<&str> {
        match self {
            Job::ExternalEvent { key, .. } | Job::UpdateRequested { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

/// The reason of an instance that was terminated because its deadline passed.
pub(crate) const TIMEOUT_REASON: &str = "timeout";

/// The outcome of something that an orchestration sent to another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// The message is in the instance's inbox, or the started instance exists now.
    Delivered,
    /// No instance has this id.
    NotFound,
    /// The instance with this id had ended.
    Ended,
    /// A start was refused because an instance with its id already exists.
    AlreadyExists,
    /// A start was refused because its id is not valid.
    BadId,
}
