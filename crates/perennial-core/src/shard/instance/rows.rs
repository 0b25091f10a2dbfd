//! Rows derived from turns.

use crate::execution::Execution;
use crate::history::{Decision, Ledger, Turn};
use crate::instance::InstanceKey;
use crate::store::{InstanceRow, RowChange};

use super::row_columns::RowColumns;

/// The row of an instance that starts with its first turn.
pub(super) fn new_row(
    key: InstanceKey,
    id: &str,
    execution: &Execution,
    columns: &RowColumns,
    created_ms: u64,
) -> InstanceRow {
    let (started, ledger) = (execution.started(), execution.ledger());
    InstanceRow {
        status: columns.status,
        execution: columns.execution,
        version: columns.version.to_string(),
        owed: columns.owed,
        full: columns.full,
        wake_at_ms: columns.wake_at_ms,
        attributes: ledger.attributes().clone(),
        published: ledger.status().cloned(),
        ended_ms: columns.status.is_final().then_some(created_ms),
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
