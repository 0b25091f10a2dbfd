//! I16 and I17: instances blocked without a cause, and instances that could continue and do not.

use perennial_core::Ledger;
use perennial_core::history::decode_history;

use super::{Breach, ClientLog, Snapshot, StoredInstance};

/// I16: where a test records the instances it blocks, no other instance is blocked.
pub(super) fn check_blocked(snapshot: &Snapshot, log: &ClientLog, found: &mut Vec<Breach>) {
    let Some(blocked_on_purpose) = log.expected_blocked() else { return };
    for StoredInstance { row, .. } in &snapshot.instances {
        if let Some(blocked) = row.blocked.as_ref().filter(|_| !blocked_on_purpose.contains(&row.id)) {
            let what = format!("it is blocked without a cause: {}", blocked.reason);
            found.push(Breach { invariant: "I16", instance: row.id.clone(), what });
        }
    }
}

/// Instances that are not blocked and have not handled, by `now_ms`, an unread message or a due timer. For a
/// node that had time to do its work, this must be empty, whichever other instances are blocked.
///
/// Activities are not checked: a store does not show whether one is running.
pub fn stalled(snapshot: &Snapshot, now_ms: u64) -> Vec<Breach> {
    let mut found = Vec::new();
    for StoredInstance { row, executions, inbox, .. } in &snapshot.instances {
        if row.status.is_final() || row.blocked.is_some() {
            continue;
        }
        let mut breach =
            |what: String| found.push(Breach { invariant: "I16", instance: row.id.clone(), what });
        if let Some(unread) = inbox.as_ref().map(Vec::len).filter(|unread| *unread > 0) {
            breach(format!("it is not blocked, and {unread} messages wait for it"));
        }
        let Some(history) = executions.get(&row.execution).and_then(|bodies| decode_history(bodies).ok())
        else {
            continue;
        };
        let read = history.turns.iter().try_fold(Ledger::default(), |mut ledger, turn| {
            ledger.apply_turn(turn).ok()?;
            Some(ledger)
        });
        let due =
            read.as_ref().and_then(|ledger| ledger.timers().next()).filter(|(due_ms, _)| *due_ms <= now_ms);
        if let Some((due_ms, timer)) = due {
            breach(format!("timer {timer} was due at {due_ms} and has not fired at {now_ms}"));
        }
    }
    found
}
