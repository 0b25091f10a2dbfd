//! Bytes that are no turn, and turns with everything as large as it gets: never a panic (E3).

use std::sync::Arc;
use std::time::Duration;

use crate::history_builders::{
    activity, begun, completed, corrupt, every_kind, job, json, root, started, stored, turns,
};
use perennial_core::history::{decode_history, decode_turn, encode_turn};
use perennial_core::{ExecutionOptions, OrchestrationContext, Payload, Started, Turn};
use perennial_testkit::Drive;

/// A turn with one of every kind, ids counted from 1. It decodes, though it is no history.
fn full_turn() -> Turn {
    let mut turn = turns([(1_000, every_kind())]).remove(0);
    turn.draws = 3;
    turn
}

#[test]
fn e3_a_turn_cut_off_at_any_byte_is_corruption() {
    let bytes = encode_turn(&full_turn());
    assert_eq!(decode_turn(1, &bytes), Ok(full_turn()));
    for length in 0..bytes.len() {
        let error = decode_turn(4, &bytes[..length]).expect_err("a part is not the whole");
        let (turn, event, _) = corrupt(error);
        assert_eq!((turn, event), (4, None), "cut off after {length} bytes");
    }
}

#[test]
fn e3_a_turn_without_its_beginning_is_corruption() {
    let bytes = encode_turn(&full_turn());
    for start in 1..bytes.len() {
        corrupt(decode_turn(4, &bytes[start..]).expect_err("a part is not the whole"));
    }
}

#[test]
fn e3_bytes_behind_a_turn_are_corruption() {
    let bytes = encode_turn(&turns([(1_000, vec![begun()])])[0]);
    for tail in ["{}", "1", ",", "}", "\0", "\u{feff}"] {
        let mut longer = bytes.clone();
        longer.extend_from_slice(tail.as_bytes());
        corrupt(decode_turn(1, &longer).expect_err("a turn and more is no turn"));
    }
}

#[test]
fn e3_empty_bytes_and_other_json_are_corruption() {
    let others = [
        "",
        " ",
        "\n",
        "null",
        "true",
        "0",
        "-",
        "\"\"",
        "\"turn\"",
        "[]",
        "{}",
        "[{}]",
        "[1,1]",
        "{\"format\":1}",
        "{\"format\":null}",
        "{\"format\":-1}",
        "{\"format\":1.5}",
        "{\"format\":\"2\"}",
        "\u{feff}{}",
        "NaN",
        "{\"format\":2,\"format\":3}",
    ];
    for other in others {
        let (turn, event, _) = corrupt(decode_turn(3, other.as_bytes()).expect_err(other));
        assert_eq!((turn, event), (3, None), "{other:?}");
        let (turn, event, _) = corrupt(decode_history([other]).expect_err(other));
        assert_eq!((turn, event), (1, None), "{other:?}");
    }
}

#[test]
fn e3_numbers_out_of_range_are_corruption() {
    let text = String::from_utf8(encode_turn(&turns([(1_000, vec![begun()])])[0])).expect("UTF-8");
    for (field, values) in [
        ("\"number\":1", ["\"number\":-1", "\"number\":18446744073709551616"]),
        ("\"at_ms\":1000", ["\"at_ms\":1e3", "\"at_ms\":1000.0"]),
        ("\"id\":1", ["\"id\":\"1\"", "\"id\":[1]"]),
        ("\"seed\":42", ["\"seed\":-42", "\"seed\":18446744073709551616"]),
        ("\"semantics\":1", ["\"semantics\":null", "\"semantics\":true"]),
        ("\"draws\":0", ["\"draws\":null", "\"draws\":-1"]),
    ] {
        let text = text.replace("\"events\"", "\"draws\":0,\"events\"");
        assert!(decode_turn(1, text.as_bytes()).is_ok() && text.contains(field));
        for value in values {
            corrupt(decode_turn(1, text.replace(field, value).as_bytes()).expect_err(value));
        }
    }
}

#[test]
fn e3_bytes_that_are_not_utf8_are_corruption() {
    let bytes = encode_turn(
        &turns([(1_000, vec![begun(), root(activity("quite")), job(Drive::event("x", "quite"))])])[0],
    );
    let mut changed = 0;
    for position in 0..bytes.len() {
        for bad in [0x80, 0xff, 0xc0] {
            let mut bytes = bytes.clone();
            bytes[position] = bad;
            corrupt(decode_turn(1, &bytes).expect_err("not UTF-8"));
            changed += 1;
        }
    }
    assert!(changed > 300);
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn e3_random_bytes_are_corruption() {
    for seed in 0..5_000 {
        let mut state = seed;
        let length = draw(&mut state) % 200;
        let bytes: Vec<u8> = (0..length).map(|_| draw(&mut state) as u8).collect();
        let error = decode_turn(1, &bytes).expect_err(&format!("seed {seed}"));
        assert_eq!(error.code(), "PER-0101", "seed {seed}");
    }
}

#[test]
fn e3_payloads_of_a_megabyte_are_kept() {
    let text = format!("\"{}\"", "é".repeat(512 * 1_024));
    let array = format!("[{}0]", "1,".repeat(512 * 1_024));
    for text in [text, array] {
        let payload = json(&text);
        assert!(payload.size() > 1 << 20);
        let code = |ctx: OrchestrationContext, input: Payload| async move {
            ctx.schedule_activity("echo", input).await.map_err(|_| Payload::null())
        };
        let mut drive = Drive::start(code, payload.clone());
        drive.evict().complete(2, payload).evict();
        let history = stored(&drive.history().turns).expect("it decodes");
        assert_eq!(history.started().map(|started| started.input.as_json()), Some(text.as_str()));
        assert_eq!(history.flatten().count(), 4);
    }
}

fn nested(open: &str, close: &str) -> String {
    format!("{}0{}", open.repeat(100_000), close.repeat(100_000))
}

#[test]
fn e3_payloads_nested_100_000_deep_are_kept() {
    for deep in [nested("[", "]"), nested("{\"a\":", "}"), nested("[{\"a\":[", "]}]")] {
        let recorded = turns([(1_000, vec![begun(), job(Drive::event("go", json(&deep))), completed()])]);
        let history = stored(&recorded).expect("it decodes");
        let bytes: Vec<Vec<u8>> = history.turns.iter().map(encode_turn).collect();
        assert_eq!(bytes, recorded.iter().map(encode_turn).collect::<Vec<_>>());
        assert!(history.flatten().all(|event| event.summary().len() < 500), "and shown in a line");
    }
}

#[test]
fn e3_nesting_in_place_of_anything_else_is_corruption() {
    let text = String::from_utf8(encode_turn(&turns([(1_000, vec![begun(), root(activity("a"))])])[0]))
        .expect("UTF-8");
    let places = [
        "1,\"number\"",
        "1000",
        "2,\"event\"",
        "{\"ActivityScheduled\"",
        "\"1.0.0\"",
        "42",
        "\"ActivityScheduled\"",
        "[{\"id\":1",
    ];
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = nested(open, close);
        corrupt(decode_turn(1, deep.as_bytes()).expect_err("no turn"));
        corrupt(decode_turn(1, open.repeat(100_000).as_bytes()).expect_err("no turn"));
        for place in places {
            assert!(text.contains(place), "{place}");
            let broken = text.replacen(place, &format!("{deep}{}", &place[1..]), 1);
            corrupt(decode_turn(1, broken.as_bytes()).expect_err("no turn"));
            let replaced = text.replacen(place, &deep, 1);
            corrupt(decode_turn(1, replaced.as_bytes()).expect_err("no turn"));
        }
    }
}

#[test]
fn e3_an_unknown_kind_is_corruption_that_names_the_event() {
    let text = String::from_utf8(encode_turn(&turns([(1_000, vec![begun(), root(activity("a"))])])[0]))
        .expect("UTF-8");
    for kind in ["ActivityDreamt", "activityScheduled", "ActivityScheduled ", "", "Started", "0"] {
        let broken = text.replace("\"ActivityScheduled\"", &format!("{kind:?}"));
        let error = decode_history([broken.as_bytes()]).expect_err(kind);
        assert_eq!(
            error.to_string().split(" at line").next(),
            Some(
                format!(
                    "PER-0101 corrupt history: turn 1, event 2: event at position 1 of the turn: \
                     unknown event kind {kind:?}"
                )
                .as_str()
            )
        );
    }
    let unit_like =
        text.replace("{\"ActivityScheduled\":{\"name\":\"a\",\"input\":null}}", "\"ActivityScheduled\"");
    let (_, event, _) = corrupt(decode_turn(1, unit_like.as_bytes()).expect_err("no event"));
    assert_eq!(event, Some(2));
    let two =
        text.replace("{\"ActivityScheduled\":", "{\"PatchMarked\":{\"id\":\"p\"},\"ActivityScheduled\":");
    let (_, event, _) = corrupt(decode_turn(1, two.as_bytes()).expect_err("two events in one"));
    assert_eq!(event, Some(2));
}

#[test]
fn e3_an_error_is_short_however_long_the_record() {
    let text = String::from_utf8(encode_turn(&turns([(1_000, vec![begun(), root(activity("a"))])])[0]))
        .expect("UTF-8");
    let long = "x".repeat(1 << 20);
    let broken = [
        text.replace("\"ActivityScheduled\"", &format!("{long:?}")),
        text.replace("\"input\"", &format!("{long:?}")),
        text.replace("\"seed\":42", &format!("\"seed\":{long:?}")),
        text.replace("\"id\":2", &format!("\"id\":2,\"unit\":{long:?}")),
    ];
    let lengths = broken.map(|broken| {
        let error = decode_turn(1, broken.as_bytes()).expect_err("no turn");
        error.to_string().len()
    });
    assert!(lengths.iter().all(|length| *length < 1_000), "the errors have {lengths:?} bytes");
}

#[test]
fn e3_the_highest_numbers_of_a_history_never_panic() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_timer(Duration::MAX).await;
        ctx.schedule_timer(Duration::from_secs(1)).await;
        ctx.continue_as_new(Payload::null()).await
    };
    let highest = Started {
        execution: u64::MAX,
        seed: u64::MAX,
        predecessor_at_ms: Some(u64::MAX),
        deadline_ms: Some(u64::MAX),
        ..started()
    };
    let mut drive =
        Drive::prepare(Arc::new(code), highest, ExecutionOptions::default()).expect("nothing is wrong");
    drive.turn([]).evict().fire(2).evict().fire(4);
    assert_eq!(
        drive.lines()[1..],
        [
            "2 TimerCreated due 18446744073709551615",
            "3 TimerFired of 2",
            "4 TimerCreated due 18446744073709551615",
            "5 TimerFired of 4",
            "6 OrchestrationContinuedAsNew latest null",
        ]
    );
}
