//! Skipping an event and trying a blocked instance again: each is one try.

use crate::shard_cases::{Outcome, do_all_but_turns, handlers, handlers_and, number};
use perennial_core::shard::{Message, Request, ShardOptions};
use perennial_core::store::Skippable;
use perennial_core::{EventId, Handlers, Job, OrchestrationContext, Payload};
use perennial_testkit::{Drive, ManualNode};
use serde_json::json;

/// A node with an instance whose turn did not end.
fn with_a_lost_turn() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.lose_turn("a");
    node.settle();
    node
}

#[test]
fn g29_a_skip_whose_turn_is_lost_is_not_tried_again_and_again() {
    let mut node = with_a_lost_turn();
    assert_eq!(node.status("a"), "running, blocked: PER-0205");
    node.request("a", Request::Skip(Skippable::Event(EventId(3))));
    for lost in 1..=5 {
        do_all_but_turns(&mut node);
        if node.turns_to_take().is_empty() {
            return;
        }
        // The first is the replay.
        node.take_turn("a");
        do_all_but_turns(&mut node);
        assert!(
            lost == 1 || node.turns_to_take().is_empty(),
            "another thread is lost without anybody asking"
        );
        node.lose_turn("a");
    }
}

#[test]
fn g29_a_retry_from_elsewhere_is_one_try_also_if_something_comes_meanwhile() {
    let mut node = with_a_lost_turn();
    node.send_message("a", &Message::Retry);
    node.pass_inbox();
    do_all_but_turns(&mut node);
    // The replay, and the try that was asked for.
    node.take_turn("a");
    do_all_but_turns(&mut node);
    node.raise("a", "n", "meanwhile");
    node.lose_turn("a");
    do_all_but_turns(&mut node);
    assert!(node.turns_to_take().is_empty(), "another thread is lost without anybody asking");
}

/// Adds up two numbers. `touch` is an update that does nothing.
async fn sums(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.on_update("touch", |_: &Payload| Ok(()), |_: Payload| async { Ok(Payload::null()) });
    let _: Payload = ctx.schedule_wait("begin").await;
    let first = ctx.schedule_wait("n").typed::<u64>().await;
    let second = ctx.schedule_wait("n").typed::<u64>().await;
    Ok(number(first + second))
}

/// The number of the event that the reason of the block names.
fn unreadable_event(node: &ManualNode) -> EventId {
    let reason = node.row("a").blocked.expect("it is blocked").reason;
    let number = reason.split("event ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number");
    EventId(number.parse().expect("a number"))
}

#[test]
fn e16_a_skip_that_did_not_help_takes_no_other_event_out_later() {
    let mut node = ManualNode::new(handlers_and("sums", sums));
    node.start("sums", "a", ());
    node.settle();
    // All of these are for one turn; the update is refused when that fails, so the numbers are others in the next.
    node.raise("a", "begin", ());
    node.update("a", "touch", None, ());
    node.send_event("a", "n", "bad");
    node.send_event("a", "n", number(1));
    node.send_event("a", "n", number(2));
    node.pass_inbox().settle();
    for _ in 0..2 {
        let event = unreadable_event(&node);
        node.request("a", Request::Skip(Skippable::Event(event)));
        node.settle();
        if node.row("a").blocked.is_none() {
            break;
        }
    }
    assert_eq!(node.status("a"), "completed", "{:#?}", node.lines("a"));
    assert_eq!(node.last_lines("a", 1), ["10 OrchestrationCompleted 3"]);
}

/// Found by the simulator, seed 106: a skip counts for one try, which failed for the other event.
#[test]
fn e16_unreadable_events_that_wait_together_are_skipped_one_after_the_other() {
    let mut node = ManualNode::new(handlers_and("sums", sums));
    node.start("sums", "a", ());
    node.settle();
    node.raise("a", "begin", ());
    for content in ["bad", "worse"] {
        node.raise("a", "n", content);
    }
    node.raise("a", "n", number(1));
    node.raise("a", "n", number(2));
    node.settle();
    for _ in 0..2 {
        let event = unreadable_event(&node);
        node.request("a", Request::Skip(Skippable::Event(event)));
        node.settle();
    }
    assert_eq!(node.status("a"), "completed", "{:#?}", node.lines("a"));
    assert!(node.last_lines("a", 1)[0].ends_with("OrchestrationCompleted 3"), "{:#?}", node.lines("a"));
}

/// Waits until `go` in its first execution, and reads a number and adds it to what it has in each of the others, until it
/// has read four.
async fn sums_across(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let Ok((read, sum)) = input.decode::<(u64, String)>() else {
        let _: Payload = ctx.schedule_wait("go").await;
        return ctx.continue_as_new(Payload::encode(&(0, "")).expect("it encodes")).await;
    };
    let next = ctx.schedule_wait("n").typed::<u64>().await;
    let sum = format!("{sum}{next}");
    if read == 3 {
        return Ok(Payload::from(sum));
    }
    ctx.continue_as_new(Payload::encode(&(read + 1, sum)).expect("it encodes")).await
}

/// Reads four numbers, after `go` and a continuation.
async fn reads_four(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input != "second".into() {
        let _: Payload = ctx.schedule_wait("go").await;
        return ctx.continue_as_new("second").await;
    }
    let mut read = String::new();
    for _ in 0..4 {
        read += &ctx.schedule_wait("n").typed::<u64>().await.to_string();
    }
    Ok(Payload::from(read))
}

/// Limits under which a turn takes this many jobs.
fn jobs_per_turn(jobs: u64) -> ShardOptions {
    let mut options = ShardOptions::default();
    options.execution.limits.turn_decisions = 2 * jobs;
    options
}

/// An instance to which more unreadable events than one cross together, among four numbers, and one that came later.
fn with_unreadable_events_crossing(code: &str, jobs: u64) -> ManualNode {
    let handlers = handlers_and("reads_four", reads_four);
    let handlers = handlers.with("sums_across", ManualNode::VERSION, sums_across);
    let mut node = ManualNode::with_options(handlers, jobs_per_turn(jobs));
    node.start(code, "a", ());
    node.settle();
    for content in [json!("bad"), json!("worse"), json!(1), json!("no"), json!(2), json!("never"), json!(3)] {
        node.raise("a", "n", content);
        node.settle();
    }
    node.raise("a", "go", ());
    node.settle();
    node.raise("a", "n", json!(4));
    node.settle();
    node
}

/// Skips what blocks the instance until nothing does. Returns how often it did.
fn skip_all(node: &mut ManualNode, mut after_each: impl FnMut(&mut ManualNode)) -> usize {
    for skipped in 0..10 {
        if node.row("a").blocked.is_none() {
            return skipped;
        }
        let event = unreadable_event(node);
        node.request("a", Request::Skip(Skippable::Event(event)));
        after_each(node);
    }
    panic!("it is blocked for ever: {:?}, {:#?}", node.row("a").blocked, node.inbox("a"));
}

/// What crosses is one message, or a few, and a skip counts for one try.
#[test]
fn e16_unreadable_events_that_cross_together_are_skipped_one_after_the_other() {
    // All of them with the start; in portions of which some hold two; each by itself.
    for jobs in [100, 5, 3, 2, 1] {
        for code in ["reads_four", "sums_across"] {
            let mut node = with_unreadable_events_crossing(code, jobs);
            let skipped = skip_all(&mut node, |node| {
                node.settle();
            });
            assert_eq!(skipped, 4, "{code}, {jobs} jobs per turn");
            let last = &node.last_lines("a", 1)[0];
            assert!(
                last.ends_with(r#"OrchestrationCompleted "1234""#),
                "{code}, {jobs} jobs per turn: {last}"
            );
            assert!(node.inbox("a").is_empty(), "{code}, {jobs} jobs per turn: {:?}", node.inbox("a"));
        }
    }
}

#[test]
fn e16_what_crossed_after_a_skipped_event_outlives_a_process_and_a_commit_in_doubt() {
    for jobs in [100, 5, 2] {
        for is_written in [None, Some(false), Some(true)] {
            let mut node = with_unreadable_events_crossing("reads_four", jobs);
            let skipped = skip_all(&mut node, |node| {
                do_all_but_turns(node);
                while !node.turns_to_take().is_empty() {
                    node.take_turns();
                    match is_written {
                        Some(is_written) if !node.batch().is_empty() => {
                            node.commit_unknown(is_written);
                            node.settle_unknown();
                        }
                        _ => do_all_but_turns(node),
                    }
                }
                node.settle().crash().take_over().settle();
            });
            assert_eq!(skipped, 4, "{jobs} jobs per turn, {is_written:?}");
            let last = &node.last_lines("a", 1)[0];
            assert!(last.ends_with(r#"OrchestrationCompleted "1234""#), "{jobs} jobs per turn: {last}");
            assert!(node.inbox("a").is_empty(), "{:?}", node.inbox("a"));
        }
    }
}

/// Reads four numbers.
async fn reads_numbers(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut read = String::new();
    for _ in 0..4 {
        read += &ctx.schedule_wait("n").typed::<u64>().await.to_string();
    }
    Ok(Payload::from(read))
}

#[test]
fn e16_unreadable_events_that_a_reset_delivers_again_are_skipped_one_after_the_other() {
    for jobs in [100, 5, 2] {
        let mut node = ManualNode::with_options(handlers(), jobs_per_turn(jobs));
        node.start("collect", "a", ());
        node.settle();
        for content in [json!("bad"), json!("worse"), json!(1), json!("no"), json!(2), json!(3)] {
            node.raise("a", "n", content);
            node.settle();
        }
        let code = Handlers::default().with("collect", ManualNode::VERSION, reads_numbers);
        node.replace_code(code).restart();
        node.reset("a", Some(1));
        node.raise("a", "n", json!(4));
        node.settle();
        let skipped = skip_all(&mut node, |node| {
            node.settle();
        });
        assert_eq!((node.row("a").execution, skipped), (2, 3), "{jobs} jobs per turn");
        let last = &node.last_lines("a", 1)[0];
        assert!(last.ends_with(r#"OrchestrationCompleted "1234""#), "{jobs} jobs per turn: {last}");
        assert!(node.inbox("a").is_empty(), "{:?}", node.inbox("a"));
    }
}

/// What is dropped before it is recorded has no number, so a turn that takes as many jobs as the number tells may end before
/// the event.
#[test]
fn e16_events_are_skipped_that_cross_after_something_stale() {
    let mut node = ManualNode::new(handlers_and("reads_numbers", reads_numbers));
    node.start("reads_numbers", "a", ());
    node.settle();
    let stale = || Job::TimerFired { source_event_id: EventId(2) };
    let mut jobs = vec![stale(), stale()];
    for content in [json!("bad"), json!("worse"), json!(1), json!(2), json!(3)] {
        jobs.push(Drive::event("n", content));
    }
    node.send_message("a", &Message::Carried { execution: 1, jobs, in_place_of: None });
    node.send_event("a", "n", json!(4));
    node.pass_inbox().settle();
    skip_all(&mut node, |node| {
        node.settle().crash().take_over().settle();
    });
    let last = &node.last_lines("a", 1)[0];
    assert!(last.ends_with(r#"OrchestrationCompleted "1234""#), "{last}");
    assert!(node.inbox("a").is_empty(), "{:?}", node.inbox("a"));
}

#[test]
fn e16_what_crossed_after_a_skipped_event_comes_first_however_many_bytes_wait() {
    let mut node = with_unreadable_events_crossing("reads_four", 100);
    for _ in 0..17 {
        node.send_event("a", "other", "x".repeat(4_000_000));
    }
    let skipped = skip_all(&mut node, |node| {
        node.settle().crash().take_over().settle();
    });
    assert_eq!(skipped, 4);
    let events = node.jobs("a").into_iter().filter_map(|job| match job {
        Job::ExternalEvent { name, .. } => Some(name),
        _ => None,
    });
    let events: Vec<String> = events.collect();
    assert!(events[..7].iter().all(|name| name == "n"), "{events:?}");
    assert!(node.last_lines("a", 1)[0].ends_with(r#"OrchestrationCompleted "1234""#));
}
