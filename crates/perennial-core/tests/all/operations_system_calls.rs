//! Recorded values: taken once, the same in every replay, and any difference is reported (E17).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use perennial_core::{
    Decision, EventId, ExecutionOptions, HistoryError, Nondeterminism, OrchestrationContext,
    OrchestrationHandler, Payload, Started, TurnFailure,
};
use perennial_testkit::Drive;
use serde::{Deserialize, Serialize};
use serde_json::json;

fn divergence<T>(outcome: Result<T, TurnFailure>) -> Nondeterminism {
    match outcome {
        Err(TurnFailure::Nondeterminism(report)) => *report,
        Err(other) => panic!("no divergence: {other}"),
        Ok(_) => panic!("the replay went through"),
    }
}

/// Where record and code part, and how.
fn parting(report: &Nondeterminism) -> (u64, u64, &str, &str) {
    (report.turn, report.event.0, &report.recorded.line, &report.code.line)
}

#[test]
fn e17_system_calls_are_ready_at_their_first_poll() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let now = ctx.utc_now().now_or_never().expect("ready");
            let guid = ctx.new_guid().now_or_never().expect("ready");
            let side = ctx.side_effect("side", || 5_u8).now_or_never().expect("ready");
            Ok(json!([now, side, guid.len()]).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 SystemCall "utc_now""#,
            r#"3 SystemCall "new_guid""#,
            r#"4 SystemCall "side_effect:side""#,
            "5 OrchestrationCompleted [1000,5,36]",
        ]
    );
}

#[test]
fn e17_a_system_call_is_recorded_at_the_call_even_if_never_polled() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let unpolled = ctx.side_effect("unpolled", || 1_u8);
            drop(ctx.utc_now());
            ctx.set_status("after");
            ctx.schedule_wait("go").await;
            Ok(json!(unpolled.await).into())
        },
        (),
    );
    drive.evict().raise("go", ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 SystemCall "side_effect:unpolled""#,
            r#"3 SystemCall "utc_now""#,
            r#"4 StatusSet "after""#,
            r#"5 ExternalSubscribed "go""#,
            r#"6 ExternalEvent "go" null"#,
            "7 OrchestrationCompleted 1",
        ]
    );
}

#[test]
fn e17_a_side_effect_runs_live_only_and_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let runs = Arc::clone(&counter);
        async move {
            let count = || runs.fetch_add(1, Ordering::Relaxed) + 1;
            let first = ctx.side_effect("count", count).await;
            let second = ctx.side_effect("count", count).await;
            ctx.schedule_wait("go").await;
            let third = ctx.side_effect("count", count).await;
            Ok(json!([first, second, third]).into())
        }
    };
    let mut drive = Drive::start(handler, ());
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    drive.evict().evict();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    drive.raise("go", ());
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    drive.evict();
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(drive.last_lines()[2], "7 OrchestrationCompleted [1,2,3]");
    let values: Vec<&Payload> = drive.history().turns[0]
        .decisions()
        .filter_map(|(_, _, decision)| match decision {
            Decision::SystemCall { value, .. } => Some(value),
            _ => None,
        })
        .collect();
    assert_eq!(values, [&json!(1).into(), &json!(2).into()]);
}

#[test]
fn e17_recorded_values_are_taken_by_name_and_occurrence_across_units() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let branch = |name: &'static str| {
            let (ctx, runs) = (ctx.clone(), Arc::clone(&counter));
            async move {
                let take = |name| ctx.side_effect(name, || runs.fetch_add(1, Ordering::Relaxed));
                [take(name).await, take("shared").await, take(name).await]
            }
        };
        let branches = ctx.parallel([branch("a"), branch("b")]);
        async move { Ok(json!(branches.await).into()) }
    };
    let mut drive = Drive::start(handler, ());
    drive.evict();
    assert_eq!(drive.last_lines()[7], "8 OrchestrationCompleted [[0,1,2],[3,4,5]]");
    assert_eq!(runs.load(Ordering::Relaxed), 6);
}

#[derive(Serialize, Deserialize)]
struct Reading {
    value: u8,
    #[serde(skip)]
    note: String,
}

#[test]
fn e17_live_code_gets_what_decoding_the_record_gives() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let measure = || Reading { value: 3, note: "not recorded".to_owned() };
            let Reading { value, note } = ctx.side_effect("measure", measure).await;
            Ok(json!([value, note]).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(drive.last_lines()[2], r#"3 OrchestrationCompleted [3,""]"#);
}

/// Makes these side effects, then waits.
fn taking(names: &'static [&'static str]) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        for name in names {
            ctx.side_effect(name, || 1_u8).await;
        }
        Ok(ctx.schedule_wait("go").await)
    }
}

#[test]
fn e17_a_system_call_that_is_not_the_recorded_one_is_nondeterminism() {
    let drive = Drive::start(taking(&["a", "b"]), ());
    drive.replay_with(taking(&["a", "b"])).unwrap();
    let cases: [(&'static [&'static str], _); 6] = [
        // Missing in the code.
        (&["a"], (1, 3, r#"SystemCall "side_effect:b""#, r#"ExternalSubscribed "go""#)),
        (&["b"], (1, 2, r#"SystemCall "side_effect:a""#, r#"SystemCall "side_effect:b""#)),
        // Missing in the record.
        (&["a", "b", "c"], (1, 4, r#"ExternalSubscribed "go""#, r#"SystemCall "side_effect:c""#)),
        (&["a", "b", "b"], (1, 4, r#"ExternalSubscribed "go""#, r#"SystemCall "side_effect:b""#)),
        // Under another name, or in another order.
        (&["a", "c"], (1, 3, r#"SystemCall "side_effect:b""#, r#"SystemCall "side_effect:c""#)),
        (&["b", "a"], (1, 2, r#"SystemCall "side_effect:a""#, r#"SystemCall "side_effect:b""#)),
    ];
    for (names, expected) in cases {
        let report = divergence(drive.replay_with(taking(names)));
        assert_eq!(parting(&report), expected, "{names:?}");
    }
}

#[test]
fn e17_the_closure_of_a_call_missing_in_the_record_does_not_run() {
    let drive = Drive::start(taking(&["a"]), ());
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let changed = move |ctx: OrchestrationContext, _: Payload| {
        let runs = Arc::clone(&counter);
        async move {
            ctx.side_effect("new", || runs.fetch_add(1, Ordering::Relaxed)).await;
            Ok(ctx.schedule_wait("go").await)
        }
    };
    divergence(drive.replay_with(changed));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[test]
fn e17_a_recorded_value_of_another_type_names_event_and_type() {
    let drive = Drive::start(taking(&["a", "b"]), ());
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.side_effect("a", || 1_u8).await;
        ctx.side_effect("b", String::new).await;
        Ok(ctx.schedule_wait("go").await)
    };
    let Err(TurnFailure::History(HistoryError::PayloadMismatch { event, type_name, .. })) =
        drive.replay_with(changed)
    else {
        panic!("the value decoded")
    };
    assert_eq!((event, type_name), (EventId(3), "alloc::string::String"));
}

/// Writes what it cannot read.
#[derive(Debug, Deserialize)]
struct Lopsided(#[allow(dead_code, reason = "only its type matters")] bool);

impl Serialize for Lopsided {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("not a bool")
    }
}

#[test]
fn e17_a_value_that_does_not_decode_live_names_the_event_it_would_have_been() {
    let outcome = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            // Leaves nothing, so the call is event 2.
            drop(ctx.schedule_activity("A", ()));
            ctx.side_effect("lopsided", || Lopsided(true)).await;
            Ok(Payload::null())
        },
        (),
    );
    match outcome.map(drop) {
        Err(TurnFailure::History(HistoryError::PayloadMismatch { event, .. })) => {
            assert_eq!(event, EventId(2))
        }
        other => panic!("{other:?}"),
    }
}

/// Replay does not run the closure, so it could not do what the code made of its panic.
#[test]
fn e17_a_side_effect_that_panics_fails_the_turn_even_if_caught() {
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let taken = catch_unwind(AssertUnwindSafe(|| {
            drop(ctx.side_effect("read", || -> String { panic!("no file") }))
        }));
        ctx.set_status(if taken.is_ok() { "read" } else { "not read" });
        Ok(ctx.schedule_wait("go").await)
    };
    let mut drive = Drive::prepare(Arc::new(handler), started, options).unwrap();
    match drive.try_turn([]) {
        Err(TurnFailure::Panicked { message, .. }) => assert_eq!(message, "no file"),
        other => panic!("{other:?}"),
    }
}
