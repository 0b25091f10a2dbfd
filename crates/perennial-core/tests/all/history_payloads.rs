//! Payloads that are not of the type the code asks for: the turn fails, naming event and type (E3).

use std::panic::AssertUnwindSafe;

use crate::history_builders::{begun, job, json, root, turns};
use futures::FutureExt;
use perennial_core::{
    Decision, EventId, Handlers, History, HistoryError, OrchestrationContext, Payload, ReplayReport,
    Replayer, TurnFailure,
};
use perennial_testkit::Drive;

async fn number(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let number = ctx.schedule_activity("count", ()).typed::<u64>().await;
    number.map(|number| Payload::encode(&number).expect("a number")).map_err(|_| Payload::from("failed"))
}

#[track_caller]
fn mismatch(failure: TurnFailure) -> (u64, &'static str, String) {
    assert_eq!(failure.code(), "PER-0103", "{failure}");
    match failure {
        TurnFailure::History(HistoryError::PayloadMismatch { event, type_name, problem, .. }) => {
            (event.0, type_name, problem)
        }
        other => panic!("no mismatch: {other}"),
    }
}

#[test]
fn e3_a_result_that_does_not_decode_fails_the_turn_and_names_event_and_type() {
    let mut drive = Drive::start(number, ());
    let failure = drive.try_turn([Drive::completed(2, json("\"many\""))]).expect_err("no number");
    let text = failure.to_string();
    assert!(text.starts_with("PER-0103 payload does not decode: event 3 as u64: "), "{text}");
    assert_eq!(mismatch(failure).0, 3);
    assert_eq!(drive.history().turns.len(), 1, "nothing is recorded");
    drive.evict().complete(2, json("12"));
    assert_eq!(drive.last_lines(), ["3 ActivityCompleted of 2 12", "4 OrchestrationCompleted 12"]);
}

#[test]
fn e3_what_the_code_does_not_decode_is_not_its_trouble() {
    let mut drive = Drive::start(number, ());
    drive.turn([Drive::failed(2, json("{\"any\":[\"thing\"]}"))]);
    assert_eq!(drive.last_lines()[1..], [r#"4 OrchestrationFailed "failed""#]);
}

#[test]
fn e3_numbers_beyond_the_type_do_not_decode() {
    for text in ["18446744073709551616", "-1", "1.0", "1e2", "null", "[1]", "\"1\"", "{}"] {
        let mut drive = Drive::start(number, ());
        let failure = drive.try_turn([Drive::completed(2, json(text))]).expect_err(text);
        let (event, type_name, _) = mismatch(failure);
        assert_eq!((event, type_name), (3, "u64"), "{text}");
    }
}

#[test]
fn e3_a_value_nested_too_deep_to_decode_fails_the_turn() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let value = ctx.schedule_wait("go").typed::<serde_json::Value>().await;
        Ok(Payload::from(value))
    };
    let deep = json(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let failure = Drive::start(code, ()).try_turn([Drive::event("go", deep)]).expect_err("too deep");
    let (event, type_name, problem) = mismatch(failure);
    assert_eq!((event, type_name), (3, "serde_json::value::Value"));
    assert_eq!(problem, "recursion limit exceeded at line 1 column 128");
}

#[test]
fn e3_every_typed_future_names_its_event() {
    let wait = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.set_status("waiting");
        ctx.schedule_wait("go").typed::<Vec<u8>>().await;
        Ok(Payload::null())
    };
    let jobs = [Drive::event("noise", ()), Drive::event("go", "x")];
    let failure = Drive::start(wait, ()).try_turn(jobs).expect_err("no bytes");
    assert_eq!((mismatch(failure.clone()).0, mismatch(failure).1), (5, "alloc::vec::Vec<u8>"));

    let child = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_sub_orchestration("c", ()).typed::<bool>().await;
        Ok(Payload::null())
    };
    let failure = Drive::start(child, ()).try_turn([Drive::child_completed(2, "x")]).expect_err("no bool");
    assert_eq!((mismatch(failure.clone()).0, mismatch(failure).1), (3, "bool"));

    let branches = |ctx: OrchestrationContext, _: Payload| async move {
        let branch = |name: &'static str| {
            let ctx = ctx.clone();
            async move { ctx.schedule_activity(name, ()).typed::<i8>().await.unwrap_or_default() }
        };
        let sum: i8 = ctx.parallel([branch("a"), branch("b")]).await.into_iter().sum();
        Ok(Payload::encode(&sum).expect("a number"))
    };
    let jobs = [Drive::completed(2, json("1")), Drive::completed(3, json("200"))];
    let failure = Drive::start(branches, ()).try_turn(jobs).expect_err("too large");
    assert_eq!((mismatch(failure.clone()).0, mismatch(failure).1), (5, "i8"));
}

#[test]
fn e3_a_recorded_system_call_that_does_not_decode_names_its_event() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.set_status("rolling");
        let dice = ctx.side_effect("dice", || 4_u8).await;
        ctx.schedule_activity("move", Payload::encode(&dice).expect("a number"))
            .await
            .map_err(|_| Payload::null())
    };
    let recorded = Drive::start(code, ());
    let mut history: History = recorded.history().clone();
    assert!(recorded.replayed(&history).is_ok());
    let event = &mut history.turns[0].events[2];
    assert_eq!(event.id, EventId(3));
    event.kind = root(Decision::SystemCall { op: "side_effect:dice".to_owned(), value: json("\"six\"") });
    let failure = recorded.replayed(&history).expect_err("no number");
    let (event, type_name, _) = mismatch(failure);
    assert_eq!((event, type_name), (3, "u8"));
}

#[test]
fn e3_a_recorded_mismatch_is_reported_by_replay() {
    let recorded = turns([
        (
            1_000,
            vec![
                begun(),
                root(Decision::ActivityScheduled {
                    id: None,
                    name: "count".to_owned(),
                    input: Payload::null(),
                    options: None,
                }),
            ],
        ),
        (2_000, vec![job(Drive::completed(2, "many")), crate::history_builders::completed()]),
    ]);
    let replayer = Replayer::new(Handlers::default().with("orchestration", "1.0.0", number));
    match replayer.replay("i", &recorded.into()) {
        ReplayReport::Incompatible(failure) => assert_eq!(mismatch(failure).0, 3),
        other => panic!("{other:?}"),
    }
}

#[test]
fn e3_code_that_catches_unwinding_does_not_hide_a_mismatch() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let number = ctx.schedule_activity("count", ()).typed::<u64>();
        let caught = AssertUnwindSafe(number).catch_unwind().await;
        Ok(Payload::from(if caught.is_err() { "caught" } else { "fine" }))
    };
    let failure = Drive::start(code, ()).try_turn([Drive::completed(2, "many")]).expect_err("no number");
    assert_eq!(mismatch(failure).0, 3);
}

/// Failures are logged, and payloads never are.
#[test]
fn e3_a_mismatch_does_not_quote_the_payload() {
    let failure = Drive::start(number, ())
        .try_turn([Drive::completed(2, "4111-1111-1111-1111")])
        .expect_err("no number");
    let text = failure.to_string();
    assert!(!text.contains("4111"), "{text}");
    assert!(text.ends_with("invalid type: string, expected u64 at line 1 column 21"), "{text}");
}

/// A type whose own check quotes what it refuses.
#[derive(Debug)]
struct Card;

impl<'de> serde::Deserialize<'de> for Card {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Card, D::Error> {
        let text = String::deserialize(deserializer)?;
        Err(serde::de::Error::custom(format!("missing field of {text}")))
    }
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is never read")]
enum Order {
    Paid { region: String },
}

#[test]
fn e3_a_mismatch_has_the_decoders_reason_without_what_may_be_private() {
    fn reason<T: serde::de::DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        json(text).decode_as::<T>().expect_err("another type").reason()
    }
    let cases = [
        (reason::<Order>(r#"{"Paid":{}}"#), "missing field `region` at line 1 column 10"),
        (
            reason::<Order>(r#"{"Paid":{"region":4111}}"#),
            "invalid type: integer, expected a string at line 1 column 22",
        ),
        (
            reason::<u8>(r#""4111, expected nothing \" else""#),
            "invalid type: string, expected u8 at line 1 column 32",
        ),
        (reason::<u8>("4111"), "invalid value: integer, expected u8 at line 1 column 4"),
        (reason::<Order>(r#"{"4111":{}}"#), "unknown variant, expected `Paid` at line 1 column 7"),
        (reason::<Order>(r#"{"Paid":{"4111":1}}"#), "unknown field, expected `region` at line 1 column 15"),
        (reason::<[u8; 2]>("[1]"), "invalid length 1, expected an array of length 2 at line 1 column 3"),
        (reason::<Card>(r#""4111""#), "refused by the type's own check"),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}
