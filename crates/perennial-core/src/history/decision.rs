//! Decisions: what the code of an execution asks for.

use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{ActivityOptions, Attributes, ChildOptions, EventId, Payload};

/// What happens to a child that still runs when its parent ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClosePolicy {
    /// It is asked to cancel.
    #[default]
    Cancel,
    /// It goes on by itself.
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
        /// What it is given.
        input: Payload,
        /// How it is to be run, unless by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Box<ActivityOptions>>,
    },
    /// Nobody waits for an activity any more.
    ActivityCancelRequested {
        /// The activity's schedule event.
        source_event_id: EventId,
    },
    /// Wake the code at a time.
    TimerCreated {
        /// When, in milliseconds since 1970.
        due_ms: u64,
    },
    /// Nobody waits for a timer any more.
    TimerCancelled {
        /// The timer's creation event.
        source_event_id: EventId,
    },
    /// Wait for an external event.
    ExternalSubscribed {
        /// The event's name.
        name: String,
    },
    /// A wait was given up before it returned.
    ExternalUnsubscribed {
        /// The wait's subscription event.
        source_event_id: EventId,
    },
    /// Start a sub-orchestration and wait for it.
    SubOrchestrationScheduled {
        /// The orchestration's registered name.
        name: String,
        /// The version asked for; the latest if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The id asked for; derived from parent, execution and event if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// What it is given.
        input: Payload,
        /// What happens to it when this instance ends first.
        #[serde(default, skip_serializing_if = "ClosePolicy::is_default")]
        close: ClosePolicy,
        /// How it is run, unless by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Box<ChildOptions>>,
    },
    /// Nobody waits for a sub-orchestration any more.
    SubOrchestrationCancelRequested {
        /// The child's schedule event.
        source_event_id: EventId,
    },
    /// Ask an activity to stop, and go on waiting for what comes of it.
    ActivityStopRequested {
        /// The activity's schedule event.
        source_event_id: EventId,
    },
    /// Ask a sub-orchestration to cancel, and go on waiting for what comes of it.
    SubOrchestrationStopRequested {
        /// The child's schedule event.
        source_event_id: EventId,
        /// Why.
        reason: String,
        /// For how long it may clean up; the engine's default if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
    },
    /// Start an orchestration that is nobody's child.
    OrchestrationChained {
        /// The orchestration's registered name.
        name: String,
        /// The version asked for; the latest if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The id of the new instance.
        instance: String,
        /// What it is given.
        input: Payload,
        /// Whether the code is told what became of it.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// Raise an event at another instance.
    ExternalEventSent {
        /// The instance it goes to.
        instance: String,
        /// The event's name.
        name: String,
        /// What goes with it.
        payload: Payload,
        /// The code's key against duplicates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Whether the code is told what became of it.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// Ask another instance to cancel.
    CancelSent {
        /// The instance it goes to.
        instance: String,
        /// Why.
        reason: String,
        /// For how long it may clean up; the engine's default if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
        /// Whether the code is told what became of it.
        #[serde(default, skip_serializing_if = "is_false")]
        reported: bool,
    },
    /// A value that was taken from outside once and is the same ever after.
    SystemCall {
        /// Which call.
        op: String,
        /// What it gave.
        value: Payload,
    },
    /// The code asked whether a patch applies and was told yes.
    PatchMarked {
        /// The patch.
        id: String,
    },
    /// Searchable values changed.
    AttributesUpserted {
        /// The changes; `null` removes.
        attributes: Attributes,
    },
    /// The code published what it is doing.
    StatusSet {
        /// Its words.
        status: Payload,
    },
    /// An update's handler returned.
    UpdateCompleted {
        /// The update's request event.
        source_event_id: EventId,
        /// What it returned.
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

    /// Whether it was sent to another instance, and the code is told what becomes of it.
    pub(crate) fn is_reported(&self) -> bool {
        match self {
            Decision::OrchestrationChained { reported, .. }
            | Decision::ExternalEventSent { reported, .. }
            | Decision::CancelSent { reported, .. } => *reported,
            _ => false,
        }
    }

    /// Has the code told what becomes of it.
    pub(crate) fn report(&mut self) {
        if let Decision::OrchestrationChained { reported, .. }
        | Decision::ExternalEventSent { reported, .. }
        | Decision::CancelSent { reported, .. } = self
        {
            *reported = true;
        }
    }
}
