//! Cancel and terminate, of an instance in any condition, without its code where that is needed (E23, G28, G30).

mod shard_cases;

use perennial_core::shard::{Message, ShardOptions};
use perennial_core::{Handlers, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// Code that was there and is gone.
fn without_code() -> Handlers {
    Handlers::default()
}

fn started(handler: &str, input: impl Into<Payload>) -> Desk {
    let mut desk = Desk::new(handlers());
    desk.start(handler, "a", input);
    desk.settle();
    desk
}

/// A fan of two whose code is gone since it was hydrated last.
fn blocked() -> Desk {
    let mut desk = started("fan", number(2));
    desk.replace_code(without_code()).restart();
    assert_eq!(desk.status("a"), "running, blocked: PER-0301");
    desk
}

#[test]
fn e23_terminate_ends_a_resident_instance_without_its_code() {
    let mut desk = started("fan", number(2));
    desk.replace_code(without_code());
    let (terminated, waiting) = (desk.terminate("a", "enough"), desk.await_end("a"));
    assert!(desk.turns_to_take().is_empty());
    desk.settle();
    assert_eq!(
        desk.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationTerminated "enough""#]);
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 2, status terminated, owed false"));
    assert_eq!((desk.stops().len(), desk.in_memory("a")), (2, 0));
}

#[test]
fn e23_terminate_ends_a_dormant_instance_without_its_code() {
    let mut desk = started("sleep", number(5_000));
    desk.replace_code(without_code()).crash();
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    assert_eq!(desk.last_lines("a", 1), [r#"3 OrchestrationTerminated "enough""#]);
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 2, status terminated, wake none"));
    desk.at(6_000).settle();
    assert_eq!(desk.lines("a").len(), 3);
}

#[test]
fn e23_terminate_ends_a_pending_instance_before_its_code_ran() {
    let mut desk = Desk::new(without_code());
    desk.send_start("steps", "a", number(1));
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!((desk.told(terminated), desk.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!(desk.lines("a"), ["1 OrchestrationStarted steps 1", r#"2 OrchestrationTerminated "enough""#]);
    assert_eq!(desk.writes("a"), ["turn 1, status terminated, consumed 1"]);
}

#[test]
fn e23_terminate_ends_an_instance_whose_first_turn_failed() {
    let mut desk = Desk::new(handlers_and("panics", panics));
    desk.start("panics", "a", ());
    desk.settle();
    let terminated = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!((desk.told(terminated), desk.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!(desk.lines("a").len(), 2);
    assert!(desk.inbox("a").is_empty());
}

#[test]
fn g28_terminate_ends_a_blocked_instance_without_its_code() {
    let mut desk = blocked();
    desk.raise("a", "n", "kept");
    desk.settle();
    let (terminated, waiting) = (desk.terminate("a", "enough"), desk.await_end("a"));
    desk.settle();
    assert_eq!(
        desk.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!((desk.status("a"), desk.inbox("a").len(), desk.in_memory("a")), ("terminated".into(), 0, 0));
    assert_eq!(desk.next_wake_ms("a"), None);
    desk.restart();
    assert_eq!(desk.status("a"), "terminated");
}

#[test]
fn g28_terminate_of_a_blocked_instance_tells_its_running_activities() {
    let mut desk =
        Desk::new(handlers_and("fails_later", |ctx: OrchestrationContext, _: Payload| async move {
            let _work = ctx.schedule_activity("work", ());
            let _: Payload = ctx.schedule_wait("n").await;
            panic!("boom")
        }));
    desk.start("fails_later", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle();
    desk.terminate("a", "enough");
    assert!(desk.stops().is_empty());
    desk.settle();
    assert_eq!((desk.status("a"), desk.stops()), ("terminated".into(), &["a work".to_owned()][..]));
}

#[test]
fn e23_terminate_while_a_turn_is_taken_ends_the_instance_after_it() {
    let mut desk = started("steps", number(2));
    desk.finish("a", "A1", "one");
    let terminated = desk.terminate("a", "enough");
    desk.take_turns();
    assert_eq!(desk.told(terminated), "nothing");
    desk.commit();
    desk.commit();
    assert_eq!(desk.told(terminated), "accepted");
    assert_eq!(
        desk.last_lines("a", 3),
        [
            r#"3 ActivityCompleted of 2 "one""#,
            r#"4 ActivityScheduled "A2" "one""#,
            r#"5 OrchestrationTerminated "enough""#
        ]
    );
    assert_eq!(desk.stops(), ["a A2"], "it was started between the two commits");
}

#[test]
fn e23_terminate_while_the_last_turn_is_taken_comes_too_late() {
    let mut desk = started("steps", number(1));
    desk.finish("a", "A1", "one");
    let turning = desk.terminate("a", "enough");
    desk.take_turns();
    let committing = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!(desk.told_all([turning, committing]), ["ended before"; 2]);
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn e23_terminate_while_a_turn_fails_is_not_lost() {
    let mut desk = started("collect", ());
    desk.replace_code(handlers().with("collect", Desk::VERSION, panics)).crash();
    desk.raise("a", "n", "1");
    desk.look_up();
    desk.load();
    let terminated = desk.terminate("a", "enough");
    desk.take_turns();
    desk.settle();
    assert_eq!(desk.told(terminated), "accepted");
    desk.at(2_000).settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn e23_terminate_while_loading_needs_no_turn() {
    let mut desk = started("collect", ());
    desk.crash();
    desk.raise("a", "n", "1");
    desk.look_up();
    desk.terminate("a", "enough");
    desk.load();
    assert!(desk.turns_to_take().is_empty());
    desk.settle();
    assert_eq!(desk.status("a"), "terminated");
}

#[test]
fn e23_several_terminations_end_an_instance_once() {
    let mut desk = started("collect", ());
    desk.raise("a", "n", "1");
    let all = ["one", "two"].map(|reason| desk.terminate("a", reason));
    desk.settle();
    let late = desk.terminate("a", "three");
    desk.settle();
    assert_eq!(desk.told_all(all), ["accepted"; 2]);
    assert_eq!(desk.told(late), "ended before");
    assert_eq!(desk.last_lines("a", 1), [r#"5 OrchestrationTerminated "one""#]);
}

#[test]
fn e23_cancel_ends_an_instance_that_did_not_take_it_over() {
    for dormant in [false, true] {
        let mut desk = started("fan", number(2));
        if dormant {
            desk.restart();
        }
        let (cancelled, waiting) = (desk.cancel("a", "enough"), desk.await_end("a"));
        desk.settle();
        assert_eq!(
            desk.told_all([cancelled, waiting]),
            ["accepted", r#"ended: OrchestrationCancelled "enough""#]
        );
        assert_eq!(
            (desk.status("a"), desk.stops()),
            ("cancelled".to_owned(), &["a A1".to_owned(), "a A2".to_owned()][..])
        );
    }
}

#[test]
fn e23_cancel_taken_over_lets_the_code_clean_up_within_the_grace() {
    let mut desk = started("cleans_up", ());
    desk.cancel("a", "enough");
    desk.settle().at(30_999).settle();
    desk.finish("a", "clean", "cleaned").settle();
    assert_eq!(desk.last_lines("a", 1), [r#"5 OrchestrationFailed "cleaned""#]);
    assert!(desk.stops().is_empty());
}

#[test]
fn e23_cancel_taken_over_is_ended_by_the_engine_when_its_grace_is_over() {
    for dormant in [false, true] {
        let max_resident = if dormant { 0 } else { 1_000 };
        let options = ShardOptions { max_resident, cancel_grace_ms: 10_000, ..ShardOptions::default() };
        let mut desk = Desk::with_options(handlers(), options);
        desk.start("cleans_up", "a", ());
        desk.settle();
        desk.cancel("a", "enough");
        desk.settle().at(10_999).settle();
        assert_eq!((desk.status("a"), desk.running("a")), ("running".into(), vec!["clean".to_owned()]));
        desk.at(11_000).settle();
        assert_eq!(
            desk.last_lines("a", 1),
            [r#"4 OrchestrationTerminated "cancelled, and not done in time: enough""#]
        );
        assert_eq!(desk.stops(), ["a clean"]);
    }
}

#[test]
fn e23_a_second_cancel_counts_only_if_its_grace_ends_sooner() {
    let mut desk = started("cleans_up", ());
    desk.cancel("a", "first");
    desk.settle().at(2_000);
    let second = desk.cancel("a", "second");
    desk.settle();
    assert_eq!(desk.told(second), "accepted");
    let sooner = Job::OrchestrationCancelRequested { reason: "now".to_owned(), grace_until_ms: 5_000 };
    desk.send_message("a", &Message::Job(sooner));
    desk.pass_inbox().settle();
    assert_eq!(desk.row("a").wake_at_ms, Some(5_000));
    desk.at(5_000).settle();
    assert_eq!(
        desk.last_lines("a", 2),
        [
            r#"4 OrchestrationCancelRequested "now""#,
            r#"5 OrchestrationTerminated "cancelled, and not done in time: now""#
        ]
    );
}

#[test]
fn e23_cancel_then_terminate_ends_at_once() {
    let mut desk = started("cleans_up", ());
    let cancelled = desk.cancel("a", "gently");
    let terminated = desk.terminate("a", "now");
    desk.settle();
    assert_eq!(desk.told_all([cancelled, terminated]), ["accepted"; 2]);
    assert_eq!(desk.last_lines("a", 1), [r#"4 OrchestrationTerminated "now""#]);
}

#[test]
fn g28_cancel_of_a_blocked_instance_is_kept_and_ends_it_without_code_when_its_grace_is_over() {
    let mut desk = blocked();
    let (cancelled, waiting) = (desk.cancel("a", "enough"), desk.await_end("a"));
    desk.settle();
    assert_eq!(
        (desk.told(cancelled), desk.inbox("a")),
        ("accepted".into(), vec![r#"OrchestrationCancelRequested "enough""#.to_owned()])
    );
    desk.at(30_999).settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0301");
    desk.at(31_000).settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
    assert!(desk.told(waiting).starts_with("ended: OrchestrationTerminated"), "{}", desk.told(waiting));
}

#[test]
fn g28_cancel_of_a_blocked_instance_wakes_it_at_the_end_of_its_grace_however_long_the_back_off() {
    let options = ShardOptions { retry_first_ms: 300_000, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers_and("panics", panics), options);
    desk.start("panics", "a", ());
    desk.settle();
    assert_eq!(desk.row("a").wake_at_ms, Some(301_000));
    desk.cancel("a", "enough");
    desk.settle();
    assert_eq!(desk.row("a").wake_at_ms, Some(31_000), "never late");
    desk.at(31_000).settle();
    assert_eq!(desk.status("a"), "terminated");
}

#[test]
fn g28_cancel_of_a_blocked_instance_is_delivered_if_the_cure_comes_first() {
    let mut desk = started("cleans_up", ());
    desk.replace_code(without_code()).crash();
    desk.raise("a", "n", "1");
    desk.settle();
    desk.cancel("a", "enough");
    desk.settle();
    desk.replace_code(handlers()).at(10_000).settle();
    desk.finish("a", "clean", "cleaned").settle();
    assert_eq!(desk.last_lines("a", 1), [r#"6 OrchestrationFailed "cleaned""#]);
}

#[test]
fn e23_an_instance_that_is_blocked_while_it_cleans_up_is_ended_when_the_grace_is_over() {
    let mut desk = started("cleans_up", ());
    desk.cancel("a", "enough");
    desk.settle();
    desk.replace_code(without_code()).restart();
    assert_eq!(desk.status("a"), "running, blocked: PER-0301");
    assert!(desk.row("a").wake_at_ms.is_some_and(|wake_at_ms| wake_at_ms <= 31_000), "never late");
    desk.at(31_000).settle();
    assert_eq!(desk.status("a"), "terminated", "past its grace it is ended, blocked or not");
}

#[test]
fn g12_the_wake_of_an_instance_that_is_blocked_while_it_cleans_up_is_not_later_than_its_grace() {
    let options = ShardOptions { retry_first_ms: 300_000, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers(), options);
    desk.start("cleans_up", "a", ());
    desk.settle();
    desk.cancel("a", "enough");
    desk.settle();
    assert_eq!(desk.row("a").wake_at_ms, Some(31_000));
    desk.replace_code(without_code()).restart();
    assert_eq!(desk.status("a"), "running, blocked: PER-0301");
    assert_eq!(desk.row("a").wake_at_ms, Some(31_000));
}

#[test]
fn g30_an_instance_with_a_deadline_is_ended_as_timed_out() {
    for dormant in [false, true] {
        let mut desk = Desk::new(handlers());
        let deadline_ms = Some(9_000);
        desk.start_with("a", Started { deadline_ms, ..Started::new("collect", Desk::VERSION, (), 1) });
        desk.settle();
        assert_eq!(desk.row("a").wake_at_ms, Some(9_000));
        if dormant {
            desk.restart();
        }
        desk.at(8_999).settle();
        assert_eq!(desk.status("a"), "running");
        desk.at(9_000).settle();
        assert_eq!(desk.last_lines("a", 1), [r#"3 OrchestrationTerminated "timeout""#]);
    }
}
