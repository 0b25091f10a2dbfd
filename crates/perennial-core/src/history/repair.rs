//! What people do to instances that need repair, as it is recorded: why, by whom, and what a reset kept.

use serde::{Deserialize, Serialize};

use super::EventId;

/// Why somebody paused or reset an instance, and who.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// In the caller's words.
    pub reason: String,
    /// A person or a program, if the caller says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Why {
    /// A reason, without saying who.
    pub fn new(reason: impl Into<String>) -> Why {
        Why { reason: reason.into(), by: None }
    }

    /// The same, with who did it.
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

/// How an execution came about that was reset to a turn of the one before it.
///
/// Its first turns are copies of those that it keeps, with this in the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The execution that it was reset from.
    pub execution: u64,
    /// The last turn that it keeps; zero if it begins again.
    pub turn: u64,
    /// The execution in which its first turn was taken. It is the number that the code reads, so that the turns that are
    /// kept replay to the same decisions.
    pub began_as: u64,
    /// When it was reset, by turn time.
    pub at_ms: u64,
    /// Why, and by whom.
    pub why: Why,
    /// What goes on and answers this execution: the events of children that run and of sends that will be reported on, and
    /// the execution that began each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<(EventId, u64)>,
    /// Up to which event executions before it are the same as it is. What waits to be delivered again to one of them is
    /// about these events, if it is about any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same: Vec<(u64, EventId)>,
}
