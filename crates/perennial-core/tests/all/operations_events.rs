//! External events go by name, in arrival order, to waits in subscription order, or to one handler (E16).

use std::panic::{AssertUnwindSafe, catch_unwind};

use perennial_core::{OrchestrationContext, Payload, TurnFailure};
use perennial_testkit::Drive;
use serde_json::json;

fn misuse<T>(outcome: Result<T, TurnFailure>) -> String {
    match outcome {
        Err(TurnFailure::Misuse { what }) => what,
        Err(other) => panic!("not a misuse: {other}"),
        Ok(_) => panic!("the turn did not fail"),
    }
}

/// Handles events of a name by publishing them.
fn publish_events(ctx: &OrchestrationContext, name: &str) {
    let from = ctx.clone();
    ctx.on_event(name, move |payload| {
        let ctx = from.clone();
        async move { ctx.set_status(payload) }
    });
}

#[test]
fn e16_events_go_to_waits_in_subscription_order_not_in_poll_order() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let [first, second, third] = ["n"; 3].map(|name| ctx.schedule_wait(name));
        let (third, second, first) = ctx.join3(third, second, first).await;
        Ok(json!([first, second, third]).into())
    };
    let mut one_by_one = Drive::start(handler, ());
    one_by_one.raise("n", "a").evict().raise("n", "b").evict().raise("n", "c").evict();
    assert_eq!(one_by_one.last_lines()[1], r#"8 OrchestrationCompleted ["a","b","c"]"#);

    let mut at_once = Drive::start(handler, ());
    at_once.turn(["a", "b", "c"].map(|payload| Drive::event("n", payload))).evict();
    assert_eq!(at_once.last_lines()[3], r#"8 OrchestrationCompleted ["a","b","c"]"#);
}

#[test]
fn e16_early_events_are_kept_by_name_in_arrival_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_activity("First", ()).await.unwrap();
            let mut seen = Vec::new();
            for name in ["x", "y", "x", "x"] {
                seen.push(ctx.schedule_wait(name).await);
            }
            Ok(json!(seen).into())
        },
        (),
    );
    drive.raise("x", 1.to_string()).evict();
    drive.turn([Drive::event("x", "2"), Drive::event("y", "one"), Drive::event("z", "unread")]);
    drive.evict().complete(2, ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            "7 ActivityCompleted of 2 null",
            r#"8 ExternalSubscribed "x""#,
            r#"9 ExternalSubscribed "y""#,
            r#"10 ExternalSubscribed "x""#,
            r#"11 ExternalSubscribed "x""#,
        ]
    );
    drive.raise("x", "3").evict();
    assert_eq!(drive.last_lines()[1], r#"13 OrchestrationCompleted ["1","one","2","3"]"#);
}

#[test]
fn e16_the_oldest_open_wait_holds_its_event_until_its_future_returns() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let oldest = ctx.schedule_wait("n");
            let younger = ctx.schedule_wait("n").await;
            let oldest = oldest.await;
            Ok(json!({ "oldest": oldest, "younger": younger }).into())
        },
        (),
    );
    drive.raise("n", "a").evict();
    assert_eq!(drive.last_lines(), [r#"4 ExternalEvent "n" "a""#], "the younger wait does not get it");
    assert_eq!(drive.execution().ledger().open().count(), 2);
    drive.raise("n", "b").evict();
    assert_eq!(
        drive.last_lines(),
        [r#"5 ExternalEvent "n" "b""#, r#"6 OrchestrationCompleted {"oldest":"a","younger":"b"}"#]
    );
}

#[test]
fn e16_the_event_of_a_dropped_wait_passes_to_the_next_in_its_old_place() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let dropped = ctx.schedule_wait("n");
            let second = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            drop(dropped);
            let second = second.await;
            let third = ctx.schedule_wait("n").await;
            let fourth = ctx.schedule_wait("n").await;
            Ok(json!([second, third, fourth]).into())
        },
        (),
    );
    drive.turn(["a", "b", "c"].map(|payload| Drive::event("n", payload))).evict();
    drive.raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"8 ExternalEvent "go" null"#,
            r#"9 ExternalSubscribed "n""#,
            r#"10 ExternalSubscribed "n""#,
            "11 OrchestrationCompleted [\"a\",\"b\",\"c\"]",
        ],
        "the ending closes the dropped wait"
    );
}

#[test]
fn e16_a_drop_wakes_the_wait_that_the_event_passes_to() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let dropped = ctx.schedule_wait("n");
            let from = ctx.clone();
            let next = ctx.spawn(async move { from.schedule_wait("n").await });
            ctx.schedule_wait("go").await;
            drop(dropped);
            Ok(next.await)
        },
        (),
    );
    drive.raise("n", "a").evict().raise("go", ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ExternalSubscribed "n""#,
            r#"3 ExternalSubscribed "go""#,
            r#"4 ExternalSubscribed "n" in p0"#,
            r#"5 ExternalEvent "n" "a""#,
            r#"6 ExternalEvent "go" null"#,
            "7 ExternalUnsubscribed of 2",
            r#"8 OrchestrationCompleted "a""#,
        ]
    );
}

#[test]
fn e16_the_event_of_a_dropped_wait_is_kept_when_nobody_else_waits() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let dropped = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            drop(dropped);
            ctx.schedule_wait("end").await;
            Ok(ctx.schedule_wait("n").await)
        },
        (),
    );
    drive.raise("n", "kept").raise("go", ()).evict().raise("end", ()).evict();
    assert_eq!(drive.last_lines()[2], r#"10 OrchestrationCompleted "kept""#);
}

#[test]
fn e16_a_name_has_waits_or_a_handler_never_both() {
    let wait_first = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let wait = ctx.schedule_wait("n");
            publish_events(&ctx, "n");
            Ok(wait.await)
        },
        (),
    );
    let both = r#"the event "n" already has waits or a handler; a name has waits or one handler"#;
    assert_eq!(misuse(wait_first.map(drop)), both);

    let handler_first = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            publish_events(&ctx, "n");
            Ok(ctx.schedule_wait("n").await)
        },
        (),
    );
    let waited = r#"the event "n" has a handler and cannot be waited for"#;
    assert_eq!(misuse(handler_first.map(drop)), waited);

    let two_handlers = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            publish_events(&ctx, "n");
            publish_events(&ctx, "n");
            Ok(ctx.schedule_wait("other").await)
        },
        (),
    );
    assert_eq!(misuse(two_handlers.map(drop)), both);

    let caught = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            publish_events(&ctx, "n");
            let second = catch_unwind(AssertUnwindSafe(|| publish_events(&ctx, "n")));
            assert!(second.is_err(), "the call panics");
            Ok(ctx.schedule_wait("other").await)
        },
        (),
    );
    assert_eq!(misuse(caught.map(drop)), both);
}

#[test]
fn e16_a_handler_can_follow_waits_that_are_over() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let given_up = ctx.schedule_wait("n");
            let returned = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            drop(given_up);
            returned.await;
            publish_events(&ctx, "n");
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.turn(["a", "b"].map(|payload| Drive::event("n", payload)));
    drive.raise("go", ()).evict().raise("n", "c").evict();
    assert_eq!(
        drive.lines()[4..],
        [
            r#"5 ExternalEvent "n" "a""#,
            r#"6 ExternalEvent "n" "b""#,
            r#"7 ExternalEvent "go" null"#,
            r#"8 ExternalSubscribed "end""#,
            "9 ExternalUnsubscribed of 2",
            r#"10 StatusSet "b" in h0"#,
            r#"11 ExternalEvent "n" "c""#,
            r#"12 StatusSet "c" in h1"#,
        ]
    );
}

#[test]
fn e16_a_new_handler_takes_kept_events_in_order_one_unit_each() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            let from = ctx.clone();
            ctx.on_event("n", move |payload| {
                let ctx = from.clone();
                async move {
                    ctx.schedule_activity("Handle", payload).await.unwrap();
                    ctx.set_status("handled");
                }
            });
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.turn(["a", "b"].map(|payload| Drive::event("n", payload)));
    drive.evict().turn([Drive::event("go", ()), Drive::event("n", "c")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"5 ExternalEvent "go" null"#,
            r#"6 ExternalEvent "n" "c""#,
            r#"7 ExternalSubscribed "end""#,
            r#"8 ActivityScheduled "Handle" "a" in h0"#,
            r#"9 ActivityScheduled "Handle" "b" in h1"#,
            r#"10 ActivityScheduled "Handle" "c" in h2"#,
        ]
    );
    // Each goes on by itself.
    drive.complete(9, ()).evict().complete(8, ()).evict();
    assert_eq!(
        drive.lines()[10..],
        [
            "11 ActivityCompleted of 9 null",
            r#"12 StatusSet "handled" in h1"#,
            "13 ActivityCompleted of 8 null",
            r#"14 StatusSet "handled" in h0"#,
        ]
    );
}

#[test]
fn e16_handlers_number_their_dispatches_together_whatever_their_names() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            publish_events(&ctx, "a");
            publish_events(&ctx, "b");
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.turn([Drive::event("b", "1"), Drive::event("a", "2"), Drive::event("b", "3")]).evict();
    assert_eq!(
        drive.last_lines()[3..],
        [r#"6 StatusSet "1" in h0"#, r#"7 StatusSet "2" in h1"#, r#"8 StatusSet "3" in h2"#]
    );
}

/// The second event of a name goes to the second wait, not again to the first.
#[test]
fn e10_adjacent_events_of_one_name_to_different_branches_are_one_wave() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            // The later branch subscribes first.
            let [first, second] = ["n"; 2].map(|name| ctx.schedule_wait(name));
            let branch = |wait: perennial_core::WaitFuture| {
                let ctx = ctx.clone();
                async move {
                    let payload = wait.await;
                    ctx.set_status(payload);
                }
            };
            ctx.parallel([branch(second), branch(first)]).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::event("n", "for p1"), Drive::event("n", "for p0")]).evict();
    assert_eq!(
        drive.last_lines()[2..],
        [r#"6 StatusSet "for p0" in p0"#, r#"7 StatusSet "for p1" in p1"#, "8 OrchestrationCompleted null"]
    );
}
