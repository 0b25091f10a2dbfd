//! Events: to whom, in which order, each once, and how many (G15, G16, G17, G18).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

fn collecting() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node
}

/// What a collector has collected, once it is told to end.
fn collected(node: &mut ManualNode) -> String {
    node.raise("a", "n", "end");
    node.settle();
    let last = node.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").expect("it is complete").1.to_owned()
}

#[test]
fn g17_what_is_asked_of_a_missing_id_is_an_error_to_the_caller() {
    let mut node = ManualNode::new(handlers());
    let asked = [
        node.raise("nobody", "n", "1"),
        node.cancel("nobody", "enough"),
        node.terminate("nobody", "enough"),
        node.retry("nobody"),
        node.await_end("nobody"),
    ];
    node.settle();
    assert_eq!(node.told_all(asked), ["not found"; 5]);
    assert_eq!((node.in_memory("nobody"), node.tables().inbox.len()), (0, 0));
}

#[test]
fn g17_what_is_asked_of_a_finished_instance_is_an_error_to_the_caller() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "a", "1");
    node.settle();
    let asked = [
        node.raise("a", "n", "1"),
        node.cancel("a", "enough"),
        node.terminate("a", "enough"),
        node.retry("a"),
        node.await_end("a"),
    ];
    node.settle();
    assert_eq!(node.told_all(asked), ["ended before"; 5]);
    assert_eq!((node.lines("a").len(), node.in_memory("a")), (2, 0));
}

#[test]
fn g17_an_event_before_its_wait_is_kept() {
    let late = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("first", ()).await;
        Ok(ctx.schedule_wait("n").await)
    };
    let mut node = ManualNode::new(handlers_and("late", late));
    node.start("late", "a", ());
    node.settle();
    node.raise("a", "n", "early");
    node.settle().restart();
    node.finish("a", "first", ()).settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted "early""#]);
}

#[test]
fn g17_events_of_one_sender_keep_their_order_through_turns_commits_loads_and_blocks() {
    let mut node = collecting();
    node.raise("a", "n", "1");
    node.raise("a", "n", "2");
    node.take_turns();
    node.raise("a", "n", "3");
    node.commit();
    node.raise("a", "n", "4");
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics));
    node.settle().crash();
    node.raise("a", "n", "5");
    node.look_up();
    node.raise("a", "n", "6");
    node.load();
    node.raise("a", "n", "7");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.raise("a", "n", "8");
    node.raise("a", "n", "9");
    node.settle();
    node.replace_code(handlers()).at(100_000);
    node.raise("a", "n", "10");
    node.load();
    node.raise("a", "n", "11");
    node.settle();
    assert_eq!(collected(&mut node), r#"["1","2","3","4","5","6","7","8","9","10","11"]"#);
}

#[test]
fn g16_an_event_with_a_known_key_is_applied_once() {
    let mut node = collecting();
    let one_turn = [node.raise_once("a", "n", "k1", "1"), node.raise_once("a", "n", "k2", "2")];
    let again = [node.raise_once("a", "n", "k2", "2"), node.raise_once("a", "n", "k1", "1")];
    node.settle();
    let resident = node.raise_once("a", "n", "k1", "1");
    node.settle().crash();
    let hydrated = node.raise_once("a", "n", "k2", "2");
    node.settle();
    assert_eq!(node.told_all(one_turn), ["accepted"; 2]);
    assert_eq!(node.told_all([again[0], again[1], resident, hydrated]), ["accepted"; 4]);
    assert_eq!(collected(&mut node), r#"["1","2"]"#);
}

#[test]
fn g16_an_event_with_a_known_key_is_kept_once_for_a_blocked_instance() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", ());
    node.settle();
    let raised = ["k1", "k2", "k1"].map(|key| {
        let raised = node.raise_once("a", "n", key, key);
        node.settle();
        raised
    });
    assert_eq!(node.told_all(raised), ["accepted"; 3]);
    assert_eq!(node.inbox("a"), ["Start panics", r#"ExternalEvent "n" "k1""#, r#"ExternalEvent "n" "k2""#]);
}

#[test]
fn g15_a_message_is_consumed_by_the_commit_that_applies_it() {
    let mut node = collecting();
    node.send_event("a", "n", "1");
    node.pass_inbox().take_turns();
    assert_eq!(node.inbox("a").len(), 1);
    node.commit();
    assert_eq!((node.inbox("a").len(), node.writes("a").pop().as_deref()), (0, Some("turn 2, consumed 1")));
}

#[test]
fn g15_an_inbox_row_that_is_seen_again_while_it_is_in_work_is_applied_once() {
    let mut node = collecting();
    node.crash();
    node.send_event("a", "n", "1");
    node.send_event("a", "n", "2");
    node.pass_inbox().pass_inbox();
    node.load();
    node.pass_inbox().take_turns();
    node.pass_inbox().take_turns();
    node.pass_inbox();
    node.commit();
    node.pass_inbox().settle();
    assert_eq!(collected(&mut node), r#"["1","2"]"#);
}

#[test]
fn g15_an_inbox_row_that_was_read_before_it_was_consumed_is_applied_once() {
    let mut node = collecting();
    node.crash();
    node.send_event("a", "n", "1");
    let read_before = node.read_inbox();
    node.raise("a", "n", "2");
    node.settle();
    assert!(node.inbox("a").is_empty(), "the load brought it along; it is applied and gone");
    node.bring(read_before);
    node.settle();
    assert_eq!(collected(&mut node), r#"["1","2"]"#, "each event appears once");
}

#[test]
fn g15_rows_of_the_inbox_are_applied_by_number_in_whatever_order_they_are_read() {
    let mut node = collecting();
    node.crash();
    node.send_event("a", "n", "1");
    let first = node.read_inbox();
    node.bring(first.clone());
    node.bring(first);
    assert_eq!(node.loads_to_make(), ["a"]);
    node.send_event("a", "n", "2");
    node.settle();
    node.send_event("a", "n", "3");
    node.pass_inbox().settle();
    assert_eq!(collected(&mut node), r#"["1","2","3"]"#, "in their sender's order");
}

#[test]
fn g15_messages_to_a_blocked_instance_are_rows_and_are_applied_after_the_cure() {
    let mut node = collecting();
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics)).crash();
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!(
        (node.told(raised), node.inbox("a")),
        ("accepted".into(), vec![r#"ExternalEvent "n" "1""#.to_owned()])
    );
    let (second, third) = (node.raise("a", "n", "2"), node.raise("a", "n", "3"));
    assert_eq!(node.told(second), "nothing", "a row is on its way");
    node.settle();
    assert_eq!(node.told_all([second, third]), ["accepted"; 2]);
    node.send_event("a", "n", "4");
    node.pass_inbox().settle();
    assert_eq!(node.inbox("a").len(), 4);
    node.replace_code(handlers()).restart();
    assert!(node.inbox("a").is_empty());
    assert_eq!(collected(&mut node), r#"["1","2","3","4"]"#);
}

#[test]
fn g17_an_acknowledged_event_whose_instance_ended_first_is_cleared_and_counted() {
    let mut node = collecting();
    node.raise("a", "n", "end");
    node.take_turns();
    node.send_event("a", "n", "late");
    node.settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("completed".into(), 1));
    node.pass_inbox().settle();
    assert_eq!((node.inbox("a").len(), node.in_memory("a")), (0, 0));
    assert_eq!(node.lines("a").len(), 4);
    assert_eq!(node.counters("a").events_refused, 1, "it was acknowledged and never appeared");
}

#[test]
fn g17_an_event_that_comes_too_late_in_memory_is_not_acknowledged() {
    let mut node = collecting();
    node.raise("a", "n", "end");
    node.take_turns();
    let late = node.raise("a", "n", "late");
    node.settle();
    assert_eq!((node.told(late), node.in_memory("a")), ("ended before".into(), 0));
}

#[test]
fn g17_an_event_that_a_termination_overtakes_is_not_acknowledged() {
    let mut node = collecting();
    node.raise("a", "n", "1");
    let (behind, terminated) = (node.raise("a", "n", "2"), node.terminate("a", "enough"));
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    assert!(!node.lines("a").iter().any(|line| line.ends_with(r#"ExternalEvent "n" "2""#)));
    assert_eq!(node.told(behind), "ended before", "it is not on disk and will not be done");
}

#[test]
fn g18_10000_unread_events_refuse_the_next() {
    let mut node = collecting();
    node.raise("a", "n", "0");
    node.take_turns();
    let first = node.raise("a", "n", "1");
    for event in 2..=10_000 {
        node.raise("a", "n", event.to_string());
    }
    let (refused, terminated) = (node.raise("a", "n", "10001"), node.terminate("a", "enough"));
    assert_eq!(node.told_all([first, refused, terminated]), ["nothing", "full: 10000", "nothing"]);
    node.commit();
    node.settle();
    assert_eq!(node.told(terminated), "accepted", "a termination is never refused");
}

fn few_unread(max_unread: usize) -> ShardOptions {
    ShardOptions { max_unread, ..ShardOptions::default() }
}

#[test]
fn g18_once_events_are_applied_there_is_room_again() {
    let mut node = ManualNode::with_options(handlers(), few_unread(2));
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    let raised = ["2", "3", "4"].map(|event| node.raise("a", "n", event));
    node.settle();
    let after = node.raise("a", "n", "5");
    node.settle();
    // The first is being delivered, and not read yet.
    assert_eq!(node.told_all(raised), ["accepted", "full: 2", "full: 2"]);
    assert_eq!(node.told(after), "accepted");
    assert_eq!(collected(&mut node), r#"["1","2","5"]"#);
}

#[test]
fn g18_unread_events_of_a_blocked_instance_count() {
    let mut node = ManualNode::with_options(handlers_and("panics", panics), few_unread(3));
    node.start("panics", "a", ());
    node.settle();
    let raised = ["1", "2", "3", "4"].map(|event| {
        let raised = node.raise("a", "n", event);
        node.settle();
        raised
    });
    assert_eq!(node.told_all(raised), ["accepted", "accepted", "accepted", "full: 3"]);
}

#[test]
fn g18_results_of_activities_are_no_unread_events() {
    let mut node = ManualNode::with_options(handlers(), few_unread(2));
    node.start("fan", "a", number(4));
    node.settle();
    for name in ["A1", "A2", "A3"] {
        node.finish("a", name, ());
    }
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.told(raised), "accepted", "no event is unread");
}

#[test]
fn g18_a_cancel_is_no_event_and_is_taken_also_by_a_full_instance() {
    let mut node = ManualNode::with_options(handlers(), few_unread(2));
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.raise("a", "n", "2");
    node.raise("a", "n", "3");
    let cancelled = node.cancel("a", "enough");
    node.settle();
    assert_eq!((node.told(cancelled), node.status("a")), ("accepted".into(), "cancelled".into()));
}

/// Another process sent two events, of which the first cannot be read.
fn with_unreadable() -> ManualNode {
    let mut node = collecting();
    node.start("collect", "neighbour", ());
    node.settle();
    node.send_event("a", "n", "1");
    let number = *node.tables().inbox.keys().next().expect("one message");
    node.tables().inbox.get_mut(&number).expect("it is there").body = Vec::from(b"{".as_slice()).into();
    node.send_event("a", "n", "2");
    node.pass_inbox().settle();
    node
}

#[test]
fn g15_a_message_that_cannot_be_read_blocks_its_instance_alone_and_nothing_overtakes_it() {
    let mut node = with_unreadable();
    for _ in 0..2 {
        assert_eq!(node.status("a"), "running, blocked: PER-0308");
        assert_eq!(node.inbox("a"), ["unreadable", r#"ExternalEvent "n" "2""#]);
        node.raise("neighbour", "n", "1");
        node.settle();
        assert_eq!(node.status("neighbour"), "running");
        assert!(node.is_quiet());
        node.restart();
    }
    assert_eq!(node.lines("neighbour").len(), 6, "both of the neighbour's events are there");
}

#[test]
fn g15_an_instance_with_an_unreadable_message_can_be_terminated_and_the_message_goes() {
    for is_restarted in [false, true] {
        let mut node = with_unreadable();
        if is_restarted {
            node.crash();
        }
        let terminated = node.terminate("a", "enough");
        node.settle();
        assert_eq!((node.told(terminated), node.status("a")), ("accepted".into(), "terminated".into()));
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g15_an_instance_goes_on_once_its_messages_can_be_read() {
    let mut node = with_unreadable();
    let body = node.tables().inbox.values().last().expect("two messages").body.clone();
    let first = *node.tables().inbox.keys().next().expect("two messages");
    node.tables().inbox.get_mut(&first).expect("it is there").body = body;
    let retried = node.retry("a");
    node.settle();
    assert_eq!((node.told(retried), node.status("a")), ("accepted".into(), "running".into()));
    assert_eq!(collected(&mut node), r#"["2","2"]"#);
}
