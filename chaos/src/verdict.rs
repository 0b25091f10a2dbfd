//! The verdict: compares the database with the log of callers after a run.

use std::collections::{BTreeMap, BTreeSet};

use perennial::Status;
use perennial::history::{Ending, Job};
use perennial_core::history::decode_history;
use perennial_testkit::invariants::{Snapshot, StoredInstance, breaches};

use crate::kinds::{expected_output, handlers};
use crate::log::{Entry, acknowledged_updates, client_log};

/// The default number of kept executions of an instance.
const KEPT_EXECUTIONS: u64 = 10;

/// Returns all problems: violated invariants, lost and duplicated requests, and instances that have not ended.
pub fn problems(mut snapshot: Snapshot, callers: &[Entry], effects: &[Entry]) -> Vec<String> {
    snapshot.excuse_pruned(KEPT_EXECUTIONS);
    let log = client_log(callers, effects);
    let mut found: Vec<String> =
        breaches(&snapshot, &log, &handlers()).iter().map(|breach| breach.to_string()).collect();
    for instance in &snapshot.instances {
        let row = &instance.row;
        if !row.status.is_final() {
            let blocked = row.blocked.as_ref().map(|blocked| blocked.code.as_str()).unwrap_or("not blocked");
            found.push(format!("I17 broken by {:?}: it is {} ({blocked})", row.id, row.status.name()));
        } else if let Some(problem) = wrong_output(instance) {
            found.push(problem);
        }
    }
    found.extend(updates(&snapshot, callers));
    found.extend(unknown_instances(&snapshot, callers));
    found
}

/// Finds instances that no caller started.
fn unknown_instances(snapshot: &Snapshot, callers: &[Entry]) -> Vec<String> {
    let asked: BTreeSet<&str> =
        callers.iter().filter_map(|entry| entry.of("send", "start")?.first().map(String::as_str)).collect();
    let is_unknown = |instance: &&StoredInstance| {
        instance.row.parent.is_none() && !asked.contains(instance.row.id.as_str())
    };
    let unknown = snapshot.instances.iter().filter(is_unknown);
    unknown.map(|instance| format!("no caller started {:?}", instance.row.id)).collect()
}

fn wrong_output(instance: &StoredInstance) -> Option<String> {
    let row = &instance.row;
    if row.parent.is_some() {
        return None;
    }
    let turns = instance.executions.get(&row.execution)?;
    let history = decode_history(turns).ok()?;
    let ending = history.turns.last()?.ending()?;
    let problem = match (row.id.split('-').next()?, ending) {
        ("cancel", Ending::OrchestrationCancelled { .. }) | ("trip", Ending::OrchestrationFailed { .. }) => {
            return None;
        }
        (_, Ending::OrchestrationCompleted { output }) => {
            let expected = expected_output(&row.id).filter(|expected| output.as_json() != expected)?;
            format!("it returned {}, not {expected}", output.as_json())
        }
        (_, ending) => format!("it ended with {ending:?}"),
    };
    Some(format!("wrong end of {:?}: {problem}", row.id))
}

/// Checks that each acknowledged update is recorded exactly once.
fn updates(snapshot: &Snapshot, callers: &[Entry]) -> Vec<String> {
    let mut problems = Vec::new();
    let acknowledged = acknowledged_updates(callers);
    for instance in snapshot.instances.iter().filter(|instance| instance.row.name == "account") {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for turns in instance.executions.values().filter(|turns| !turns.is_empty()) {
            let Ok(history) = decode_history(turns) else { continue };
            for (_, job) in history.turns.iter().flat_map(|turn| turn.jobs()) {
                if let Job::UpdateRequested { key: Some(key), .. } = job {
                    *found.entry(key.clone()).or_default() += 1;
                }
            }
        }
        let id = &instance.row.id;
        for (key, count) in found.iter().filter(|(_, count)| **count > 1) {
            problems.push(format!("doubled: {id:?} took the update {key:?} {count} times"));
        }
        for key in acknowledged.get(id).into_iter().flatten().filter(|key| !found.contains_key(*key)) {
            problems.push(format!("lost: {id:?} acknowledged the update {key:?} and did not record it"));
        }
    }
    problems
}

/// Number of instances by final status.
pub fn endings(snapshot: &Snapshot) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for status in snapshot.instances.iter().map(|instance| instance.row.status).map(Status::name) {
        *counts.entry(status).or_default() += 1;
    }
    counts
}
