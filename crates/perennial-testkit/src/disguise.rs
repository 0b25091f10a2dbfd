//! Histories that differ only in parts that replay does not compare.

use perennial_core::{ClosePolicy, Decision, EventKind, History};

use crate::Rng;
use crate::renumber::Draft;

/// Changes everything in a history that has no identity: options, and the positions of patch marks in their
/// turns.
pub fn disguised(history: &History, rng: &mut Rng) -> History {
    let mut draft = Draft::of(history);
    for turn in &mut draft.turns {
        let is_decision = |(_, kind): &(_, EventKind)| matches!(kind, EventKind::Decision { .. });
        let first = turn.events.iter().position(is_decision).unwrap_or(turn.events.len());
        let behind = first + turn.events.iter().filter(|event| is_decision(event)).count();
        let (marks, mut others): (Vec<_>, Vec<_>) =
            turn.events.drain(first..behind).partition(|(_, kind)| is_mark(kind));
        others.iter_mut().for_each(|(_, kind)| retune(kind));
        for mark in marks {
            others.insert(rng.below(others.len() + 1), mark);
        }
        turn.events.splice(first..first, others);
    }
    draft.finish()
}

fn is_mark(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Decision { decision: Decision::PatchMarked { .. }, .. })
}

fn retune(kind: &mut EventKind) {
    match kind {
        EventKind::Decision { decision: Decision::ActivityScheduled { options, .. }, .. } => {
            *options = options.is_none().then(Box::default);
        }
        EventKind::Decision { decision: Decision::SubOrchestrationScheduled { close, .. }, .. } => {
            *close = match close {
                ClosePolicy::Cancel => ClosePolicy::Abandon,
                ClosePolicy::Abandon => ClosePolicy::Cancel,
            };
        }
        _ => {}
    }
}
