//! Cancel and terminate, of an instance in any condition, without its code where that is needed (E23, G28, G30).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::{Message, ShardOptions};
use perennial_core::{Handlers, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::ManualNode;
use std::time::Duration;

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

/// Code that was there and is gone.
fn without_code() -> Handlers {
    Handlers::default()
}

fn started(handler: &str, input: impl Into<Payload>) -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start(handler, "a", input);
    node.settle();
    node
}

/// A fan of two whose code is gone since it was hydrated last.
fn blocked() -> ManualNode {
    let mut node = started("fan", number(2));
    node.replace_code(without_code()).restart();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    node
}

#[test]
fn e23_terminate_ends_a_resident_instance_without_its_code() {
    let mut node = started("fan", number(2));
    node.replace_code(without_code());
    let (terminated, waiting) = (node.terminate("a", "enough"), node.await_end("a"));
    assert!(node.turns_to_take().is_empty());
    node.settle();
    assert_eq!(
        node.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationTerminated "enough""#]);
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 2, status terminated, owed false"));
    assert_eq!((node.stops().len(), node.in_memory("a")), (2, 0));
}

#[test]
fn e23_terminate_ends_a_dormant_instance_without_its_code() {
    let mut node = started("sleep", number(5_000));
    node.replace_code(without_code()).crash();
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    assert_eq!(node.last_lines("a", 1), [r#"3 OrchestrationTerminated "enough""#]);
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 2, status terminated, wake none"));
    node.at(6_000).settle();
    assert_eq!(node.lines("a").len(), 3);
}

#[test]
fn e23_terminate_ends_a_pending_instance_before_its_code_ran() {
    let mut node = ManualNode::new(without_code());
    node.send_start("steps", "a", number(1));
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.told(terminated), node.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!(node.lines("a"), ["1 OrchestrationStarted steps 1", r#"2 OrchestrationTerminated "enough""#]);
    assert_eq!(node.writes("a"), ["turn 1, status terminated, consumed 1"]);
}

#[test]
fn e23_terminate_ends_an_instance_whose_first_turn_failed() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("panics", "a", ());
    node.settle();
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.told(terminated), node.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!(node.lines("a").len(), 2);
    assert!(node.inbox("a").is_empty());
}

#[test]
fn g28_terminate_ends_a_blocked_instance_without_its_code() {
    let mut node = blocked();
    node.raise("a", "n", "kept");
    node.settle();
    let (terminated, waiting) = (node.terminate("a", "enough"), node.await_end("a"));
    node.settle();
    assert_eq!(
        node.told_all([terminated, waiting]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!((node.status("a"), node.inbox("a").len(), node.in_memory("a")), ("terminated".into(), 0, 0));
    assert_eq!(node.next_wake_ms("a"), None);
    node.restart();
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn g28_terminate_of_a_blocked_instance_tells_its_running_activities() {
    let mut node =
        ManualNode::new(handlers_and("fails_later", |ctx: OrchestrationContext, _: Payload| async move {
            let _work = ctx.schedule_activity("work", ());
            let _: Payload = ctx.schedule_wait("n").await;
            panic!("boom")
        }));
    node.start("fails_later", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    node.terminate("a", "enough");
    assert!(node.stops().is_empty());
    node.settle();
    assert_eq!((node.status("a"), node.stops()), ("terminated".into(), &["a work".to_owned()][..]));
}

#[test]
fn e23_terminate_while_a_turn_is_taken_ends_the_instance_after_it() {
    let mut node = started("steps", number(2));
    node.finish("a", "A1", "one");
    let terminated = node.terminate("a", "enough");
    node.take_turns();
    assert_eq!(node.told(terminated), "nothing");
    node.commit();
    node.commit();
    assert_eq!(node.told(terminated), "accepted");
    assert_eq!(
        node.last_lines("a", 3),
        [
            r#"3 ActivityCompleted of 2 "one""#,
            r#"4 ActivityScheduled "A2" "one""#,
            r#"5 OrchestrationTerminated "enough""#
        ]
    );
    assert_eq!(node.stops(), ["a A2"], "it was started between the two commits");
}

#[test]
fn e23_terminate_while_the_last_turn_is_taken_comes_too_late() {
    let mut node = started("steps", number(1));
    node.finish("a", "A1", "one");
    let turning = node.terminate("a", "enough");
    node.take_turns();
    let committing = node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.told_all([turning, committing]), ["ended before"; 2]);
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn e23_terminate_while_a_turn_fails_is_not_lost() {
    let mut node = started("collect", ());
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics)).crash();
    node.raise("a", "n", "1");
    node.look_up();
    node.load();
    let terminated = node.terminate("a", "enough");
    node.take_turns();
    node.settle();
    assert_eq!(node.told(terminated), "accepted");
    node.at(2_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn e23_terminate_while_loading_needs_no_turn() {
    let mut node = started("collect", ());
    node.crash();
    node.raise("a", "n", "1");
    node.look_up();
    node.terminate("a", "enough");
    node.load();
    assert!(node.turns_to_take().is_empty());
    node.settle();
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn e23_several_terminations_end_an_instance_once() {
    let mut node = started("collect", ());
    node.raise("a", "n", "1");
    let all = ["one", "two"].map(|reason| node.terminate("a", reason));
    node.settle();
    let late = node.terminate("a", "three");
    node.settle();
    assert_eq!(node.told_all(all), ["accepted"; 2]);
    assert_eq!(node.told(late), "ended before");
    assert_eq!(node.last_lines("a", 1), [r#"5 OrchestrationTerminated "one""#]);
}

#[test]
fn e23_cancel_ends_an_instance_that_did_not_take_it_over() {
    for dormant in [false, true] {
        let mut node = started("fan", number(2));
        if dormant {
            node.restart();
        }
        let (cancelled, waiting) = (node.cancel("a", "enough"), node.await_end("a"));
        node.settle();
        assert_eq!(
            node.told_all([cancelled, waiting]),
            ["accepted", r#"ended: OrchestrationCancelled "enough""#]
        );
        assert_eq!(
            (node.status("a"), node.stops()),
            ("cancelled".to_owned(), &["a A1".to_owned(), "a A2".to_owned()][..])
        );
    }
}

#[test]
fn e23_cancel_taken_over_lets_the_code_clean_up_within_the_grace() {
    let mut node = started("cleans_up", ());
    node.cancel("a", "enough");
    node.settle().at(30_999).settle();
    node.finish("a", "clean", "cleaned").settle();
    assert_eq!(node.last_lines("a", 1), [r#"5 OrchestrationFailed "cleaned""#]);
    assert!(node.stops().is_empty());
}

#[test]
fn e23_cancel_taken_over_is_ended_by_the_engine_when_its_grace_is_over() {
    for dormant in [false, true] {
        let max_resident = if dormant { 0 } else { 1_000 };
        let options = ShardOptions {
            max_resident,
            cancel_grace: Duration::from_millis(10_000),
            ..ShardOptions::default()
        };
        let mut node = ManualNode::with_options(handlers(), options);
        node.start("cleans_up", "a", ());
        node.settle();
        node.cancel("a", "enough");
        node.settle().at(10_999).settle();
        assert_eq!((node.status("a"), node.running("a")), ("running".into(), vec!["clean".to_owned()]));
        node.at(11_000).settle();
        assert_eq!(
            node.last_lines("a", 1),
            [r#"4 OrchestrationTerminated "cancelled, but did not end within its grace period: enough""#]
        );
        assert_eq!(node.stops(), ["a clean"]);
    }
}

#[test]
fn e23_a_cancel_that_came_in_an_outage_gives_the_code_its_whole_grace() {
    let mut node = started("cleans_up", ());
    let grace_ms = ShardOptions::default().cancel_grace.as_millis() as u64;
    let cancel = Job::OrchestrationCancelRequested { reason: "enough".to_owned(), grace_ms };
    node.send_message("a", &Message::Job(cancel));
    let back_ms = 1_000 + 2 * grace_ms;
    node.outage_until(back_ms).take_over().settle();
    assert_eq!((node.status("a"), node.running("a")), ("running".into(), vec!["clean".to_owned()]));
    node.at(back_ms + grace_ms - 1).settle();
    assert_eq!(node.status("a"), "running");
    node.at(back_ms + grace_ms).settle();
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn e23_a_grace_does_not_run_while_nobody_owns_the_shard() {
    for is_twice in [false, true] {
        let mut node = started("cleans_up", ());
        let grace_ms = ShardOptions::default().cancel_grace.as_millis() as u64;
        node.cancel("a", "enough");
        node.settle().at(11_000).settle();
        let mut back_ms = 11_000 + 10 * grace_ms;
        node.outage_until(back_ms).take_over().settle();
        if is_twice {
            node.at(back_ms + 5_000);
            back_ms += grace_ms;
            node.outage_until(back_ms).take_over().settle();
        }
        assert_eq!((node.status("a"), node.running("a")), ("running".into(), vec!["clean".to_owned()]));
        let owned_ms = if is_twice { 15_000 } else { 10_000 };
        node.at(back_ms + grace_ms - owned_ms - 1).settle();
        assert_eq!(node.status("a"), "running");
        node.at(back_ms + grace_ms - owned_ms).settle();
        assert_eq!(node.status("a"), "terminated");
    }
}

#[test]
fn e23_a_cancel_of_a_blocked_instance_counts_from_its_arrival_less_the_gaps() {
    let mut node = blocked();
    let grace_ms = ShardOptions::default().cancel_grace.as_millis() as u64;
    node.cancel("a", "enough");
    node.settle();
    let back_ms = 1_000 + 10 * grace_ms;
    node.outage_until(back_ms).take_over().settle();
    node.at(back_ms + grace_ms - 1).settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    node.at(back_ms + grace_ms).settle();
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn e23_a_second_cancel_counts_only_if_its_grace_ends_sooner() {
    let mut node = started("cleans_up", ());
    node.cancel("a", "first");
    node.settle().at(2_000);
    let second = node.cancel("a", "second");
    node.settle();
    assert_eq!(node.told(second), "accepted");
    let sooner = Job::OrchestrationCancelRequested { reason: "now".to_owned(), grace_ms: 3_000 };
    node.send_message("a", &Message::Job(sooner));
    node.pass_inbox().settle();
    assert_eq!(node.row("a").wake_at_ms, Some(5_000));
    node.at(5_000).settle();
    assert_eq!(
        node.last_lines("a", 2),
        [
            r#"4 OrchestrationCancelRequested "now""#,
            r#"5 OrchestrationTerminated "cancelled, but did not end within its grace period: now""#
        ]
    );
}

#[test]
fn e23_cancel_then_terminate_ends_at_once() {
    let mut node = started("cleans_up", ());
    let cancelled = node.cancel("a", "gently");
    let terminated = node.terminate("a", "now");
    node.settle();
    assert_eq!(node.told_all([cancelled, terminated]), ["accepted"; 2]);
    assert_eq!(node.last_lines("a", 1), [r#"4 OrchestrationTerminated "now""#]);
}

#[test]
fn g28_cancel_of_a_blocked_instance_is_kept_and_ends_it_without_code_when_its_grace_is_over() {
    let mut node = blocked();
    let (cancelled, waiting) = (node.cancel("a", "enough"), node.await_end("a"));
    node.settle();
    assert_eq!(
        (node.told(cancelled), node.inbox("a")),
        ("accepted".into(), vec![r#"OrchestrationCancelRequested "enough""#.to_owned()])
    );
    node.at(30_999).settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    node.at(31_000).settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
    assert!(node.told(waiting).starts_with("ended: OrchestrationTerminated"), "{}", node.told(waiting));
}

#[test]
fn g28_cancel_of_a_blocked_instance_wakes_it_at_the_end_of_its_grace_however_long_the_back_off() {
    let options = ShardOptions { retry_first: Duration::from_millis(300_000), ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("panics", panics), options);
    node.start("panics", "a", ());
    node.settle();
    assert_eq!(node.row("a").wake_at_ms, Some(301_000));
    node.cancel("a", "enough");
    node.settle();
    assert_eq!(node.row("a").wake_at_ms, Some(31_000), "never late");
    node.at(31_000).settle();
    assert_eq!(node.status("a"), "terminated");
}

#[test]
fn g28_cancel_of_a_blocked_instance_is_delivered_if_the_cure_comes_first() {
    let mut node = started("cleans_up", ());
    node.replace_code(without_code()).crash();
    node.raise("a", "n", "1");
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    node.replace_code(handlers()).at(10_000).settle();
    node.finish("a", "clean", "cleaned").settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationFailed "cleaned""#]);
}

#[test]
fn e23_an_instance_that_is_blocked_while_it_cleans_up_is_ended_when_the_grace_is_over() {
    let mut node = started("cleans_up", ());
    node.cancel("a", "enough");
    node.settle();
    node.replace_code(without_code()).restart();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    assert!(node.row("a").wake_at_ms.is_some_and(|wake_at_ms| wake_at_ms <= 31_000), "never late");
    node.at(31_000).settle();
    assert_eq!(node.status("a"), "terminated", "past its grace it is ended, blocked or not");
}

#[test]
fn g12_the_wake_of_an_instance_that_is_blocked_while_it_cleans_up_is_not_later_than_its_grace() {
    let options = ShardOptions { retry_first: Duration::from_millis(300_000), ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("cleans_up", "a", ());
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    assert_eq!(node.row("a").wake_at_ms, Some(31_000));
    node.replace_code(without_code()).restart();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    assert_eq!(node.row("a").wake_at_ms, Some(31_000));
}

#[test]
fn g30_an_instance_with_a_deadline_is_ended_as_timed_out() {
    for dormant in [false, true] {
        let mut node = ManualNode::new(handlers());
        let deadline_ms = Some(9_000);
        node.start_with("a", Started { deadline_ms, ..Started::new("collect", ManualNode::VERSION, (), 1) });
        node.settle();
        assert_eq!(node.row("a").wake_at_ms, Some(9_000));
        if dormant {
            node.restart();
        }
        node.at(8_999).settle();
        assert_eq!(node.status("a"), "running");
        node.at(9_000).settle();
        assert_eq!(node.last_lines("a", 1), [r#"3 OrchestrationTerminated "timeout""#]);
    }
}

/// Ends at the first event `n`, or when its time is up.
async fn ends_at_the_first(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait("n").await)
}

#[test]
fn g17_an_event_that_falls_into_the_turn_that_ends_the_instance_is_told_so() {
    let mut node = ManualNode::new(handlers_and("ends_at_the_first", ends_at_the_first));
    node.start("ends_at_the_first", "a", ());
    node.settle();
    // While a turn is taken, what comes waits for the next one.
    node.raise_once("a", "other", "k0", ());
    let read = node.raise_once("a", "n", "k1", number(1));
    let [late, other] = [("n", "k2"), ("other", "k3")].map(|(name, key)| node.raise_once("a", name, key, ()));
    let again = node.raise_once("a", "n", "k1", number(1));
    node.settle();
    assert_eq!((node.status("a").as_str(), node.jobs("a").len()), ("completed", 4));
    let told = node.told_all([read, late, other, again]);
    assert_eq!(told, ["accepted", "too late", "too late", "accepted"]);
}

#[test]
fn g17_an_event_of_an_earlier_turn_that_nobody_read_was_accepted() {
    let mut node = ManualNode::new(handlers_and("ends_at_the_first", ends_at_the_first));
    node.start("ends_at_the_first", "a", ());
    node.settle();
    let other = node.raise_once("a", "other", "k1", ());
    node.settle();
    node.raise_once("a", "n", "k2", number(1));
    node.settle();
    assert_eq!((node.told(other).as_str(), node.status("a").as_str()), ("accepted", "completed"));
}
