//! The kinds of events: how an execution started, what came in, what the code decided, how it ended.
//!
//! The four families are types of their own, so that code which takes jobs cannot be handed a decision. How they are
//! written as JSON is settled in [`super::codec`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{
    ActivityError, ActivityOptions, ChildError, ChildOptions, Payload, Reset, TraceContext, Trail, UnitId,
    Why,
};

/// The place of an event in its execution: 1, 2, 3, … without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub u64);

impl EventId {
    /// The id that follows this one.
    #[must_use]
    pub fn next(self) -> EventId {
        EventId(self.0.saturating_add(1))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Searchable values of an instance. In an upsert, `null` removes an attribute.
pub type Attributes = BTreeMap<String, Payload>;

/// One entry of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place in the execution.
    pub id: EventId,
    /// What it says.
    pub kind: EventKind,
}

/// What an event says, by family.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The first event of an execution.
    Started(Box<Started>),
    /// Something that came from outside the code.
    Job(Job),
    /// Something that the code caused.
    Decision {
        /// The unit whose step caused it.
        unit: UnitId,
        /// What was decided.
        decision: Decision,
    },
    /// The last event of an execution.
    Ended(Ending),
}

impl EventKind {
    /// The name of the kind, as it is recorded.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Started(_) => Started::NAME,
            EventKind::Job(job) => job.name(),
            EventKind::Decision { decision, .. } => decision.name(),
            EventKind::Ended(ending) => ending.name(),
        }
    }
}

/// How an execution began: all that the code may know about itself, fixed for its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// The registered name of the orchestration.
    pub name: String,
    /// The version that this execution is pinned to.
    pub version: String,
    /// What the orchestration was given.
    pub input: Payload,
    /// Who waits for the outcome, if this is a sub-orchestration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    /// Where all randomness of this execution comes from.
    pub seed: u64,
    /// See [`super::SEMANTICS`].
    pub semantics: u32,
    /// 1 for the first execution of an instance; continue-as-new counts on.
    pub execution: u64,
    /// The time of the predecessor execution's last turn, which this execution's time never precedes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_at_ms: Option<u64>,
    /// What the checksum of the first turn chains from: the predecessor execution's last checksum, or zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// When the instance is ended as timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Searchable values, given at the start or carried over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: Attributes,
    /// The published status carried over from the predecessor.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub status: Option<Payload>,
    /// Keys of the events and updates that predecessors took last, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_keys: Vec<String>,
    /// The places among `recent_keys` of the keys whose events and updates cross to this execution: after how many of
    /// them, and how many. Such a key returns to its place when its job is taken again, so that unread events push no
    /// later key out however often they cross.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crossing_keys: Vec<(u64, u64)>,
    /// Keys that clients drew for events and updates of predecessors, oldest first, and the turn time at which each was
    /// taken: they are remembered for a minute of it, however often the instance continues as new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn_keys: Vec<(u64, String)>,
    /// The trace context of whoever started the instance. Successors and children have it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
    /// How it was reset, if it was: it begins with turns of its predecessor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Box<Reset>>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A payload that is there, even if it is `null`.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Payload>, D::Error> {
    Payload::deserialize(deserializer).map(Some)
}

impl Started {
    pub(super) const NAME: &'static str = "OrchestrationStarted";

    /// A first execution of `name` at `version`, without parent, deadline or attributes.
    pub fn new(
        name: impl Into<String>,
        version: impl Into<String>,
        input: impl Into<Payload>,
        seed: u64,
    ) -> Started {
        Started {
            name: name.into(),
            version: version.into(),
            input: input.into(),
            parent: None,
            seed,
            semantics: super::SEMANTICS,
            execution: 1,
            predecessor_at_ms: None,
            chain: 0,
            deadline_ms: None,
            attributes: Attributes::new(),
            status: None,
            recent_keys: Vec::new(),
            crossing_keys: Vec::new(),
            drawn_keys: Vec::new(),
            trace: None,
            reset: None,
        }
    }

    /// The number that the code reads: that of the execution in which the first turn was taken.
    pub fn execution_as_read(&self) -> u64 {
        self.reset.as_ref().map_or(self.execution, |reset| reset.began_as)
    }

    /// Whether an event of an execution is also one of this execution.
    pub(crate) fn has_event_of(&self, execution: u64, event: EventId) -> bool {
        let same = self.reset.as_ref().and_then(|reset| reset.same.iter().find(|(of, _)| *of == execution));
        execution == self.execution || same.is_some_and(|(_, last)| event <= *last)
    }

    /// The execution that began what an event scheduled or sent: this one, unless a reset kept it.
    pub fn starter_of(&self, event: EventId) -> u64 {
        let adopted = self.reset.as_ref().and_then(|reset| {
            reset.adopted.iter().find(|(adopted, _)| *adopted == event).map(|(_, execution)| *execution)
        });
        adopted.unwrap_or(self.execution)
    }
}

/// The schedule event in another instance that a sub-orchestration answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentLink {
    /// The parent's instance id.
    pub instance: String,
    /// The parent's never-reused key.
    pub key: String,
    /// The parent's execution.
    pub execution: u64,
    /// The parent's schedule event.
    pub event_id: EventId,
}

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

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Ending {
    /// The code returned a result.
    OrchestrationCompleted {
        /// The result.
        output: Payload,
    },
    /// The code returned an error.
    OrchestrationFailed {
        /// The error.
        error: Payload,
    },
    /// The instance goes on in its next execution.
    OrchestrationContinuedAsNew {
        /// What the next execution is given.
        input: Payload,
        /// The version asked for; the latest if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// A cancel request ended it.
    OrchestrationCancelled {
        /// The request's reason.
        reason: String,
        /// What the code left behind, if it cleaned up and ended as cancelled by itself.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Payload>,
    },
    /// It was ended without running its code.
    OrchestrationTerminated {
        /// Why; `timeout` if its deadline passed.
        reason: String,
    },
}

impl Ending {
    /// The names of all kinds, as they are recorded.
    pub const NAMES: [&'static str; 5] = [
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
        "OrchestrationCancelled",
        "OrchestrationTerminated",
    ];

    /// The name of the kind, as it is recorded.
    pub fn name(&self) -> &'static str {
        Ending::NAMES[match self {
            Ending::OrchestrationCompleted { .. } => 0,
            Ending::OrchestrationFailed { .. } => 1,
            Ending::OrchestrationContinuedAsNew { .. } => 2,
            Ending::OrchestrationCancelled { .. } => 3,
            Ending::OrchestrationTerminated { .. } => 4,
        }]
    }
}
