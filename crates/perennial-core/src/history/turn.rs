//! One recorded turn of an execution.

use std::slice;

use serde::{Deserialize, Serialize};

use super::{Decision, Ending, Event, EventId, EventKind, Job, Started, UnitId};
use crate::timestamp::Timestamp;

/// The current format of turns. Stored in every turn; older formats remain readable.
pub const FORMAT: u32 = 1;

/// One activation of an execution: the jobs that came in, the decisions that the code made, and its end if it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The format of the turn, see [`FORMAT`].
    pub format: u32,
    /// 1, 2, 3, … within the execution.
    pub number: u64,
    /// The time of the whole turn, in milliseconds since 1970.
    pub at_ms: u64,
    /// How many random numbers the code has drawn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub draws: u64,
    /// In turn 1, how the execution started; then jobs, then decisions, then the ending if there is one.
    pub events: Vec<Event>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Turn {
    /// When the turn was taken.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at_ms)
    }

    /// How the execution started, if this is its first turn.
    pub fn started(&self) -> Option<&Started> {
        match self.events.first().map(|event| &event.kind) {
            Some(EventKind::Started(started)) => Some(started),
            _ => None,
        }
    }

    /// The jobs, in delivery order.
    pub fn jobs(&self) -> impl Iterator<Item = (EventId, &Job)> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Job(job) => Some((event.id, job)),
            _ => None,
        })
    }

    /// The decisions, in the order in which the code made them.
    pub fn decisions(&self) -> impl Iterator<Item = (EventId, &UnitId, &Decision)> {
        self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Decision { unit, decision } => Some((event.id, unit, decision)),
            _ => None,
        })
    }

    /// How the execution ended, if it ended with this turn.
    pub fn ending(&self) -> Option<&Ending> {
        match self.events.last().map(|event| &event.kind) {
            Some(EventKind::Ended(ending)) => Some(ending),
            _ => None,
        }
    }
}

/// The turns of one execution, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Turn 1, 2, 3, ….
    pub turns: Vec<Turn>,
}

impl History {
    /// The events of all turns, with ids 1, 2, 3, ….
    pub fn flatten(&self) -> impl Iterator<Item = &Event> {
        self.turns.iter().flat_map(|turn| &turn.events)
    }

    /// How the execution started.
    pub fn started(&self) -> Option<&Started> {
        self.turns.first().and_then(Turn::started)
    }

    /// How the execution ended, if it did.
    pub fn ending(&self) -> Option<&Ending> {
        self.turns.last().and_then(Turn::ending)
    }
}

impl From<Vec<Turn>> for History {
    fn from(turns: Vec<Turn>) -> History {
        History { turns }
    }
}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Turn;
    type IntoIter = slice::Iter<'a, Turn>;

    fn into_iter(self) -> Self::IntoIter {
        self.turns.iter()
    }
}
