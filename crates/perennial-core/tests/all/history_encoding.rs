//! Turns as bytes: the exact text, every kind and field of event, and payloads kept to the byte (E2, E3).

use std::collections::BTreeSet;

use crate::history_builders::{
    activity, begun, completed, corrupt, ended, every_kind, job, json, root, started, stored, turns, wait,
};
use perennial_core::history::{FORMAT, decode_turn, encode_turn};
use perennial_core::{
    Decision, Ending, Event, EventId, EventKind, Job, OrchestrationContext, Payload, Segment, Started, Turn,
    UnitId,
};
use perennial_testkit::Drive;

/// A turn with one event, number 5.
fn turn_of(kind: EventKind) -> Turn {
    Turn { format: FORMAT, number: 7, at_ms: 1_234, draws: 9, events: vec![Event { id: EventId(5), kind }] }
}

fn text(turn: &Turn) -> String {
    String::from_utf8(encode_turn(turn)).expect("JSON is UTF-8")
}

#[test]
fn e3_a_turn_is_externally_tagged_json_with_embedded_payloads() {
    let unit = UnitId::ROOT.child(Segment::Parallel(0)).child(Segment::Parallel(2));
    let decision = Decision::ExternalEventSent {
        instance: "other".to_owned(),
        name: "hi".to_owned(),
        payload: json(r#"{"deep":[1,{"er":"\"quoted\""}]}"#),
        key: None,
        reported: false,
    };
    let first = Turn {
        draws: 3,
        ..turns([(
            1_000,
            vec![
                EventKind::Started(Box::new(Started { input: json(r#"{"name":"Ada"}"#), ..started() })),
                job(Drive::event("go", json("[1,2]"))),
                root(activity("greet")),
                EventKind::Decision { unit, decision },
            ],
        )])
        .remove(0)
    };
    assert_eq!(
        text(&first),
        concat!(
            r#"{"format":1,"number":1,"at_ms":1000,"draws":3,"events":["#,
            r#"{"id":1,"event":{"OrchestrationStarted":{"name":"orchestration","version":"1.0.0","#,
            r#""input":{"name":"Ada"},"seed":42,"semantics":1,"execution":1}}},"#,
            r#"{"id":2,"event":{"ExternalEvent":{"name":"go","payload":[1,2]}}},"#,
            r#"{"id":3,"event":{"ActivityScheduled":{"name":"greet","input":null}}},"#,
            r#"{"id":4,"unit":"p0.p2","event":{"ExternalEventSent":{"instance":"other","name":"hi","#,
            r#""payload":{"deep":[1,{"er":"\"quoted\""}]}}}}]}"#
        )
    );
    let last = &turns([(1_000, vec![begun()]), (2_000, vec![completed()])])[1];
    assert_eq!(
        text(last),
        concat!(
            r#"{"format":1,"number":2,"at_ms":2000,"events":["#,
            r#"{"id":2,"event":{"OrchestrationCompleted":{"output":null}}}]}"#
        )
    );
}

#[test]
fn e2_the_kinds_of_events_are_these() {
    let kinds: BTreeSet<&str> = every_kind().iter().map(EventKind::name).collect();
    let expected = BTreeSet::from([
        "OrchestrationStarted",
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
        "OrchestrationCancelled",
        "OrchestrationTerminated",
        "ActivityCompleted",
        "ActivityFailed",
        "TimerFired",
        "ExternalEvent",
        "SubOrchestrationCompleted",
        "SubOrchestrationFailed",
        "OrchestrationCancelRequested",
        "UpdateRequested",
        "ActivityScheduled",
        "ActivityCancelRequested",
        "TimerCreated",
        "TimerCancelled",
        "ExternalSubscribed",
        "ExternalUnsubscribed",
        "SubOrchestrationScheduled",
        "SubOrchestrationCancelRequested",
        "OrchestrationChained",
        "ExternalEventSent",
        "SystemCall",
        "PatchMarked",
        "AttributesUpserted",
        "StatusSet",
        "UpdateCompleted",
        "SubOrchestrationStarted",
        "DeliveryReported",
        "InstanceResumed",
        "MessageSkipped",
        "ActivityStopRequested",
        "SubOrchestrationStopRequested",
        "CancelSent",
    ]);
    assert_eq!(kinds, expected);
    for kind in every_kind() {
        let tag = format!(r#""event":{{"{}":{{"#, kind.name());
        assert!(text(&turn_of(kind.clone())).contains(&tag), "the tag is the name of {kind:?}");
    }
}

#[test]
fn e2_every_kind_and_field_survives_the_bytes() {
    for kind in every_kind() {
        let turn = turn_of(kind);
        let bytes = encode_turn(&turn);
        let decoded = decode_turn(7, &bytes).expect("what was encoded decodes");
        assert_eq!(decoded, turn);
        assert_eq!(encode_turn(&decoded), bytes, "and encodes to the same bytes");
    }
}

#[test]
fn e2_fields_that_are_absent_stay_absent() {
    let chained = Decision::OrchestrationChained {
        name: "audit".to_owned(),
        version: None,
        instance: "audit-9".to_owned(),
        input: Payload::null(),
        reported: false,
    };
    let continued = Ending::OrchestrationContinuedAsNew { input: Payload::null(), version: None };
    let kinds = [
        begun(),
        job(Drive::event("go", ())),
        job(Drive::update("go", ())),
        root(activity("a")),
        root(crate::history_builders::child("c")),
        root(chained),
        ended(continued),
    ];
    for kind in kinds {
        let turn = turn_of(kind);
        let text = text(&turn);
        for absent in
            ["parent", "key", "options", "version\":null", "instance\":null", "close", "status", "unit"]
        {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(decode_turn(7, text.as_bytes()), Ok(turn));
    }
}

#[test]
fn e2_a_status_of_null_that_was_carried_over_survives_the_bytes() {
    let turn = turn_of(EventKind::Started(Box::new(Started { status: Some(Payload::null()), ..started() })));
    assert_eq!(decode_turn(7, &encode_turn(&turn)), Ok(turn));
}

#[test]
fn e3_the_text_of_a_payload_is_kept_to_the_byte() {
    let texts = [
        "{ \"b\" : 1 ,\t\"a\":\n[ ] }",
        "[1.0,1.50,1E+2,-0,-0.0,1e400,0.1000000000000000055511151231257827]",
        "123456789012345678901234567890123456789012345678901234567890",
        r#"{"z":1,"a":2,"z":3}"#,
        r#""\u00e9é\/\"\\\b\ud83d\ude00😀\u0000""#,
        r#""half a pair \ud800""#,
        r#"{"OrchestrationStarted":{"id":1}}"#,
        "\"\u{2028}\u{7f}\"",
    ];
    for text in texts {
        let payload = json(text);
        let turn = turn_of(job(Drive::event("go", payload.clone())));
        let bytes = encode_turn(&turn);
        let decoded = decode_turn(7, &bytes).expect("it decodes");
        let (_, Job::ExternalEvent { payload, .. }) = decoded.jobs().next().expect("a job") else {
            panic!("another job")
        };
        assert_eq!(payload.as_json(), text);
        assert_eq!(encode_turn(&decoded), bytes);
    }
}

#[test]
fn e3_live_code_gets_what_the_recorded_bytes_give() {
    let text = "{ \"b\" : 1.50 ,\n \"a\":\"\\u00e9\", \"b\":2}";
    let echo = |ctx: OrchestrationContext, input: Payload| async move {
        ctx.schedule_activity("echo", input).await.map_err(|_| Payload::null())
    };
    let mut drive = Drive::start(echo, json(text));
    drive.evict().complete(2, json(text));
    let output = |turn: &Turn| match turn.ending() {
        Some(Ending::OrchestrationCompleted { output }) => output.as_json().to_owned(),
        other => panic!("it ended with {other:?}"),
    };
    assert_eq!(output(drive.last_turn()), text);
    let history = stored(&drive.history().turns).expect("it decodes");
    assert_eq!(output(&history.turns[1]), text);
    let inputs: Vec<&str> = history
        .flatten()
        .filter_map(|event| match &event.kind {
            EventKind::Decision { decision: Decision::ActivityScheduled { input, .. }, .. } => {
                Some(input.as_json())
            }
            _ => None,
        })
        .collect();
    assert_eq!(inputs, [text]);
}

#[test]
fn e3_space_around_a_payload_is_no_part_of_it() {
    assert_eq!(json(" \n{ } \t").as_json(), "{ }");
    let spaced = br#" {"format":1,"number":1,"at_ms":0,"events":[{"id":1,"event":{"ExternalEvent": {"name":"go","payload": [ 1] }}}]} "#;
    let turn = decode_turn(1, spaced).expect("it decodes");
    let (_, Job::ExternalEvent { payload, .. }) = turn.jobs().next().expect("a job") else {
        panic!("another job")
    };
    assert_eq!(payload.as_json(), "[ 1]");
}

#[test]
fn e3_units_are_written_on_decisions_below_the_root_only() {
    let event = |envelope: &str| format!(r#"{{"format":1,"number":1,"at_ms":0,"events":[{{{envelope}}}]}}"#);
    let refused = |envelope: &str| {
        let (turn, event, problem) =
            corrupt(decode_turn(1, event(envelope).as_bytes()).expect_err("refused"));
        assert_eq!((turn, event), (1, Some(3)));
        problem
    };
    let wait = r#""event":{"ExternalSubscribed":{"name":"go"}}"#;
    for unit in ["", "p", "h01", "p0.", "p0/p1", "x0", "p4294967296", "é0", "P0"] {
        let problem = refused(&format!(r#""id":3,"unit":"{unit}",{wait}"#));
        assert!(problem.contains("is not a unit path"), "{problem}");
    }
    let problem = refused(&format!(r#""id":3,"unit":"root",{wait}"#));
    assert!(problem.contains("the root unit is not written out"), "{problem}");
    let problem = refused(r#""id":3,"unit":"p0","event":{"TimerFired":{"source_event_id":2}}"#);
    assert!(problem.contains("only decisions have a unit"), "{problem}");
}

#[test]
fn e1_a_history_flattens_to_events_1_2_3() {
    let recorded = turns([
        (1_000, vec![begun(), root(activity("a")), root(wait("go"))]),
        (2_000, vec![job(Drive::completed(2, ())), job(Drive::event("go", ()))]),
        (2_000, vec![job(Drive::event("go", ())), root(activity("b")), completed()]),
    ]);
    let history = stored(&recorded).expect("it decodes");
    assert_eq!(history.turns, recorded, "with its turn boundaries");
    let ids: Vec<u64> = history.flatten().map(|event| event.id.0).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(history.ending().map(Ending::name), Some("OrchestrationCompleted"));
}
