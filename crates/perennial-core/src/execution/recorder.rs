//! The decisions of the running step, and how they get their event ids at its end.
//!
//! In a live turn a decision gets the next id. In a replayed turn it has to match the next recorded decision, and gets
//! that one's id. Patch marks are not part of this order: they match by id, wherever they occur.

use std::panic::Location;

use crate::history::{ChildOptions, Decision, Event, EventId, EventKind, Turn, UnitId};

use super::operations::Token;

/// A decision without an event id.
pub(crate) struct Emitted {
    pub(crate) unit: UnitId,
    pub(crate) decision: Decision,
    /// The operation that waits for its id, as long as it has a future.
    pub(crate) token: Option<Token>,
    pub(crate) fate: Fate,
    /// The source location of the call; `None` if the engine made the decision.
    pub(crate) location: Option<&'static Location<'static>>,
}

/// What happened to an operation within the step that scheduled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stands,
    /// Its future was dropped: nothing is recorded.
    Dropped,
    /// Its future was dropped during unwinding: nothing is recorded, unless the step fails because of the unwinding.
    DroppedUnwinding,
    /// Its future has already returned: it is recorded and closed immediately.
    Returned,
}

/// The decisions of one step so far.
#[derive(Default)]
pub(crate) struct StepBuffer {
    pub(crate) emitted: Vec<Emitted>,
    /// Operations of earlier steps whose futures were dropped, with the decision that cancels them.
    cancels: Vec<(EventId, Emitted)>,
    standing: u64,
    bytes: u64,
}

impl StepBuffer {
    /// Adds a decision. Returns its position.
    pub(crate) fn push(&mut self, emitted: Emitted) -> usize {
        self.standing += 1;
        self.bytes += emitted.decision.weight();
        self.emitted.push(emitted);
        self.emitted.len() - 1
    }

    /// An operation's future was dropped in the step that scheduled it: nothing is recorded.
    pub(crate) fn withdraw(&mut self, position: usize, unwinding: bool) {
        let emitted = &mut self.emitted[position];
        emitted.fate = if unwinding { Fate::DroppedUnwinding } else { Fate::Dropped };
        self.standing -= 1;
        self.bytes -= emitted.decision.weight();
    }

    /// An operation of an earlier step is cancelled.
    pub(crate) fn cancel(&mut self, source: EventId, emitted: Emitted) {
        self.cancels.push((source, emitted));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.emitted.is_empty() && self.cancels.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.emitted.clear();
        self.cancels.clear();
        (self.standing, self.bytes) = (0, 0);
    }

    /// The number of decisions that the step will record, not counting cancellations.
    pub(crate) fn standing(&self) -> u64 {
        self.standing
    }

    /// Their approximate size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The step's decisions in recording order: as made, then cancellations in the order of the cancelled operations.
    pub(crate) fn drain(&mut self, end: StepEnd) -> Vec<Emitted> {
        let mut decisions = std::mem::take(&mut self.emitted);
        (self.standing, self.bytes) = (0, 0);
        let failed = end == StepEnd::Failed;
        decisions.retain(|emitted| match emitted.fate {
            Fate::Stands | Fate::Returned => true,
            Fate::Dropped => false,
            Fate::DroppedUnwinding => failed,
        });
        self.cancels.sort_by_key(|(source, _)| *source);
        let stands = |emitted: &Emitted| !failed || emitted.fate == Fate::Stands;
        let cancels =
            std::mem::take(&mut self.cancels).into_iter().map(|(_, emitted)| emitted).filter(stands);
        if end != StepEnd::Finished {
            decisions.extend(cancels);
        }
        decisions
    }

    /// Returns a drained buffer, so that its memory is reused.
    pub(crate) fn recycle(&mut self, mut decisions: Vec<Emitted>) {
        decisions.clear();
        self.emitted = decisions;
    }
}

/// How a step ended, as far as its decisions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    Quiet,
    /// It ended the execution, which closes everything that is open: no cancellations are recorded.
    Finished,
    /// It failed: what was dropped during unwinding says nothing about the code.
    Failed,
}

/// The result of comparing a recorded decision with the code's decision.
pub(crate) enum Comparison {
    Same,
    /// Identical except for options, for which the recorded values are used.
    Retuned,
    Different,
}

/// Compares the parts of two decisions that are their identity.
pub(crate) fn compare(recorded_unit: &UnitId, recorded: &Decision, made: &Emitted) -> Comparison {
    if *recorded_unit != made.unit {
        return Comparison::Different;
    }
    let (same, tuned_alike) = match (recorded, &made.decision) {
        (
            Decision::ActivityScheduled { name, id, input, options },
            Decision::ActivityScheduled {
                name: made_name,
                id: made_id,
                input: made_input,
                options: made_options,
            },
        ) => (name == made_name && id == made_id && input == made_input, options == made_options),
        (
            Decision::SubOrchestrationScheduled { name, version, instance, input, close, options },
            Decision::SubOrchestrationScheduled {
                name: made_name,
                version: made_version,
                instance: made_instance,
                input: made_input,
                close: made_close,
                options: made_options,
            },
        ) => (
            name == made_name
                && version == made_version
                && instance == made_instance
                && input == made_input
                && reports_start(options.as_deref()) == reports_start(made_options.as_deref()),
            close == made_close && options == made_options,
        ),
        (Decision::SystemCall { op, .. }, Decision::SystemCall { op: made_op, .. }) => (op == made_op, true),
        (recorded, made) => (recorded == made, true),
    };
    match (same, tuned_alike) {
        (true, true) => Comparison::Same,
        (true, false) => Comparison::Retuned,
        (false, _) => Comparison::Different,
    }
}

fn reports_start(options: Option<&ChildOptions>) -> bool {
    options.is_some_and(|options| options.reports_start)
}

/// A recorded turn and the position of the replay in it.
pub(crate) struct RecordCursor<'a> {
    pub(crate) turn: &'a Turn,
    decisions: &'a [Event],
    next: usize,
}

impl<'a> RecordCursor<'a> {
    /// The order of the turn's event families must have been validated.
    pub(crate) fn new(turn: &'a Turn) -> RecordCursor<'a> {
        let is_decision = |event: &Event| matches!(event.kind, EventKind::Decision { .. });
        let first = turn.events.iter().position(is_decision).unwrap_or(turn.events.len());
        let count = turn.events[first..].iter().filter(|event| is_decision(event)).count();
        RecordCursor { turn, decisions: &turn.events[first..first + count], next: 0 }
    }

    /// The jobs of the turn.
    pub(crate) fn jobs(&self) -> &'a [Event] {
        let is_job = |event: &Event| matches!(event.kind, EventKind::Job(_));
        let first = self.turn.events.iter().position(is_job).unwrap_or(self.turn.events.len());
        let count = self.turn.events[first..].iter().filter(|event| is_job(event)).count();
        &self.turn.events[first..first + count]
    }

    /// The next recorded decision, including patch marks.
    pub(crate) fn peek(&self) -> Option<(EventId, &'a UnitId, &'a Decision)> {
        match self.decisions.get(self.next) {
            Some(Event { id, kind: EventKind::Decision { unit, decision } }) => Some((*id, unit, decision)),
            _ => None,
        }
    }

    /// Moves past the next decision.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The id after the recorded decisions, where the ending is or would be.
    pub(crate) fn end_id(&self) -> EventId {
        match self.turn.events.last() {
            Some(Event { id, kind: EventKind::Ended(_) }) => *id,
            Some(Event { id, .. }) => id.next(),
            None => EventId(1),
        }
    }
}
