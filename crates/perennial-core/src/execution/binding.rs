//! Assigns event ids to the decisions of a step: new ids in live turns, the recorded ids in replays.

use std::collections::BTreeSet;

use crate::history::{Decision, Ending, Event, EventId, EventKind, HistoryError, Turn};
use crate::log;

use super::divergence::{self, Did};
use super::driver::Execution;
use super::failure::TurnFailure;
use super::recorder::{Comparison, Emitted, Fate, RecordCursor, StepEnd, compare};
use super::state::ExecutionState;

/// Where the event ids of a turn's decisions come from.
pub(super) enum Ids<'a, 't> {
    /// They are new, and the decisions are collected.
    Live(&'a mut Vec<Event>),
    /// They are those of the recorded decisions, which the code's decisions have to match.
    Recorded(&'a mut RecordCursor<'t>),
}

impl<'t> Ids<'_, 't> {
    pub(super) fn record(&self) -> Option<&'t Turn> {
        match self {
            Ids::Live(_) => None,
            Ids::Recorded(cursor) => Some(cursor.turn),
        }
    }
}

impl Execution {
    /// Assigns event ids to the decisions of the step that just ended.
    pub(super) fn bind_step(&mut self, ids: &mut Ids<'_, '_>, end: StepEnd) -> Result<(), TurnFailure> {
        let state = self.state_mut();
        if state.step.is_empty() {
            return Ok(());
        }
        if end == StepEnd::Failed && matches!(ids, Ids::Live(_)) {
            state.step.clear();
            return Ok(());
        }
        let mut made = state.step.drain(end);
        let bound = match ids {
            Ids::Live(events) => {
                // The end of the execution closes everything that is open, and records no cancels.
                if end != StepEnd::Finished {
                    check_activity_ids(state, &made)?;
                }
                for emitted in made.drain(..) {
                    let id = EventId(state.ledger.events()).next();
                    let turn = state.ledger.turns();
                    state
                        .ledger
                        .apply_decision(turn, id, &emitted.decision)
                        .expect("live decisions are consistent");
                    bind(state, id, &emitted, &emitted.decision);
                    let Emitted { unit, decision, .. } = emitted;
                    events.push(Event { id, kind: EventKind::Decision { unit, decision } });
                }
                Ok(())
            }
            Ids::Recorded(cursor) => match_all(state, cursor, &made),
        };
        state.step.recycle(made);
        bound
    }

    /// Compares the end of a replayed turn with the recorded end.
    pub(super) fn compare_end(
        &mut self,
        cursor: &mut RecordCursor<'_>,
        ending: Option<&Ending>,
    ) -> Result<(), TurnFailure> {
        let state = self.state_mut();
        skip_patch_marks(state, cursor)?;
        let did = match ending {
            _ if cursor.peek().is_none() && ending == cursor.turn.ending() => {
                if state.tally.draws == cursor.turn.draws {
                    return Ok(());
                }
                Did::Drew(state.tally.draws)
            }
            Some(ending) => Did::Ended(ending),
            None => Did::Nothing,
        };
        Err(divergence::report(&state.instance, &state.started, cursor, &did).into())
    }
}

/// Refuses an activity whose id another open one has. Replayed decisions need no check: they match a record that passed.
///
/// Cancels are recorded after what the step scheduled, so an id that the step itself sets free is still in the ledger.
fn check_activity_ids(state: &ExecutionState, made: &[Emitted]) -> Result<(), TurnFailure> {
    let mut taken = BTreeSet::new();
    for emitted in made {
        let Decision::ActivityScheduled { id: Some(id), .. } = &emitted.decision else { continue };
        let is_cancelled = |event: EventId| {
            let cancel = Decision::ActivityCancelRequested { source_event_id: event };
            made.iter().any(|emitted| emitted.decision == cancel)
        };
        let is_open = state.ledger.activity_with_id(id).is_some_and(|event| !is_cancelled(event));
        if is_open || !taken.insert(id) {
            let place =
                emitted.location.map(|location| format!(" (at {}:{})", location.file(), location.line()));
            return Err(TurnFailure::Misuse {
                what: format!(
                    "the activity id {id:?} is that of an activity that is still open; give each its own{}",
                    place.unwrap_or_default()
                ),
            });
        }
    }
    Ok(())
}

/// Assigns an event id to a decision's operation.
fn bind(state: &mut ExecutionState, id: EventId, emitted: &Emitted, recorded: &Decision) {
    if let Some(token) = emitted.token {
        state.bind(token, id, recorded);
    }
    if emitted.fate == Fate::Returned {
        state.ledger.wait_returned(id);
    }
}

/// Matches the decisions of a step with the recorded ones, in order.
///
/// What a failing step scheduled and then dropped during unwinding may or may not be in the history, because the code
/// could also have dropped it in that step without failing. Such a decision is accepted if it matches; a mismatch is
/// reported only if nothing else in the step explains the difference.
fn match_all(
    state: &mut ExecutionState,
    cursor: &mut RecordCursor<'_>,
    made: &[Emitted],
) -> Result<(), TurnFailure> {
    let mut doubtful = None;
    for position in 0..made.len() {
        let matched = match_next(state, cursor, &made[position..]);
        match matched {
            Err(TurnFailure::Nondeterminism(divergence)) if made[position].fate == Fate::DroppedUnwinding => {
                doubtful.get_or_insert(divergence);
            }
            matched => matched?,
        }
    }
    doubtful.map_or(Ok(()), |divergence| Err(divergence.into()))
}

/// Matches the first of `made` with the next recorded decision.
fn match_next(
    state: &mut ExecutionState,
    cursor: &mut RecordCursor<'_>,
    made: &[Emitted],
) -> Result<(), TurnFailure> {
    skip_patch_marks(state, cursor)?;
    let next = cursor.peek().map(|(id, unit, decision)| (id, decision, compare(unit, decision, &made[0])));
    match next {
        Some((id, decision, comparison @ (Comparison::Same | Comparison::Retuned))) => {
            if matches!(comparison, Comparison::Retuned) {
                let (instance, execution) = (&*state.instance, state.started.execution);
                tracing::warn!(
                    target: log::INSTANCE,
                    instance,
                    execution,
                    event = id.0,
                    "options in the code differ from the recorded ones, which are used"
                );
            }
            state.ledger.apply_decision(cursor.turn.number, id, decision).map_err(HistoryError::from)?;
            bind(state, id, &made[0], decision);
            cursor.advance();
            Ok(())
        }
        Some((_, _, Comparison::Different)) | None => {
            Err(divergence::report(&state.instance, &state.started, cursor, &Did::Decided(made)).into())
        }
    }
}

/// Patch marks match by id, not by position, so they are skipped wherever they occur.
fn skip_patch_marks(state: &mut ExecutionState, cursor: &mut RecordCursor<'_>) -> Result<(), TurnFailure> {
    while let Some((id, _, decision @ Decision::PatchMarked { .. })) = cursor.peek() {
        state.ledger.apply_decision(cursor.turn.number, id, decision).map_err(HistoryError::from)?;
        cursor.advance();
    }
    Ok(())
}
