//! Timers: never early, all of them after an outage, in due order (G13).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, number, secs};
use perennial_core::shard::ShardOptions;
use perennial_core::{Either, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Three timers, created in another order than they are due, and one more after them.
async fn alarms(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let timer = |ms| ctx.schedule_timer(Duration::from_millis(ms));
    ctx.join([timer(3_000), timer(1_000), timer(2_000)]).await;
    ctx.schedule_timer(Duration::from_millis(1_000)).await;
    Ok("all".into())
}

#[test]
fn g13_a_timer_never_fires_early() {
    let mut node = ManualNode::new(handlers());
    node.start("sleep", "a", number(5_000));
    node.settle();
    assert_eq!(node.next_wake_ms("a"), Some(6_000));
    node.at(5_999).settle();
    assert_eq!(node.lines("a").len(), 2);
    node.at(6_000).settle();
    assert_eq!(node.last_lines("a", 2), ["3 TimerFired of 2", r#"4 OrchestrationCompleted "slept""#]);
}

#[test]
fn g13_other_inputs_do_not_fire_a_timer_early() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(5_999);
    node.raise("a", "n", "knock");
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 ExternalEvent "n" "knock""#]);
    node.set_clock(6_001);
    node.raise("a", "n", "knock");
    node.settle();
    assert_eq!(node.lines("a")[4..6], ["5 TimerFired of 3", r#"6 ExternalEvent "n" "knock""#]);
}

#[test]
fn g13_after_an_outage_all_that_is_due_fires_in_due_order() {
    let mut node = ManualNode::new(handlers_and("alarms", alarms));
    node.start("alarms", "a", ());
    node.settle().crash();
    node.set_clock(3_500);
    node.take_over().settle();
    assert_eq!(node.last_lines("a", 2), ["5 TimerFired of 3", "6 TimerFired of 4"]);
    node.crash().set_clock(1_000_000);
    node.take_over().settle();
    assert_eq!(
        node.last_lines("a", 2),
        ["7 TimerFired of 2", "8 TimerCreated due 1001000"],
        "the new one counts from the time at which its turn was taken"
    );
    node.at(1_000_999).settle();
    assert_eq!(node.status("a"), "running");
    node.at(1_001_000).settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g13_after_an_outage_instances_wake_in_due_order() {
    let ids = ManualNode::ids_of_one_shard(4);
    let mut node = ManualNode::new(handlers());
    for (id, ms) in ids.iter().zip([9_000, 3_000, 7_000, 5_000]) {
        node.start("sleep", id, number(ms));
    }
    node.settle().crash().set_clock(60_000);
    node.take_over();
    assert_eq!(node.loads_to_make(), [1, 3, 2, 0].map(|position| ids[position].as_str()));
    node.settle();
    assert!(ids.iter().all(|id| node.status(id) == "completed"));
}

#[test]
fn g13_resident_instances_wake_in_due_order() {
    let ids = ManualNode::ids_of_one_shard(3);
    let mut node = ManualNode::new(handlers());
    for (id, ms) in ids.iter().zip([9_000, 3_000, 7_000]) {
        node.start("sleep", id, number(ms));
    }
    node.settle().at(60_000);
    assert_eq!(node.turns_to_take(), [1, 2, 0].map(|position| ids[position].as_str()));
}

#[test]
fn g13_a_dormant_sleeper_is_read_ahead_and_woken_in_time() {
    let options =
        ShardOptions { max_resident: 0, lookahead: Duration::from_millis(60_000), ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("sleep", "a", number(100_000));
    node.settle();
    assert_eq!(node.next_wake_ms("a"), None);
    node.at(41_000).settle();
    assert_eq!(node.next_wake_ms("a"), None, "due in a minute: the next look will be early enough");
    node.at(71_000).settle();
    assert_eq!((node.next_wake_ms("a"), node.in_memory("a")), (Some(101_000), 0));
    node.at(101_000).settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g13_a_timer_that_comes_due_during_a_commit_fires_in_the_next_turn() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle();
    node.raise("a", "n", "knock");
    node.take_turns();
    node.at(6_000);
    assert!(node.turns_to_take().is_empty());
    node.commit();
    assert_eq!(node.jobs_to_take("a"), ["TimerFired of 3"]);
}

#[test]
fn g13_a_timer_that_comes_due_during_a_turn_fires_in_the_next_turn() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle();
    node.raise("a", "n", "knock");
    node.at(6_000).take_turns();
    node.commit();
    assert_eq!(node.jobs_to_take("a"), ["TimerFired of 3"]);
}

#[test]
fn g13_a_timer_that_comes_due_during_a_load_fires_once_it_is_loaded() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().crash();
    node.raise("a", "n", "knock");
    node.look_up();
    node.at(6_000);
    assert_eq!(node.loads_to_make(), ["a"], "it is being loaded once");
    node.load();
    node.take_turns();
    // What the crash interrupted is written before the next turn.
    node.commit();
    assert_eq!(node.jobs_to_take("a"), [r#"ExternalEvent "n" "knock""#, "TimerFired of 3"]);
}

#[test]
fn g13_a_wake_of_an_instance_that_has_ended_meanwhile_does_nothing() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("sleep", "a", number(10_000));
    node.settle();
    node.terminate("a", "enough");
    node.settle();
    let before = node.writes("a");
    assert_eq!(node.next_wake_ms("a"), None);
    node.at(11_000).settle();
    assert_eq!((node.writes("a"), node.in_memory("a")), (before, 0));
}

#[test]
fn g13_a_timer_and_a_limit_of_time_are_kept_while_an_activity_waits_to_run_alone() {
    async fn limited(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let activity = ctx.schedule_activity("A1", ());
        let activity = if input == "limit".into() { activity.total_timeout(secs(100)) } else { activity };
        let seconds = if input == "limit".into() { 1_000 } else { 100 };
        match ctx.select2(activity, ctx.schedule_timer(secs(seconds))).await {
            Either::First(result) => Ok(Payload::from(format!("{result:?}"))),
            Either::Second(()) => Ok("the timer".into()),
        }
    }
    for (input, output) in [("timer", r#""the timer""#), ("limit", r#""Err(Timeout(Total))""#)] {
        let mut node = ManualNode::new(handlers_and("limited", limited));
        node.start("limited", "a", input);
        node.settle();
        node.restart_after_kill().restart_after_kill().hold_back().restart_after_kill();
        assert_eq!(
            (node.tasks("a"), node.running("a").len()),
            (vec!["A1 1 waiting, due 1000, begun, interrupted 2".into()], 0)
        );
        node.at(100_999).settle();
        assert_eq!(node.status("a"), "running");
        node.at(101_000).settle();
        assert!(node.last_lines("a", 1)[0].ends_with(output), "{:?}", node.last_lines("a", 1));
    }
}
