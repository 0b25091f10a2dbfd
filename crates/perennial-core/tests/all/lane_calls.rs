//! Calls to the store: bounded, tried again, and in trouble only for those whom it concerns (G28, G32, I16, I19).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::lane::{Lane, LaneOptions, LaneOutput, Moment};
use perennial_core::shard::{Request, RequestId};
use perennial_core::store::StoreError;
use perennial_core::{OrchestrationContext, Payload, SHARDS, ShardId};
use perennial_testkit::ManualNode;

fn unavailable() -> StoreError {
    StoreError::Unavailable("away".to_owned())
}

fn corrupt() -> StoreError {
    StoreError::CorruptRow("its bytes are no row".to_owned())
}

/// A node with instances that all are dormant.
fn dormant(ids: &[&str]) -> ManualNode {
    let mut node = ManualNode::new(handlers());
    for id in ids {
        node.start("collect", id, ());
    }
    node.settle().crash();
    node
}

#[test]
fn i19_a_bounded_number_of_instances_is_loaded_at_a_time() {
    let options = LaneOptions { max_loads: 2, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    let ids: Vec<String> = (0..5).map(|number| format!("instance-{number}")).collect();
    for id in &ids {
        node.start("sleep", id, number(5_000));
    }
    node.settle().crash().set_clock(60_000);
    node.take_over();
    for left in [2, 2, 1] {
        assert_eq!(node.loads_to_make().len(), left);
        node.load();
    }
    node.settle();
    assert!(ids.iter().all(|id| node.status(id) == "completed"));
}

#[test]
fn i19_a_load_that_fails_leaves_room_for_the_next() {
    let options = LaneOptions { max_loads: 1, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    for id in ["a", "b"] {
        node.start("sleep", id, number(5_000));
    }
    node.settle().crash().set_clock(60_000);
    node.take_over();
    let first = node.loads_to_make();
    node.load_failing(&corrupt());
    assert_ne!(node.loads_to_make(), first);
    node.load_failing(&unavailable());
    assert!(node.loads_to_make().is_empty(), "it is tried after a pause");
    node.settle();
    assert_eq!(["a", "b"].iter().filter(|id| node.status(id).ends_with("PER-0508")).count(), 1);
    node.at(61_000).settle();
    assert_eq!(["a", "b"].map(|id| node.status(id)), ["completed", "completed"]);
}

#[test]
fn g32_a_call_that_fails_is_made_again_after_pauses_that_grow() {
    let mut node = dormant(&["a"]);
    node.take_over();
    let raised = node.raise("a", "n", "1");
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let before_ms = node.now_ms();
        node.look_up_failing(&unavailable());
        assert!(!node.look_up(), "not at once");
        let wake_ms = node.next_wake_of_all_ms().expect("it is made again");
        node.at(wake_ms);
        pauses.push(wake_ms - before_ms);
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_000, 5_000]);
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    node.raise("b", "n", "1");
    node.look_up_failing(&unavailable());
    assert_eq!(node.next_wake_of_all_ms(), Some(node.now_ms() + 20), "the store was reached meanwhile");
}

#[test]
fn g32_loads_second_looks_and_pages_are_made_again_with_nothing_lost() {
    for method in ["load", "find", "read_inbox", "read_due", "read_owed", "read_blocked", "read_requests"] {
        let mut node = ManualNode::new(handlers());
        node.start("steps", "a", number(1));
        node.start("sleep", "b", number(5_000));
        node.settle().crash();
        node.lose_answer(method);
        node.send_event("a", "n", "1");
        node.take_over().settle();
        let raised = node.raise("a", "n", "2");
        node.at(7_000).settle();
        node.at(8_000).settle();
        assert_eq!((node.told(raised), node.inbox("a").len()), ("accepted".into(), 0), "{method}");
        assert_eq!(
            (node.running("a"), node.status("b")),
            (vec!["A1".into()], "completed".into()),
            "{method}"
        );
    }
}

#[test]
fn g32_a_lane_whose_store_failed_sends_nobody_elsewhere() {
    let now = Moment::from_secs(1);
    let mut lane = Lane::new(LaneOptions::default(), 1, now);
    lane.handle_target(now, SHARDS);
    let calls = lane.take_outputs(now);
    let [LaneOutput::Call(opening, _)] = &calls[..] else { panic!("it opens its session: {calls:?}") };
    lane.handle_response(now, *opening, Err(StoreError::Failed("the disk is full".to_owned())));
    let outputs = lane.take_outputs(now);
    assert!(matches!(outputs[..], [LaneOutput::Failed(_)]), "{outputs:?}");
    let raise = Request::Raise { name: "n".to_owned(), payload: Payload::null(), key: None, trace: None };
    lane.handle_request(now, RequestId(1), "a", raise, None);
    let outputs = lane.take_outputs(now);
    assert!(outputs.is_empty(), "whoever drives the lane tells all who ask: {outputs:?}");
}

#[test]
fn g28_an_instance_that_cannot_be_read_is_blocked_and_its_neighbours_go_on() {
    let mut node = dormant(&["a", "b"]);
    node.set_unreadable("a", true);
    let raised = [node.raise("a", "n", "1"), node.raise("b", "n", "1")];
    node.settle();
    assert_eq!((node.status("a"), node.status("b")), ("running, blocked: PER-0508".into(), "running".into()));
    assert_eq!(node.told_all(raised), ["accepted"; 2], "what came for it is kept");
    node.set_unreadable("a", false);
    node.at(10_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
}

#[test]
fn i16_a_row_that_cannot_be_found_is_the_callers_trouble_alone() {
    let mut node = dormant(&["a", "b"]);
    let broken = node.raise("a", "n", "1");
    node.look_up_failing(&corrupt());
    let raised = node.raise("b", "n", "1");
    node.settle();
    assert!(node.told(broken).starts_with("unknown: "), "{}", node.told(broken));
    assert_eq!(node.told(raised), "accepted");
}

#[test]
fn i16_a_history_that_was_tampered_with_blocks_its_instance_alone() {
    let mut node = ManualNode::new(handlers());
    for id in ["a", "b", "c"] {
        node.start("collect", id, ());
        node.settle();
        node.raise(id, "n", id);
        node.settle();
    }
    // A turn of one is stored with the other: all of it can be read, but it is not the one that was written.
    let (a, b) = (node.row("a").key, node.row("b").key);
    let turn = node.tables().turns[&(b, 1, 2)].clone();
    node.tables().turns.insert((a, 1, 2), turn);
    node.crash();
    let raised = ["a", "b", "c"].map(|id| node.raise(id, "n", "end"));
    node.settle();
    assert_eq!(node.told_all(raised), ["accepted"; 3]);
    assert_eq!(
        ["a", "b", "c"].map(|id| node.status(id)),
        ["running, blocked: PER-0101", "completed", "completed"]
    );
}

#[test]
fn g17_a_waiter_that_was_abandoned_is_forgotten() {
    let mut node = dormant(&["a"]);
    let (gone, stays) = (node.await_end("a"), node.await_end("a"));
    node.look_up();
    node.abandon("a", gone);
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told_all([gone, stays]), ["nothing", "ended: OrchestrationCompleted []"]);
}

#[test]
fn g33_old_executions_of_an_instance_that_runs_on_are_pruned() {
    async fn goes_on(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let next: Payload = ctx.schedule_wait("n").await;
        ctx.continue_as_new(next).await
    }
    for (keep, expected) in [(None, vec![1, 2, 3, 4, 5]), (Some(2), vec![4, 5]), (Some(0), vec![5])] {
        let options = LaneOptions { keep_executions: keep, ..ManualNode::lane_options() };
        let mut node = ManualNode::with_lane_options(handlers_and("goes_on", goes_on), options);
        node.start("goes_on", "a", ());
        for turn in 1..5 {
            node.raise("a", "n", number(turn));
            node.settle();
        }
        assert_eq!(node.row("a").execution, 5);
        node.at(2_000).settle();
        let mut executions: Vec<u64> =
            node.tables().turns.keys().map(|(_, execution, _)| *execution).collect();
        executions.dedup();
        assert_eq!(executions, expected, "keep {keep:?}");
        node.restart();
        assert_eq!(node.status("a"), "running");
    }
}

#[test]
fn g33_old_executions_are_pruned_by_age_as_well_as_by_count() {
    async fn goes_on(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let next: Payload = ctx.schedule_wait("n").await;
        ctx.continue_as_new(next).await
    }
    // It is continued at 10, 20, 30 and 40 s, and then waits. Sweeps come every half minute.
    for (keep, keep_ms, expected) in [
        (None, None, [vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5]]),
        (None, Some(60_000), [vec![1, 2, 3, 4, 5], vec![5]]),
        (Some(3), Some(60_000), [vec![3, 4, 5], vec![5]]),
        (Some(3), None, [vec![3, 4, 5], vec![3, 4, 5]]),
    ] {
        let options =
            LaneOptions { keep_executions: keep, keep_executions_ms: keep_ms, ..ManualNode::lane_options() };
        let mut node = ManualNode::with_lane_options(handlers_and("goes_on", goes_on), options);
        node.start("goes_on", "a", ());
        for turn in 1..5 {
            node.at(turn * 10_000).raise("a", "n", number(turn));
            node.settle();
        }
        let executions = |node: &mut ManualNode| {
            let mut stored: Vec<u64> =
                node.tables().turns.keys().map(|(_, execution, _)| *execution).collect();
            stored.dedup();
            stored
        };
        node.at(45_000).settle();
        let young = executions(&mut node);
        for seconds in 46..=170 {
            node.at(seconds * 1_000).settle();
        }
        assert_eq!([young, executions(&mut node)], expected, "keep {keep:?}, {keep_ms:?} ms");
        assert_eq!((node.row("a").execution, &*node.status("a")), (5, "running"));
        let remembered = node.tables().continued.len();
        assert!(remembered <= expected[1].len(), "{remembered} times are kept of {expected:?}");
    }
}

#[test]
fn n9_pruning_in_a_shard_that_changed_hands_costs_no_other_shard() {
    async fn goes_on(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let next: Payload = ctx.schedule_wait("n").await;
        ctx.continue_as_new(next).await
    }
    let options = LaneOptions { keep_executions: Some(1), ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers_and("goes_on", goes_on), options);
    node.start("goes_on", "a", ());
    node.settle();
    node.raise("a", "n", number(1));
    node.settle();
    node.slow_down("prune_executions");
    node.at(2_000);
    node.open_rival_of(&[ShardId::of("a")].into_iter().collect());
    assert_eq!(node.make_slow(), 1);
    assert_eq!(node.lane().shards().len(), SHARDS - 1);
}

#[test]
fn g6_batches_are_bounded_and_every_member_is_answered() {
    let options = LaneOptions { max_batch: 2, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    let started = ["a", "b", "c", "d", "e"].map(|id| node.start("collect", id, ()));
    node.take_turns();
    let mut sizes = Vec::new();
    while !node.batch().is_empty() {
        sizes.push(node.commit());
    }
    assert_eq!((sizes, node.told_all(started)), (vec![1, 2, 2], ["started"; 5].map(str::to_owned)));
}

#[test]
fn s4_an_inbox_of_many_pages_is_read_to_its_end() {
    let options = LaneOptions { page_rows: 2, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    let ids: Vec<String> = (0..7).map(|number| format!("instance-{number}")).collect();
    for id in &ids {
        node.start("collect", id, ());
    }
    node.settle().crash();
    for event in ["1", "2", "end"] {
        ids.iter().for_each(|id| {
            node.send_event(id, "n", event);
        });
    }
    node.take_over().settle();
    assert!(ids.iter().all(|id| node.status(id) == "completed"));
}

#[test]
fn s5_requests_past_their_deadline_are_swept() {
    let mut node = dormant(&["a"]);
    node.take_over();
    let instance_call =
        perennial_core::shard::InstanceCall::Query { name: "none".to_owned(), payload: Payload::null() };
    node.send_request("a", &instance_call, 1_000);
    assert_eq!(node.tables().requests.len(), 1);
    node.at(40_000);
    assert!(node.tables().requests.is_empty());
}
