//! Keys that clients drew because their callers gave none: a minute of turn time (N16).

use crate::shard_cases::{Outcome, handlers_and};
use perennial_core::{EventKind, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Counts events `n` for ever, and continues as new with each `again`.
async fn counts(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.on_event("n", |_: Payload| async {});
    let _: Payload = ctx.schedule_wait("again").await;
    ctx.continue_as_new(()).await
}

fn node() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("counts", counts));
    node.start("counts", "a", ());
    node.settle();
    node
}

/// Raises an event with a key at a time. Returns whether it was recorded.
fn raise(node: &mut ManualNode, key: &str, at_ms: u64) -> bool {
    let before = node.jobs("a").len();
    node.at(at_ms);
    let raised = node.raise_once("a", "n", key, ());
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    node.jobs("a").len() > before
}

fn continue_as_new(node: &mut ManualNode, at_ms: u64) {
    node.at(at_ms);
    node.raise("a", "again", ());
    node.settle();
}

#[test]
fn n16_a_drawn_key_is_known_for_a_minute_and_a_given_one_for_longer() {
    for is_restarted in [false, true] {
        let mut node = node();
        assert!(raise(&mut node, "~1.1", 10_000) && raise(&mut node, "given", 10_000));
        if is_restarted {
            node.restart();
        }
        assert!(!raise(&mut node, "~1.1", 70_000), "after a minute");
        assert!(raise(&mut node, "~1.2", 70_001));
        assert!(raise(&mut node, "~1.1", 70_002), "it was forgotten");
        assert!(!raise(&mut node, "given", 10_000_000));
    }
}

#[test]
fn n16_a_drawn_key_is_known_for_a_minute_across_continue_as_new() {
    let mut node = node();
    assert!(raise(&mut node, "~1.1", 10_000) && raise(&mut node, "given", 10_000));
    continue_as_new(&mut node, 30_000);
    assert!(!raise(&mut node, "~1.1", 50_000));
    continue_as_new(&mut node, 60_000);
    assert!(!raise(&mut node, "~1.1", 70_000), "after a minute");
    assert!(raise(&mut node, "~1.2", 70_001));
    assert!(raise(&mut node, "~1.1", 70_002), "it counts from when it was taken, not from the last start");
    assert!(!raise(&mut node, "given", 10_000_000));
}

#[test]
fn n16_drawn_keys_do_not_pile_up_in_an_instance_that_continues_often() {
    let mut node = node();
    for number in 0..100 {
        let at_ms = 10_000 * (number + 1);
        assert!(raise(&mut node, &format!("~1.{number:x}"), at_ms));
        continue_as_new(&mut node, at_ms + 5_000);
    }
    let row = node.row("a");
    let history = node.history(&row, row.execution);
    let first = history.flatten().next().expect("it has begun").kind.clone();
    let EventKind::Started(started) = first else { panic!("{first:?}") };
    assert_eq!((started.drawn_keys.len(), started.recent_keys.len()), (6, 0), "those of the last minute");
}
