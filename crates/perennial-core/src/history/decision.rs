//! Decisions: events caused by the code of an execution.

use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{ActivityOptions, Attributes, ChildOptions, EventId, Payload};

/// What happens to a child that still runs when its parent ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClosePolicy {
    /// Its cancellation is requested.
    #[default]
    Cancel,
    /// It keeps running.
    Abandon,
}

impl ClosePolicy {
    fn is_default(&self) -> bool {
        *self == ClosePolicy::default()
    }
}

/// An event that the code caused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Decision {
    /// Run an activity.
    ActivityScheduled {
        /// The activity's registered name.
        name: String,
        /// The id that the code gave it, unique among the open activities of the execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The input, as JSON.
        input: Payload,
        /// How it is run; `None` for the defaults.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Box<ActivityOptions>>,
    },
    /// The future of an activity was dropped before the activity completed.
    ActivityCancelRequested {
        /// The activity's schedule event.
        source_event_id: EventId,
    },
    /// Wake the code at a time.
    TimerCreated {
        /// When, in milliseconds since 1970.
        due_ms: u64,
    },
    /// The future of a timer was dropped before the timer fired.
    TimerCancelled {
        /// The timer's creation event.
        source_event_id: EventId,
    },
    /// Wait for an external event.
    ExternalSubscribed {
        /// The event's name.
        name: String,
    },
    /// The future of a wait was dropped before an event arrived.
    ExternalUnsubscribed {
        /// The wait's subscription event.
        source_event_id: EventId,
    },
    /// Start a sub-orchestration and wait for it.
    SubOrchestrationScheduled {
        /// The orchestration's registered name.
        name: String,
        /// The requested version; `None` for the latest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The requested id; `None` derives it from parent, execution and event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// The input, as JSON.
        input: Payload,
        /// What happens to the child if this instance ends first.
        #[serde(default, skip_serializing_if = "ClosePolicy::is_default")]
        close: ClosePolicy,
        /// How it is run; `None` for the defaults.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Box<ChildOptions>>,
    },
    /// The future of a sub-orchestration was dropped before it completed.
    SubOrchestrationCancelRequested {
        /// The child's schedule event.
        source_event_id: EventId,
    },
    /// Request that an activity stops, and keep waiting for its outcome.
    ActivityStopRequested {
        /// The activity's schedule event.
        source_event_id: EventId,
    },
    /// Request that a sub-orchestration is cancelled, and keep waiting for its outcome.
    SubOrchestrationStopRequested {
        /// The child's schedule event.
        source_event_id: EventId,
        /// The reason, as text.
        reason: String,
        /// How long it may clean up; `None` for the engine's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
    },
    /// Start an orchestration that is not a child of this instance.
    OrchestrationChained {
        /// The orchestration's registered name.
        name: String,
        /// The requested version; `None` for the latest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The id of the new instance.
        instance: String,
        /// The input, as JSON.
        input: Payload,
        /// Whether the code is notified of the outcome.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// Raise an event for another instance.
    ExternalEventSent {
        /// The receiving instance.
        instance: String,
        /// The event's name.
        name: String,
        /// The content, as JSON.
        payload: Payload,
        /// The deduplication key given by the code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Whether the code is notified of the outcome.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// Request cancellation of another instance.
    CancelSent {
        /// The receiving instance.
        instance: String,
        /// The reason, as text.
        reason: String,
        /// How long it may clean up; `None` for the engine's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
        /// Whether the code is notified of the outcome.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// A value that was computed once, live, and is the same in every replay.
    SystemCall {
        /// Which call.
        op: String,
        /// The value that the call returned, as JSON.
        value: Payload,
    },
    /// The code checked a patch and got `true`.
    PatchMarked {
        /// The patch.
        id: String,
    },
    /// Search attributes changed.
    AttributesUpserted {
        /// The changes; `null` removes an attribute.
        attributes: Attributes,
    },
    /// The code published its status.
    StatusSet {
        /// The published status.
        status: Payload,
    },
    /// An update's handler returned.
    UpdateCompleted {
        /// The update's request event.
        source_event_id: EventId,
        /// The returned value or error.
        result: Result<Payload, Payload>,
    },
}

impl Decision {
    /// The names of all kinds, as they are recorded.
    pub const NAMES: [&'static str; 18] = [
        "ActivityScheduled",
        "ActivityCancelRequested",
        "TimerCreated",
        "TimerCancelled",
        "ExternalSubscribed",
        "ExternalUnsubscribed",
        "SubOrchestrationScheduled",
        "SubOrchestrationCancelRequested",
        "OrchestrationChained",
        "ExternalEventSent",
        "SystemCall",
        "PatchMarked",
        "AttributesUpserted",
        "StatusSet",
        "UpdateCompleted",
        "ActivityStopRequested",
        "SubOrchestrationStopRequested",
        "CancelSent",
    ];

    /// The name of the kind, as it is recorded.
    pub fn name(&self) -> &'static str {
        Decision::NAMES[match self {
            Decision::ActivityScheduled { .. } => 0,
            Decision::ActivityCancelRequested { .. } => 1,
            Decision::TimerCreated { .. } => 2,
            Decision::TimerCancelled { .. } => 3,
            Decision::ExternalSubscribed { .. } => 4,
            Decision::ExternalUnsubscribed { .. } => 5,
            Decision::SubOrchestrationScheduled { .. } => 6,
            Decision::SubOrchestrationCancelRequested { .. } => 7,
            Decision::OrchestrationChained { .. } => 8,
            Decision::ExternalEventSent { .. } => 9,
            Decision::SystemCall { .. } => 10,
            Decision::PatchMarked { .. } => 11,
            Decision::AttributesUpserted { .. } => 12,
            Decision::StatusSet { .. } => 13,
            Decision::UpdateCompleted { .. } => 14,
            Decision::ActivityStopRequested { .. } => 15,
            Decision::SubOrchestrationStopRequested { .. } => 16,
            Decision::CancelSent { .. } => 17,
        }]
    }

    /// Whether it is sent to another instance and the code is notified of the outcome.
    pub(crate) fn is_reported(&self) -> bool {
        match self {
            Decision::OrchestrationChained { reported, .. }
            | Decision::ExternalEventSent { reported, .. }
            | Decision::CancelSent { reported, .. } => *reported,
            _ => false,
        }
    }

    /// Requests a notification of the outcome.
    pub(crate) fn report(&mut self) {
        if let Decision::OrchestrationChained { reported, .. }
        | Decision::ExternalEventSent { reported, .. }
        | Decision::CancelSent { reported, .. } = self
        {
            *reported = true;
        }
    }
}
