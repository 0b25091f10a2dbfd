//! Skipping an event and trying a blocked instance again: each is one try.

use crate::shard_cases::{Outcome, do_all_but_turns, handlers, handlers_and, number};
use perennial_core::shard::{Message, Request};
use perennial_core::store::Skippable;
use perennial_core::{EventId, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// A node with an instance whose turn did not end.
fn with_a_lost_turn() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.lose_turn("a");
    node.settle();
    node
}

#[test]
fn g29_a_skip_whose_turn_is_lost_is_not_tried_again_and_again() {
    let mut node = with_a_lost_turn();
    assert_eq!(node.status("a"), "running, blocked: PER-0205");
    node.request("a", Request::Skip(Skippable::Event(EventId(3))));
    for lost in 1..=5 {
        do_all_but_turns(&mut node);
        if node.turns_to_take().is_empty() {
            return;
        }
        // The first is the replay.
        node.take_turn("a");
        do_all_but_turns(&mut node);
        assert!(
            lost == 1 || node.turns_to_take().is_empty(),
            "another thread is lost without anybody asking"
        );
        node.lose_turn("a");
    }
}

#[test]
fn g29_a_retry_from_elsewhere_is_one_try_also_if_something_comes_meanwhile() {
    let mut node = with_a_lost_turn();
    node.send_message("a", &Message::Retry);
    node.pass_inbox();
    do_all_but_turns(&mut node);
    // The replay, and the try that was asked for.
    node.take_turn("a");
    do_all_but_turns(&mut node);
    node.raise("a", "n", "meanwhile");
    node.lose_turn("a");
    do_all_but_turns(&mut node);
    assert!(node.turns_to_take().is_empty(), "another thread is lost without anybody asking");
}

/// Adds up two numbers. `touch` is an update that does nothing.
async fn sums(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.on_update("touch", |_: &Payload| Ok(()), |_: Payload| async { Ok(Payload::null()) });
    let _: Payload = ctx.schedule_wait("begin").await;
    let first = ctx.schedule_wait("n").typed::<u64>().await;
    let second = ctx.schedule_wait("n").typed::<u64>().await;
    Ok(number(first + second))
}

/// The number of the event that the reason of the block names.
fn unreadable_event(node: &ManualNode) -> EventId {
    let reason = node.row("a").blocked.expect("it is blocked").reason;
    let number = reason.split("event ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    EventId(number.parse().expect("a number"))
}

#[test]
fn e16_a_skip_that_did_not_help_takes_no_other_event_out_later() {
    let mut node = ManualNode::new(handlers_and("sums", sums));
    node.start("sums", "a", ());
    node.settle();
    // All of these are for one turn; the update is refused when that fails, so the numbers are others in the next.
    node.raise("a", "begin", ());
    node.update("a", "touch", None, ());
    node.send_event("a", "n", "bad");
    node.send_event("a", "n", number(1));
    node.send_event("a", "n", number(2));
    node.pass_inbox().settle();
    for _ in 0..2 {
        let event = unreadable_event(&node);
        node.request("a", Request::Skip(Skippable::Event(event)));
        node.settle();
        if node.row("a").blocked.is_none() {
            break;
        }
    }
    assert_eq!(node.status("a"), "completed", "{:#?}", node.lines("a"));
    assert_eq!(node.last_lines("a", 1), ["10 OrchestrationCompleted 3"]);
}

/// Found by the simulator, seed 106: a skip counts for one try, which failed for the other event.
#[test]
fn e16_unreadable_events_that_wait_together_are_skipped_one_after_the_other() {
    let mut node = ManualNode::new(handlers_and("sums", sums));
    node.start("sums", "a", ());
    node.settle();
    node.raise("a", "begin", ());
    for content in ["bad", "worse"] {
        node.raise("a", "n", content);
    }
    node.raise("a", "n", number(1));
    node.raise("a", "n", number(2));
    node.settle();
    for _ in 0..2 {
        let event = unreadable_event(&node);
        node.request("a", Request::Skip(Skippable::Event(event)));
        node.settle();
    }
    assert_eq!(node.status("a"), "completed", "{:#?}", node.lines("a"));
    assert!(node.last_lines("a", 1)[0].ends_with("OrchestrationCompleted 3"), "{:#?}", node.lines("a"));
}
