//! What counts against an activity when its process ends, and what clears it (G22).

use crate::shard_cases::{handlers, number};
use perennial_core::shard::ShardOptions;
use perennial_testkit::ManualNode;

const HEALTHY_MS: u64 = 60_000;

fn with_steps() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    node
}

/// Lets time pass, in small steps, as a process that is alive does.
fn live(node: &mut ManualNode, ms: u64) {
    let end_ms = node.now_ms() + ms;
    while node.now_ms() < end_ms {
        node.at((node.now_ms() + 500).min(end_ms)).settle();
    }
}

#[test]
fn g22_clean_ends_count_nothing_and_leave_no_row() {
    let mut node = with_steps();
    for _ in 0..20 {
        node.restart();
        assert_eq!((node.running("a").len(), node.tasks("a").len()), (1, 0));
    }
    // Not even against one that was interrupted before.
    node.restart_after_kill().restart_after_kill();
    for _ in 0..20 {
        node.restart();
        assert_eq!(node.attempt("a", "A1").interruptions, 1);
    }
}

#[test]
fn g22_an_attempt_that_has_run_for_a_minute_is_cleared_and_a_kill_counts_nothing() {
    let mut node = with_steps();
    for _ in 0..20 {
        node.restart_after_kill();
        assert_eq!(node.tasks("a"), ["A1 1 leased, begun"]);
        live(&mut node, HEALTHY_MS);
        assert_eq!(node.tasks("a"), ["A1 1 leased"], "cleared with a row of its own");
    }
    node.finish("a", "A1", "done").settle();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("completed".into(), 0));
}

#[test]
fn g22_a_minute_clears_also_if_the_instance_is_not_in_memory() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("steps", "a", number(1));
    node.settle();
    node.restart_after_kill().restart_after_kill();
    assert_eq!(node.tasks("a"), ["A1 1 leased, begun, interrupted 1"]);
    live(&mut node, HEALTHY_MS + 1_000);
    assert_eq!((node.tasks("a"), node.runs().len()), (vec!["A1 1 leased".to_owned()], 3));
}

#[test]
fn g22_a_heartbeat_clears_what_was_counted() {
    let mut node = with_steps();
    node.restart_after_kill().restart_after_kill();
    assert_eq!(node.attempt("a", "A1").interruptions, 1);
    node.heartbeat("a", "A1", "half").settle();
    assert_eq!(node.tasks("a"), [r#"A1 1 leased, details "half""#]);
    node.restart_after_kill();
    assert_eq!(node.attempt("a", "A1").interruptions, 0);
}

#[test]
fn g22_processes_that_end_at_regular_intervals_never_poison_an_innocent() {
    let intervals = [1, 10, 30, 59, 61, 75, 90, 119, 121, 130, 150, 179, 185, 200, 245];
    for interval_ms in intervals.map(|seconds| seconds * 1_000) {
        let mut node = with_steps();
        for _ in 0..25 {
            live(&mut node, interval_ms);
            node.restart_after_kill();
        }
        assert_eq!(node.status("a"), "running", "killed every {interval_ms} ms: {:?}", node.tasks("a"));
        // Left alone, it runs and ends.
        live(&mut node, 20 * HEALTHY_MS);
        node.finish("a", "A1", "done").settle();
        assert_eq!(node.status("a"), "completed");
    }
}

#[test]
fn g22_one_that_waited_when_the_process_ended_is_cleared() {
    let mut node = with_steps();
    node.restart_after_kill().restart_after_kill().hold_back().restart_after_kill();
    assert_eq!(node.tasks("a"), ["A1 1 waiting, due 1000, begun, interrupted 2"]);
    node.restart_after_kill();
    assert_eq!((node.tasks("a"), node.attempt("a", "A1").interruptions), (vec!["A1 1 leased".to_owned()], 0));
}

#[test]
fn g22_one_that_is_to_run_alone_runs_after_the_process_has_lived_without_it() {
    let mut node = with_steps();
    (0..5).for_each(|_| {
        node.restart_after_kill();
    });
    assert_eq!(node.tasks("a"), ["A1 1 waiting, due 61000, begun, interrupted 4"]);
    // A process that does not live for so long says nothing, and the next one begins from the start.
    live(&mut node, HEALTHY_MS / 2);
    node.restart_after_kill();
    live(&mut node, HEALTHY_MS);
    assert!(node.running("a").is_empty());
    live(&mut node, HEALTHY_MS);
    assert_eq!((node.running("a").len(), node.attempt("a", "A1").interruptions), (1, 4));
    node.restart_after_kill();
    live(&mut node, 2 * HEALTHY_MS - 1_000);
    assert!(node.running("a").is_empty(), "each time it is twice as long");
    live(&mut node, 1_000);
    node.restart_after_kill();
    assert!(node.lines("a").contains(&"3 ActivityFailed of 2 Poisoned".to_owned()), "{:?}", node.lines("a"));
}
