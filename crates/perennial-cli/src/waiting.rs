//! What an instance waits for, as its history tells.

use std::collections::BTreeMap;

use perennial::history::History;
use perennial::history::{Decision, EventKind, Job, Ledger};

use crate::output::moment;

/// What an execution waits for, one line each, in the order in which it was scheduled.
pub(crate) fn waiting_for(history: &History) -> Vec<String> {
    let mut ledger = Ledger::default();
    // What cannot be read is told where it is looked at.
    if history.ending().is_some() || history.turns.iter().any(|turn| ledger.apply_turn(turn).is_err()) {
        return Vec::new();
    }
    // Waits are met in order, and stay on the books.
    let mut came: BTreeMap<&str, usize> = BTreeMap::new();
    for event in history.flatten() {
        if let EventKind::Job(Job::ExternalEvent { name, .. }) = &event.kind {
            *came.entry(name).or_default() += 1;
        }
    }
    let mut lines = Vec::new();
    for (event, decision) in ledger.open() {
        lines.push(match decision {
            Decision::ActivityScheduled { name, .. } => format!("activity {name:?} (event {event})"),
            Decision::TimerCreated { due_ms } => format!("timer, due {} (event {event})", moment(*due_ms)),
            Decision::SubOrchestrationScheduled { name, .. } => {
                format!("sub-orchestration {name:?} (event {event})")
            }
            Decision::ExternalSubscribed { name } => match came.get_mut(name.as_str()) {
                Some(met) if *met > 0 => {
                    *met -= 1;
                    continue;
                }
                _ => format!("event {name:?} (event {event})"),
            },
            _ => continue,
        });
    }
    lines
}
