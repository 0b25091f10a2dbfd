//! One commit under way per instance; what comes meanwhile forms the next turn (G3).

use crate::shard_cases::{handlers, number};
use perennial_core::shard::ShardOptions;
use perennial_core::{ExecutionOptions, Limits};
use perennial_testkit::ManualNode;

fn with_limits(limits: Limits) -> ShardOptions {
    ShardOptions { execution: ExecutionOptions { limits, ..Default::default() }, ..Default::default() }
}

/// A collector that has taken its first turn.
fn collecting(options: ShardOptions) -> ManualNode {
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    node
}

fn jobs(node: &ManualNode) -> Vec<String> {
    node.jobs_to_take("a").iter().map(|job| job.replace(r#"ExternalEvent "n" "#, "")).collect()
}

#[test]
fn g3_inputs_that_come_during_a_commit_form_the_next_turn() {
    let mut node = collecting(ShardOptions::default());
    let first = node.raise("a", "n", "1");
    node.take_turns();
    let (second, third) = (node.raise("a", "n", "2"), node.raise("a", "n", "3"));
    assert!(node.turns_to_take().is_empty(), "a commit is under way");
    assert_eq!(node.batch(), ["a"]);
    node.commit();
    assert_eq!(jobs(&node), [r#""2""#, r#""3""#]);
    assert_eq!(node.told_all([first, second, third]), ["accepted", "nothing", "nothing"]);
    node.take_turns();
    node.commit();
    assert_eq!(node.told_all([second, third]), ["accepted", "accepted"]);
    assert_eq!(node.writes("a"), ["insert running, turn 1", "turn 2", "turn 3"]);
}

#[test]
fn g3_inputs_that_come_during_a_turn_form_the_next_turn() {
    let mut node = collecting(ShardOptions::default());
    node.raise("a", "n", "1");
    node.raise("a", "n", "2");
    node.raise("a", "n", "3");
    assert_eq!((node.turns_to_take().len(), jobs(&node)), (1, vec![r#""1""#.to_owned()]));
    node.take_turns();
    assert!(node.turns_to_take().is_empty());
    node.commit();
    assert_eq!(jobs(&node), [r#""2""#, r#""3""#]);
}

#[test]
fn g3_inputs_that_come_during_a_load_form_one_turn_in_their_order() {
    let mut node = collecting(ShardOptions::default());
    node.crash();
    node.raise("a", "n", "1");
    node.look_up();
    node.raise("a", "n", "2");
    assert_eq!(node.loads_to_make(), ["a"]);
    node.load();
    node.raise("a", "n", "3");
    node.take_turns();
    assert_eq!(jobs(&node), [r#""1""#, r#""2""#, r#""3""#]);
}

#[test]
fn g3_results_of_many_activities_share_a_turn() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(5));
    node.settle();
    for name in ["A3", "A1", "A5", "A2"] {
        node.finish("a", name, name);
    }
    assert_eq!(node.jobs_to_take("a"), [r#"ActivityCompleted of 4 "A3""#]);
    node.take_turns();
    node.commit();
    assert_eq!(
        node.jobs_to_take("a"),
        [
            r#"ActivityCompleted of 2 "A1""#,
            r#"ActivityCompleted of 6 "A5""#,
            r#"ActivityCompleted of 3 "A2""#
        ]
    );
}

#[test]
fn g3_a_turn_takes_jobs_up_to_half_its_decisions_and_the_rest_follow() {
    let mut node = collecting(with_limits(Limits { turn_decisions: 8, ..Limits::default() }));
    node.raise("a", "n", "0");
    for event in 1..=10 {
        node.raise("a", "n", event.to_string());
    }
    node.take_turns();
    let mut sizes = Vec::new();
    while node.commit() > 0 {
        sizes.push(jobs(&node).len());
        node.take_turns();
    }
    assert_eq!(sizes, [4, 4, 2, 0]);
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(
        node.last_lines("a", 1),
        [r#"26 OrchestrationCompleted ["0","1","2","3","4","5","6","7","8","9","10"]"#]
    );
}

#[test]
fn g3_a_turn_takes_jobs_up_to_half_its_bytes_and_the_rest_follow() {
    let mut node = collecting(with_limits(Limits { turn_bytes: 10_000, ..Limits::default() }));
    node.raise("a", "n", "0");
    for _ in 1..=5 {
        node.raise("a", "n", "x".repeat(2_000));
    }
    node.take_turns();
    let mut sizes = Vec::new();
    while node.commit() > 0 {
        sizes.push(jobs(&node).len());
        node.take_turns();
    }
    assert_eq!(sizes, [2, 2, 1, 0], "two events of 2,000 bytes and their frames fit into 5,000 bytes");
}

#[test]
fn g3_a_job_larger_than_half_a_turn_has_a_turn_of_its_own() {
    let mut node = collecting(with_limits(Limits { turn_bytes: 10_000, ..Limits::default() }));
    node.raise("a", "n", "0");
    node.raise("a", "n", "x".repeat(9_000));
    node.settle();
    assert_eq!(node.writes("a"), ["insert running, turn 1", "turn 2", "turn 3"]);
}

#[test]
fn g3_due_timers_count_among_the_jobs_of_a_turn() {
    let options = with_limits(Limits { turn_decisions: 4, ..Limits::default() });
    let sleepers = |ctx: perennial_core::OrchestrationContext, _: perennial_core::Payload| async move {
        let timer = |ms| ctx.schedule_timer(std::time::Duration::from_millis(ms));
        ctx.join([timer(10), timer(20), timer(30)]).await;
        Ok(ctx.schedule_wait("n").await)
    };
    let mut node = ManualNode::with_options(crate::shard_cases::handlers_and("sleepers", sleepers), options);
    node.start("sleepers", "a", ());
    node.settle();
    node.set_clock(2_000);
    node.raise("a", "n", "1");
    assert_eq!(node.jobs_to_take("a"), ["TimerFired of 2", "TimerFired of 3"]);
    node.take_turns();
    node.commit();
    assert_eq!(node.jobs_to_take("a"), ["TimerFired of 4", r#"ExternalEvent "n" "1""#]);
}
