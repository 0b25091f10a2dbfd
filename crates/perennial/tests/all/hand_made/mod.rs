//! Rows made by hand, for the tests that plant a breach and see whether it is noticed.
#![allow(dead_code, reason = "no test file needs all of it")]

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial::history::EventId;
use perennial::history::{Decision, EventKind, Job, Started, Turn, UnitId};
use perennial::{InstanceKey, Status};
use perennial_core::history::{FORMAT, encode_turn};
use perennial_core::shard::Message;
use perennial_core::store::{InboxRow, InstanceRow};
use perennial_testkit::invariants::{Breach, Snapshot, StoredInstance, StoredRows, StoredTask};

/// The key that stands for a number.
pub(crate) fn key(number: u64) -> InstanceKey {
    InstanceKey::new(number, u128::from(number))
}

pub(crate) fn decided(decision: Decision) -> EventKind {
    EventKind::Decision { unit: UnitId::ROOT, decision }
}

/// Turns with the times and events that were given; everything is numbered as it should be.
pub(crate) fn turns(given: Vec<(u64, Vec<EventKind>)>) -> Vec<Turn> {
    let mut ids = (1..).map(EventId);
    let mut event = |kind| perennial::history::Event { id: ids.next().unwrap(), kind };
    let turn = |(number, (at_ms, kinds)): (u64, (u64, Vec<EventKind>))| {
        let events = kinds.into_iter().map(&mut event).collect();
        Turn { format: FORMAT, number, at_ms, draws: 0, events }
    };
    (1..).zip(given).map(turn).collect()
}

pub(crate) fn encoded(turns: &[Turn]) -> Vec<Arc<[u8]>> {
    turns.iter().map(|turn| Arc::from(encode_turn(turn))).collect()
}

/// An instance with these executions; its row says what they say, and that it wants nothing.
pub(crate) fn instance(number: u64, id: &str, executions: &[Vec<Turn>]) -> StoredInstance {
    let started = executions.last().and_then(|turns| turns.first()).and_then(Turn::started).unwrap();
    let ending = executions.last().and_then(|turns| turns.last()).and_then(Turn::ending);
    let row = InstanceRow {
        status: ending.map_or(Status::Running, Status::after),
        execution: executions.len() as u64,
        ..InstanceRow::pending(key(number), id, started, 1)
    };
    let executions: BTreeMap<_, _> = (1..).zip(executions.iter().map(|turns| encoded(turns))).collect();
    StoredInstance { row, executions, inbox: Some(Vec::new()), tasks: Some(Vec::new()) }
}

/// Puts a message into an instance's inbox.
pub(crate) fn send(instance: &mut StoredInstance, message: &Message) {
    let InstanceRow { key, shard, .. } = instance.row;
    let inbox = instance.inbox.as_mut().unwrap();
    inbox.push(InboxRow {
        number: inbox.len() as u64 + 1,
        key,
        shard,
        arrived_ms: 0,
        urgent: false,
        body: message.encode(),
    });
}

/// A snapshot of these instances, with all their rows.
pub(crate) fn snapshot(instances: Vec<StoredInstance>) -> Snapshot {
    let mut rows = StoredRows::default();
    for StoredInstance { row, executions, inbox, tasks } in &instances {
        for (execution, turns) in executions {
            rows.turns.extend((1..).zip(turns).map(|(number, _)| (row.key, *execution, number)));
        }
        rows.tasks.extend(tasks.iter().flatten().map(StoredTask::from));
        rows.inbox.extend(inbox.iter().flatten().map(|row| (row.key, Arc::clone(&row.body))));
    }
    Snapshot { instances, rows: Some(rows) }
}

/// The numbers of what was found, each once.
pub(crate) fn numbers(breaches: &[Breach]) -> Vec<&'static str> {
    let mut numbers: Vec<&str> = breaches.iter().map(|breach| breach.invariant).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// How a first execution of something starts.
pub(crate) fn started(name: &str) -> Started {
    Started::new(name, "1.0.0", "input", 1)
}

pub(crate) fn event(payload: &str) -> Job {
    Job::ExternalEvent { name: "go".to_owned(), payload: payload.into(), key: None, trace: None }
}
