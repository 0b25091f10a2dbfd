//! Orders of events that a reading of the engine found, beside those of `shard_reviewed`.

use std::sync::Arc;

use crate::shard_cases::{Outcome, handlers, handlers_and};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::{Request, ShardOptions};
use perennial_core::store::{CommitOutcome, SendOutcome, StoreError};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Waits for a child and ends with what came of it.
async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration_with_id("collect", "child", ());
    child.await.map_err(|failure| Payload::from(format!("{failure:?}")))
}

#[test]
fn g28_a_parent_hears_that_its_unreadable_child_was_terminated() {
    let mut node = ManualNode::new(handlers_and("parent", parent));
    node.start("parent", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("child", true);
    node.terminate("child", "enough");
    node.settle();
    assert_eq!((node.status("child"), node.status("a")), ("terminated".into(), "failed".into()));
}

#[test]
fn g28_an_unreadable_instance_that_is_blocked_ends_when_the_grace_of_its_cancel_is_over() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("a", true);
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0508");
    node.cancel("a", "enough");
    node.settle();
    node.at(60_000).settle();
    assert_eq!(node.status("a"), "terminated");
}

/// Begins an activity, and fails at the next event.
async fn fails_later(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _work = ctx.schedule_activity("work", ());
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}

fn releasing() -> LaneOptions {
    let shard = ShardOptions { retry_first_ms: 60_000, ..ShardOptions::default() };
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

#[test]
fn n16_a_request_behind_a_cut_read_is_kept_when_its_instance_blocks() {
    let mut node = ManualNode::new(handlers_and("fails_later", fails_later));
    node.start("fails_later", "a", ());
    node.settle();
    let mut last = None;
    for _ in 0..17 {
        if let SendOutcome::Sent(number) = node.send_event("a", "n", "x".repeat(4_000_000)) {
            last = Some(number);
        }
    }
    let (name, payload) = ("n".to_owned(), Payload::from("after"));
    let request = node.request_after("a", Request::Raise { name, payload, key: None, trace: None }, last);
    node.settle();
    assert_eq!(
        (node.status("a"), node.told(request)),
        ("running, blocked: PER-0201".into(), "accepted".into())
    );
    assert_eq!(node.inbox("a").len(), 18);
}

#[test]
fn g22_a_task_is_queued_again_once_though_the_turn_that_takes_the_message_fails() {
    async fn broken(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _remote = ctx.schedule_activity("remote", "in").tag("gpu");
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let served = Some(Arc::new(ManualNode::served(&["remote"], &[])));
    let options = ShardOptions { served, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("broken", broken), options);
    node.start("broken", "a", ());
    node.settle();
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert!(node.cannot_read_task(&task));
    node.send_event("a", "n", "1");
    // Whoever loads it finds both messages, and delivers them together.
    node.restart();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running, blocked: PER-0201".into(), 2));
    assert_eq!(node.take_tasks(&["remote"], 60_000).len(), 1, "it is queued again");
    let leased = node.tasks("a");
    node.retry("a");
    node.settle();
    assert_eq!(node.tasks("a"), leased, "another node has it");
}

/// Continues as new with `go`; `note` is an update in each execution.
async fn goes_round(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.on_update(
        "note",
        |_: &Payload| Ok(()),
        move |_: Payload| {
            let input = input.clone();
            async move { Ok(input) }
        },
    );
    let _: Payload = ctx.schedule_wait("go").await;
    ctx.continue_as_new("second").await
}

#[test]
fn e21_an_update_that_meets_a_continuation_is_answered() {
    let mut node = ManualNode::new(handlers_and("goes_round", goes_round));
    node.start("goes_round", "a", "first");
    node.settle();
    node.raise("a", "other", ());
    node.take_turns();
    // Both wait for the commit, and are part of one turn.
    let update = node.update("a", "note", None, ());
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(node.row("a").execution, 2);
    assert_eq!(node.told(update), r#"answered: "first""#);
}

#[test]
fn g15_a_message_that_came_during_a_second_look_that_failed_is_delivered() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.hold_back();
    let (name, payload) = ("n".to_owned(), Payload::from("late"));
    node.request_after("a", Request::Raise { name, payload, key: None, trace: None }, Some(99));
    node.send_event("a", "n", "meanwhile");
    node.pass_inbox();
    node.refresh_failing(&StoreError::CorruptRow("no".to_owned()));
    node.settle();
    assert_eq!(node.inbox("a"), Vec::<String>::new(), "nobody else tells of it");
}

#[test]
fn g11_an_instance_that_cannot_be_marked_as_blocked_leaves_memory_and_is_tried_again() {
    let options = ShardOptions {
        idle_ms: 1_000,
        lookahead_ms: 1_000,
        retry_first_ms: 500_000,
        ..ShardOptions::default()
    };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("too large".to_owned()));
    node.commit_as("a", CommitOutcome::Rejected("too large".to_owned()));
    let retry_ms = node.next_wake_ms("a").expect("it is tried again");
    node.at(60_000).settle();
    assert_eq!(node.in_memory("a"), 0);
    node.at(retry_ms);
    assert_eq!(node.loads_to_make(), ["a"]);
}

#[test]
fn e23_a_grace_does_not_run_in_a_gap_before_the_shards_were_lost_and_gained_again() {
    let options = LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("cleans_up", "a", ());
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    node.cut_off(true).at(41_000);
    node.cut_off(false).at(43_000).settle();
    assert_eq!(node.status("a"), "running", "nobody could act meanwhile");
    node.lose_shards();
    // After a gap of its own it waits one lease before it claims.
    node.at(47_000).at(51_000).at(54_000).take_over().settle();
    assert_eq!(node.lane().shards().len(), 256);
    assert_eq!(node.status("a"), "running", "its code has had no 30 s to clean up");
}
