//! Tokens at the edges (G43, G44): what is said while nobody is there and time passes, what cannot be read, and attempts that
//! are asked to stop while they wait.

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers_and, number};
use crate::shard_tokens::{completed, end_of, message, say};
use perennial_core::shard::{CompletionToken, Message, Request, Said};
use perennial_core::store::{SendOutcome, Skippable};
use perennial_core::{Handlers, Job, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

/// Asks somebody for a number, with a second for each attempt.
async fn hurried(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let retry = RetryPolicy::fixed(Duration::from_millis(500)).attempts(2);
    let ask = ctx.schedule_activity("ask", ()).completes_later().timeout(Duration::from_secs(1)).retry(retry);
    ask.typed::<u64>().await.map(number).map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// The same, with a second between heartbeats.
async fn nervous(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let ask = ctx.schedule_activity("ask", ()).completes_later().heartbeat_timeout(Duration::from_secs(1));
    ask.typed::<u64>().await.map(number).map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// The same, with all the time there is.
async fn patient(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let ask = ctx.schedule_activity("ask", ()).completes_later();
    ask.typed::<u64>().await.map(number).map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// Asks, and has it stopped when an event says so.
async fn stops(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let retry = RetryPolicy::fixed(Duration::from_millis(500)).attempts(3);
    let mut ask = ctx.schedule_activity("ask", ()).completes_later().retry(retry);
    ctx.schedule_wait("stop").await;
    ask.cancel();
    let end = ask.await;
    ctx.schedule_wait("end").await;
    Ok(Payload::from(format!("{end:?}")))
}

fn all() -> Handlers {
    let version = ManualNode::VERSION;
    let handlers = handlers_and("hurried", hurried).with("nervous", version, nervous);
    handlers.with("patient", version, patient).with("stops", version, stops)
}

fn asking(name: &str) -> (ManualNode, CompletionToken) {
    let mut node = ManualNode::new(all());
    node.start(name, "a", ());
    node.settle();
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    (node, token)
}

#[test]
fn g44_a_result_that_came_in_time_counts_although_nobody_was_there() {
    for is_killed in [true, false] {
        let (mut node, token) = asking("hurried");
        if is_killed {
            node.kill()
        } else {
            node.crash()
        };
        node.set_clock(1_500);
        node.send_message("a", &message(&token, completed(7)));
        node.set_clock(60_000);
        node.take_over().settle();
        assert_eq!(end_of(&node), "completed: 7");
    }
}

#[test]
fn g44_heartbeats_that_came_in_time_count_although_nobody_was_there() {
    let (mut node, token) = asking("nervous");
    node.kill();
    for at_ms in [1_900, 2_800, 3_700] {
        node.set_clock(at_ms);
        node.send_message("a", &message(&token, Said::UnderWay("going on".into())));
    }
    node.set_clock(4_000);
    node.take_over().settle();
    assert_eq!(end_of(&node), "running");
    let told = say(&mut node, &token, completed(7));
    assert_eq!((node.told(told), end_of(&node)), ("answered: null".to_owned(), "completed: 7".to_owned()));
}

#[test]
fn g44_a_token_that_was_never_handed_out_does_not_hold_a_timeout_up() {
    let (mut node, mut token) = asking("nervous");
    node.kill();
    token.secret.0 ^= 1;
    for said in [Said::UnderWay("going on".into()), completed(7)] {
        node.send_message("a", &message(&token, said));
    }
    node.set_clock(4_000);
    node.take_over().settle();
    assert!(end_of(&node).contains("Timeout(Heartbeat)"), "{}", end_of(&node));
}

#[test]
fn g50_a_result_in_the_inbox_that_the_code_cannot_read_can_be_skipped() {
    let (mut node, token) = asking("patient");
    node.kill();
    node.send_message("a", &message(&token, Said::Completed("forty-two".into())));
    node.take_over().settle();
    let blocked = node.row("a").blocked.expect("the code reads a number");
    assert_eq!(blocked.code, "PER-0103");
    let number = blocked.message.expect("it names the message");
    let other = node.request("a", Request::Skip(Skippable::Message(number + 1)));
    node.settle();
    assert!(node.told(other).starts_with("NotBlockedBy"), "{}", node.told(other));
    let skipped = node.request("a", Request::Skip(Skippable::Message(number)));
    node.settle();
    assert_eq!(node.told(skipped), "accepted");
    assert_eq!((end_of(&node), node.tasks("a")), ("running".to_owned(), vec!["ask 1 waiting".to_owned()]));
    let told = say(&mut node, &token, completed(7));
    assert_eq!((node.told(told), end_of(&node)), ("answered: null".to_owned(), "completed: 7".to_owned()));
}

#[test]
fn g50_a_result_that_does_not_block_is_not_skipped() {
    let (mut node, token) = asking("patient");
    node.kill();
    let number = node.send_message("a", &message(&token, completed(7)));
    let SendOutcome::Sent(number) = number else { panic!("{number:?}") };
    node.send_message("a", &Message::SkipMessage { number });
    node.take_over().settle();
    assert_eq!(end_of(&node), "completed: 7");
}

#[test]
fn g38_an_attempt_that_waits_for_its_token_is_counted_when_it_is_stopped() {
    let (mut node, first) = asking("stops");
    let told = say(&mut node, &first, Said::Failed("not now".into()));
    assert_eq!(node.told(told), "answered: null");
    node.at(10_000).settle();
    let second = node.leave_open("a", "ask", 0);
    node.settle();
    node.raise("a", "stop", ());
    node.settle();
    let jobs = node.jobs("a");
    let ended = jobs.iter().find_map(|job| match job {
        Job::ActivityFailed { attempts, trail, .. } => Some((*attempts, trail.iter().count())),
        _ => None,
    });
    assert_eq!(ended, Some((2, 2)), "both attempts were made: {jobs:?}");
    let late = say(&mut node, &second, completed(1));
    assert_eq!(node.told(late), "not open");
}
