//! Events, the entries of a history, and their four families.
//!
//! How an execution [started](super::started), what [came in](super::job), what the code [decided](super::decision) and
//! how it [ended](super::ending) are separate types, so that code that takes jobs cannot be given a decision.
//! [`super::codec`] defines their JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::{Decision, Ending, Job, Payload, Started, UnitId};

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

/// The search attributes of an instance. In an upsert, `null` removes an attribute.
pub type Attributes = BTreeMap<String, Payload>;

/// One entry of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place in the execution.
    pub id: EventId,
    /// The content of the event.
    pub kind: EventKind,
}

/// The content of an event, by family.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The first event of an execution.
    Started(Box<Started>),
    /// An event from outside the code.
    Job(Job),
    /// An event that the code caused.
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

/// Whether a flag need not be written.
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Deserialises a payload that is present, even if it is `null`.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Payload>, D::Error> {
    Payload::deserialize(deserializer).map(Some)
}
