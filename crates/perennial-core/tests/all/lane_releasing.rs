//! Giving shards up while others work on: nothing is lost, and nobody sees an error (N7, N8).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::ShardOptions;
use perennial_core::store::ShardSet;
use perennial_core::{OrchestrationContext, Payload, SHARDS, ShardId};
use perennial_testkit::ManualNode;

/// A node that gives up so many shards with one renewal, of which there is one every three seconds or so.
fn leased(releases_per_renewal: usize) -> ManualNode {
    let options = LaneOptions { lease_ms: 10_000, releases_per_renewal, ..ManualNode::lane_options() };
    ManualNode::with_lane_options(handlers(), options)
}

#[test]
fn n7_shards_above_the_target_are_given_up_over_several_renewals_and_claimed_back() {
    let mut node = leased(32);
    node.set_target(SHARDS / 2);
    assert_eq!(node.lane().shards().len(), 224, "the first ones at once");
    node.set_target(SHARDS / 2 + 1);
    assert_eq!(node.lane().shards().len(), 224, "another target does not hurry the others");
    node.set_target(SHARDS / 2);
    for (renewal, left) in [(1, 192), (2, 160), (3, 128), (4, 128)] {
        node.at(1_000 + renewal * 3_400);
        assert_eq!(node.lane().shards().len(), left, "after {renewal} renewals");
    }
    node.set_target(SHARDS).at(22_000);
    assert_eq!(node.lane().shards(), ShardSet::ALL);
}

#[test]
fn n8_a_shard_is_given_up_only_when_it_is_drained_and_requests_hear_moved() {
    let mut node = leased(SHARDS);
    let ids = ["idle", "turning", "committing", "loading"];
    let shards: ShardSet = ids.iter().map(|id| ShardId::of(id)).collect();
    assert_eq!(shards.len(), ids.len(), "each has a shard of its own");
    for id in ids {
        node.start("collect", id, ());
    }
    node.settle();
    let raised = [node.raise("committing", "n", "1"), node.raise("turning", "n", "1")];
    node.take_turn("committing");
    node.set_target(0).at(5_000);
    let left: ShardSet = ["turning", "committing"].iter().map(|id| ShardId::of(id)).collect();
    assert_eq!(node.lane().shards(), left);
    let asked = ids.map(|id| node.raise(id, "n", "2"));
    assert_eq!(node.told_all(asked), ["moved"; 4], "they are sent on through the store");
    node.commit();
    assert_eq!(node.lane().shards(), [ShardId::of("turning")].into_iter().collect());
    node.settle();
    assert!(node.lane().shards().is_empty());
    assert_eq!(node.told_all(raised), ["accepted"; 2], "what was taken is done");
}

#[test]
fn n8_running_activities_are_handed_over_to_the_node_and_end_there() {
    let mut node = leased(SHARDS);
    node.start("steps", "a", number(1));
    node.settle();
    node.set_target(0).at(5_000);
    assert_eq!((node.batch(), node.handed_over("a").len()), (vec!["a".to_owned()], 0));
    assert_eq!(node.lane().shards(), [ShardId::of("a")].into_iter().collect(), "its row comes first");
    node.commit();
    assert!(node.lane().shards().is_empty());
    assert_eq!((node.handed_over("a"), node.stops().len()), (vec!["A1".to_owned()], 0));
    assert_eq!(node.tasks("a"), ["A1 1 leased, due 31000"]);
    let rival = node.open_rival_of(&ShardSet::ALL);
    assert!(node.finish_handed_over("a", "A1", "done"), "it is still the node's");
    node.end_session(rival);
    node.set_target(SHARDS).at(10_000);
    node.pass_inbox().settle();
    assert_eq!((node.status("a"), node.runs()), ("completed".into(), &["a A1".to_owned()][..]));
}

/// A node that is suspended when the row is durable which hands A1 of "a" over.
fn suspended_with_a_row(before: impl FnOnce(&mut ManualNode)) -> ManualNode {
    let mut node = leased(SHARDS);
    node.start("steps", "a", number(1));
    node.settle();
    node.set_target(0).at(5_000);
    node.cut_off(true).at(14_000);
    before(&mut node);
    node.cut_off(false).commit();
    assert_eq!(node.lane().shards(), [ShardId::of("a")].into_iter().collect(), "it gives no shard up");
    node
}

#[test]
fn n17_an_activity_with_a_row_is_the_nodes_while_its_lane_is_suspended() {
    for is_lost in [false, true] {
        let mut node = suspended_with_a_row(|_| ());
        assert_eq!((node.handed_over("a"), node.stops().len()), (vec!["A1".to_owned()], 0));
        assert!(node.finish_handed_over("a", "A1", "done"), "its result is written without the lane");
        let rival = is_lost.then(|| node.fence());
        node.at(16_000);
        assert!(node.lane().shards().is_empty());
        rival.into_iter().for_each(|rival| node.end_session(rival));
        // After its gap it waits for a lease before it claims what another had.
        node.set_target(SHARDS).at(20_000).at(24_000).at(28_000).pass_inbox().settle();
        assert_eq!((node.status("a"), node.runs()), ("completed".into(), &["a A1".to_owned()][..]));
    }
}

#[test]
fn n17_an_activity_that_has_not_begun_is_the_nodes_only_when_it_begins() {
    for is_lost in [false, true] {
        let mut node = suspended_with_a_row(|node| node.give_back_activity("a", "A1"));
        assert!(node.handed_over("a").is_empty() && node.running("a").is_empty());
        if is_lost {
            node.fence();
        }
        node.at(16_000);
        assert!(node.lane().shards().is_empty());
        let handed_over = if is_lost { 0 } else { 1 };
        assert_eq!(node.handed_over("a").len(), handed_over, "the lease of one that never begins runs out");
    }
}

#[test]
fn n8_a_report_while_a_row_is_handed_over_does_not_take_the_row_back() {
    let mut node = leased(SHARDS);
    node.start("steps", "a", number(1));
    node.settle();
    node.set_target(0).at(5_000);
    assert_eq!(node.batch(), ["a"]);
    node.heartbeat("a", "A1", "half").settle();
    assert!(node.lane().shards().is_empty());
    assert_eq!(node.tasks("a"), ["A1 1 leased, due 31000"]);
    assert!(node.finish_handed_over("a", "A1", "done"), "it is the node's");
    assert!(node.tasks("a").is_empty());
}

#[test]
fn n8_an_activity_that_ends_before_its_row_is_durable_is_not_handed_over() {
    let mut node = leased(SHARDS);
    node.start("steps", "a", number(1));
    node.settle();
    node.set_target(0).at(5_000);
    node.finish("a", "A1", "done");
    node.settle();
    assert!(node.handed_over("a").is_empty() && node.lane().shards().is_empty());
    assert_eq!(node.status("a"), "completed", "the shard still worked");
    assert_eq!(node.tasks("a"), ["A1 1 leased, due 31000, cancelled"], "whoever takes tasks sees to it");
    node.at(35_000).take_tasks(&[], 1);
    assert!(node.tasks("a").is_empty());
}

#[test]
fn n8_an_activity_that_is_scheduled_while_its_shard_leaves_is_left_to_others() {
    let mut node = leased(SHARDS);
    node.start("steps", "a", number(2));
    node.settle();
    node.set_target(0).at(5_000);
    node.finish("a", "A1", "done");
    node.settle();
    assert!(node.lane().shards().is_empty());
    assert_eq!((node.runs().len(), node.tasks("a").last().map(String::as_str)), (1, Some("A2 1 queued")));
    let task = node.take_tasks(&["A2"], 30_000).pop().expect("it is queued");
    assert!(node.finish_task(&task, Ok("two".into())));
    node.set_target(SHARDS).at(10_000).pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn n8_waiters_of_a_shard_that_leaves_hear_moved() {
    let mut node = leased(SHARDS);
    node.start("collect", "a", ());
    node.settle();
    let waiting = node.await_end("a");
    node.set_target(0).at(5_000).settle();
    assert_eq!(node.told(waiting), "moved");
}

#[test]
fn n8_timers_and_messages_of_a_shard_that_leaves_are_left_to_the_next_owner() {
    async fn sleeps(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let slow = ctx.schedule_activity("slow", ());
        ctx.schedule_timer(Duration::from_millis(4_500)).await;
        let _: Payload = ctx.schedule_wait("n").await;
        drop(slow);
        Ok("over".into())
    }
    let options =
        LaneOptions { lease_ms: 10_000, releases_per_renewal: SHARDS, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers_and("sleeps", sleeps), options);
    node.start("sleeps", "a", ());
    node.settle();
    node.set_target(0).at(5_000).settle();
    assert!(node.lane().shards().is_empty());
    node.send_event("a", "n", "1");
    node.at(6_000).settle();
    assert_eq!(node.lines("a").len(), 3, "it is nobody's");
    node.set_target(SHARDS).at(10_000).pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
    assert_eq!(node.tasks("a"), ["slow 1 leased, due 31000, cancelled"], "its renewal says so");
}

#[test]
fn n8_a_blocked_instance_does_not_keep_its_shard() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let slow = ctx.schedule_activity("slow", ());
        let _: Payload = ctx.schedule_wait("n").await;
        drop(slow);
        panic!("boom")
    }
    // It is not tried again before the shard leaves.
    let shard = ShardOptions { retry_first: Duration::from_millis(100_000), ..ShardOptions::default() };
    let lane = ManualNode::lane_options();
    let options = LaneOptions { lease_ms: 10_000, releases_per_renewal: SHARDS, shard, ..lane };
    let mut node = ManualNode::with_lane_options(handlers_and("panics", panics), options);
    node.start("panics", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.set_target(0).at(5_000).settle();
    assert!(node.lane().shards().is_empty());
    assert_eq!((node.handed_over("a"), node.stops().len()), (vec!["slow".to_owned()], 0));
}
