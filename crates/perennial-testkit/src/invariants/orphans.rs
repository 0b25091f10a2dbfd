//! I18: no rows of instances that do not exist, no tasks of executions that have ended, no requests past
//! their deadline. And the part of I3 that the positions of turns show: within an execution they are 1, 2, 3,
//! … without duplicates.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::InstanceKey;
use perennial_core::shard::Message;
use perennial_core::store::InstanceRow;

use super::{Breach, Snapshot, StoredRows};

pub(super) fn check(snapshot: &Snapshot, found: &mut Vec<Breach>) {
    let Some(rows) = &snapshot.rows else { return };
    let names: BTreeMap<InstanceKey, &str> =
        snapshot.instances.iter().map(|instance| (instance.row.key, instance.row.id.as_str())).collect();
    orphans(rows, &names, found);
    tasks(snapshot, rows, found);
    places(snapshot, rows, &names, found);
}

/// Requests and replies that still exist although their deadline has passed and they should have been swept
/// since. A sweep is due every `sweep_ms` while a node runs.
pub fn unswept(snapshot: &Snapshot, now_ms: u64, sweep_ms: u64) -> Vec<Breach> {
    let deadlines = snapshot.rows.iter().flat_map(|rows| &rows.request_deadlines_ms);
    let late = deadlines.filter(|deadline_ms| **deadline_ms + sweep_ms < now_ms);
    late.map(|deadline_ms| {
        let what = format!("a request or reply had its deadline at {deadline_ms}, and it is {now_ms}");
        Breach { invariant: "I18", instance: String::new(), what }
    })
    .collect()
}

/// An execution that has ended has no tasks, except those whose holders have yet to notice.
fn tasks(snapshot: &Snapshot, rows: &StoredRows, found: &mut Vec<Breach>) {
    let known: BTreeMap<InstanceKey, &InstanceRow> =
        snapshot.instances.iter().map(|instance| (instance.row.key, &instance.row)).collect();
    for task in rows.tasks.iter().filter(|task| !task.is_marked) {
        let is_over = |row: &&InstanceRow| row.status.is_final() || row.execution != task.id.execution;
        if let Some(row) = known.get(&task.id.key).copied().filter(is_over) {
            let (event, execution) = (task.id.event, task.id.execution);
            let what = format!("task {event} of execution {execution} exists, but the execution has ended");
            found.push(Breach { invariant: "I18", instance: row.id.clone(), what });
        }
    }
}

fn orphans(rows: &StoredRows, names: &BTreeMap<InstanceKey, &str>, found: &mut Vec<Breach>) {
    // A start may be in the inbox of an instance whose owner has yet to insert it, and other messages may
    // follow it.
    let to_be_born: BTreeSet<InstanceKey> = rows
        .inbox
        .iter()
        .filter(|(_, body)| matches!(Message::decode(body), Ok(Message::Start(_))))
        .map(|(key, _)| *key)
        .collect();
    let mut counts: BTreeMap<(InstanceKey, &str), usize> = BTreeMap::new();
    let turns = rows.turns.iter().map(|(key, ..)| (*key, "turns"));
    let inbox =
        rows.inbox.iter().map(|(key, _)| (*key, "inbox")).filter(|(key, _)| !to_be_born.contains(key));
    let tasks = rows.tasks.iter().map(|task| (task.id.key, "tasks"));
    let others = rows.others.iter().map(|(table, key)| (*key, table.as_str()));
    for row in turns.chain(inbox).chain(tasks).chain(others).filter(|(key, _)| !names.contains_key(key)) {
        *counts.entry(row).or_default() += 1;
    }
    for ((key, table), count) in counts {
        let what = format!("{count} rows of {table} exist, but the instance does not");
        found.push(Breach { invariant: "I18", instance: key.to_string(), what });
    }
}

fn places(
    snapshot: &Snapshot,
    rows: &StoredRows,
    names: &BTreeMap<InstanceKey, &str>,
    found: &mut Vec<Breach>,
) {
    let mut executions: BTreeMap<(InstanceKey, u64), Vec<u64>> = BTreeMap::new();
    for (key, execution, number) in &rows.turns {
        executions.entry((*key, *execution)).or_default().push(*number);
    }
    let known: BTreeMap<InstanceKey, u64> =
        snapshot.instances.iter().map(|instance| (instance.row.key, instance.row.execution)).collect();
    for ((key, execution), mut numbers) in executions {
        let Some(name) = names.get(&key) else { continue };
        let mut breach = |what: String| {
            found.push(Breach { invariant: "I3", instance: (*name).to_owned(), what });
        };
        numbers.sort_unstable();
        if let Some((expected, number)) = (1..).zip(numbers).find(|(expected, number)| expected != number) {
            breach(format!("turn {number} of execution {execution} is at the position of turn {expected}"));
        }
        if execution == 0 || known.get(&key).is_some_and(|current| execution > *current) {
            breach(format!("it has turns of execution {execution}, which its row does not know"));
        }
    }
}
