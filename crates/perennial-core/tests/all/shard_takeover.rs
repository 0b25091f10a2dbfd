//! A new owner goes on where the old one stopped: what is owed, blocked, in the inbox and due (G14).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

#[test]
fn g14_the_activities_that_are_open_run_again_and_no_others() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(4));
    node.settle();
    node.finish("a", "A2", "two").settle();
    node.finish("a", "A3", "three").take_turns();
    node.restart();
    assert_eq!(node.running("a"), ["A1", "A3", "A4"], "the result of A2 is durable, that of A3 was not");
    for name in ["A1", "A3", "A4"] {
        node.finish("a", name, "again").settle();
    }
    assert_eq!(node.last_lines("a", 1), [r#"10 OrchestrationCompleted ["again","two","again","again"]"#]);
}

#[test]
fn g14_the_loser_of_a_race_is_not_run_again() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(6_000).settle();
    node.restart();
    assert_eq!(node.running("a"), ["after"]);
}

#[test]
fn g14_what_has_ended_is_left_alone() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(2));
    node.settle();
    node.terminate("a", "enough");
    node.settle().restart();
    assert_eq!((node.running("a").len(), node.in_memory("a")), (0, 0));
}

#[test]
fn g14_an_instance_that_only_waits_stays_dormant() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.start("sleep", "b", number(600_000));
    node.settle().restart();
    assert_eq!((node.in_memory("a"), node.in_memory("b")), (0, 0));
}

#[test]
fn g14_messages_that_were_sent_while_nobody_owned_the_shard_are_applied() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle().crash();
    node.send_event("a", "n", "1");
    node.send_start("steps", "b", number(1));
    node.send_event("a", "n", "end");
    node.take_over().settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
    assert_eq!((node.status("b"), node.running("b")), ("running".into(), vec!["A1".to_owned()]));
    assert!(node.inbox("a").is_empty() && node.inbox("b").is_empty());
}

/// Does the next thing that there is to do on a tour. Returns whether there was something.
fn one_step(node: &mut ManualNode) -> bool {
    if node.look_up() || node.load() || node.take_turns() || node.commit() > 0 {
        return true;
    }
    if node.try_row("a").is_none_or(|row| row.status.is_final()) {
        return false;
    }
    match node.running("a").first().cloned() {
        Some(name) => {
            node.finish("a", &name, name.as_str());
        }
        None if node.lines("a").len() == 4 => {
            node.raise_once("a", "n", "only once", "event");
        }
        None => {
            node.at(11_000);
        }
    }
    true
}

#[test]
fn g14_a_crash_at_any_moment_changes_nothing_in_the_history() {
    let whole = {
        let mut node = ManualNode::new(handlers());
        node.start("tour", "a", ());
        node.settle();
        while one_step(&mut node) {}
        node.lines("a")
    };
    assert_eq!(
        whole.last().map(String::as_str),
        Some(r#"10 OrchestrationCompleted ["first","event","last"]"#)
    );
    let mut crashes = 0;
    loop {
        let mut node = ManualNode::new(handlers());
        node.start("tour", "a", ());
        node.settle();
        let was_over = (0..crashes).any(|_| !one_step(&mut node));
        node.crash().take_over();
        while one_step(&mut node) {}
        assert_eq!(node.lines("a"), whole, "after a crash behind step {crashes}");
        assert!(node.inbox("a").is_empty());
        if was_over {
            break;
        }
        crashes += 1;
    }
    assert_eq!(crashes, 13, "each step was the last one before a crash");
}

#[test]
fn g14_a_result_that_waits_in_the_inbox_does_not_run_its_activity_again() {
    let after_one = |ctx: OrchestrationContext, _: Payload| async move {
        let one = ctx.schedule_activity("one", ()).await;
        assert!(one.is_ok() && ctx.info().version == "cured", "boom");
        Ok("done".into())
    };
    let mut node = ManualNode::new(handlers_and("after_one", after_one));
    node.start("after_one", "a", ());
    node.settle();
    node.finish("a", "one", "1").settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running, blocked: PER-0201".into(), 1));
    let cured = |ctx: OrchestrationContext, _: Payload| async move {
        let one = ctx.schedule_activity("one", ()).await;
        one.map_err(|_| Payload::null())
    };
    node.replace_code(handlers_and("after_one", cured)).restart();
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationCompleted "1""#]);
    assert_eq!(node.runs(), ["a one"], "its result was on disk");
}

#[test]
fn g14_every_deployment_tries_what_is_blocked_again() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", "input");
    node.settle();
    assert_eq!(node.status("a"), "pending, blocked: PER-0201");
    node.restart();
    let blocked = node.row("a").blocked.expect("the code still panics");
    assert_eq!(blocked.attempts, 2);
    node.replace_code(handlers_and("panics", crate::shard_cases::echo)).restart();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("completed".into(), 0));
}

#[test]
fn g14_a_request_that_comes_before_the_takeover_does_not_keep_a_blocked_instance_from_being_tried() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", "input");
    node.settle();
    node.replace_code(handlers_and("panics", crate::shard_cases::echo)).crash();
    let raised = node.raise("a", "n", "early");
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    node.take_over().settle();
    assert_eq!(node.status("a"), "completed", "the new deployment has the code");
}

#[test]
fn g14_a_request_that_comes_before_the_takeover_does_not_stop_the_back_off() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", "input");
    node.settle().crash();
    node.raise("a", "n", "early");
    node.settle();
    node.replace_code(handlers_and("panics", crate::shard_cases::echo));
    node.at(600_000).settle();
    assert_eq!(node.status("a"), "completed", "the retry was due at 2,000");
}
