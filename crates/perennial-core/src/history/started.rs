//! How an execution began.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::present;
use super::{Attributes, EventId, Payload, Reset, TraceContext};

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

fn is_zero(number: &u32) -> bool {
    *number == 0
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
