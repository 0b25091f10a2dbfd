//! The decisions of the step that is running, and how they get their event ids at its end.
//!
//! In a live turn a decision gets the next id. In a replayed one it has to match the recorded decision that is next,
//! and gets that one's id. Patch marks are outside of this order: they match by id wherever they stand.

use std::panic::Location;

use crate::history::{ChildOptions, Decision, Event, EventId, EventKind, Turn, UnitId};

use super::operations::Token;

/// A decision that has no event id yet.
pub(crate) struct Emitted {
    pub(crate) unit: UnitId,
    pub(crate) decision: Decision,
    /// The operation that waits for its id, while that has a future.
    pub(crate) token: Option<Token>,
    pub(crate) fate: Fate,
    /// Where the code made it; nothing if the engine did.
    pub(crate) location: Option<&'static Location<'static>>,
}

/// What became of an operation within the step that scheduled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stands,
    /// Its future was dropped: it leaves nothing.
    Dropped,
    /// Its future was dropped by unwinding: it leaves nothing, unless the step fails because of that.
    DroppedUnwinding,
    /// Its future returned already: it is recorded, and closed at once.
    Returned,
}

/// What one step has decided so far.
#[derive(Default)]
pub(crate) struct StepBuffer {
    pub(crate) emitted: Vec<Emitted>,
    /// Operations of earlier steps whose futures were dropped, with the decision that says so.
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

    /// An operation's future was dropped in the step that scheduled it: it leaves nothing.
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

    /// How many decisions the step will record, cancels aside.
    pub(crate) fn standing(&self) -> u64 {
        self.standing
    }

    /// About how many bytes those take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The step's decisions in the order they are recorded: as made, then cancels in the order of what they cancel.
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

    /// Hands a drained buffer back, so that its memory is used again.
    pub(crate) fn recycle(&mut self, mut decisions: Vec<Emitted>) {
        decisions.clear();
        self.emitted = decisions;
    }
}

/// How a step ended, as far as its decisions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    Quiet,
    /// It ended the execution, which closes all that is open: no cancels.
    Finished,
    /// It failed: what was dropped while it unwound says nothing about the code.
    Failed,
}

/// How a recorded decision compares with the one that the code made.
pub(crate) enum Comparison {
    Same,
    /// The same but for tunables, of which the record wins.
    Retuned,
    Different,
}

/// Compares what makes a decision what it is.
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

/// A recorded turn and how far replay has come in it.
pub(crate) struct RecordCursor<'a> {
    pub(crate) turn: &'a Turn,
    decisions: &'a [Event],
    next: usize,
}

impl<'a> RecordCursor<'a> {
    /// Expects the order of the turn's families to be checked.
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

    /// The recorded decision that is next, patch marks included.
    pub(crate) fn peek(&self) -> Option<(EventId, &'a UnitId, &'a Decision)> {
        match self.decisions.get(self.next) {
            Some(Event { id, kind: EventKind::Decision { unit, decision } }) => Some((*id, unit, decision)),
            _ => None,
        }
    }

    /// Goes past the decision that is next.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The place behind the recorded decisions: where the ending stands or would stand.
    pub(crate) fn end_id(&self) -> EventId {
        match self.turn.events.last() {
            Some(Event { id, kind: EventKind::Ended(_) }) => *id,
            Some(Event { id, .. }) => id.next(),
            None => EventId(1),
        }
    }
}
