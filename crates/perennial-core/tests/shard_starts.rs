//! Starting an id: once, however many try, and the store settles who was first (G16, G17).

mod shard_cases;

use perennial_core::store::SendOutcome;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// A node on which a collector is dormant, with one event collected.
fn with_dormant() -> Desk {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle().crash();
    desk
}

#[test]
fn g17_a_start_is_one_commit_of_row_and_first_turn() {
    let mut desk = Desk::new(handlers());
    let started = desk.start("steps", "a", number(1));
    desk.settle();
    assert_eq!(
        (desk.told(started), desk.writes("a")),
        ("started".into(), vec!["insert running, owed, turn 1".to_owned()])
    );
    let row = desk.row("a");
    assert_eq!((row.name.as_str(), row.version.as_str(), row.execution), ("steps", "1.0.0", 1));
}

#[test]
fn g17_concurrent_starts_of_one_id_give_one_instance() {
    let mut desk = Desk::new(handlers());
    let starts = [(); 4].map(|()| desk.start("steps", "a", number(1)));
    desk.settle();
    let taken = "already exists: running";
    assert_eq!(desk.told_all(starts), ["started", taken, taken, taken]);
    assert_eq!((desk.runs(), desk.tables().instances.len()), (&["a A1".to_owned()][..], 1));
}

#[test]
fn g17_a_rival_start_hears_how_the_first_one_ended() {
    let mut desk = Desk::new(handlers());
    let (first, rival) = (desk.start("echo", "a", "1"), desk.start("echo", "a", "2"));
    desk.settle();
    assert_eq!(desk.told_all([first, rival]), ["started", "already exists: completed"]);
    assert_eq!(desk.last_lines("a", 1), [r#"2 OrchestrationCompleted "1""#]);
}

#[test]
fn g17_the_start_of_a_resident_id_is_refused_at_once() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    let again = desk.start("collect", "a", ());
    assert_eq!(desk.told(again), "already exists: running");
    assert!(desk.turns_to_take().is_empty());
}

#[test]
fn g17_the_start_of_a_dormant_id_is_refused_by_the_store_and_leaves_no_trace() {
    let mut desk = with_dormant();
    let before = (desk.lines("a"), desk.row("a"));
    let starts = [desk.start("steps", "a", number(1)), desk.start("steps", "a", number(1))];
    desk.settle();
    assert_eq!(desk.told_all(starts), ["already exists: running"; 2]);
    assert_eq!((desk.lines("a"), desk.row("a")), before);
    assert_eq!((desk.runs().len(), desk.in_memory("a"), desk.tables().instances.len()), (0, 0, 1));
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
}

#[test]
fn g17_the_start_of_a_finished_id_is_refused_with_its_status() {
    let mut desk = Desk::new(handlers());
    desk.start("echo", "a", "1");
    desk.settle();
    let again = desk.start("echo", "a", "2");
    desk.settle();
    assert_eq!(desk.told(again), "already exists: completed");
    assert_eq!(desk.last_lines("a", 1), [r#"2 OrchestrationCompleted "1""#]);
}

#[test]
fn g17_of_a_start_here_and_one_from_another_process_the_store_takes_the_first() {
    let mut desk = Desk::new(handlers());
    let here = desk.start("echo", "a", "here");
    desk.take_turns();
    assert!(matches!(desk.send_start("echo", "a", "there"), SendOutcome::Sent(_)));
    desk.settle();
    assert_eq!(desk.told(here), "already exists: pending");
    desk.pass_inbox().settle();
    assert_eq!(desk.last_lines("a", 1), [r#"2 OrchestrationCompleted "there""#]);
    assert!(matches!(desk.send_start("echo", "a", "late"), SendOutcome::IdTaken(_)));
}

#[test]
fn g17_a_start_whose_first_turn_fails_is_blocked_and_not_lost() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    let (started, rival) = (desk.start("panics", "a", "input"), desk.start("panics", "a", "other"));
    desk.settle();
    assert_eq!(desk.told_all([started, rival]), ["started", "already exists: pending"]);
    assert_eq!(desk.writes("a"), ["insert pending, wake 2000, blocked PER-0201, sent 1"]);
    assert_eq!(desk.inbox("a"), ["Start panics"]);
    desk.replace_code(handlers_and("panics", shard_cases::echo)).at(2_000).settle();
    assert_eq!(desk.last_lines("a", 1), [r#"2 OrchestrationCompleted "input""#]);
    assert_eq!(
        desk.writes("a").pop().as_deref(),
        Some("turn 1, status completed, wake none, blocked none, consumed 1")
    );
}

#[test]
fn g17_a_start_whose_first_turn_fails_under_a_taken_id_is_refused() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("collect", "a", ());
    desk.settle().crash();
    let started = desk.start("panics", "a", ());
    desk.settle();
    assert_eq!((desk.told(started), desk.status("a")), ("already exists: running".into(), "running".into()));
    assert!(desk.inbox("a").is_empty());
}

#[test]
fn g16_a_start_that_is_seen_twice_in_the_inbox_starts_once() {
    let mut desk = Desk::new(handlers());
    desk.send_start("steps", "a", number(1));
    let rows = desk.read_inbox();
    desk.pass_inbox().pass_inbox();
    desk.load();
    desk.pass_inbox().take_turns();
    desk.pass_inbox().settle();
    desk.bring_inbox(rows);
    desk.settle();
    assert_eq!(desk.lines("a"), ["1 OrchestrationStarted steps 1", r#"2 ActivityScheduled "A1" null"#]);
    assert_eq!((desk.runs().len(), desk.inbox("a").len()), (1, 0));
}

#[test]
fn g17_an_event_to_an_instance_that_exists_reaches_it_also_while_somebody_tries_to_start_its_id() {
    let mut desk = with_dormant();
    let started = desk.start("collect", "a", ());
    let (raised, cancelled) = (desk.raise("a", "n", "2"), desk.cancel("a", "enough"));
    desk.settle();
    assert_eq!(desk.told(started), "already exists: running");
    assert_eq!(
        desk.told_all([raised, cancelled]),
        ["accepted", "accepted"],
        "the instance was there all the while"
    );
    assert_eq!(
        desk.last_lines("a", 3),
        [
            r#"6 OrchestrationCancelRequested "enough""#,
            r#"7 ExternalSubscribed "n""#,
            r#"8 OrchestrationCancelled "enough""#
        ]
    );
}

#[test]
fn g17_who_waits_for_an_instance_that_exists_hears_of_its_end_also_if_somebody_tried_to_start_its_id() {
    let mut desk = with_dormant();
    desk.start("collect", "a", ());
    let waiting = desk.await_end("a");
    desk.settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.told(waiting), r#"ended: OrchestrationCompleted ["1"]"#);
}

#[test]
fn g17_requests_that_come_before_a_start_is_durable_are_done_after_it() {
    let mut desk = Desk::new(handlers());
    let started = desk.start("collect", "a", ());
    let (raised, waiting) = (desk.raise("a", "n", "1"), desk.await_end("a"));
    let terminated = desk.terminate("a", "enough");
    desk.take_turns();
    desk.commit();
    assert_eq!(
        desk.told_all([started, raised, terminated, waiting]),
        ["started", "nothing", "nothing", "nothing"]
    );
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    assert_eq!(desk.told(waiting), r#"ended: OrchestrationTerminated "enough""#);
    assert_eq!(desk.status("a"), "terminated");
}

#[test]
fn g17_the_instance_that_exists_may_wake_while_somebody_tries_to_start_its_id() {
    let mut desk = Desk::new(handlers());
    desk.start("sleep", "a", number(5_000));
    desk.settle().crash();
    let started = desk.start("collect", "a", ());
    desk.at(6_000).settle();
    assert_eq!(desk.told(started), "already exists: running");
    assert_eq!((desk.status("a"), desk.in_memory("a")), ("completed".into(), 0));
    let again = desk.start("collect", "a", ());
    desk.settle();
    assert_eq!(desk.told(again), "already exists: completed");
}
