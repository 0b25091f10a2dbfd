//! Rows made from turns.

use crate::execution::Execution;
use crate::history::{Decision, Ledger, Turn};
use crate::instance::InstanceKey;
use crate::store::{InstanceRow, RowChange};

use super::facts::Facts;

/// The row of an instance that starts with its first turn.
pub(super) fn new_row(
    key: InstanceKey,
    id: &str,
    execution: &Execution,
    facts: &Facts,
    created_ms: u64,
) -> InstanceRow {
    let (started, ledger) = (execution.started(), execution.ledger());
    InstanceRow {
        status: facts.status,
        execution: facts.execution,
        version: facts.version.to_string(),
        owed: facts.owed,
        full: facts.full,
        wake_at_ms: facts.wake_at_ms,
        attributes: ledger.attributes().clone(),
        published: ledger.status().cloned(),
        ended_ms: facts.status.is_final().then_some(created_ms),
        ..InstanceRow::pending(key, id, started, created_ms)
    }
}

/// Adds what a turn published to the changes of a row.
pub(super) fn describe_changes(change: &mut RowChange, ledger: &Ledger, turn: &Turn) {
    for (_, _, decision) in turn.decisions() {
        match decision {
            Decision::AttributesUpserted { .. } => change.attributes = Some(ledger.attributes().clone()),
            Decision::StatusSet { .. } => change.published = Some(ledger.status().cloned()),
            _ => {}
        }
    }
}
