//! Starting an id: once, however many try, and the store settles who was first (G16, G17).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::store::SendOutcome;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// A node on which a collector is dormant, with one event collected.
fn with_dormant() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle().crash();
    node
}

#[test]
fn g17_a_start_is_one_commit_of_row_and_first_turn() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("steps", "a", number(1));
    node.settle();
    assert_eq!(
        (node.told(started), node.writes("a")),
        ("started".into(), vec!["insert running, owed, turn 1".to_owned()])
    );
    let row = node.row("a");
    assert_eq!((row.name.as_str(), row.version.as_str(), row.execution), ("steps", "1.0.0", 1));
}

#[test]
fn g17_concurrent_starts_of_one_id_give_one_instance() {
    let mut node = ManualNode::new(handlers());
    let starts = [(); 4].map(|()| node.start("steps", "a", number(1)));
    node.settle();
    let taken = "already exists: running";
    assert_eq!(node.told_all(starts), ["started", taken, taken, taken]);
    assert_eq!((node.runs(), node.tables().instances.len()), (&["a A1".to_owned()][..], 1));
}

#[test]
fn g17_a_rival_start_hears_how_the_first_one_ended() {
    let mut node = ManualNode::new(handlers());
    let (first, rival) = (node.start("echo", "a", "1"), node.start("echo", "a", "2"));
    node.settle();
    assert_eq!(node.told_all([first, rival]), ["started", "already exists: completed"]);
    assert_eq!(node.last_lines("a", 1), [r#"2 OrchestrationCompleted "1""#]);
}

#[test]
fn g17_the_start_of_a_resident_id_is_refused_at_once() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    let again = node.start("collect", "a", ());
    assert_eq!(node.told(again), "already exists: running");
    assert!(node.turns_to_take().is_empty());
}

#[test]
fn g17_the_start_of_a_dormant_id_is_refused_by_the_store_and_leaves_no_trace() {
    let mut node = with_dormant();
    let before = (node.lines("a"), node.row("a"));
    let starts = [node.start("steps", "a", number(1)), node.start("steps", "a", number(1))];
    node.settle();
    assert_eq!(node.told_all(starts), ["already exists: running"; 2]);
    assert_eq!((node.lines("a"), node.row("a")), before);
    assert_eq!((node.runs().len(), node.in_memory("a"), node.tables().instances.len()), (0, 0, 1));
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
}

#[test]
fn g17_the_start_of_a_finished_id_is_refused_with_its_status() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "a", "1");
    node.settle();
    let again = node.start("echo", "a", "2");
    node.settle();
    assert_eq!(node.told(again), "already exists: completed");
    assert_eq!(node.last_lines("a", 1), [r#"2 OrchestrationCompleted "1""#]);
}

#[test]
fn g17_of_a_start_here_and_one_from_another_process_the_store_takes_the_first() {
    let mut node = ManualNode::new(handlers());
    let here = node.start("echo", "a", "here");
    node.take_turns();
    assert!(matches!(node.send_start("echo", "a", "there"), SendOutcome::Sent(_)));
    node.settle();
    assert_eq!(node.told(here), "already exists: pending");
    node.pass_inbox().settle();
    assert_eq!(node.last_lines("a", 1), [r#"2 OrchestrationCompleted "there""#]);
    assert!(matches!(node.send_start("echo", "a", "late"), SendOutcome::IdTaken(_)));
}

#[test]
fn g17_a_start_whose_first_turn_fails_is_blocked_and_not_lost() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    let (started, rival) = (node.start("panics", "a", "input"), node.start("panics", "a", "other"));
    node.settle();
    assert_eq!(node.told_all([started, rival]), ["started", "already exists: pending"]);
    assert_eq!(node.writes("a"), ["insert pending, wake 2000, blocked PER-0201, sent 1"]);
    assert_eq!(node.inbox("a"), ["Start panics"]);
    node.replace_code(handlers_and("panics", crate::shard_cases::echo)).at(2_000).settle();
    assert_eq!(node.last_lines("a", 1), [r#"2 OrchestrationCompleted "input""#]);
    assert_eq!(
        node.writes("a").pop().as_deref(),
        Some("turn 1, status completed, wake none, blocked none, consumed 1")
    );
}

#[test]
fn g17_a_start_whose_first_turn_fails_under_a_taken_id_is_refused() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("collect", "a", ());
    node.settle().crash();
    let started = node.start("panics", "a", ());
    node.settle();
    assert_eq!((node.told(started), node.status("a")), ("already exists: running".into(), "running".into()));
    assert!(node.inbox("a").is_empty());
}

#[test]
fn g16_a_start_that_is_seen_twice_in_the_inbox_starts_once() {
    let mut node = ManualNode::new(handlers());
    node.send_start("steps", "a", number(1));
    let rows = node.read_inbox();
    node.pass_inbox().pass_inbox();
    node.load();
    node.pass_inbox().take_turns();
    node.pass_inbox().settle();
    node.bring(rows);
    node.settle();
    assert_eq!(node.lines("a"), ["1 OrchestrationStarted steps 1", r#"2 ActivityScheduled "A1" null"#]);
    assert_eq!((node.runs().len(), node.inbox("a").len()), (1, 0));
}

#[test]
fn g17_an_event_to_an_instance_that_exists_reaches_it_also_while_somebody_tries_to_start_its_id() {
    let mut node = with_dormant();
    let started = node.start("collect", "a", ());
    let (raised, cancelled) = (node.raise("a", "n", "2"), node.cancel("a", "enough"));
    node.settle();
    assert_eq!(node.told(started), "already exists: running");
    assert_eq!(
        node.told_all([raised, cancelled]),
        ["accepted", "accepted"],
        "the instance was there all the while"
    );
    assert_eq!(
        node.last_lines("a", 3),
        [
            r#"6 OrchestrationCancelRequested "enough""#,
            r#"7 ExternalSubscribed "n""#,
            r#"8 OrchestrationCancelled "enough""#
        ]
    );
}

#[test]
fn g17_who_waits_for_an_instance_that_exists_hears_of_its_end_also_if_somebody_tried_to_start_its_id() {
    let mut node = with_dormant();
    node.start("collect", "a", ());
    let waiting = node.await_end("a");
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told(waiting), r#"ended: OrchestrationCompleted ["1"]"#);
}

#[test]
fn g17_requests_that_come_before_a_start_is_durable_are_done_after_it() {
    let mut node = ManualNode::new(handlers());
    let started = node.start("collect", "a", ());
    let (raised, waiting) = (node.raise("a", "n", "1"), node.await_end("a"));
    let terminated = node.terminate("a", "enough");
    node.take_turns();
    node.commit();
    assert_eq!(
        node.told_all([started, raised, terminated, waiting]),
        ["started", "nothing", "nothing", "nothing"]
    );
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    assert_eq!(node.told(waiting), r#"ended: OrchestrationTerminated "enough""#);
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn g17_the_instance_that_exists_may_wake_while_somebody_tries_to_start_its_id() {
    let mut node = ManualNode::new(handlers());
    node.start("sleep", "a", number(5_000));
    node.settle().crash();
    let started = node.start("collect", "a", ());
    node.at(6_000).settle();
    assert_eq!(node.told(started), "already exists: running");
    assert_eq!((node.status("a"), node.in_memory("a")), ("completed".into(), 0));
    let again = node.start("collect", "a", ());
    node.settle();
    assert_eq!(node.told(again), "already exists: completed");
}
