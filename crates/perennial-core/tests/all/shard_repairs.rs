//! Repairs that are recorded: who resumed an instance, and messages that were skipped because nobody can read them (G46,
//! G50).

use crate::shard_cases::{handlers, number};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::{Message, Request};
use perennial_core::store::{InboxNumber, Pause, Skippable};
use perennial_core::{Handlers, Job, Why};
use perennial_testkit::ManualNode;

fn node() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node
}

fn resumes(node: &ManualNode, id: &str) -> Vec<String> {
    let mut lines = node.lines(id);
    lines.retain(|line| line.contains("InstanceResumed"));
    lines
}

/// Raises an event through the store, and changes a bit of what is stored of it.
fn send_damaged(node: &mut ManualNode, id: &str) -> InboxNumber {
    node.send_event(id, "n", "lost");
    let mut tables = node.tables();
    let (number, message) = tables.inbox.iter_mut().next_back().expect("it is stored");
    let mut body = message.body.to_vec();
    *body.last_mut().expect("it has bytes") ^= 1;
    message.body = body.into();
    *number
}

fn skip(node: &mut ManualNode, id: &str, number: InboxNumber) -> String {
    let asked = node.request(id, Request::Skip(Skippable::Message(number)));
    node.settle();
    node.told(asked)
}

const UNREADABLE: &str = "running, blocked: PER-0308";

#[test]
fn g46_a_resume_is_recorded_with_who_and_when_and_what_the_pause_was() {
    let mut node = node();
    node.at(1_000).pause("a", "for repair");
    node.settle().restart();
    node.at(5_000).resume("a");
    node.settle();
    assert_eq!(resumes(&node, "a"), ["3 InstanceResumed by ada: repaired; paused for repair"]);
    let turn = node.history(&node.row("a"), 1).turns.pop().expect("it has turns");
    assert!(matches!(turn.jobs().next(), Some((_, Job::InstanceResumed { paused_ms: 1_000, .. }))));
    assert_eq!(turn.at_ms, 5_000);
    // It is replayed, and means nothing to the code.
    node.restart();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!((node.status("a").as_str(), resumes(&node, "a").len()), ("completed", 1));
}

#[test]
fn g46_a_resume_of_what_is_not_paused_leaves_nothing() {
    let mut node = node();
    let told = node.resume("a");
    node.settle();
    node.send_message("a", &Message::Resume("again".into()));
    node.pass_inbox().settle();
    assert_eq!((node.told(told).as_str(), node.lines("a").len(), node.inbox("a").len()), ("accepted", 2, 0));
}

#[test]
fn g46_a_resume_is_recorded_once_however_often_it_is_asked_for_and_crashes() {
    for crash_after in 0..6 {
        let mut node = node();
        node.pause("a", "for repair");
        node.settle();
        node.send_message("a", &Message::Resume("near".into()));
        node.send_message("a", &Message::Resume("far".into()));
        node.pass_inbox();
        for _ in 0..crash_after {
            let _ = node.load() || node.take_turns() || node.commit() > 0;
        }
        node.restart().pass_inbox().settle();
        assert_eq!(resumes(&node, "a"), ["3 InstanceResumed far; paused for repair"], "{crash_after}");
        assert_eq!((node.status("a").as_str(), node.inbox("a").len()), ("running", 0), "{crash_after}");
    }
}

#[test]
fn g46_a_resume_is_recorded_when_the_code_is_back_that_did_not_fit() {
    let mut node = node();
    node.pause("a", "for repair");
    node.settle();
    node.replace_code(Handlers::default()).restart();
    let told = node.resume("a");
    node.settle();
    assert_eq!(
        (node.told(told).as_str(), node.status("a").as_str()),
        ("accepted", "running, blocked: PER-0301")
    );
    node.replace_code(handlers()).restart();
    node.settle();
    assert_eq!((resumes(&node, "a").len(), node.status("a").as_str()), (1, "running"));
}

#[test]
fn g46_an_instance_that_was_paused_before_it_began_records_its_resume_in_its_first_turn() {
    let mut node = ManualNode::new(handlers());
    node.send_start("echo", "a", number(1));
    node.pause("a", "not yet");
    node.settle();
    assert_eq!(node.status("a"), "pending, blocked: PER-0309");
    let told = node.resume("a");
    node.settle();
    assert_eq!((node.told(told).as_str(), node.status("a").as_str()), ("accepted", "completed"));
    assert_eq!(resumes(&node, "a").len(), 1);
}

#[test]
fn g46_an_instance_whose_time_to_start_has_not_come_is_resumed_at_once() {
    let mut node = ManualNode::new(handlers());
    node.send_delayed_start("echo", "a", number(1), 60_000);
    node.settle();
    node.pause("a", "not yet");
    node.settle();
    let told = node.resume("a");
    node.settle();
    assert_eq!((node.told(told).as_str(), node.status("a").as_str()), ("accepted", "pending"));
    node.at(61_000).settle();
    assert_eq!((node.status("a").as_str(), resumes(&node, "a").len()), ("completed", 1));
}

#[test]
fn g47_what_goes_on_with_its_orchestration_records_that() {
    let options = LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    // The lane reads it once per lease.
    node.set_paused(&["collect"]).at(5_000).settle().at(9_000).settle().at(13_000).settle();
    node.raise("a", "n", number(1));
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0309");
    node.set_paused(&[]).at(17_000).settle().at(21_000).settle().at(25_000).settle();
    let expected = "InstanceResumed its orchestration was resumed; paused";
    assert!(matches!(&*resumes(&node, "a"), [line] if line.contains(expected)), "{:?}", node.lines("a"));
    assert_eq!(node.status("a"), "running");
}

#[test]
fn g50_a_message_that_nobody_can_read_is_skipped_and_that_is_recorded() {
    let mut node = node();
    let damaged = send_damaged(&mut node, "a");
    node.send_event("a", "n", number(2));
    node.pass_inbox().settle();
    assert_eq!(
        (node.status("a").as_str(), node.row("a").blocked.unwrap().message),
        (UNREADABLE, Some(damaged))
    );
    let refused = skip(&mut node, "a", damaged + 1);
    assert!(refused.contains(&format!("Message({damaged})")), "{refused}");
    assert_eq!((skip(&mut node, "a", damaged).as_str(), node.status("a").as_str()), ("accepted", "running"));
    assert_eq!(node.inbox("a").len(), 0);
    node.restart();
    node.raise("a", "n", "end");
    node.settle();
    let lines = node.lines("a");
    assert!(lines[2].starts_with(&format!("3 MessageSkipped {damaged}: ")), "{lines:?}");
    assert!(lines.last().unwrap().ends_with("OrchestrationCompleted [2]"), "{lines:?}");
    assert_eq!(skip(&mut node, "a", damaged), "ended before");
}

#[test]
fn g50_several_unreadable_messages_are_skipped_one_after_the_other() {
    let mut node = node();
    let damaged = [send_damaged(&mut node, "a"), send_damaged(&mut node, "a")];
    node.pass_inbox().settle();
    for number in damaged {
        assert_eq!(
            (node.status("a").as_str(), node.row("a").blocked.unwrap().message),
            (UNREADABLE, Some(number))
        );
        assert_eq!(skip(&mut node, "a", number), "accepted");
    }
    assert_eq!((node.status("a").as_str(), node.inbox("a").len()), ("running", 0));
}

#[test]
fn g50_a_skip_from_another_process_is_done_once_over_crashes() {
    for crash_after in 0..6 {
        let mut node = node();
        let damaged = send_damaged(&mut node, "a");
        node.pass_inbox().settle();
        node.send_message("a", &Message::SkipMessage { number: damaged });
        node.pass_inbox();
        for _ in 0..crash_after {
            let _ = node.load() || node.take_turns() || node.commit() > 0;
        }
        node.restart().pass_inbox().settle();
        let skipped = node.lines("a").iter().filter(|line| line.contains("MessageSkipped")).count();
        assert_eq!((node.status("a").as_str(), skipped), ("running", 1), "{crash_after}");
        assert_eq!(node.inbox("a").len(), 0, "{crash_after}");
    }
}

#[test]
fn g50_a_start_that_nobody_can_read_is_not_skipped() {
    let mut node = ManualNode::new(handlers());
    node.send_start("echo", "a", number(1));
    let damaged = {
        let mut tables = node.tables();
        let (number, message) = tables.inbox.iter_mut().next_back().expect("it is stored");
        message.body = b"nothing"[..].into();
        *number
    };
    node.settle();
    skip(&mut node, "a", damaged);
    assert!(node.status("a").starts_with("pending, blocked: PER-"), "{}", node.status("a"));
    assert_eq!(node.inbox("a"), ["unreadable"]);
    node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.status("a"), "terminated");
}

/// Found by the simulator: the record of the resume hid that the start cannot be read.
#[test]
fn g50_a_resumed_instance_whose_start_nobody_can_read_says_so() {
    let mut node = ManualNode::new(handlers());
    node.send_start("echo", "a", number(1));
    if let Some(message) = node.tables().inbox.values_mut().next_back() {
        message.body = b"nothing"[..].into();
    }
    node.send_message("a", &Message::Pause(Pause::default()));
    node.pass_inbox().settle();
    assert!(node.status("a").starts_with("pending, blocked: PER-0309"), "{}", node.status("a"));
    node.send_message("a", &Message::Resume(Why::new("it is over")));
    node.pass_inbox().settle();
    assert!(node.status("a").starts_with(&UNREADABLE.replace("running", "pending")), "{}", node.status("a"));
}

/// Found by the simulator, seed 7849: the first turn took the cancel and everything else, past what could not be read.
#[test]
fn g50_no_message_passes_an_unreadable_one_with_a_cancel_before_the_first_turn() {
    let mut node = ManualNode::new(handlers());
    node.send_start("collect", "a", ());
    send_damaged(&mut node, "a");
    node.send_event("a", "n", number(2));
    node.send_message("a", &Message::Pause(Pause::default()));
    node.pass_inbox().settle();
    let (reason, grace_ms) = ("enough".to_owned(), 3_600_000);
    node.send_message("a", &Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms }));
    node.send_message("a", &Message::Resume(Why::new("it is over")));
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), UNREADABLE.replace("running", "pending"));
    assert_eq!(node.lines("a"), Vec::<String>::new(), "nothing is taken");
}
