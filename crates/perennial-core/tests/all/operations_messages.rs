//! Events that are taken without waiting (E34) and as a stream (E35).

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use perennial_core::{Either, OrchestrationContext, Payload, TurnFailure};
use perennial_testkit::Drive;
use serde_json::json;

/// Each time an activity is done, takes all events that are there.
async fn drain(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let _ = ctx.schedule_activity("pause", ()).await;
        let unread = ctx.unread("n");
        let mut taken = Vec::new();
        while let Some(payload) = ctx.try_receive("n") {
            taken.push(payload);
        }
        seen.push(json!([unread, taken, ctx.has_unread()]));
    }
    Ok(json!(seen).into())
}

#[test]
fn e34_an_event_that_is_there_is_taken_as_a_wait_that_returns_at_once() {
    let mut drive = Drive::start(drain, ());
    drive.turn([Drive::event("n", "a"), Drive::event("other", ()), Drive::event("n", "b")]).evict();
    drive.complete(2, ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            "6 ActivityCompleted of 2 null",
            r#"7 ExternalSubscribed "n""#,
            r#"8 ExternalSubscribed "n""#,
            r#"9 ActivityScheduled "pause" null"#,
        ]
    );
    let open = drive.execution().ledger().open().count();
    assert_eq!(open, 1, "the waits are over; only the activity is open");
    drive.complete(9, ()).evict();
    assert_eq!(
        drive.last_lines(),
        ["10 ActivityCompleted of 9 null", r#"11 OrchestrationCompleted [[2,["a","b"],true],[0,[],true]]"#],
        "where nothing is taken nothing is recorded"
    );
}

#[test]
fn e34_code_that_no_longer_takes_an_event_is_a_divergence() {
    let mut drive = Drive::start(drain, ());
    drive.raise("n", "a").complete(2, ());
    let without = |ctx: OrchestrationContext, _: Payload| async move {
        for _ in 0..2 {
            let _ = ctx.schedule_activity("pause", ()).await;
        }
        Ok(Payload::null())
    };
    let divergence = drive.replay_with(without).err();
    assert!(matches!(divergence, Some(TurnFailure::Nondeterminism(_))), "{divergence:?}");
}

#[test]
fn e34_events_that_open_waits_hold_are_not_taken() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let held = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            let (unread, taken) = (ctx.unread("n"), ctx.try_receive("n"));
            let none = ctx.try_receive("n");
            Ok(json!([unread, taken, none, held.await]).into())
        },
        (),
    );
    drive.turn([Drive::event("n", "first"), Drive::event("n", "second")]).evict();
    drive.raise("go", ()).evict();
    assert_eq!(drive.last_lines().last().unwrap(), r#"8 OrchestrationCompleted [1,"second",null,"first"]"#);
}

#[test]
fn e34_an_event_arrives_in_its_place_among_the_jobs_of_its_turn() {
    let mut drive = Drive::start(drain, ());
    drive.turn([Drive::event("n", "before"), Drive::completed(2, ()), Drive::event("n", "after")]).evict();
    drive.complete(7, ()).evict();
    assert_eq!(
        drive.last_lines().last().unwrap(),
        r#"10 OrchestrationCompleted [[1,["before"],false],[1,["after"],false]]"#
    );
}

#[test]
fn e34_what_was_not_taken_crosses_continue_as_new_and_what_was_taken_does_not() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            let _ = ctx.try_receive("n");
            ctx.continue_as_new::<Result<Payload, Payload>>(()).await
        },
        (),
    );
    drive.turn([Drive::event("n", "taken"), Drive::event("n", "left")]);
    let taken = drive.try_turn([Drive::event("go", ())]).expect("it continues");
    let carried: Vec<_> = taken.successor.expect("a successor").jobs;
    assert_eq!(carried.len(), 1);
    assert_eq!(serde_json::to_value(&carried[0]).unwrap()["ExternalEvent"]["payload"], "left");
}

#[test]
fn e34_updates_and_events_whose_handler_has_not_begun_are_unread() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            ctx.on_event("n", |_| async {});
            let before = ctx.has_unread();
            ctx.handlers_idle().await;
            Ok(json!([before, ctx.has_unread()]).into())
        },
        (),
    );
    drive.raise("n", 1.to_string()).raise("go", ()).evict();
    assert_eq!(drive.last_lines().last().unwrap(), "5 OrchestrationCompleted [true,false]");
}

#[test]
fn e34_a_name_with_a_handler_cannot_be_received() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.on_event("n", |_| async {});
        Ok(ctx.try_receive("n").unwrap_or_else(Payload::null))
    };
    let misuse = Drive::try_start(handler, ()).map(drop).expect_err("misuse");
    assert!(misuse.to_string().contains("has a handler"), "{misuse}");
}

#[test]
fn e35_a_stream_gives_the_events_of_its_name_in_order_with_one_wait_at_a_time() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let numbers = ctx.events("n").typed::<u64>();
            let even: Vec<u64> = numbers.filter(|n| std::future::ready(n % 2 == 0)).take(2).collect().await;
            Ok(json!(even).into())
        },
        (),
    );
    assert_eq!(drive.lines()[1..], [r#"2 ExternalSubscribed "n""#]);
    drive.turn([1, 2].map(|n| Drive::event("n", json!(n)))).evict();
    assert_eq!(drive.last_lines()[2..], [r#"5 ExternalSubscribed "n""#, r#"6 ExternalSubscribed "n""#]);
    drive.raise("n", json!(4)).evict();
    assert_eq!(drive.last_lines().last().unwrap(), "8 OrchestrationCompleted [2,4]");
}

#[test]
fn e35_an_event_outlives_a_receive_that_was_given_up() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut events = ctx.events("n");
            let late = Duration::from_secs(1);
            let won = ctx.select2(ctx.schedule_timer(late), events.receive()).await;
            assert!(matches!(won, Either::First(())));
            let first = events.receive().await;
            drop(events);
            let second = ctx.schedule_wait("n").await;
            Ok(json!([first, second]).into())
        },
        (),
    );
    // Both are there when the code runs next; the timer was recorded first.
    drive.at(1_000).turn([Drive::fired(2), Drive::event("n", "a"), Drive::event("n", "b")]).evict();
    let lines = drive.lines();
    let waits = lines.iter().filter(|line| line.contains("ExternalSubscribed")).count();
    assert_eq!(waits, 2, "the stream waits on: {lines:#?}");
    assert_eq!(lines.last().unwrap(), r#"8 OrchestrationCompleted ["a","b"]"#);
}

#[test]
fn e35_dropping_a_stream_gives_its_wait_up() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut events = ctx.events("n");
            ctx.select2(events.receive(), ctx.schedule_wait("stop")).await;
            drop(events);
            let _ = ctx.schedule_activity("after", ()).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.raise("stop", ()).evict();
    assert_eq!(
        drive.last_lines()[1..],
        [r#"5 ActivityScheduled "after" null"#, "6 ExternalUnsubscribed of 2"],
        "{:?}",
        drive.last_lines()
    );
}

#[test]
fn e35_an_event_that_a_stream_cannot_read_fails_the_turn_and_names_it() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut numbers = ctx.events("n").typed::<u64>();
            Ok(json!([numbers.receive().await, numbers.receive().await]).into())
        },
        (),
    );
    let failure =
        drive.try_turn([Drive::event("n", json!(1)), Drive::event("n", "x")]).expect_err("no number");
    assert!(failure.to_string().starts_with("PER-0103 payload does not decode: event 4 as u64"), "{failure}");
}

#[test]
fn e22_any_future_is_an_operand_once_it_is_pinned_and_the_winner_needs_no_match() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let steps = async {
                let _ = ctx.schedule_activity("one", ()).await;
                let _ = ctx.schedule_activity("two", ()).await;
                "done"
            };
            let stopped = async {
                ctx.schedule_wait("stop").await;
                "stopped"
            };
            let joined = ctx.join([ctx.schedule_wait("a"), ctx.schedule_wait("b")]);
            let won = ctx.select3(pin!(steps), pin!(stopped), async_value(joined)).await;
            Ok(won.into_inner().into())
        },
        (),
    );
    drive.complete(2, ()).evict().raise("stop", ()).evict();
    let ended = r#""stopped""#;
    assert!(drive.last_lines().last().unwrap().ends_with(ended), "{:?}", drive.last_lines());
}

/// A future that is given by value, in a box.
fn async_value<F: Future + Send + 'static>(
    future: F,
) -> std::pin::Pin<Box<dyn Future<Output = &'static str> + Send>> {
    Box::pin(async move {
        future.await;
        "joined"
    })
}
