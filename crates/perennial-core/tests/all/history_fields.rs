//! Every field of every kind of event: none that is unknown, none missing but the optional ones, none twice (E2, E3).

use std::collections::BTreeSet;

use crate::history_builders::{corrupt, every_kind};
use perennial_core::history::{FORMAT, decode_turn, encode_turn};
use perennial_core::{Event, EventId, EventKind, Turn};
use serde_json::Value;

/// A turn with one event, number 5.
fn turn_of(kind: EventKind) -> Turn {
    Turn { format: FORMAT, number: 7, at_ms: 1_234, draws: 9, events: vec![Event { id: EventId(5), kind }] }
}

/// The places of all objects in a JSON value, as pointers, apart from the attributes, whose keys are the user's.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            for (key, member) in members.iter().filter(|(key, _)| *key != "attributes") {
                objects(member, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn objects_of(turn: &Turn) -> (Value, Vec<String>) {
    let value = serde_json::from_slice(&encode_turn(turn)).expect("a turn is JSON");
    let mut found = Vec::new();
    objects(&value, "", &mut found);
    (value, found)
}

#[test]
fn e2_an_unknown_field_anywhere_is_corruption_that_names_the_event() {
    let mut places = 0;
    for kind in every_kind() {
        let (value, objects) = objects_of(&turn_of(kind));
        for place in objects {
            let mut changed = value.clone();
            changed
                .pointer_mut(&place)
                .and_then(Value::as_object_mut)
                .expect("the place is an object")
                .insert("surprise".to_owned(), Value::from(1));
            let error = decode_turn(7, changed.to_string().as_bytes())
                .expect_err(&format!("an unknown field at {place:?} was let through: {changed}"));
            let (turn, event, _) = corrupt(error);
            let named = if place.is_empty() { None } else { Some(5) };
            assert_eq!((turn, event), (7, named), "an unknown field at {place:?} of {changed}");
            places += 1;
        }
    }
    assert!(places > 100, "only {places} places were tried");
}

#[test]
fn e2_only_optional_fields_may_be_missing() {
    let mut missed = BTreeSet::new();
    for kind in every_kind() {
        let name = kind.name();
        let (value, objects) = objects_of(&turn_of(kind));
        for place in objects {
            let keys: Vec<String> = value
                .pointer(&place)
                .and_then(Value::as_object)
                .map_or(vec![], |object| object.keys().cloned().collect());
            for key in keys {
                let mut changed = value.clone();
                let object = changed.pointer_mut(&place).and_then(Value::as_object_mut);
                object.expect("the place is an object").remove(&key);
                match decode_turn(7, changed.to_string().as_bytes()) {
                    Ok(_) => {
                        missed.insert(if place.contains("/event/") { format!("{name}.{key}") } else { key });
                    }
                    Err(error) => {
                        let (turn, event, _) = corrupt(error);
                        let gone = place.is_empty() || (place == "/events/0" && key == "id");
                        assert_eq!((turn, event), (7, (!gone).then_some(5)), "{key} missing at {place:?}");
                    }
                }
            }
        }
    }
    let optional = [
        "draws",
        "unit",
        "OrchestrationStarted.parent",
        "OrchestrationStarted.predecessor_at_ms",
        "OrchestrationStarted.deadline_ms",
        "OrchestrationStarted.attributes",
        "OrchestrationStarted.status",
        "OrchestrationStarted.recent_keys",
        "OrchestrationStarted.crossing_keys",
        "OrchestrationStarted.drawn_keys",
        "OrchestrationStarted.state",
        "OrchestrationStarted.trace",
        "OrchestrationStarted.chain",
        "OrchestrationStarted.reset",
        "OrchestrationStarted.same",
        "OrchestrationStarted.adopted",
        "OrchestrationStarted.by",
        "ExternalEvent.key",
        "ExternalEvent.state",
        "ExternalEvent.trace",
        "UpdateRequested.key",
        "UpdateRequested.state",
        "UpdateRequested.trace",
        "ActivityScheduled.options",
        "ActivityScheduled.retry",
        "ActivityScheduled.non_retryable",
        "ActivityScheduled.queue_timeout_ms",
        "ActivityCompleted.trail",
        "ActivityScheduled.attempt_timeout_ms",
        "ActivityScheduled.total_timeout_ms",
        "ActivityScheduled.heartbeat_timeout_ms",
        "ActivityScheduled.tag",
        "SubOrchestrationScheduled.version",
        "SubOrchestrationScheduled.instance",
        "SubOrchestrationScheduled.close",
        "SubOrchestrationScheduled.options",
        "SubOrchestrationScheduled.timeout_ms",
        "SubOrchestrationScheduled.retry",
        "SubOrchestrationScheduled.non_retryable",
        "SubOrchestrationScheduled.on_existing",
        "SubOrchestrationScheduled.reports_start",
        "SubOrchestrationStopRequested.grace_ms",
        "SubOrchestrationFailed.output",
        "CancelSent.grace_ms",
        "CancelSent.reported",
        "InstanceResumed.by",
        "ExternalEventSent.key",
        "ExternalEventSent.reported",
        "OrchestrationChained.reported",
        "OrchestrationCancelled.output",
        "OrchestrationChained.version",
        "OrchestrationContinuedAsNew.version",
    ];
    assert_eq!(missed, optional.map(str::to_owned).into());
}

#[test]
fn e3_a_field_given_twice_is_corruption() {
    for kind in every_kind() {
        let turn = turn_of(kind);
        let text = String::from_utf8(encode_turn(&turn)).expect("UTF-8");
        let (value, objects) = objects_of(&turn);
        for place in objects {
            let object = value.pointer(&place).expect("the place is an object");
            let (key, member) = object.as_object().and_then(|object| object.iter().next()).expect("a member");
            let (object, member) = (object.to_string(), format!("{{{}:{member}", Value::from(key.as_str())));
            let canonical = serde_json::from_str::<Value>(&text).expect("JSON").to_string();
            let twice = canonical.replacen(&object, &format!("{member},{}", &object[1..]), 1);
            assert_ne!(twice, canonical, "{place:?}");
            let error = decode_turn(7, twice.as_bytes()).expect_err(&format!("{key} twice in {twice}"));
            assert_eq!(corrupt(error).0, 7);
        }
    }
}
