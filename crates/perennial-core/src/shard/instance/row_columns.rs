//! The searched columns of an instance's row, as stored or about to be.

use std::sync::Arc;

use crate::code::ErrorCode;
use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{Ending, Ledger, Started};
use crate::store::{Blocked, InstanceRow, RowChange, Skippable, Status};

use super::limits::Limits;
use super::tasks::Tasks;

/// The searched columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowColumns {
    pub(super) status: Status,
    pub(super) owed: bool,
    /// Whether senders are refused because the code has too many unread events.
    pub(super) full: bool,
    pub(super) wake_at_ms: Option<u64>,
    pub(super) blocked_attempts: u32,
    /// The code of the block, if this engine knows it.
    pub(super) blocked_code: Option<ErrorCode>,
    /// The cause of the block, and its time.
    pub(super) blocked_cause: Option<(Arc<str>, u64)>,
    /// What can be skipped to unblock it.
    pub(super) skippable: Option<Skippable>,
    /// Whether it is paused: alone, or together with its orchestration (`true`).
    pub(super) pause: Option<bool>,
    pub(super) execution: u64,
    pub(super) version: Arc<str>,
}

impl RowColumns {
    /// The columns of an instance before its first turn.
    pub(super) fn nothing_stored(execution: u64) -> RowColumns {
        RowColumns {
            status: Status::Pending,
            owed: false,
            full: false,
            wake_at_ms: None,
            blocked_attempts: 0,
            blocked_code: None,
            blocked_cause: None,
            skippable: None,
            pause: None,
            execution,
            version: Arc::from(""),
        }
    }

    /// The columns of an instance that ended without its code.
    pub(super) fn ended(status: Status, started: &Started, stored: &RowColumns) -> RowColumns {
        // An instance that has not started has a version only if one was requested.
        let version = match started.version.is_empty() {
            true => Arc::clone(&stored.version),
            false => pinned(started, stored),
        };
        RowColumns { status, version, ..RowColumns::nothing_stored(started.execution) }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_attempts > 0
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// The same columns without a block.
    pub(super) fn unblocked(self) -> RowColumns {
        RowColumns {
            blocked_attempts: 0,
            blocked_code: None,
            blocked_cause: None,
            skippable: None,
            pause: None,
            ..self
        }
    }

    pub(super) fn of_row(row: &InstanceRow) -> RowColumns {
        RowColumns {
            status: row.status,
            owed: row.owed,
            full: row.full,
            wake_at_ms: row.wake_at_ms,
            blocked_attempts: row.blocked.as_ref().map_or(0, |blocked| blocked.attempts),
            blocked_code: row.blocked.as_ref().and_then(|blocked| blocked.code.parse().ok()),
            blocked_cause: row
                .blocked
                .as_ref()
                .map(|blocked| (blocked.cause.as_str().into(), blocked.since_ms)),
            skippable: row.blocked.as_ref().and_then(Blocked::skippable),
            pause: row
                .blocked
                .as_ref()
                .and_then(|blocked| blocked.pause.as_ref())
                .map(|pause| pause.orchestration),
            execution: row.execution,
            version: Arc::from(row.version.as_str()),
        }
    }

    /// The columns after a turn. The stored wake time may be too early, which only costs a check, but is never too
    /// late.
    pub(super) fn after_turn(
        execution: &Execution,
        max_unread: usize,
        ending: Option<&Ending>,
        stored: &RowColumns,
        tasks: &Tasks,
        limits: &Limits,
        now_ms: u64,
    ) -> RowColumns {
        let (ledger, started) = (execution.ledger(), execution.started());
        let status = ending.map_or(Status::Running, Status::after);
        let running = !status.is_final();
        let wanted = if running { wakes_from(0, ledger, limits, tasks) } else { None };
        let late_ms = if flaws::is(Flaw::WakesStoredLate) { 1_500 } else { 0 };
        let wanted = wanted.map(|at_ms| at_ms.saturating_add(late_ms));
        let wake_at_ms = match (stored.wake_at_ms, wanted) {
            (Some(stored), Some(wanted)) if stored <= wanted && stored > now_ms => Some(stored),
            (_, wanted) => wanted,
        };
        let owed = running && ledger.open_activities() > tasks.elsewhere();
        // Set at the limit and cleared at half of it, so that the row is not rewritten with every event.
        let full_from = if stored.full { max_unread / 2 } else { max_unread };
        let full = running && execution.unread_events() >= full_from.max(1);
        RowColumns {
            status,
            owed,
            full,
            wake_at_ms,
            blocked_attempts: 0,
            blocked_code: None,
            blocked_cause: None,
            skippable: None,
            pause: None,
            execution: started.execution,
            version: pinned(started, stored),
        }
    }

    /// The change from the stored columns to these.
    pub(super) fn change_from(&self, stored: &RowColumns) -> RowChange {
        let is_unblocked = stored.blocked_attempts > 0 && self.blocked_attempts == 0;
        RowChange {
            status: (self.status != stored.status).then_some(self.status),
            owed: (self.owed != stored.owed).then_some(self.owed),
            full: (self.full != stored.full).then_some(self.full),
            // The stored wake time was that of its next retry.
            wake_at_ms: (is_unblocked || self.wake_at_ms != stored.wake_at_ms).then_some(self.wake_at_ms),
            blocked: is_unblocked.then_some(None),
            execution: (self.execution != stored.execution).then_some(self.execution),
            version: (self.version != stored.version).then(|| self.version.to_string()),
            ..RowChange::default()
        }
    }
}

/// The version that an execution is pinned to.
fn pinned(started: &Started, stored: &RowColumns) -> Arc<str> {
    if *stored.version == *started.version {
        return Arc::clone(&stored.version);
    }
    Arc::from(started.version.as_str())
}

/// When a running execution needs attention: a timer, a task, the end of a grace period, its deadline; the earliest
/// that is not before `from_ms`.
pub(super) fn wakes_from(from_ms: u64, ledger: &Ledger, limits: &Limits, tasks: &Tasks) -> Option<u64> {
    let timer = ledger.timers().next().map(|(due_ms, _)| due_ms);
    let ends = limits.ends().chain(timer).filter(|at_ms| *at_ms >= from_ms);
    ends.chain(tasks.next_due_ms(from_ms)).min()
}
