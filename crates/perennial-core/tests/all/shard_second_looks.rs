//! Corners where two rules meet: back-off and timers, lost turns and terminations, taken ids and order.

use crate::shard_cases::{Outcome, collect, handlers, handlers_and, number, secs};
use perennial_core::shard::{Message, ShardOptions, TurnTaskOutput};
use perennial_core::store::CommitOutcome;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// Sleeps for five seconds, then panics.
async fn wakes_badly(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(secs(5)).await;
    panic!("boom")
}

#[test]
fn g28_the_pause_between_tries_doubles_also_if_a_timer_brings_the_turn_that_fails() {
    let mut node = ManualNode::new(handlers_and("sleeper", wakes_badly));
    node.start("sleeper", "a", ());
    node.settle().at(6_000).settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    let mut tries = Vec::new();
    while let Some(wake_ms) = node.next_wake_ms("a").filter(|wake_ms| *wake_ms <= 40_000) {
        node.at(wake_ms).settle();
        tries.push(wake_ms);
    }
    assert_eq!(tries, [7_000, 9_000, 13_000, 21_000, 37_000]);
}

#[test]
fn g28_the_count_of_tries_goes_on_in_the_next_process() {
    let mut node = ManualNode::new(handlers_and("sleeper", wakes_badly));
    node.start("sleeper", "a", ());
    node.settle().at(6_000).settle();
    for attempts in 2..=4 {
        node.restart();
        assert_eq!(node.row("a").blocked.map(|blocked| blocked.attempts), Some(attempts));
    }
}

#[test]
fn g29_a_timer_does_not_make_a_turn_that_never_ended_be_tried_in_this_process() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.lose_turn("a");
    node.settle();
    for at_ms in [6_000, 60_000, 600_000, 6_000_000] {
        node.at(at_ms);
        assert!(node.loads_to_make().is_empty(), "at {at_ms} it is tried again");
    }
    node.restart();
    assert_eq!((node.status("a"), node.running("a").contains(&"after".to_owned())), ("running".into(), true));
}

#[test]
fn g28_a_termination_that_comes_during_a_turn_that_never_ends_is_done_when_the_turn_is_given_up() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    let (terminated, waiting) = (node.terminate("a", "it hangs"), node.await_end("a"));
    node.lose_turn("a");
    node.settle();
    assert_eq!(
        node.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "it hangs""#],
        "ending needs no code"
    );
}

#[test]
fn g28_a_termination_that_comes_during_a_turn_that_fails_is_done_at_once() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.replace_code(handlers_and("collect", panics)).crash();
    node.raise("a", "n", "1");
    node.look_up();
    node.load();
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.told(terminated), node.status("a")), ("accepted".into(), "terminated".into()));
    assert!(node.inbox("a").is_empty());
}

#[test]
fn g28_another_process_can_terminate_an_instance_whose_turn_never_ended() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.lose_turn("a");
    node.settle();
    node.send_message("a", &Message::Terminate { reason: "it hangs".to_owned() });
    for minutes in 1..=10 {
        node.pass_inbox().at(minutes * 60_000).settle();
    }
    assert_eq!(node.status("a"), "terminated", "ten minutes are enough to notice");
}

#[test]
fn g28_a_termination_ends_an_instance_whose_history_cannot_be_read() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.damage_turn("a", 1);
    node.crash();
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    let row = node.row("a");
    assert_eq!((row.status.name(), row.blocked, node.inbox("a")), ("terminated", None, Vec::new()));
    assert!(row.ended_ms.is_some());
}

#[test]
fn g28_an_instance_that_could_not_even_be_marked_as_blocked_is_tried_again() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    node.replace_code(handlers_and("steps", panics)).crash().take_over();
    node.load();
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    node.replace_code(handlers());
    node.settle().at(600_000).settle();
    assert_eq!(node.running("a"), ["A1"], "its activity is owed");
}

#[test]
fn g28_an_instance_that_has_ended_is_never_blocked() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "end");
    node.take_turns();
    node.send_event("a", "n", "late");
    node.settle();
    node.pass_inbox().load();
    let late = node.raise("a", "n", "later");
    node.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    node.settle();
    assert_eq!((node.status("a"), node.told(late)), ("completed".into(), "ended before".into()));
    node.pass_inbox().settle();
    assert_eq!(
        (node.inbox("a").len(), node.in_memory("a")),
        (0, 0),
        "what is left over goes with the next pass"
    );
}

#[test]
fn g17_events_to_an_instance_that_exists_keep_their_order_while_a_start_of_its_id_fails_and_is_refused() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("collect", "a", ());
    node.settle().crash();
    let started = node.start("panics", "a", ());
    node.raise("a", "n", "1");
    node.take_turns();
    node.raise("a", "n", "2");
    node.commit();
    node.raise("a", "n", "3");
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told(started), "already exists: running");
    assert_eq!(node.last_lines("a", 1), [r#"10 OrchestrationCompleted ["1","2","3"]"#]);
}

#[test]
fn g15_an_inbox_row_that_was_read_before_it_was_consumed_is_applied_once_also_after_eviction() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("collect", collect), options);
    node.start("collect", "a", ());
    node.settle();
    node.send_event("a", "n", "1");
    let read_before = node.read_inbox();
    node.raise("a", "n", "2");
    node.settle();
    assert_eq!(node.in_memory("a"), 0, "it is applied, and the instance was put away");
    node.raise("a", "n", "3");
    node.look_up();
    node.bring(read_before);
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"10 OrchestrationCompleted ["1","2","3"]"#]);
}

#[test]
fn g29_a_turn_that_was_unwound_at_its_deadline_is_not_tried_by_time_in_this_process() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    let task = node.pick_turn("a");
    let mut done = node.run_turn(task);
    let Ok(TurnTaskOutput::Turn(run)) = done.outcome else { panic!("it goes through") };
    done.failed_execution = Some(run.execution);
    done.outcome = Err(perennial_core::TurnFailure::DeadlinePassed.into());
    node.bring_turn(done);
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0205");
    node.at(6_000_000);
    assert!(node.loads_to_make().is_empty());
    node.restart();
    assert_eq!(node.last_lines("a", 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}
