//! How an execution started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::present;
use super::{Attributes, EventId, Payload, Reset, TraceContext};

/// How an execution started: everything that the code may know about itself, fixed for the life of the execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// The registered name of the orchestration.
    pub name: String,
    /// The version that this execution is pinned to.
    pub version: String,
    /// The input of the orchestration, as JSON.
    pub input: Payload,
    /// The parent that waits for the outcome, if this is a sub-orchestration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    /// The seed of all random numbers of this execution.
    pub seed: u64,
    /// See [`super::SEMANTICS`].
    pub semantics: u32,
    /// 1 for the first execution of an instance; continue-as-new increments it.
    pub execution: u64,
    /// The time of the previous execution's last turn. This execution's time is never earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_at_ms: Option<u64>,
    /// The checksum that the first turn chains from: the last checksum of the previous execution, or zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain: u32,
    /// When the instance is terminated because of its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The search attributes, given at the start or carried over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: Attributes,
    /// The published status carried over from the previous execution.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub status: Option<Payload>,
    /// The keys of the most recent events and updates accepted by earlier executions, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_keys: Vec<String>,
    /// The places among `recent_keys` that are reserved for keys of carried-over events and updates: after how many
    /// keys, and how many. Such a key returns to its place when its job is accepted again, so that unread events never
    /// displace more recent keys, however often they are carried over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crossing_keys: Vec<(u64, u64)>,
    /// The generated keys of events and updates accepted by earlier executions, oldest first, with the turn time at
    /// which each was accepted. They are remembered for a minute of turn time, however often the instance continues as
    /// new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn_keys: Vec<(u64, String)>,
    /// The trace context of the caller that started the instance. Later executions and children inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<TraceContext>>,
    /// The reset that created this execution, if it was created by one: it begins with turns of an earlier execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Box<Reset>>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Started {
    pub(super) const NAME: &'static str = "OrchestrationStarted";

    /// The first execution of `name` at `version`, without parent, deadline or attributes.
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

    /// Whether an event of another execution is also an event of this one.
    pub(crate) fn has_event_of(&self, execution: u64, event: EventId) -> bool {
        let same = self.reset.as_ref().and_then(|reset| reset.same.iter().find(|(of, _)| *of == execution));
        execution == self.execution || same.is_some_and(|(_, last)| event <= *last)
    }

    /// The execution that started the operation of an event: this one, unless a reset kept the event.
    pub fn starter_of(&self, event: EventId) -> u64 {
        let adopted = self.reset.as_ref().and_then(|reset| {
            reset.adopted.iter().find(|(adopted, _)| *adopted == event).map(|(_, execution)| *execution)
        });
        adopted.unwrap_or(self.execution)
    }
}

/// The schedule event in another instance that waits for the outcome of a sub-orchestration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentLink {
    /// The parent's instance id.
    pub instance: String,
    /// The parent's key, which is never reused.
    pub key: String,
    /// The parent's execution.
    pub execution: u64,
    /// The parent's schedule event.
    pub event_id: EventId,
}
