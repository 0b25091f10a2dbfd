//! Pausing and resuming: a paused instance takes no turn, what comes for it is kept, and it goes on when it is resumed
//! (G46, G47).

use crate::shard_cases::{handlers, number};
use perennial_core::Why;
use perennial_core::lane::LaneOptions;
use perennial_core::shard::{Message, ShardOptions};
use perennial_core::store::{InstanceRow, Pause};
use perennial_testkit::ManualNode;

const PAUSED: &str = "running, blocked: PER-0309";

fn node() -> ManualNode {
    ManualNode::new(handlers())
}

/// A node whose lease is renewed every few seconds.
fn renewing_node() -> ManualNode {
    let options = LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    ManualNode::with_lane_options(handlers(), options)
}

/// Says which orchestrations are paused, and lets the lane renew its lease until it has read that.
fn set_paused(node: &mut ManualNode, names: &[&str]) {
    let set_ms = node.set_paused(names).now_ms();
    for passed_ms in [4_000, 8_000, 12_000] {
        node.at(set_ms + passed_ms).settle();
    }
}

fn pause_of(row: InstanceRow) -> Option<(u64, Pause)> {
    let blocked = row.blocked?;
    Some((blocked.since_ms, *blocked.pause?))
}

#[test]
fn g46_a_paused_instance_keeps_messages_and_takes_them_in_order_when_it_is_resumed() {
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    let paused = node.at(1_000).pause("a", "for repair");
    node.settle();
    assert_eq!((node.told(paused), node.status("a")), ("accepted".into(), PAUSED.into()));
    let (since_ms, pause) = pause_of(node.row("a")).unwrap();
    assert_eq!((since_ms, pause.why, pause.orchestration), (1_000, Why::new("for repair"), false));
    let raised = node.raise("a", "n", number(1));
    node.settle();
    node.send_event("a", "n", number(2));
    node.settle().pass_inbox().settle();
    assert_eq!(node.told(raised), "accepted");
    assert_eq!(node.lines("a").len(), 2, "no turn was taken");
    let resumed = node.at(5_000).resume("a");
    node.settle();
    assert_eq!(
        (node.told(resumed), node.status("a"), node.inbox("a").len()),
        ("accepted".into(), "running".into(), 0)
    );
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.last_lines("a", 1), ["9 OrchestrationCompleted [1,2]"]);
}

#[test]
fn g46_a_pause_and_a_resume_that_were_acknowledged_survive_a_crash() {
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    node.pause("a", "for repair");
    node.settle().crash().settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), (PAUSED.into(), 1));
    let resumed = node.resume("a");
    for _ in 0..20 {
        if node.told(resumed) == "accepted" {
            break;
        }
        let _ = node.look_up() || node.load() || node.commit() > 0;
    }
    assert_eq!(node.told(resumed), "accepted");
    node.crash().settle();
    assert_eq!(node.status("a"), "completed", "the next owner finds it without being asked");
}

#[test]
fn g46_timers_of_a_paused_instance_fire_when_it_is_resumed() {
    let mut node = node();
    node.start("sleep", "a", number(10_000));
    node.settle();
    node.pause("a", "for repair");
    node.settle().at(60_000).settle();
    assert_eq!((node.status("a"), node.next_wake_ms("a")), (PAUSED.into(), None));
    node.resume("a");
    node.settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g46_an_attempt_that_runs_finishes_and_its_result_waits() {
    let mut node = node();
    node.start("steps", "a", number(2));
    node.settle();
    node.pause("a", "for repair");
    node.settle();
    assert_eq!(node.running("a"), ["A1"], "it is not stopped");
    node.finish("a", "A1", "one").settle();
    assert_eq!(
        (node.status("a"), node.inbox("a")),
        (PAUSED.into(), vec![r#"ActivityCompleted of 2 "one""#.into()])
    );
    node.resume("a");
    node.settle();
    assert_eq!(
        (node.running("a"), node.runs()),
        (vec!["A2".to_owned()], &["a A1".to_owned(), "a A2".to_owned()][..])
    );
}

#[test]
fn g46_pausing_and_resuming_twice_is_as_good_as_once() {
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    let first = node.at(1_000).pause("a", "one");
    node.settle();
    let second = node.at(2_000).pause("a", "another");
    node.settle();
    assert_eq!(node.told_all([first, second]), ["accepted", "accepted"]);
    let (since_ms, pause) = pause_of(node.row("a")).unwrap();
    assert_eq!((since_ms, &*pause.why.reason), (1_000, "another"));
    let (first, second) = (node.resume("a"), node.resume("a"));
    node.settle();
    assert_eq!(node.told_all([first, second]), ["accepted", "accepted"]);
    assert_eq!((node.status("a"), node.lines("a").len()), ("running".into(), 3));
}

#[test]
fn g46_other_processes_pause_and_resume_and_the_last_word_counts() {
    let pause = || Message::Pause(Pause { why: Why::new("from elsewhere"), orchestration: false });
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    node.send_message("a", &pause());
    node.settle().pass_inbox().settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), (PAUSED.into(), 0));
    node.send_message("a", &pause());
    node.send_message("a", &Message::Resume(Why::new("repaired")));
    node.pass_inbox().settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
    // What is not paused is left as it is.
    node.send_message("a", &Message::Resume(Why::new("repaired")));
    node.pass_inbox().settle();
    assert_eq!((node.status("a"), node.inbox("a").len(), node.lines("a").len()), ("running".into(), 0, 3));
}

#[test]
fn g46_a_retry_or_a_skip_does_not_resume() {
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    node.pause("a", "for repair");
    node.settle();
    let retried = node.retry("a");
    node.send_message("a", &Message::Retry);
    let job = perennial_core::Job::ExternalEventSkipped { event_id: perennial_core::EventId(3) };
    node.send_message("a", &Message::Job(job));
    node.settle().pass_inbox().settle().restart().settle();
    assert_eq!((node.told(retried), node.status("a")), ("not blocked".into(), PAUSED.into()));
}

#[test]
fn g46_a_paused_instance_can_be_terminated_and_its_cancel_ends_after_its_grace() {
    let mut node = node();
    for id in ["a", "b"] {
        node.start("collect", id, ());
        node.settle();
        node.pause(id, "for repair");
        node.settle();
    }
    node.terminate("a", "enough");
    node.cancel("b", "stop");
    node.settle();
    assert_eq!((node.status("a"), node.status("b")), ("terminated".into(), PAUSED.into()));
    let grace_ms = ShardOptions::default().cancel_grace.as_millis() as u64;
    node.at(node.now_ms() + grace_ms).settle();
    assert_eq!(node.status("b"), "terminated");
}

#[test]
fn g46_an_instance_that_has_not_begun_can_be_paused() {
    let mut node = node();
    node.send_delayed_start("echo", "a", "late", 10_000);
    node.at(1_000).settle().pass_inbox().settle();
    node.pause("a", "for repair");
    node.settle().at(20_000).settle();
    assert_eq!(node.status("a"), "pending, blocked: PER-0309");
    node.resume("a");
    node.settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g46_a_pause_whose_commit_is_in_doubt_is_made_once() {
    for is_written in [true, false] {
        let mut node = node();
        node.start("collect", "a", ());
        node.settle();
        let why = Why::new("from elsewhere");
        node.send_message("a", &Message::Pause(Pause { why, orchestration: false }));
        node.pass_inbox();
        assert_eq!(node.batch(), ["a"]);
        node.raise("a", "n", number(1));
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.settle();
        assert_eq!(
            (node.status("a"), node.inbox("a").iter().any(|line| line.starts_with("Pause"))),
            (PAUSED.into(), false)
        );
        node.resume("a");
        node.settle();
        node.raise("a", "n", "end");
        node.settle();
        assert_eq!(
            node.last_lines("a", 1),
            [format!("{} OrchestrationCompleted [1]", node.lines("a").len())]
        );
    }
}

#[test]
fn g47_a_paused_orchestration_pauses_what_goes_on_and_what_is_started() {
    let mut node = renewing_node();
    node.start("collect", "a", ());
    node.start("sleep", "other", number(1_000));
    node.settle();
    set_paused(&mut node, &["collect"]);
    assert_eq!(node.status("other"), "completed", "another orchestration goes on");
    node.raise("a", "n", "end");
    let started = node.start("collect", "b", ());
    node.send_start("collect", "c", ());
    node.settle().pass_inbox().settle();
    assert_eq!((node.told(started), node.status("a")), ("started".into(), PAUSED.into()));
    assert_eq!(
        (node.status("b"), node.status("c")),
        ("pending, blocked: PER-0309".into(), "pending, blocked: PER-0309".into())
    );
    assert!(pause_of(node.row("b")).unwrap().1.orchestration);
    let alone = node.resume("a");
    node.settle();
    assert_eq!(node.told(alone), "OrchestrationPaused");
    // It is known before anything is claimed.
    node.restart().settle();
    assert_eq!((node.status("a"), node.status("b")), (PAUSED.into(), "pending, blocked: PER-0309".into()));
    set_paused(&mut node, &[]);
    assert_eq!(
        (node.status("a"), node.status("b"), node.status("c")),
        ("completed".into(), "running".into(), "running".into())
    );
}

#[test]
fn g47_a_lane_that_never_heard_of_the_pause_resumes_who_was_marked() {
    let mut node = node();
    node.start("collect", "a", ());
    node.settle();
    node.send_message("a", &Message::Pause(Pause { why: Why::new("all of them"), orchestration: true }));
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), PAUSED);
    node.send_message("a", &Message::Resume(Why::new("repaired")));
    node.pass_inbox().settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
}

#[test]
fn g47_what_is_paused_by_itself_stays_so_when_its_orchestration_goes_on() {
    let mut node = renewing_node();
    node.start("collect", "a", ());
    node.settle();
    node.pause("a", "this one");
    node.settle();
    set_paused(&mut node, &["collect"]);
    set_paused(&mut node, &[]);
    assert_eq!(node.status("a"), PAUSED);
    node.resume("a");
    node.settle();
    assert_eq!(node.status("a"), "running");
}
