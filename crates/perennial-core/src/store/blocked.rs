//! Why an instance is blocked, as stored in its row.
//!
//! Fields may be added: readers ignore fields that they do not know, so that older tools keep working.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::InboxNumber;
use crate::history::{EventId, Why};
use crate::timestamp::Timestamp;

/// Why an instance cannot take its next turn until someone acts. Nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// The error code.
    pub code: String,
    /// The text by which instances are grouped: one line without ids and payloads, the same for all instances blocked
    /// by one fault.
    #[serde(default)]
    pub cause: String,
    /// The error message, on one line and without payloads.
    pub reason: String,
    /// The full report, over several lines.
    pub report: String,
    /// Where the code diverged from the history, if that blocks the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Box<Divergence>>,
    /// The external event that the code cannot read, if that blocks the instance. Skipping it unblocks the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// The inbox number of the message that cannot be read, if that blocks the instance. Skipping it unblocks the
    /// instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<InboxNumber>,
    /// The reason for the pause and who requested it, if the instance is paused. Resuming unblocks the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<Pause>>,
    /// Until when it waits for missing code, which another node or the next deployment may bring. Until then it is shown
    /// as waiting, not as blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until_ms: Option<u64>,
    /// When this cause first blocked the instance. A different cause resets it; the same cause found again does not.
    pub since_ms: u64,
    /// When the next turn was last tried. `None` if it was not, or if an older version wrote the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried_ms: Option<u64>,
    /// How many times the next turn has been tried since the instance was last able to run.
    pub attempts: u32,
}

impl Blocked {
    /// When the current cause first blocked the instance.
    pub fn since(&self) -> Timestamp {
        Timestamp::from_millis(self.since_ms)
    }

    /// Whether the instance waits for missing code, and is not blocked yet.
    pub fn is_waiting(&self) -> bool {
        self.waits_until_ms.is_some()
    }

    /// What can be skipped to unblock the instance, if anything.
    pub fn skippable(&self) -> Option<Skippable> {
        self.event.map(Skippable::Event).or(self.message.map(Skippable::Message))
    }

    /// Removes everything that quotes payloads.
    pub(crate) fn remove_payloads(&mut self) {
        self.report.clone_from(&self.reason);
        if let Some(divergence) = &mut self.divergence {
            divergence.neighbourhood.clear();
            for side in [&mut divergence.recorded, &mut divergence.code] {
                side.line.clone_from(&side.kind);
            }
        }
    }
}

/// Something that can be skipped to unblock an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skippable {
    /// An external event that the code cannot read, by its id in the history.
    Event(EventId),
    /// A message that cannot be read, by its number in the inbox.
    Message(InboxNumber),
}

impl fmt::Display for Skippable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skippable::Event(event) => write!(f, "event {event}"),
            Skippable::Message(number) => write!(f, "message {number}"),
        }
    }
}

/// A pause: the instance takes no turn until it, or its orchestration, is resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The reason, and who gave it.
    #[serde(default)]
    pub why: Why,
    /// Whether the pause applies to all instances of the orchestration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orchestration: bool,
}

/// A place where the code does not match the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Divergence {
    /// The orchestration and its pinned version.
    pub orchestration: String,
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The number of the turn, from 1.
    pub turn: u64,
    /// The event at which they differ.
    pub event: u64,
    /// How they differ, in a few words without payloads.
    pub difference: String,
    /// What the history contains there.
    pub recorded: DivergenceSide,
    /// What the code did there.
    pub code: DivergenceSide,
    /// The source line that did it, as `file:line:column`, if the code did something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The surrounding events, in order.
    pub neighbourhood: Vec<DivergenceRow>,
    /// What to do about it, over several lines.
    pub hint: String,
}

/// One side of a [`Divergence`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DivergenceSide {
    /// The kind of the event, or `nothing`.
    pub kind: String,
    /// The event in one line, with the beginning of its payload.
    pub line: String,
}

/// An event near a [`Divergence`], as recorded and as produced by the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceRow {
    /// Its place in the execution.
    pub event: EventId,
    /// The recorded event in one line; empty if there is none.
    pub recorded: String,
    /// The code's event in one line; empty if there is none.
    pub code: String,
    /// Whether this is the event at which they differ.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h40_a_blocked_reason_is_read_whatever_a_newer_engine_added_to_it() {
        let newer = r#"{"code":"PER-0203","cause":"c","reason":"r","report":"p","since_ms":5,"attempts":2,"new":[1],
            "divergence":{"turn":3,"event":9,"recorded":{"kind":"k","line":"l","more":1},"and":"more"}}"#;
        let read: Blocked = serde_json::from_str(newer).unwrap();
        assert_eq!((read.since_ms, read.attempts), (5, 2));
        let divergence = read.divergence.unwrap();
        assert_eq!((divergence.turn, divergence.event, &*divergence.recorded.kind), (3, 9, "k"));
        let older = r#"{"code":"PER-0201","reason":"r","report":"p","since_ms":5,"attempts":2}"#;
        assert_eq!(serde_json::from_str::<Blocked>(older).unwrap().cause, "");
    }
}
