//! Corners where two rules meet: back-off and timers, lost turns and terminations, taken ids and order.

mod shard_cases;

use perennial_core::shard::{Message, ShardOptions};
use perennial_core::store::CommitOutcome;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, collect, handlers, handlers_and, number, secs};

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
    let mut desk = Desk::new(handlers_and("sleeper", wakes_badly));
    desk.start("sleeper", "a", ());
    desk.settle().at(6_000).settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0201");
    let mut tries = Vec::new();
    while let Some(wake_ms) = desk.next_wake_ms("a").filter(|wake_ms| *wake_ms <= 40_000) {
        desk.at(wake_ms).settle();
        tries.push(wake_ms);
    }
    assert_eq!(tries, [7_000, 9_000, 13_000, 21_000, 37_000]);
}

#[test]
fn g28_the_count_of_tries_goes_on_in_the_next_process() {
    let mut desk = Desk::new(handlers_and("sleeper", wakes_badly));
    desk.start("sleeper", "a", ());
    desk.settle().at(6_000).settle();
    for attempts in 2..=4 {
        desk.restart();
        assert_eq!(desk.row("a").blocked.map(|blocked| blocked.attempts), Some(attempts));
    }
}

#[test]
fn g29_a_timer_does_not_make_a_turn_that_never_ended_be_tried_in_this_process() {
    let mut desk = Desk::new(handlers());
    desk.start("race", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.lose_turn("a");
    desk.settle();
    for at_ms in [6_000, 60_000, 600_000, 6_000_000] {
        desk.at(at_ms);
        assert!(desk.loads_to_make().is_empty(), "at {at_ms} it is tried again");
    }
    desk.restart();
    assert_eq!((desk.status("a"), desk.running("a").contains(&"after".to_owned())), ("running".into(), true));
}

#[test]
fn g28_a_termination_that_comes_during_a_turn_that_never_ends_is_done_when_the_turn_is_given_up() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    let (terminated, waiting) = (desk.terminate("a", "it hangs"), desk.await_end("a"));
    desk.lose_turn("a");
    desk.settle();
    assert_eq!(
        desk.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "it hangs""#],
        "ending needs no code"
    );
}

#[test]
fn g28_a_termination_that_comes_during_a_turn_that_fails_is_done_at_once() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.replace_code(handlers_and("collect", panics)).crash();
    desk.raise("a", "n", "1");
    desk.look_up();
    desk.load();
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!((desk.told(terminated), desk.status("a")), ("accepted".into(), "terminated".into()));
    assert!(desk.inbox("a").is_empty());
}

#[test]
fn g28_another_process_can_terminate_an_instance_whose_turn_never_ended() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.lose_turn("a");
    desk.settle();
    desk.send_message("a", &Message::Terminate { reason: "it hangs".to_owned() });
    for minutes in 1..=10 {
        desk.pass_inbox().at(minutes * 60_000).settle();
    }
    assert_eq!(desk.status("a"), "terminated", "ten minutes are enough to notice");
}

#[test]
fn g28_a_termination_of_a_corrupt_history_is_kept_and_tried_no_more_often_than_the_rest() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    let key = desk.row("a").key;
    desk.tables().turns.insert((key, 1, 1), b"{}".as_slice().into());
    desk.crash();
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    assert_eq!(
        (desk.row("a").status.name(), desk.inbox("a")),
        ("running", vec![r#"Terminate "enough""#.to_owned()])
    );
    let blocked = desk.row("a").blocked.expect("it is blocked");
    assert_eq!((blocked.attempts, blocked.code.as_str()), (1, "PER-0101"), "{}", blocked.reason);
}

#[test]
fn g28_an_instance_that_could_not_even_be_marked_as_blocked_is_tried_again() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(1));
    desk.settle();
    desk.replace_code(handlers_and("steps", panics)).crash().take_over();
    desk.load();
    desk.take_turns();
    desk.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    desk.replace_code(handlers());
    desk.settle().at(600_000).settle();
    assert_eq!(desk.running("a"), ["A1"], "its activity is owed");
}

#[test]
fn g28_an_instance_that_has_ended_is_never_blocked() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "end");
    desk.take_turns();
    desk.send_event("a", "n", "late");
    desk.settle();
    desk.pass_inbox().load();
    let late = desk.raise("a", "n", "later");
    desk.commit_as("a", CommitOutcome::Rejected("no room".to_owned()));
    desk.settle();
    assert_eq!((desk.status("a"), desk.told(late)), ("completed".into(), "ended before".into()));
    desk.pass_inbox().settle();
    assert_eq!(
        (desk.inbox("a").len(), desk.in_memory("a")),
        (0, 0),
        "what is left over goes with the next pass"
    );
}

#[test]
fn g17_events_to_an_instance_that_exists_keep_their_order_while_a_start_of_its_id_fails_and_is_refused() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("collect", "a", ());
    desk.settle().crash();
    let started = desk.start("panics", "a", ());
    desk.raise("a", "n", "1");
    desk.take_turns();
    desk.raise("a", "n", "2");
    desk.commit();
    desk.raise("a", "n", "3");
    desk.settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.told(started), "already exists: running");
    assert_eq!(desk.last_lines("a", 1), [r#"10 OrchestrationCompleted ["1","2","3"]"#]);
}

#[test]
fn g15_an_inbox_row_that_was_read_before_it_was_consumed_is_applied_once_also_after_eviction() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers_and("collect", collect), options);
    desk.start("collect", "a", ());
    desk.settle();
    desk.send_event("a", "n", "1");
    let read_before = desk.read_inbox();
    desk.raise("a", "n", "2");
    desk.settle();
    assert_eq!(desk.in_memory("a"), 0, "it is applied, and the instance was put away");
    desk.raise("a", "n", "3");
    desk.look_up();
    desk.bring_inbox(read_before);
    desk.settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.last_lines("a", 1), [r#"10 OrchestrationCompleted ["1","2","3"]"#]);
}

#[test]
fn g29_a_turn_that_was_unwound_at_its_deadline_is_not_tried_by_time_in_this_process() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    let task = desk.pick_turn("a");
    let mut done = desk.run_turn(task);
    let Ok((execution, _)) = done.outcome else { panic!("it goes through") };
    done.wreck = Some(execution);
    done.outcome = Err(perennial_core::TurnFailure::DeadlinePassed.into());
    desk.bring_turn("a", done);
    desk.settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0205");
    desk.at(6_000_000);
    assert!(desk.loads_to_make().is_empty());
    desk.restart();
    assert_eq!(desk.last_lines("a", 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}
