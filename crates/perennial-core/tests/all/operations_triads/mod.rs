//! Each durable operation three times over: new and pending, replayed and still waiting, completed on replay.

mod calls;
mod combinators;
mod handlers;

use perennial_core::{Decision, EventId, Job, OrchestrationHandler};
use perennial_testkit::Drive;

/// Takes an orchestration through its triad. `pending` is what the first turn records after the started event,
/// `completed` is all that the turn with `answer` records, whether the execution stayed in memory or was replayed.
fn triad(
    handler: impl OrchestrationHandler + Clone,
    pending: &[&str],
    answer: impl Into<Vec<Job>>,
    completed: &[&str],
) -> Drive {
    let answer = answer.into();

    // New and pending.
    let mut resident = Drive::start(handler.clone(), ());
    assert_eq!(resident.lines()[1..], *pending);
    assert!(!resident.execution().has_ended());

    // Replayed and still waiting.
    let mut replayed = Drive::start(handler, ());
    replayed.evict();
    assert!(!replayed.execution().has_ended());
    assert_eq!(open(&mut replayed), open(&mut resident));

    // Completed, as if there had been no replay.
    resident.turn(answer.clone());
    replayed.turn(answer);
    assert_eq!(replayed.last_lines(), completed);
    assert_eq!(replayed.history(), resident.history());

    // Completed on replay.
    replayed.evict();
    assert!(replayed.execution().has_ended());
    assert_eq!(open(&mut replayed), open(&mut resident));
    replayed
}

fn open(drive: &mut Drive) -> Vec<(EventId, Decision)> {
    let open = drive.execution().ledger().open();
    open.map(|(id, decision)| (id, decision.clone())).collect()
}
