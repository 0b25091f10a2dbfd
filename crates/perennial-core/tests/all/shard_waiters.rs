//! Waiting for an end: everyone who waits is told, once it is durable, wherever the instance is meanwhile.

use crate::shard_cases::{handlers, number};
use perennial_core::shard::ShardOptions;
use perennial_core::store::CommitOutcome;
use perennial_core::store::Conflict;
use perennial_testkit::ManualNode;

fn collecting(max_resident: usize) -> ManualNode {
    let mut node =
        ManualNode::with_options(handlers(), ShardOptions { max_resident, ..ShardOptions::default() });
    node.start("collect", "a", ());
    node.settle();
    node
}

const ENDED: &str = "ended: OrchestrationCompleted []";

#[test]
fn g5_several_waiters_are_told_when_the_end_is_durable() {
    let mut node = collecting(1_000);
    let waiting = [(); 3].map(|()| node.await_end("a"));
    node.raise("a", "n", "end");
    let turning = node.await_end("a");
    node.take_turns();
    let committing = node.await_end("a");
    assert_eq!(node.told_all(waiting), ["nothing"; 3]);
    node.commit();
    assert_eq!(node.told_all(waiting), [ENDED; 3]);
    assert_eq!(node.told_all([turning, committing]), [ENDED; 2]);
}

#[test]
fn g5_waiters_for_a_dormant_instance_leave_it_dormant_and_are_told() {
    let mut node = collecting(0);
    let waiting = [node.await_end("a"), node.await_end("a")];
    node.settle();
    assert_eq!((node.in_memory("a"), node.told_all(waiting)), (0, ["nothing".into(), "nothing".into()]));
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told_all(waiting), [ENDED; 2]);
}

#[test]
fn g5_a_waiter_stays_through_eviction() {
    let mut node = collecting(1_000);
    let waiting = node.await_end("a");
    node.at(1_000_000).settle();
    assert_eq!(node.in_memory("a"), 0, "it was idle for long");
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told(waiting), ENDED);
}

#[test]
fn g5_a_waiter_for_an_instance_that_has_ended_is_told_to_look() {
    let mut node = collecting(1_000);
    node.raise("a", "n", "end");
    node.settle();
    let waiting = node.await_end("a");
    node.settle();
    assert_eq!(node.told(waiting), "ended before");
}

#[test]
fn g5_a_waiter_whose_look_up_was_overtaken_by_the_end_is_told() {
    let mut node = collecting(0);
    let waiting = node.await_end("a");
    let found = node.read_finds();
    node.send_event("a", "n", "end");
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
    found.into_iter().for_each(|found| node.bring(found));
    node.settle();
    assert_ne!(node.told(waiting), "nothing", "the row it was shown was older than the end");
}

#[test]
fn g5_a_waiter_that_meets_an_ended_instance_while_its_left_overs_are_read_is_told() {
    let mut node = collecting(1_000);
    node.raise("a", "n", "end");
    node.take_turns();
    node.send_event("a", "n", "late");
    node.settle();
    node.pass_inbox();
    assert_eq!(node.loads_to_make(), ["a"]);
    let waiting = node.await_end("a");
    node.settle();
    assert_eq!((node.told(waiting), node.in_memory("a")), ("ended before".into(), 0));
}

#[test]
fn g5_who_meets_an_ended_instance_while_its_left_overs_are_cleared_is_answered() {
    let mut node = collecting(1_000);
    node.raise("a", "n", "end");
    node.take_turns();
    node.send_event("a", "n", "late");
    node.settle();
    node.pass_inbox().load();
    assert_eq!(node.batch(), ["a"], "the left-overs are being cleared");
    let (raised, waiting) = (node.raise("a", "n", "later"), node.await_end("a"));
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.told_all([raised, waiting, terminated]), ["ended before"; 3]);
    assert_eq!(node.in_memory("a"), 0);
}

#[test]
fn g5_a_waiter_for_an_instance_that_is_gone_is_told() {
    let mut node = collecting(0);
    let waiting = node.await_end("a");
    node.settle();
    let key = node.row("a").key;
    let raised = node.raise("a", "n", "1");
    node.look_up();
    node.tables().ids.remove("a");
    node.tables().instances.remove(&key);
    node.tables().turns.clear();
    node.settle();
    assert_eq!(node.told(raised), "not found");
    assert_ne!(node.told(waiting), "nothing", "there is nothing to wait for");
}

#[test]
fn g5_a_waiter_stays_through_a_conflict() {
    let mut node = collecting(1_000);
    let waiting = node.await_end("a");
    let raised = node.raise("a", "n", "end");
    node.take_turns();
    node.commit_as("a", CommitOutcome::Conflict(Conflict::OtherTurn));
    assert_eq!(node.told_all([waiting, raised]), ["nothing"; 2]);
    node.settle();
    assert_eq!(node.told_all([waiting, raised]), [ENDED, "accepted"]);
    assert_eq!(node.counters("a").conflicts, 1);
}

#[test]
fn g5_a_waiter_is_told_how_a_start_in_flight_ended() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "a", "1");
    let waiting = node.await_end("a");
    node.settle();
    assert_eq!(node.told(waiting), r#"ended: OrchestrationCompleted "1""#);
}

#[test]
fn g5_waiters_of_one_instance_hear_nothing_of_another() {
    let ids = ManualNode::ids_of_one_shard(2);
    let mut node = ManualNode::new(handlers());
    for id in &ids {
        node.start("steps", id, number(1));
    }
    node.settle();
    let waiting = [node.await_end(&ids[0]), node.await_end(&ids[1])];
    node.finish(&ids[1], "A1", "1").settle();
    assert_eq!(node.told_all(waiting), ["nothing", r#"ended: OrchestrationCompleted "1""#]);
}
