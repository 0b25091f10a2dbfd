//! Nothing that a turn decided leaves before it is durable, and nothing of a fenced one ever does (G4, G5, G6).

mod shard_cases;

use perennial_core::store::CommitOutcome;
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

#[test]
fn g5_a_start_is_answered_and_its_activity_runs_only_when_it_is_durable() {
    let mut desk = Desk::new(handlers());
    let started = desk.start("steps", "a", number(1));
    assert_eq!(desk.told(started), "nothing");
    desk.take_turns();
    assert_eq!((desk.told(started), desk.running("a").len(), desk.try_row("a")), ("nothing".into(), 0, None));
    desk.commit();
    assert_eq!((desk.told(started), desk.running("a")), ("started".into(), vec!["A1".to_owned()]));
}

#[test]
fn g5_every_request_is_answered_only_when_it_is_durable() {
    let mut desk = Desk::new(handlers());
    desk.start("cleans_up", "a", ());
    desk.settle();
    let raised = desk.raise("a", "n", "1");
    desk.take_turns();
    assert_eq!(desk.told(raised), "nothing");
    desk.commit();
    assert_eq!(desk.told(raised), "accepted");
    let cancelled = desk.cancel("a", "enough");
    desk.take_turns();
    assert_eq!((desk.told(cancelled), desk.running("a").len()), ("nothing".into(), 0));
    desk.commit();
    assert_eq!((desk.told(cancelled), desk.running("a").len()), ("accepted".into(), 1));
    let (terminated, waiting) = (desk.terminate("a", "now"), desk.await_end("a"));
    assert_eq!(desk.told_all([terminated, waiting]), ["nothing", "nothing"]);
    assert!(desk.stops().is_empty());
    desk.commit();
    assert_eq!(desk.told_all([terminated, waiting]), ["accepted", r#"ended: OrchestrationTerminated "now""#]);
    assert_eq!(desk.stops(), ["a clean"]);
}

#[test]
fn g5_the_next_activity_runs_only_when_the_result_before_it_is_durable() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(2));
    desk.settle();
    let waiting = desk.await_end("a");
    desk.finish("a", "A1", "one").take_turns();
    assert!(desk.running("a").is_empty());
    desk.commit();
    assert_eq!(desk.running("a"), ["A2"]);
    desk.finish("a", "A2", "two").take_turns();
    assert_eq!(desk.told(waiting), "nothing");
    desk.commit();
    assert_eq!(desk.told(waiting), r#"ended: OrchestrationCompleted "two""#);
}

#[test]
fn g5_an_id_is_refused_as_taken_only_when_the_start_that_took_it_is_durable() {
    let mut desk = Desk::new(handlers());
    let (first, second) = (desk.start("collect", "a", ()), desk.start("collect", "a", ()));
    desk.take_turns();
    assert_eq!(desk.told_all([first, second]), ["nothing", "nothing"]);
    desk.commit();
    assert_eq!(desk.told_all([first, second]), ["started", "already exists: running"]);
}

#[test]
fn g4_of_a_fenced_commit_nothing_leaves_and_callers_hear_that_it_is_unknown() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(2));
    desk.settle();
    let waiting = desk.await_end("a");
    desk.finish("a", "A1", "one").take_turns();
    let raised = desk.raise("a", "n", "1");
    let started = desk.start("steps", "b", number(1));
    desk.take_turns();
    desk.fence();
    while desk.commit() > 0 {}
    assert_eq!(desk.runs(), ["a A1"], "neither A2 of a nor A1 of b");
    assert_eq!(desk.lines("a").len(), 2);
    assert_eq!(desk.try_row("b"), None);
    let unknown = "unknown: another node has taken over";
    assert_eq!(desk.told_all([raised, started, waiting]), [unknown, unknown, unknown]);
}

#[test]
fn g4_a_refused_owner_drops_the_shards_memory_at_once() {
    let mut desk = Desk::new(handlers());
    let ids = Desk::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    desk.start("steps", a, number(2));
    desk.start("steps", b, number(1));
    desk.start("collect", c, ());
    desk.settle();
    let (b_ends, c_raised) = (desk.await_end(b), desk.raise(c, "n", "1"));
    desk.finish(a, "A1", "one");
    desk.take_turn(a);
    desk.fence();
    desk.commit();
    assert_eq!(desk.in_memory(a), 0, "all three are another node's now");
    let unknown = "unknown: another node has taken over";
    assert_eq!(desk.told_all([b_ends, c_raised]), [unknown, unknown]);
    assert_eq!(desk.stops(), [format!("{b} A1")]);
}

#[test]
fn g4_a_shard_that_is_lost_answers_everybody_who_waits() {
    let mut desk = Desk::new(handlers());
    for id in ["idle", "turning", "committing"] {
        desk.start("collect", id, ());
    }
    desk.start("steps", "running", number(1));
    desk.settle();
    let starting = desk.start("collect", "starting", ());
    let rival = desk.start("collect", "starting", ());
    let turning = desk.raise("turning", "n", "1");
    let committing = desk.raise("committing", "n", "1");
    desk.take_turn("committing");
    let starting_commit = desk.start("collect", "started", ());
    desk.take_turn("started");
    let looked_up = desk.raise("elsewhere", "n", "1");
    let waiting = desk.await_end("idle");
    desk.lose_shards();
    let unknown = "unknown: another node has taken over";
    assert_eq!(desk.told_all([turning, committing, looked_up, waiting]), [unknown; 4]);
    assert_eq!(desk.told_all([starting, starting_commit, rival]), [unknown; 3], "starts wait too");
    assert_eq!(desk.stops(), ["running A1"]);
}

#[test]
fn g4_a_turn_and_all_that_goes_with_it_is_written_or_nothing_is() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.send_event("a", "n", "end");
    desk.pass_inbox().take_turns();
    desk.commit_as("a", CommitOutcome::Fenced);
    assert_eq!((desk.status("a"), desk.lines("a").len(), desk.inbox("a").len()), ("running".into(), 2, 1));
    desk.restart();
    assert_eq!((desk.status("a"), desk.lines("a").len(), desk.inbox("a").len()), ("completed".into(), 4, 0));
    assert_eq!(desk.writes("a"), ["insert running, turn 1", "turn 2, status completed, consumed 1"]);
}

#[test]
fn g6_a_lone_commit_goes_at_once_and_while_it_is_synced_the_next_batch_gathers() {
    let mut desk = Desk::new(handlers());
    let started = ["a", "b", "c", "d"].map(|id| desk.start("echo", id, id));
    desk.take_turns();
    assert_eq!(desk.batch(), ["a"], "nothing waits for company");
    desk.commit();
    assert_eq!(desk.batch(), ["b", "c", "d"], "one sync for all that has gathered");
    assert_eq!(desk.told_all(started), ["started", "nothing", "nothing", "nothing"]);
    desk.commit();
    assert_eq!(desk.told_all(started), ["started"; 4]);
    assert!(desk.batch().is_empty());
}
