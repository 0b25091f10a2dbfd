//! Why an instance is blocked, as it is stored with its row.
//!
//! Fields may be added: readers take what they know and leave the rest, so that a list of an older tool goes on working.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::InboxNumber;
use crate::history::{EventId, Why};
use crate::timestamp::Timestamp;

/// Why an instance cannot take its next turn until someone acts. Nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// The stable code of the failure.
    pub code: String,
    /// What instances are grouped by: a line without ids and payloads, the same for all that one fault blocks.
    #[serde(default)]
    pub cause: String,
    /// What happened, in a line without payloads.
    pub reason: String,
    /// The whole report, for the person who asks for it.
    pub report: String,
    /// Where record and code part, if that is what blocks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Box<Divergence>>,
    /// The external event that the code cannot read, if that is what blocks it. Skipping it lets the instance go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventId>,
    /// The number of the message in its inbox that cannot be read, if that is what blocks it. Skipping it lets the instance
    /// go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<InboxNumber>,
    /// Who paused it and why, if that is what keeps it from going on. Resuming it lets it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<Pause>>,
    /// Since when this cause blocks it. Another cause starts over, the same one found again does not.
    pub since_ms: u64,
    /// How often the next turn has been tried since the instance was last able to go on.
    pub attempts: u32,
}

impl Blocked {
    /// Since when the current cause blocks it.
    pub fn since(&self) -> Timestamp {
        Timestamp::from_millis(self.since_ms)
    }

    /// What can be skipped to let it go on, if something can be.
    pub fn skippable(&self) -> Option<Skippable> {
        self.event.map(Skippable::Event).or(self.message.map(Skippable::Message))
    }

    /// Takes out what quotes payloads.
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

/// Something that a blocked instance can go on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skippable {
    /// An external event that the code cannot read, by its place in the history.
    Event(EventId),
    /// A message that nobody can read, by its number in the inbox.
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

/// A pause: the instance takes no turn until somebody resumes it, or its orchestration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Why, and by whom.
    #[serde(default)]
    pub why: Why,
    /// Whether all instances of its orchestration are paused, and it with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orchestration: bool,
}

/// A place where the code does not do what the record says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Divergence {
    /// The orchestration and its pinned version.
    pub orchestration: String,
    /// The execution.
    pub execution: u64,
    /// The turn.
    pub turn: u64,
    /// The event at which record and code part.
    pub event: u64,
    /// In what they differ, in a few words without payloads.
    pub difference: String,
    /// What the record says there.
    pub recorded: DivergenceSide,
    /// What the code did there.
    pub code: DivergenceSide,
    /// The source line that did it, as `file:line:column`, if the code did something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The events around it, in order.
    pub neighbourhood: Vec<DivergenceRow>,
    /// What to do, over several lines.
    pub hint: String,
}

/// One side of a [`Divergence`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DivergenceSide {
    /// The kind of the event, or `nothing`.
    pub kind: String,
    /// The event in a line, with the beginning of its payload.
    pub line: String,
}

/// An event near a [`Divergence`], as the record has it and as the code made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceRow {
    /// Its place in the execution.
    pub event: EventId,
    /// The record's event in a line; empty if there is none.
    pub recorded: String,
    /// The code's event in a line; empty if there is none.
    pub code: String,
    /// Whether this is where they part.
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
