//! A new owner goes on where the old one stopped: what is owed, blocked, in the inbox and due (G14).

mod shard_cases;

use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

#[test]
fn g14_the_activities_that_are_open_run_again_and_no_others() {
    let mut desk = Desk::new(handlers());
    desk.start("fan", "a", number(4));
    desk.settle();
    desk.finish("a", "A2", "two").settle();
    desk.finish("a", "A3", "three").take_turns();
    desk.restart();
    assert_eq!(desk.running("a"), ["A1", "A3", "A4"], "the result of A2 is durable, that of A3 was not");
    for name in ["A1", "A3", "A4"] {
        desk.finish("a", name, "again").settle();
    }
    assert_eq!(desk.last_lines("a", 1), [r#"10 OrchestrationCompleted ["again","two","again","again"]"#]);
}

#[test]
fn g14_the_loser_of_a_race_is_not_run_again() {
    let mut desk = Desk::new(handlers());
    desk.start("race", "a", ());
    desk.settle().at(6_000).settle();
    desk.restart();
    assert_eq!(desk.running("a"), ["after"]);
}

#[test]
fn g14_what_has_ended_is_left_alone() {
    let mut desk = Desk::new(handlers());
    desk.start("fan", "a", number(2));
    desk.settle();
    desk.terminate("a", "enough");
    desk.settle().restart();
    assert_eq!((desk.running("a").len(), desk.in_memory("a")), (0, 0));
}

#[test]
fn g14_an_instance_that_only_waits_stays_dormant() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.start("sleep", "b", number(600_000));
    desk.settle().restart();
    assert_eq!((desk.in_memory("a"), desk.in_memory("b")), (0, 0));
}

#[test]
fn g14_messages_that_were_sent_while_nobody_owned_the_shard_are_applied() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle().crash();
    desk.send_event("a", "n", "1");
    desk.send_start("steps", "b", number(1));
    desk.send_event("a", "n", "end");
    desk.take_over().settle();
    assert_eq!(desk.last_lines("a", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
    assert_eq!((desk.status("b"), desk.running("b")), ("running".into(), vec!["A1".to_owned()]));
    assert!(desk.inbox("a").is_empty() && desk.inbox("b").is_empty());
}

/// Does the next thing that there is to do on a tour. Returns whether there was something.
fn one_step(desk: &mut Desk) -> bool {
    if desk.look_up() || desk.load() || desk.take_turns() || desk.commit() > 0 {
        return true;
    }
    if desk.try_row("a").is_none_or(|row| row.status.is_final()) {
        return false;
    }
    match desk.running("a").first().cloned() {
        Some(name) => {
            desk.finish("a", &name, name.as_str());
        }
        None if desk.lines("a").len() == 4 => {
            desk.raise_once("a", "n", "only once", "event");
        }
        None => {
            desk.at(11_000);
        }
    }
    true
}

#[test]
fn g14_a_crash_at_any_moment_changes_nothing_in_the_history() {
    let whole = {
        let mut desk = Desk::new(handlers());
        desk.start("tour", "a", ());
        desk.settle();
        while one_step(&mut desk) {}
        desk.lines("a")
    };
    assert_eq!(
        whole.last().map(String::as_str),
        Some(r#"10 OrchestrationCompleted ["first","event","last"]"#)
    );
    let mut crashes = 0;
    loop {
        let mut desk = Desk::new(handlers());
        desk.start("tour", "a", ());
        desk.settle();
        let was_over = (0..crashes).any(|_| !one_step(&mut desk));
        desk.crash().take_over();
        while one_step(&mut desk) {}
        assert_eq!(desk.lines("a"), whole, "after a crash behind step {crashes}");
        assert!(desk.inbox("a").is_empty());
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
    let mut desk = Desk::new(handlers_and("after_one", after_one));
    desk.start("after_one", "a", ());
    desk.settle();
    desk.finish("a", "one", "1").settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("running, blocked: PER-0201".into(), 1));
    let cured = |ctx: OrchestrationContext, _: Payload| async move {
        let one = ctx.schedule_activity("one", ()).await;
        one.map_err(|_| Payload::null())
    };
    desk.replace_code(handlers_and("after_one", cured)).restart();
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationCompleted "1""#]);
    assert_eq!(desk.runs(), ["a one"], "its result was on disk");
}

#[test]
fn g14_every_deployment_tries_what_is_blocked_again() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", "input");
    desk.settle();
    assert_eq!(desk.status("a"), "pending, blocked: PER-0201");
    desk.restart();
    let blocked = desk.row("a").blocked.expect("the code still panics");
    assert_eq!(blocked.attempts, 2);
    desk.replace_code(handlers_and("panics", shard_cases::echo)).restart();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("completed".into(), 0));
}

#[test]
fn g14_a_request_that_comes_before_the_takeover_does_not_keep_a_blocked_instance_from_being_tried() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", "input");
    desk.settle();
    desk.replace_code(handlers_and("panics", shard_cases::echo)).crash();
    let raised = desk.raise("a", "n", "early");
    desk.settle();
    assert_eq!(desk.told(raised), "accepted");
    desk.take_over().settle();
    assert_eq!(desk.status("a"), "completed", "the new deployment has the code");
}

#[test]
fn g14_a_request_that_comes_before_the_takeover_does_not_stop_the_back_off() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", "input");
    desk.settle().crash();
    desk.raise("a", "n", "early");
    desk.settle();
    desk.replace_code(handlers_and("panics", shard_cases::echo));
    desk.at(600_000).settle();
    assert_eq!(desk.status("a"), "completed", "the retry was due at 2,000");
}
