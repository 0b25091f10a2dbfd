//! The grace of a cancel does not run while nobody can act.

use crate::shard_cases::handlers;
use perennial_core::lane::LaneOptions;
use perennial_testkit::ManualNode;

/// A node with an instance that was cancelled and cleans up.
fn cleaning_up() -> ManualNode {
    let options = LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("cleans_up", "a", ());
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    node
}

#[test]
fn e23_a_grace_does_not_run_while_a_session_is_being_replaced() {
    let mut node = cleaning_up();
    assert_eq!(node.running("a"), ["clean"]);
    node.raise("a", "n", "1");
    node.take_turns();
    node.commit_unknown(false);
    // The store is away for longer than the grace of 30 s, and nobody could act meanwhile.
    node.cut_off(true);
    node.replace_session();
    node.cut_off(false);
    node.at(61_000).settle();
    assert_eq!(node.status("a"), "running", "its code has had no 30 s to clean up");
}

#[test]
fn e23_a_grace_does_not_run_in_a_gap_before_the_shards_were_lost_and_gained_again() {
    let mut node = cleaning_up();
    node.cut_off(true).at(41_000);
    node.cut_off(false).at(43_000).settle();
    assert_eq!(node.status("a"), "running", "nobody could act meanwhile");
    node.lose_shards();
    // After a gap of its own it waits one lease before it claims.
    node.at(47_000).at(51_000).at(54_000).take_over().settle();
    assert_eq!(node.lane().shards().len(), 256);
    assert_eq!(node.status("a"), "running", "its code has had no 30 s to clean up");
}
