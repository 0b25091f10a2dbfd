//! Instances whose code their owner does not have wait for it before they are blocked (N14).

use std::time::Duration;

use crate::shard_cases::{collect, handlers, handlers_and};
use perennial_core::shard::ShardOptions;
use perennial_core::store::{Blocked, Criteria};
use perennial_testkit::ManualNode;

const WAIT_MS: u64 = 600_000;

/// An instance that waits for an event, on a node that has lost its code since.
fn without_code() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("order", collect));
    node.start("order", "a", ());
    node.settle();
    node.replace_code(handlers()).crash();
    node.raise("a", "n", "1");
    node.settle();
    node
}

fn block(node: &ManualNode) -> Blocked {
    node.row("a").blocked.expect("its code is missing")
}

#[test]
fn n14_missing_code_is_waited_for_and_then_blocks() {
    let mut node = without_code();
    let missed = block(&node);
    assert_eq!(missed.waits_until_ms, Some(missed.since_ms + WAIT_MS));
    let (blocked, open) = (Some(true), Some(false));
    assert!(!Criteria { blocked, ..Criteria::default() }.matches(&node.row("a")));
    assert!(Criteria { blocked: open, ..Criteria::default() }.matches(&node.row("a")));
    node.at(missed.since_ms + WAIT_MS - 1).settle();
    assert!(block(&node).is_waiting() && block(&node).attempts > 1, "it is tried with pauses");
    node.at(missed.since_ms + WAIT_MS).settle();
    assert_eq!((block(&node).waits_until_ms, block(&node).since_ms), (None, missed.since_ms));
    assert!(Criteria { blocked, ..Criteria::default() }.matches(&node.row("a")));
}

#[test]
fn n14_the_next_owner_does_not_wait_for_longer() {
    let mut node = without_code();
    let missed = block(&node);
    node.at(missed.since_ms + WAIT_MS / 2);
    node.restart();
    assert_eq!(block(&node).waits_until_ms, missed.waits_until_ms);
    node.at(missed.since_ms + WAIT_MS);
    node.restart();
    assert!(!block(&node).is_waiting());
}

#[test]
fn n14_nothing_is_lost_while_code_is_missing_and_it_goes_on_with_the_code() {
    let mut node = without_code();
    let raised = node.raise("a", "n", "2");
    node.settle();
    assert_eq!((node.told(raised), node.inbox("a").len()), ("accepted".into(), 2));
    node.replace_code(handlers_and("order", collect));
    node.restart();
    assert_eq!((node.row("a").blocked, node.jobs("a").len()), (None, 2));
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn n14_an_instance_that_waits_for_code_can_be_cancelled_and_terminated() {
    let mut node = without_code();
    node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.status("a"), "terminated");
    let mut node = without_code();
    node.cancel("a", "enough");
    node.settle();
    assert!(block(&node).is_waiting(), "its code may still come and clean up");
    let since_ms = block(&node).since_ms;
    node.at(since_ms + 60_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn n14_without_a_wait_missing_code_blocks_at_once() {
    let options = ShardOptions { missing_code_wait: Duration::ZERO, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("order", "a", ());
    node.settle();
    assert!(!block(&node).is_waiting());
}
