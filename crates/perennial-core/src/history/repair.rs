//! Records of repairs by people: the reason, who did it, and what a reset kept.

use serde::{Deserialize, Serialize};

use super::EventId;

/// The reason for a pause or reset, and who did it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// The reason given by the caller.
    pub reason: String,
    /// A person or a program, if the caller names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Why {
    /// A reason without a name.
    pub fn new(reason: impl Into<String>) -> Why {
        Why { reason: reason.into(), by: None }
    }

    /// Adds who did it.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Why {
        self.by = Some(who.into());
        self
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.reason.len() + self.by.as_ref().map_or(0, String::len)
    }
}

impl From<&str> for Why {
    fn from(reason: &str) -> Why {
        Why::new(reason)
    }
}

impl From<String> for Why {
    fn from(reason: String) -> Why {
        Why::new(reason)
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.by, self.reason.is_empty()) {
            (Some(by), true) => write!(f, "by {by}"),
            (Some(by), false) => write!(f, "by {by}: {}", self.reason),
            (None, true) => f.write_str("without a reason"),
            (None, false) => f.write_str(&self.reason),
        }
    }
}

/// How an execution was created by a reset to a turn of an earlier one.
///
/// Its first turns are copies of the turns that it keeps, with this record in the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The execution that it was reset from.
    pub execution: u64,
    /// The last turn that it keeps; zero if it starts over.
    pub turn: u64,
    /// The execution in which its first turn was originally taken. The code reads this number, so that the kept turns
    /// replay to the same decisions.
    pub began_as: u64,
    /// When it was reset, by turn time.
    pub at_ms: u64,
    /// The reason, and who gave it.
    pub why: Why,
    /// Operations that keep running and report to this execution: the events of running children and of sends with a
    /// report, and the execution that started each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<(EventId, u64)>,
    /// Up to which event this execution is identical to earlier executions. Messages addressed to one of those are
    /// delivered here if they refer to such an event, or to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same: Vec<(u64, EventId)>,
}
