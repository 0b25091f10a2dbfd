//! Blocked instances: what comes meanwhile is kept, how they are tried again, and that they finish after the cure
//! (G28, G29).

use crate::shard_cases::{Outcome, handlers, handlers_and};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::{Message, ShardOptions};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;
use std::time::Duration;

/// Two activities and an event, each of which is part of the result.
async fn gathers(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let (left, right) = (ctx.schedule_activity("left", ()), ctx.schedule_activity("right", ()));
    let event: Payload = ctx.schedule_wait("n").await;
    let (left, right) = ctx.join2(left, right).await;
    let all = (left.map_err(|_| Payload::null())?, right.map_err(|_| Payload::null())?, event);
    Ok(Payload::encode(&all).expect("payloads encode"))
}

/// The same up to the event, then a panic.
async fn gathers_badly(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _both = (ctx.schedule_activity("left", ()), ctx.schedule_activity("right", ()));
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}

/// An instance that is blocked since 1,000 ms, with both activities running.
fn blocked(options: ShardOptions) -> ManualNode {
    let mut node = ManualNode::with_options(handlers_and("gathers", gathers_badly), options);
    node.start("gathers", "a", ());
    node.settle();
    node.raise("a", "n", "event");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node
}

fn attempts(node: &ManualNode) -> u32 {
    node.row("a").blocked.map_or(0, |blocked| blocked.attempts)
}

#[test]
fn g28_messages_and_results_that_come_meanwhile_are_kept_and_it_finishes_after_the_cure() {
    let mut node = blocked(ShardOptions::default());
    node.finish("a", "right", "R").settle();
    assert_eq!(
        node.inbox("a"),
        [r#"ExternalEvent "n" "event""#, r#"ActivityCompleted of 3 "R""#],
        "the result would be lost in memory"
    );
    node.replace_code(handlers_and("gathers", gathers)).at(2_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
    node.finish("a", "left", "L").settle();
    assert_eq!(node.last_lines("a", 1), [r#"8 OrchestrationCompleted ["L","R","event"]"#]);
    assert_eq!(node.row("a").blocked, None);
}

#[test]
fn g28_activities_that_run_while_their_instance_is_blocked_are_not_run_again_by_a_retry() {
    let mut node = blocked(ShardOptions::default());
    node.replace_code(handlers_and("gathers", gathers)).at(2_000).settle();
    assert_eq!(node.runs(), ["a left", "a right"]);
}

#[test]
fn g28_an_activity_whose_result_was_kept_is_not_run_again_by_a_retry() {
    let mut node = blocked(ShardOptions::default());
    node.finish("a", "right", "R").settle();
    node.replace_code(handlers_and("gathers", gathers)).at(2_000).settle();
    assert_eq!(node.runs(), ["a left", "a right"], "its result was on disk");
}

#[test]
fn g28_the_pause_between_tries_doubles_up_to_its_limit() {
    let options = ShardOptions {
        retry_first: Duration::from_millis(1_000),
        retry_max: Duration::from_millis(10_000),
        ..ShardOptions::default()
    };
    let mut node = blocked(options);
    let mut tries = Vec::new();
    while let Some(wake_ms) = node.next_wake_ms("a").filter(|wake_ms| *wake_ms <= 50_000) {
        node.at(wake_ms).settle();
        tries.push(wake_ms);
    }
    assert_eq!(tries, [2_000, 4_000, 8_000, 16_000, 26_000, 36_000, 46_000]);
    assert_eq!((attempts(&node), node.row("a").wake_at_ms), (8, Some(56_000)));
    assert_eq!(node.inbox("a"), [r#"ExternalEvent "n" "event""#], "kept once, however often it is tried");
}

#[test]
fn g28_a_retry_on_demand_comes_before_the_pause_is_over() {
    let mut node = blocked(ShardOptions::default());
    let in_vain = node.retry("a");
    node.settle();
    assert_eq!((node.told(in_vain), attempts(&node)), ("accepted".into(), 2));
    let cured = node.replace_code(handlers_and("gathers", gathers)).retry("a");
    node.settle();
    assert_eq!((node.told(cured), node.status("a")), ("accepted".into(), "running".into()));
    let again = node.retry("a");
    node.settle();
    assert_eq!(node.told(again), "not blocked");
}

#[test]
fn g28_a_retry_of_a_dormant_instance_that_is_not_blocked_says_so() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle().crash();
    let retried = node.retry("a");
    node.settle();
    assert_eq!((node.told(retried), node.status("a")), ("not blocked".into(), "running".into()));
}

#[test]
fn g28_a_cure_starts_the_count_and_the_pause_again() {
    let mut node = blocked(ShardOptions::default());
    node.at(2_000).settle().at(4_000).settle();
    assert_eq!(attempts(&node), 3);
    node.replace_code(handlers_and("gathers", gathers)).at(8_000).settle();
    assert_eq!(attempts(&node), 0);
    node.replace_code(handlers_and("gathers", gathers_badly)).restart();
    node.raise("a", "n", "again");
    node.settle();
    assert_eq!(attempts(&node), 1);
    let wake_at_ms = node.row("a").wake_at_ms;
    assert_eq!(wake_at_ms, Some(9_000), "a second after it was blocked again");
}

#[test]
fn g28_a_blocked_instance_says_since_when_not_when_it_was_tried_last() {
    let mut node = blocked(ShardOptions::default());
    node.at(2_000).settle().at(4_000).settle();
    let blocked = node.row("a").blocked.expect("it is blocked");
    assert_eq!((blocked.attempts, blocked.since_ms), (3, 1_000));
}

#[test]
fn g28_being_blocked_and_cured_are_one_row_change_each() {
    let mut node = blocked(ShardOptions::default());
    node.replace_code(handlers_and("gathers", gathers)).at(2_000).settle();
    assert_eq!(
        node.writes("a"),
        [
            "insert running, owed, turn 1",
            "wake 2000, blocked PER-0201, sent 1",
            "turn 2, wake none, blocked none, consumed 1"
        ],
        "it is cured when the turn that failed goes through"
    );
}

#[test]
fn g28_messages_that_come_while_a_retry_is_under_way_are_kept_if_it_fails() {
    let mut node = blocked(ShardOptions::default());
    node.at(2_000);
    let loading = node.raise("a", "n", "while loading");
    node.load();
    let turning = node.raise("a", "n", "while turning");
    node.take_turns();
    node.finish("a", "left", "L");
    node.take_turns();
    let committing = node.raise("a", "n", "while committing");
    node.settle();
    assert_eq!(node.told_all([loading, turning, committing]), ["accepted"; 3]);
    assert_eq!(
        node.inbox("a"),
        [
            r#"ExternalEvent "n" "event""#,
            r#"ExternalEvent "n" "while loading""#,
            r#"ExternalEvent "n" "while turning""#,
            r#"ActivityCompleted of 2 "L""#,
            r#"ExternalEvent "n" "while committing""#,
        ]
    );
}

#[test]
fn g28_another_process_can_have_a_blocked_instance_tried_and_terminated() {
    let mut node = blocked(ShardOptions::default());
    node.send_message("a", &Message::Retry);
    node.pass_inbox().at(2_000).settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.send_message("a", &Message::Terminate { reason: "from afar".to_owned() });
    node.pass_inbox().at(4_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
    assert_eq!(node.stops(), ["a left", "a right"]);
}

#[test]
fn g29_a_turn_that_does_not_end_blocks_its_instance_and_is_not_tried_by_time_in_this_process() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    let raised = node.raise("a", "n", "1");
    node.lose_turn("a");
    let meanwhile = node.raise("a", "n", "2");
    node.settle();
    assert_eq!(
        (node.told_all([raised, meanwhile]), node.status("a")),
        (["accepted".to_owned(), "accepted".to_owned()], "running, blocked: PER-0205".to_owned())
    );
    for minutes in 1..=60 {
        node.at(minutes * 60_000);
        assert!(node.loads_to_make().is_empty(), "after {minutes} minutes it is tried again");
        node.settle();
    }
    node.restart();
    assert_eq!(node.row("a").blocked, None, "the next process tries it");
    assert_eq!(node.last_lines("a", 4)[..2], [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalEvent "n" "2""#]);
}

#[test]
fn g29_a_start_whose_turn_does_not_end_is_stored_as_pending_and_blocked() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("echo", "a", "input");
    node.lose_turn("a");
    node.settle();
    assert_eq!(
        (node.told(started), node.status("a")),
        ("started".into(), "pending, blocked: PER-0205".into())
    );
    node.restart();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g29_an_instance_whose_turn_was_lost_can_be_retried_on_demand_and_terminated() {
    let mut node = ManualNode::new(handlers());
    for id in ["a", "b"] {
        node.start("collect", id, ());
        node.settle();
        node.raise(id, "n", "1");
        node.lose_turn(id);
        node.settle();
    }
    let (retried, terminated) = (node.retry("a"), node.terminate("b", "enough"));
    node.settle();
    assert_eq!(node.told_all([retried, terminated]), ["accepted", "accepted"]);
    assert_eq!((node.status("a"), node.status("b")), ("running".into(), "terminated".into()));
}

#[test]
fn g29_however_many_instances_wait_for_their_trial_all_are_refused_together() {
    let mut node = ManualNode::new(handlers());
    let ids: Vec<String> = (0..3_000).map(|number| format!("i-{number}")).collect();
    for id in &ids {
        node.start("echo", id, ());
        node.lose_turn(id);
    }
    node.settle();
    node.crash().take_over();
    node.look_up();
    while !node.loads_to_make().is_empty() {
        node.load();
    }
    for _ in 0..2 {
        let tried = node.turns_to_take();
        assert_eq!(tried.len(), 1, "one at a time");
        node.lose_turn(&tried[0]);
    }
    assert!(node.turns_to_take().is_empty(), "no more are tried in this process");
    node.settle();
    let is_blocked = |id: &&String| node.status(id) == "pending, blocked: PER-0205";
    assert_eq!(ids.iter().filter(is_blocked).count(), ids.len());
}

#[test]
fn g29_a_lost_turn_that_comes_back_after_all_changes_nothing() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    let raised = node.raise("a", "n", "1");
    let task = node.pick_turn("a");
    let (shard, tenure, key, number) = (task.shard, task.tenure, task.key, task.number);
    let done = node.run_turn(task);
    node.give_up_turn(shard, tenure, key, number);
    node.bring_turn(done);
    node.settle();
    assert_eq!(
        (node.told(raised), node.status("a")),
        ("accepted".into(), "running, blocked: PER-0205".into())
    );
    node.restart();
    assert_eq!(node.last_lines("a", 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}

#[test]
fn g28_a_retry_that_comes_while_something_is_kept_is_obeyed() {
    let mut node = blocked(ShardOptions::default());
    let before = attempts(&node);
    node.raise("a", "n", "kept");
    let retried = node.retry("a");
    assert_eq!(node.told(retried), "nothing", "it is blocked, whatever is under way");
    node.settle();
    assert_eq!((node.told(retried), attempts(&node)), ("accepted".into(), before + 1));
}

/// Three events, all of which are the result.
async fn reads(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut events: Vec<Payload> = Vec::new();
    for _ in 0..3 {
        events.push(ctx.schedule_wait("n").await);
    }
    Ok(Payload::encode(&events).expect("payloads encode"))
}

async fn reads_badly(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}

#[test]
fn i8_messages_that_a_pass_went_past_come_before_later_ones_after_the_cure() {
    let options = LaneOptions { page_rows: 1, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers_and("reads", reads_badly), options);
    node.start("reads", "a", ());
    node.start("reads", "b", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.replace_code(handlers_and("reads", reads)).at(2_000);
    while node.load() || node.take_turns() {}
    assert_eq!(node.batch().len(), 1, "the turn that cures it is being written");
    node.send_event("b", "n", "x");
    node.send_event("a", "n", "2");
    node.send_event("b", "n", "y");
    let first_page = node.read_inbox();
    node.send_event("a", "n", "3");
    node.commit_with(|node| {
        // The rest of the pass sees the instance cured, before the lane knows that it is.
        node.bring(first_page);
        while node.follow_hint() {}
    });
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"8 OrchestrationCompleted ["1","2","3"]"#]);
}
