//! Turns of a newer engine: nothing is wrong with them, so they are not called corrupt (E3).

use std::sync::Arc;

use crate::history_builders::{activity, begun, completed, job, root, started, stored, turns};
use perennial_core::history::{FORMAT, SEMANTICS, decode_turn};
use perennial_core::{
    Event, EventId, EventKind, Execution, ExecutionOptions, HistoryError, OrchestrationContext, Payload,
    Started,
};
use perennial_testkit::Drive;

fn newer(turn: u64, what: &'static str, found: u32, known: u32) -> HistoryError {
    HistoryError::NewerEngine { turn, what, found, known }
}

#[test]
fn e3_a_newer_format_is_a_newer_engine_and_not_corruption() {
    let mut history = turns([(1_000, vec![begun()]), (2_000, vec![completed()])]);
    history[1].format = FORMAT + 1;
    let error = stored(&history).expect_err("newer");
    assert_eq!(error, newer(2, "format", FORMAT + 1, FORMAT));
    assert_eq!(error.code(), "PER-0102");
    assert_eq!(
        error.to_string(),
        "PER-0102 newer engine: turn 2 has format 2, this engine knows up to 1; run the instance with the newer engine"
    );
    history[1].format = u32::MAX;
    assert_eq!(stored(&history), Err(newer(2, "format", u32::MAX, FORMAT)));
}

#[test]
fn e3_a_newer_format_is_known_by_its_number_alone() {
    let turns = [
        r#"{"format":2}"#,
        r#"{"format":2,"number":1,"at_ms":1000,"events":[],"mood":"good"}"#,
        r#"{"format":2,"number":1,"at_ms":1000,"events":[{"id":1,"event":{"WorldEnded":{"when":"soon"}}}]}"#,
        r#"{"format":2,"number":1,"at_ms":1000,"events":[{"id":1,"colour":3,"event":{"TimerFired":{"at":1}}}]}"#,
        r#"{"events":{"packed":"AAECAw=="},"at":"2030-01-01","format":2}"#,
        r#"{"format":2,"number":"one","at_ms":-5,"events":null}"#,
        "\n{ \"format\" : 2 , \"events\" : 0.1e-5 }\n",
    ];
    for turn in turns {
        assert_eq!(decode_turn(3, turn.as_bytes()), Err(newer(3, "format", 2, 1)), "{turn}");
    }
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let deep = format!("{{\"deep\":{open}{close},\"format\":2}}");
    assert_eq!(decode_turn(3, deep.as_bytes()), Err(newer(3, "format", 2, 1)));
}

fn of_semantics(semantics: u32) -> Started {
    Started { semantics, ..started() }
}

#[test]
fn e3_newer_semantics_are_a_newer_engine_and_not_corruption() {
    for found in [SEMANTICS + 1, u32::MAX] {
        let first = EventKind::Started(Box::new(of_semantics(found)));
        let error = newer(1, "semantics", found, SEMANTICS);
        assert_eq!(stored(&turns([(1_000, vec![first, root(activity("a"))])])), Err(error.clone()));
        let code = |_: OrchestrationContext, _: Payload| async move { Ok(Payload::null()) };
        let started = of_semantics(found);
        let execution = Execution::new("i", Arc::new(code), started, ExecutionOptions::default());
        assert_eq!(execution.err(), Some(error));
    }
}

/// Semantics fix order and ids; what looks wrong to this engine may be right in a newer one.
#[test]
fn e3_newer_semantics_are_seen_before_the_order_is_judged() {
    let error = newer(1, "semantics", SEMANTICS + 1, SEMANTICS);
    let first = || EventKind::Started(Box::new(of_semantics(SEMANTICS + 1)));
    let event = || job(Drive::event("go", ()));
    let mixed = turns([(1_000, vec![first(), root(activity("a")), event()])]);
    assert_eq!(stored(&mixed), Err(error.clone()));
    let mut other_ids = turns([(1_000, vec![first(), event()])]);
    other_ids[0].events[1] = Event { id: EventId(10), kind: event() };
    assert_eq!(stored(&other_ids), Err(error));
}
