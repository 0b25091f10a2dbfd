//! Events that are taken out: no code reads them, the next of their name takes their place, and replay agrees (E16).

use perennial_core::history::decode_turn;
use perennial_core::{HistoryError, OrchestrationContext, Payload, StaleReason, TurnFailure};
use perennial_testkit::Drive;
use serde_json::json;

/// Reads two numbers.
async fn two(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let first = ctx.schedule_wait("n").typed::<u64>().await;
    let second = ctx.schedule_wait("n").typed::<u64>().await;
    Ok(json!([first, second]).into())
}

/// Reads a number once an activity is done.
async fn later(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let _ = ctx.schedule_activity("A", ()).await;
    let number = ctx.schedule_wait("n").typed::<u64>().await;
    Ok(json!(number).into())
}

fn number(number: u64) -> perennial_core::Job {
    Drive::event("n", json!(number))
}

#[test]
fn e16_an_event_that_is_skipped_in_the_turn_that_brings_it_is_recorded_and_never_read() {
    let mut drive = Drive::start(two, ());
    let bad = || Drive::event("n", "bad");
    let failure = drive.try_turn([number(1), bad(), number(2)]).expect_err("no number");
    assert!(failure.to_string().starts_with("PER-0103 payload does not decode: event 4 as u64"), "{failure}");
    drive.evict().turn([number(1), bad(), number(2), Drive::skipped(4)]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ExternalEvent "n" 1"#,
            r#"4 ExternalEvent "n" "bad""#,
            r#"5 ExternalEvent "n" 2"#,
            "6 ExternalEventSkipped 4",
            r#"7 ExternalSubscribed "n""#,
            "8 OrchestrationCompleted [1,2]",
        ]
    );
}

#[test]
fn e16_an_event_that_was_recorded_before_is_skipped_before_code_runs() {
    let mut drive = Drive::start(later, ());
    drive.raise("n", "bad").turn([number(7)]);
    drive.try_turn([Drive::completed(2, ())]).expect_err("no number");
    drive.evict().turn([Drive::completed(2, ()), Drive::skipped(3)]).evict();
    assert_eq!(drive.last_lines().last().map(String::as_str), Some("8 OrchestrationCompleted 7"));
    assert_eq!(drive.execution().unread_events(), 0);
}

#[test]
fn e16_a_wait_whose_event_is_skipped_goes_on_waiting() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut held = ctx.schedule_wait("n").typed::<u64>();
            let _ = ctx.schedule_activity("A", ()).await;
            ctx.select2(&mut held, ctx.schedule_wait("other")).await;
            Ok(json!(held.await).into())
        },
        (),
    );
    drive.raise("n", "bad");
    drive.evict().turn([Drive::completed(3, ()), Drive::skipped(4)]).evict();
    assert_eq!(drive.execution().unread_events(), 0);
    drive.turn([Drive::event("other", ())]).evict().turn([number(5)]);
    assert_eq!(drive.last_lines().last().map(String::as_str), Some("10 OrchestrationCompleted 5"));
}

#[test]
fn e16_a_handler_does_not_see_a_skipped_event() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let handler = ctx.clone();
            ctx.on_event("n", move |payload| {
                handler.set_status(payload);
                async {}
            });
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.turn([number(1), Drive::event("n", "bad"), Drive::skipped(4)]).evict();
    assert_eq!(drive.last_lines()[3..], ["6 StatusSet 1 in h0"]);
}

#[test]
fn e14_a_skip_of_what_is_not_an_unread_event_is_dropped_and_nothing_is_recorded() {
    let mut drive = Drive::start(two, ());
    drive.turn([number(1)]);
    for event in [1, 2, 3, 4, 99] {
        let taken = drive.try_turn([Drive::skipped(event)]).expect("it is dropped");
        assert!(taken.turn.is_none(), "{event}");
        assert_eq!(taken.stale[0].reason, StaleReason::NotOpen, "{event}");
    }
    let taken =
        drive.try_turn([Drive::event("m", ()), Drive::skipped(5), Drive::skipped(5)]).expect("one counts");
    assert_eq!(taken.stale.len(), 1);
    assert_eq!(drive.evict().execution().unread_events(), 0);
}

#[test]
fn e3_a_recorded_skip_of_what_is_not_an_unread_event_is_corruption() {
    let mut drive = Drive::start(two, ());
    drive.turn([number(1), Drive::event("m", ()), Drive::skipped(4)]);
    let recorded = drive.history().clone();
    let bytes = perennial_core::history::encode_turn(&recorded.turns[1]);
    let text = String::from_utf8(bytes).expect("turns are JSON");
    for other in ["3", "2", "5", "77"] {
        let mut history = recorded.clone();
        let changed = text.replace(r#""event_id":4"#, &format!(r#""event_id":{other}"#));
        history.turns[1] = decode_turn(2, changed.as_bytes()).expect("it can be read");
        let outcome = drive.replayed(&history);
        if other == "3" {
            // That is an event, and the code then waits for another.
            assert!(matches!(outcome, Err(TurnFailure::Nondeterminism(_))), "{outcome:?}");
        } else {
            let is_corrupt = matches!(outcome, Err(TurnFailure::History(HistoryError::Corrupt(_))));
            assert!(is_corrupt, "{other}: {outcome:?}");
        }
    }
}

#[test]
fn e16_a_skipped_event_does_not_cross_continue_as_new() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("again").await
        },
        (),
    );
    drive.raise("n", "kept before");
    let jobs =
        [Drive::event("go", ()), Drive::event("n", "bad"), number(1), Drive::skipped(5), Drive::skipped(3)];
    let taken = drive.try_turn(jobs).expect("it continues");
    assert_eq!(taken.successor.expect("it continues").jobs, [number(1)]);
}
