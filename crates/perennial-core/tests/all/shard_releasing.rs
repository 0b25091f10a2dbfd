//! Giving a shard up: attempts of blocked instances are handed over.

use crate::shard_cases::{fails_later, handlers_and, settle_for_a_while};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;
use std::time::Duration;

#[test]
fn n8_a_release_stops_no_activity_of_a_blocked_instance() {
    let fails_later = |ctx: OrchestrationContext, _: Payload| async move {
        let _work = ctx.schedule_activity("work", ());
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    };
    let shard = ShardOptions { retry_first: Duration::from_millis(60_000), ..ShardOptions::default() };
    let options =
        LaneOptions { shard, lease_ms: 10_000, releases_per_renewal: 256, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers_and("fails_later", fails_later), options);
    node.start("fails_later", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.running("a"), ["work"]);
    node.set_target(0).at(5_000);
    settle_for_a_while(&mut node);
    assert_eq!(node.stops(), Vec::<String>::new());
}

fn releasing() -> LaneOptions {
    let shard = ShardOptions { retry_first: Duration::from_millis(60_000), ..ShardOptions::default() };
    LaneOptions { shard, lease_ms: 10_000, releases_per_renewal: 256, ..ManualNode::lane_options() }
}

#[test]
fn n8_a_blocked_instance_hands_its_attempt_over_as_a_row_of_the_node() {
    let mut node = ManualNode::with_lane_options(handlers_and("fails_later", fails_later), releasing());
    node.start("fails_later", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    node.set_target(0).at(5_000).settle();
    assert_eq!((node.handed_over("a"), node.stops().len()), (vec!["work".to_owned()], 0));
    assert_eq!(node.tasks("a"), ["work 1 leased, due 35000"]);
    assert_eq!(node.lane().shards().len(), 0, "the shard is given up");
    assert!(node.finish_handed_over("a", "work", "done"));
}

#[test]
fn n8_an_instance_that_blocks_during_a_release_hands_its_attempt_over() {
    let mut node = ManualNode::with_lane_options(handlers_and("fails_later", fails_later), releasing());
    node.start("fails_later", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    assert_eq!(node.turns_to_take(), ["a"]);
    node.set_target(0).at(5_000).settle();
    assert_eq!((node.handed_over("a"), node.stops().len()), (vec!["work".to_owned()], 0));
    assert_eq!((node.status("a"), node.lane().shards().len()), ("running, blocked: PER-0201".into(), 0));
}

#[test]
fn n8_an_attempt_of_an_unreadable_instance_does_not_keep_its_shard() {
    let mut node = ManualNode::with_lane_options(handlers_and("fails_later", fails_later), releasing());
    node.start("fails_later", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    node.set_unreadable("a", true);
    node.set_target(0).at(5_000).settle();
    assert_eq!((node.stops(), node.lane().shards().len()), (&["a work".to_owned()][..], 0));
}
