//! Waiting for an end: everyone who waits is told, once it is durable, wherever the instance is meanwhile.

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::store::CommitOutcome;
use perennial_core::store::Conflict;
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

fn collecting(max_resident: usize) -> Desk {
    let mut desk = Desk::with_options(handlers(), ShardOptions { max_resident, ..ShardOptions::default() });
    desk.start("collect", "a", ());
    desk.settle();
    desk
}

const ENDED: &str = "ended: OrchestrationCompleted []";

#[test]
fn g5_several_waiters_are_told_when_the_end_is_durable() {
    let mut desk = collecting(1_000);
    let waiting = [(); 3].map(|()| desk.await_end("a"));
    desk.raise("a", "n", "end");
    let turning = desk.await_end("a");
    desk.take_turns();
    let committing = desk.await_end("a");
    assert_eq!(desk.told_all(waiting), ["nothing"; 3]);
    desk.commit();
    assert_eq!(desk.told_all(waiting), [ENDED; 3]);
    assert_eq!(desk.told_all([turning, committing]), [ENDED; 2]);
}

#[test]
fn g5_waiters_for_a_dormant_instance_leave_it_dormant_and_are_told() {
    let mut desk = collecting(0);
    let waiting = [desk.await_end("a"), desk.await_end("a")];
    desk.settle();
    assert_eq!((desk.in_memory("a"), desk.told_all(waiting)), (0, ["nothing".into(), "nothing".into()]));
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.told_all(waiting), [ENDED; 2]);
}

#[test]
fn g5_a_waiter_stays_through_eviction() {
    let mut desk = collecting(1_000);
    let waiting = desk.await_end("a");
    desk.at(1_000_000).settle();
    assert_eq!(desk.in_memory("a"), 0, "it was idle for long");
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.told(waiting), ENDED);
}

#[test]
fn g5_a_waiter_for_an_instance_that_has_ended_is_told_to_look() {
    let mut desk = collecting(1_000);
    desk.raise("a", "n", "end");
    desk.settle();
    let waiting = desk.await_end("a");
    desk.settle();
    assert_eq!(desk.told(waiting), "ended before");
}

#[test]
fn g5_a_waiter_whose_look_up_was_overtaken_by_the_end_is_told() {
    let mut desk = collecting(0);
    let waiting = desk.await_end("a");
    let found = desk.read_finds();
    desk.send_event("a", "n", "end");
    desk.pass_inbox().settle();
    assert_eq!(desk.status("a"), "completed");
    found.into_iter().for_each(|found| desk.bring_found(found));
    desk.settle();
    assert_ne!(desk.told(waiting), "nothing", "the row it was shown was older than the end");
}

#[test]
fn g5_a_waiter_that_meets_an_ended_instance_while_its_left_overs_are_read_is_told() {
    let mut desk = collecting(1_000);
    desk.raise("a", "n", "end");
    desk.take_turns();
    desk.send_event("a", "n", "late");
    desk.settle();
    desk.pass_inbox();
    assert_eq!(desk.loads_to_make(), ["a"]);
    let waiting = desk.await_end("a");
    desk.settle();
    assert_eq!((desk.told(waiting), desk.in_memory("a")), ("ended before".into(), 0));
}

#[test]
fn g5_who_meets_an_ended_instance_while_its_left_overs_are_cleared_is_answered() {
    let mut desk = collecting(1_000);
    desk.raise("a", "n", "end");
    desk.take_turns();
    desk.send_event("a", "n", "late");
    desk.settle();
    desk.pass_inbox().load();
    assert_eq!(desk.batch(), ["a"], "the left-overs are being cleared");
    let (raised, waiting) = (desk.raise("a", "n", "later"), desk.await_end("a"));
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!(desk.told_all([raised, waiting, terminated]), ["ended before"; 3]);
    assert_eq!(desk.in_memory("a"), 0);
}

#[test]
fn g5_a_waiter_for_an_instance_that_is_gone_is_told() {
    let mut desk = collecting(0);
    let waiting = desk.await_end("a");
    desk.settle();
    let key = desk.row("a").key;
    let raised = desk.raise("a", "n", "1");
    desk.look_up();
    desk.tables().ids.remove("a");
    desk.tables().instances.remove(&key);
    desk.tables().turns.clear();
    desk.settle();
    assert_eq!(desk.told(raised), "not found");
    assert_ne!(desk.told(waiting), "nothing", "there is nothing to wait for");
}

#[test]
fn g5_a_waiter_stays_through_a_conflict() {
    let mut desk = collecting(1_000);
    let waiting = desk.await_end("a");
    let raised = desk.raise("a", "n", "end");
    desk.take_turns();
    desk.commit_as("a", CommitOutcome::Conflict(Conflict::OtherTurn));
    assert_eq!(desk.told_all([waiting, raised]), ["nothing"; 2]);
    desk.settle();
    assert_eq!(desk.told_all([waiting, raised]), [ENDED, "accepted"]);
    assert_eq!(desk.counters("a").conflicts, 1);
}

#[test]
fn g5_a_waiter_is_told_how_a_start_in_flight_ended() {
    let mut desk = Desk::new(handlers());
    desk.start("echo", "a", "1");
    let waiting = desk.await_end("a");
    desk.settle();
    assert_eq!(desk.told(waiting), r#"ended: OrchestrationCompleted "1""#);
}

#[test]
fn g5_waiters_of_one_instance_hear_nothing_of_another() {
    let ids = Desk::ids_of_one_shard(2);
    let mut desk = Desk::new(handlers());
    for id in &ids {
        desk.start("steps", id, number(1));
    }
    desk.settle();
    let waiting = [desk.await_end(&ids[0]), desk.await_end(&ids[1])];
    desk.finish(&ids[1], "A1", "1").settle();
    assert_eq!(desk.told_all(waiting), ["nothing", r#"ended: OrchestrationCompleted "1""#]);
}
