//! Events: to whom, in which order, each once, and how many (G15, G16, G17, G18).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

fn collecting() -> Desk {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk
}

/// What a collector has collected, once it is told to end.
fn collected(desk: &mut Desk) -> String {
    desk.raise("a", "n", "end");
    desk.settle();
    let last = desk.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").expect("it is complete").1.to_owned()
}

#[test]
fn g17_what_is_asked_of_a_missing_id_is_an_error_to_the_caller() {
    let mut desk = Desk::new(handlers());
    let asked = [
        desk.raise("nobody", "n", "1"),
        desk.cancel("nobody", "enough"),
        desk.terminate("nobody", "enough"),
        desk.retry("nobody"),
        desk.await_end("nobody"),
    ];
    desk.settle();
    assert_eq!(desk.told_all(asked), ["not found"; 5]);
    assert_eq!((desk.in_memory("nobody"), desk.tables().inbox.len()), (0, 0));
}

#[test]
fn g17_what_is_asked_of_a_finished_instance_is_an_error_to_the_caller() {
    let mut desk = Desk::new(handlers());
    desk.start("echo", "a", "1");
    desk.settle();
    let asked = [
        desk.raise("a", "n", "1"),
        desk.cancel("a", "enough"),
        desk.terminate("a", "enough"),
        desk.retry("a"),
        desk.await_end("a"),
    ];
    desk.settle();
    assert_eq!(desk.told_all(asked), ["ended before"; 5]);
    assert_eq!((desk.lines("a").len(), desk.in_memory("a")), (2, 0));
}

#[test]
fn g17_an_event_before_its_wait_is_kept() {
    let late = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("first", ()).await;
        Ok(ctx.schedule_wait("n").await)
    };
    let mut desk = Desk::new(handlers_and("late", late));
    desk.start("late", "a", ());
    desk.settle();
    desk.raise("a", "n", "early");
    desk.settle().restart();
    desk.finish("a", "first", ()).settle();
    assert_eq!(desk.last_lines("a", 1), [r#"6 OrchestrationCompleted "early""#]);
}

#[test]
fn g17_events_of_one_sender_keep_their_order_through_turns_commits_loads_and_blocks() {
    let mut desk = collecting();
    desk.raise("a", "n", "1");
    desk.raise("a", "n", "2");
    desk.take_turns();
    desk.raise("a", "n", "3");
    desk.commit();
    desk.raise("a", "n", "4");
    desk.replace_code(handlers().with("collect", Desk::VERSION, panics));
    desk.settle().crash();
    desk.raise("a", "n", "5");
    desk.look_up();
    desk.raise("a", "n", "6");
    desk.load();
    desk.raise("a", "n", "7");
    desk.settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0201");
    desk.raise("a", "n", "8");
    desk.raise("a", "n", "9");
    desk.settle();
    desk.replace_code(handlers()).at(100_000);
    desk.raise("a", "n", "10");
    desk.load();
    desk.raise("a", "n", "11");
    desk.settle();
    assert_eq!(collected(&mut desk), r#"["1","2","3","4","5","6","7","8","9","10","11"]"#);
}

#[test]
fn g16_an_event_with_a_known_key_is_applied_once() {
    let mut desk = collecting();
    let one_turn = [desk.raise_once("a", "n", "k1", "1"), desk.raise_once("a", "n", "k2", "2")];
    let again = [desk.raise_once("a", "n", "k2", "2"), desk.raise_once("a", "n", "k1", "1")];
    desk.settle();
    let resident = desk.raise_once("a", "n", "k1", "1");
    desk.settle().crash();
    let hydrated = desk.raise_once("a", "n", "k2", "2");
    desk.settle();
    assert_eq!(desk.told_all(one_turn), ["accepted"; 2]);
    assert_eq!(desk.told_all([again[0], again[1], resident, hydrated]), ["accepted"; 4]);
    assert_eq!(collected(&mut desk), r#"["1","2"]"#);
}

#[test]
fn g16_an_event_with_a_known_key_is_kept_once_for_a_blocked_instance() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", ());
    desk.settle();
    let raised = ["k1", "k2", "k1"].map(|key| {
        let raised = desk.raise_once("a", "n", key, key);
        desk.settle();
        raised
    });
    assert_eq!(desk.told_all(raised), ["accepted"; 3]);
    assert_eq!(desk.inbox("a"), ["Start panics", r#"ExternalEvent "n" "k1""#, r#"ExternalEvent "n" "k2""#]);
}

#[test]
fn g15_a_message_is_consumed_by_the_commit_that_applies_it() {
    let mut desk = collecting();
    desk.send_event("a", "n", "1");
    desk.pass_inbox().take_turns();
    assert_eq!(desk.inbox("a").len(), 1);
    desk.commit();
    assert_eq!((desk.inbox("a").len(), desk.writes("a").pop().as_deref()), (0, Some("turn 2, consumed 1")));
}

#[test]
fn g15_an_inbox_row_that_is_seen_again_while_it_is_in_work_is_applied_once() {
    let mut desk = collecting();
    desk.crash();
    desk.send_event("a", "n", "1");
    desk.send_event("a", "n", "2");
    desk.pass_inbox().pass_inbox();
    desk.load();
    desk.pass_inbox().take_turns();
    desk.pass_inbox().take_turns();
    desk.pass_inbox();
    desk.commit();
    desk.pass_inbox().settle();
    assert_eq!(collected(&mut desk), r#"["1","2"]"#);
}

#[test]
fn g15_an_inbox_row_that_was_read_before_it_was_consumed_is_applied_once() {
    let mut desk = collecting();
    desk.crash();
    desk.send_event("a", "n", "1");
    let read_before = desk.read_inbox();
    desk.raise("a", "n", "2");
    desk.settle();
    assert!(desk.inbox("a").is_empty(), "the load brought it along; it is applied and gone");
    desk.bring_inbox(read_before);
    desk.settle();
    assert_eq!(collected(&mut desk), r#"["1","2"]"#, "each event appears once");
}

#[test]
fn g15_rows_of_the_inbox_are_applied_by_number_in_whatever_order_they_are_read() {
    let mut desk = collecting();
    desk.crash();
    desk.send_event("a", "n", "1");
    let first = desk.read_inbox();
    desk.bring_inbox(first.clone());
    desk.bring_inbox(first);
    desk.send_event("a", "n", "2");
    desk.settle();
    desk.send_event("a", "n", "3");
    desk.pass_inbox().settle();
    assert_eq!(collected(&mut desk), r#"["1","2","3"]"#, "in their sender's order");
}

#[test]
fn g15_messages_to_a_blocked_instance_are_rows_and_are_applied_after_the_cure() {
    let mut desk = collecting();
    desk.replace_code(handlers().with("collect", Desk::VERSION, panics)).crash();
    let raised = desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(
        (desk.told(raised), desk.inbox("a")),
        ("accepted".into(), vec![r#"ExternalEvent "n" "1""#.to_owned()])
    );
    let (second, third) = (desk.raise("a", "n", "2"), desk.raise("a", "n", "3"));
    assert_eq!(desk.told(second), "nothing", "a row is on its way");
    desk.settle();
    assert_eq!(desk.told_all([second, third]), ["accepted"; 2]);
    desk.send_event("a", "n", "4");
    desk.pass_inbox().settle();
    assert_eq!(desk.inbox("a").len(), 4);
    desk.replace_code(handlers()).restart();
    assert!(desk.inbox("a").is_empty());
    assert_eq!(collected(&mut desk), r#"["1","2","3","4"]"#);
}

#[test]
fn g17_an_acknowledged_event_whose_instance_ended_first_is_cleared_and_counted() {
    let mut desk = collecting();
    desk.raise("a", "n", "end");
    desk.take_turns();
    desk.send_event("a", "n", "late");
    desk.settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("completed".into(), 1));
    desk.pass_inbox().settle();
    assert_eq!((desk.inbox("a").len(), desk.in_memory("a")), (0, 0));
    assert_eq!(desk.lines("a").len(), 4);
    assert_eq!(desk.counters("a").stale, 1, "it was acknowledged and never appeared");
}

#[test]
fn g17_an_event_that_comes_too_late_in_memory_is_not_acknowledged() {
    let mut desk = collecting();
    desk.raise("a", "n", "end");
    desk.take_turns();
    let late = desk.raise("a", "n", "late");
    desk.settle();
    assert_eq!((desk.told(late), desk.in_memory("a")), ("ended before".into(), 0));
}

#[test]
fn g17_an_event_that_a_termination_overtakes_is_not_acknowledged() {
    let mut desk = collecting();
    desk.raise("a", "n", "1");
    let (behind, terminated) = (desk.raise("a", "n", "2"), desk.terminate("a", "enough"));
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    assert!(!desk.lines("a").iter().any(|line| line.ends_with(r#"ExternalEvent "n" "2""#)));
    assert_eq!(desk.told(behind), "ended before", "it is not on disk and will not be done");
}

#[test]
fn g18_10000_unread_events_refuse_the_next() {
    let mut desk = collecting();
    desk.raise("a", "n", "0");
    desk.take_turns();
    let first = desk.raise("a", "n", "1");
    for event in 2..=10_000 {
        desk.raise("a", "n", event.to_string());
    }
    let (refused, terminated) = (desk.raise("a", "n", "10001"), desk.terminate("a", "enough"));
    assert_eq!(desk.told_all([first, refused, terminated]), ["nothing", "full: 10000", "nothing"]);
    desk.commit();
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted", "a termination is never refused");
}

fn few_unread(max_unread: usize) -> ShardOptions {
    ShardOptions { max_unread, ..ShardOptions::default() }
}

#[test]
fn g18_once_events_are_applied_there_is_room_again() {
    let mut desk = Desk::with_options(handlers(), few_unread(2));
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    let raised = ["2", "3", "4"].map(|event| desk.raise("a", "n", event));
    desk.settle();
    let after = desk.raise("a", "n", "5");
    desk.settle();
    assert_eq!(desk.told_all(raised), ["accepted", "accepted", "full: 2"]);
    assert_eq!(desk.told(after), "accepted");
    assert_eq!(collected(&mut desk), r#"["1","2","3","5"]"#);
}

#[test]
fn g18_unread_events_of_a_blocked_instance_count() {
    let mut desk = Desk::with_options(handlers_and("panics", panics), few_unread(3));
    desk.start("panics", "a", ());
    desk.settle();
    let raised = ["1", "2", "3", "4"].map(|event| {
        let raised = desk.raise("a", "n", event);
        desk.settle();
        raised
    });
    assert_eq!(desk.told_all(raised), ["accepted", "accepted", "accepted", "full: 3"]);
}

#[test]
fn g18_results_of_activities_are_no_unread_events() {
    let mut desk = Desk::with_options(handlers(), few_unread(2));
    desk.start("fan", "a", number(4));
    desk.settle();
    for name in ["A1", "A2", "A3"] {
        desk.finish("a", name, ());
    }
    let raised = desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(desk.told(raised), "accepted", "no event is unread");
}

#[test]
fn g18_a_cancel_is_no_event_and_is_taken_also_by_a_full_instance() {
    let mut desk = Desk::with_options(handlers(), few_unread(2));
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.raise("a", "n", "2");
    desk.raise("a", "n", "3");
    let cancelled = desk.cancel("a", "enough");
    desk.settle();
    assert_eq!((desk.told(cancelled), desk.status("a")), ("accepted".into(), "cancelled".into()));
}

/// Another process sent two events, of which the first cannot be read.
fn with_unreadable() -> Desk {
    let mut desk = collecting();
    desk.start("collect", "neighbour", ());
    desk.settle();
    desk.send_event("a", "n", "1");
    let number = *desk.tables().inbox.keys().next().expect("one message");
    desk.tables().inbox.get_mut(&number).expect("it is there").body = Vec::from(b"{".as_slice()).into();
    desk.send_event("a", "n", "2");
    desk.pass_inbox().settle();
    desk
}

#[test]
fn g15_a_message_that_cannot_be_read_blocks_its_instance_alone_and_nothing_overtakes_it() {
    let mut desk = with_unreadable();
    for _ in 0..2 {
        assert_eq!(desk.status("a"), "running, blocked: PER-0308");
        assert_eq!(desk.inbox("a"), ["unreadable", r#"ExternalEvent "n" "2""#]);
        desk.raise("neighbour", "n", "1");
        desk.settle();
        assert_eq!(desk.status("neighbour"), "running");
        assert!(desk.is_quiet());
        desk.restart();
    }
    assert_eq!(desk.lines("neighbour").len(), 6, "both of the neighbour's events are there");
}

#[test]
fn g15_an_instance_with_an_unreadable_message_can_be_terminated_and_the_message_goes() {
    for is_restarted in [false, true] {
        let mut desk = with_unreadable();
        if is_restarted {
            desk.crash();
        }
        let terminated = desk.terminate("a", "enough");
        desk.settle();
        assert_eq!((desk.told(terminated), desk.status("a")), ("accepted".into(), "terminated".into()));
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g15_an_instance_goes_on_once_its_messages_can_be_read() {
    let mut desk = with_unreadable();
    let body = desk.tables().inbox.values().last().expect("two messages").body.clone();
    let first = *desk.tables().inbox.keys().next().expect("two messages");
    desk.tables().inbox.get_mut(&first).expect("it is there").body = body;
    let retried = desk.retry("a");
    desk.settle();
    assert_eq!((desk.told(retried), desk.status("a")), ("accepted".into(), "running".into()));
    assert_eq!(collected(&mut desk), r#"["2","2"]"#);
}
