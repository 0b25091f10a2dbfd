//! Nothing that a turn decided leaves before it is durable, and nothing of a fenced one ever does (G4, G5, G6).

use crate::shard_cases::{handlers, number};
use perennial_core::store::CommitOutcome;
use perennial_testkit::ManualNode;

#[test]
fn g5_a_start_is_answered_and_its_activity_runs_only_when_it_is_durable() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("steps", "a", number(1));
    assert_eq!(node.told(started), "nothing");
    node.take_turns();
    assert_eq!((node.told(started), node.running("a").len(), node.try_row("a")), ("nothing".into(), 0, None));
    node.commit();
    assert_eq!((node.told(started), node.running("a")), ("started".into(), vec!["A1".to_owned()]));
}

#[test]
fn g5_every_request_is_answered_only_when_it_is_durable() {
    let mut node = ManualNode::new(handlers());
    node.start("cleans_up", "a", ());
    node.settle();
    let raised = node.raise("a", "n", "1");
    node.take_turns();
    assert_eq!(node.told(raised), "nothing");
    node.commit();
    assert_eq!(node.told(raised), "accepted");
    let cancelled = node.cancel("a", "enough");
    node.take_turns();
    assert_eq!((node.told(cancelled), node.running("a").len()), ("nothing".into(), 0));
    node.commit();
    assert_eq!((node.told(cancelled), node.running("a").len()), ("accepted".into(), 1));
    let (terminated, waiting) = (node.terminate("a", "now"), node.await_end("a"));
    assert_eq!(node.told_all([terminated, waiting]), ["nothing", "nothing"]);
    assert!(node.stops().is_empty());
    node.commit();
    assert_eq!(node.told_all([terminated, waiting]), ["accepted", r#"ended: OrchestrationTerminated "now""#]);
    assert_eq!(node.stops(), ["a clean"]);
}

#[test]
fn g5_the_next_activity_runs_only_when_the_result_before_it_is_durable() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    let waiting = node.await_end("a");
    node.finish("a", "A1", "one").take_turns();
    assert!(node.running("a").is_empty());
    node.commit();
    assert_eq!(node.running("a"), ["A2"]);
    node.finish("a", "A2", "two").take_turns();
    assert_eq!(node.told(waiting), "nothing");
    node.commit();
    assert_eq!(node.told(waiting), r#"ended: OrchestrationCompleted "two""#);
}

#[test]
fn g5_an_id_is_refused_as_taken_only_when_the_start_that_took_it_is_durable() {
    let mut node = ManualNode::new(handlers());
    let (first, second) = (node.start("collect", "a", ()), node.start("collect", "a", ()));
    node.take_turns();
    assert_eq!(node.told_all([first, second]), ["nothing", "nothing"]);
    node.commit();
    assert_eq!(node.told_all([first, second]), ["started", "already exists: running"]);
}

#[test]
fn g4_of_a_fenced_commit_nothing_leaves_and_callers_hear_that_it_moved() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    let waiting = node.await_end("a");
    node.finish("a", "A1", "one").take_turns();
    let raised = node.raise("a", "n", "1");
    let started = node.start("steps", "b", number(1));
    node.take_turns();
    node.fence();
    while node.commit() > 0 {}
    assert_eq!(node.runs(), ["a A1"], "neither A2 of a nor A1 of b");
    assert_eq!(node.lines("a").len(), 2);
    assert_eq!(node.try_row("b"), None);
    let moved = "moved";
    assert_eq!(node.told_all([raised, started, waiting]), [moved, moved, moved]);
}

#[test]
fn g4_a_refused_owner_drops_the_shards_memory_at_once() {
    let mut node = ManualNode::new(handlers());
    let ids = ManualNode::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    node.start("steps", a, number(2));
    node.start("steps", b, number(1));
    node.start("collect", c, ());
    node.settle();
    let (b_ends, c_raised) = (node.await_end(b), node.raise(c, "n", "1"));
    node.finish(a, "A1", "one");
    node.take_turn(a);
    node.fence();
    node.commit();
    assert_eq!(node.in_memory(a), 0, "all three are another node's now");
    let moved = "moved";
    assert_eq!(node.told_all([b_ends, c_raised]), [moved, moved]);
    assert_eq!(node.stops(), [format!("{b} A1")]);
}

#[test]
fn g4_a_shard_that_is_lost_answers_everybody_who_waits() {
    let mut node = ManualNode::new(handlers());
    for id in ["idle", "turning", "committing"] {
        node.start("collect", id, ());
    }
    node.start("steps", "running", number(1));
    node.settle();
    let starting = node.start("collect", "starting", ());
    let rival = node.start("collect", "starting", ());
    let turning = node.raise("turning", "n", "1");
    let committing = node.raise("committing", "n", "1");
    node.take_turn("committing");
    let starting_commit = node.start("collect", "started", ());
    node.take_turn("started");
    let looked_up = node.raise("elsewhere", "n", "1");
    let waiting = node.await_end("idle");
    node.lose_shards();
    let moved = "moved";
    assert_eq!(node.told_all([turning, committing, looked_up, waiting]), [moved; 4]);
    assert_eq!(node.told_all([starting, starting_commit, rival]), [moved; 3], "starts wait too");
    assert_eq!(node.stops(), ["running A1"]);
}

#[test]
fn g4_a_turn_and_all_that_goes_with_it_is_written_or_nothing_is() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.send_event("a", "n", "end");
    node.pass_inbox().take_turns();
    node.commit_as("a", CommitOutcome::Fenced);
    assert_eq!((node.status("a"), node.lines("a").len(), node.inbox("a").len()), ("running".into(), 2, 1));
    node.restart();
    assert_eq!((node.status("a"), node.lines("a").len(), node.inbox("a").len()), ("completed".into(), 4, 0));
    assert_eq!(node.writes("a"), ["insert running, turn 1", "turn 2, status completed, consumed 1"]);
}

#[test]
fn g6_a_lone_commit_goes_at_once_and_while_it_is_synced_the_next_batch_gathers() {
    let mut node = ManualNode::new(handlers());
    let started = ["a", "b", "c", "d"].map(|id| node.start("echo", id, id));
    node.take_turns();
    assert_eq!(node.batch(), ["a"], "nothing waits for company");
    node.commit();
    assert_eq!(node.batch(), ["b", "c", "d"], "one sync for all that has gathered");
    assert_eq!(node.told_all(started), ["started", "nothing", "nothing", "nothing"]);
    node.commit();
    assert_eq!(node.told_all(started), ["started"; 4]);
    assert!(node.batch().is_empty());
}
