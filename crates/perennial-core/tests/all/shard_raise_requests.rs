//! Events of other processes whose senders hear what became of them (G17), and events that nobody can read (G28).

use crate::shard_cases::{Outcome, handlers};
use perennial_core::shard::{CallReply, InstanceCall, Request, Response};
use perennial_core::store::{RequestOutcome, Skippable};
use perennial_core::{EventId, Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Ends with the first event `end`, and reads no other.
async fn ends(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait("end").await)
}

/// Adds two numbers.
async fn adds(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let first: u64 = ctx.schedule_wait("n").typed().await;
    let second: u64 = ctx.schedule_wait("n").typed().await;
    Ok(crate::shard_cases::number(first + second))
}

fn all() -> Handlers {
    handlers().with("ends", ManualNode::VERSION, ends).with("adds", ManualNode::VERSION, adds)
}

fn started(name: &str) -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start(name, "a", ());
    node.settle();
    node
}

fn raise(name: &str, payload: impl Into<Payload>, key: &str) -> InstanceCall {
    InstanceCall::Raise { name: name.to_owned(), payload: payload.into(), key: key.to_owned(), trace: None }
}

/// Another process raises; returns the request's number.
fn send(node: &mut ManualNode, instance_call: &InstanceCall) -> u64 {
    match node.send_request("a", instance_call, 1_000_000) {
        RequestOutcome::Written(number) => number,
        RequestOutcome::NoInstance => panic!("it exists"),
    }
}

fn taken() -> Option<CallReply> {
    Some(CallReply::Answered(Payload::null()))
}

#[test]
fn g17_a_sender_elsewhere_hears_that_its_event_was_taken_once() {
    let mut node = started("ends");
    let first = send(&mut node, &raise("other", "1", "k1"));
    node.pass_requests().pass_requests().settle();
    let again = send(&mut node, &raise("other", "1", "k1"));
    node.pass_requests().settle();
    assert_eq!((node.reply(first), node.reply(again)), (taken(), Some(CallReply::KeyTaken)));
    let events = node.lines("a").into_iter().filter(|line| line.contains("ExternalEvent \"other\""));
    assert_eq!(events.count(), 1);
    assert!(node.tables().requests.is_empty());
}

#[test]
fn g17_a_sender_elsewhere_hears_that_the_instance_ended_without_reading_its_event() {
    let mut node = started("ends");
    // Both come while a turn is under way, and are of the next one, which ends the instance and reads one of them.
    node.raise("a", "other", "0");
    let late = send(&mut node, &raise("other", "1", "k1"));
    node.pass_requests();
    node.raise("a", "end", "enough");
    node.settle();
    assert_eq!((node.status("a"), node.reply(late)), ("completed".into(), Some(CallReply::Ended)));
    let after = send(&mut node, &raise("other", "1", "k2"));
    node.pass_requests().settle();
    assert_eq!(node.reply(after), Some(CallReply::Ended));
}

#[test]
fn g17_the_event_that_ends_an_instance_was_taken() {
    let mut node = started("ends");
    let [end, late] = ["k1", "k2"].map(|key| send(&mut node, &raise("end", key, key)));
    node.pass_requests().settle();
    assert_eq!((node.reply(end), node.reply(late)), (taken(), Some(CallReply::Ended)));
}

#[test]
fn g17_an_event_of_elsewhere_is_taken_once_although_the_owner_crashes() {
    for is_written in [false, true] {
        let mut node = started("ends");
        let number = send(&mut node, &raise("other", "1", "k1"));
        node.pass_requests();
        node.take_turns();
        node.commit_unknown(is_written);
        node.crash();
        node.pass_requests().settle();
        assert_eq!(node.reply(number), taken(), "written: {is_written}");
        let events = node.lines("a").into_iter().filter(|line| line.contains("ExternalEvent \"other\""));
        assert_eq!(events.count(), 1, "written: {is_written}");
    }
}

#[test]
fn g28_an_event_that_the_waiting_code_cannot_read_is_refused_whoever_waits_for_the_answer() {
    let mut node = started("adds");
    node.raise("a", "n", crate::shard_cases::number(1));
    let bad = node.raise_once("a", "n", "k0", "no number");
    node.settle();
    let Some(Response::Unreadable { event, type_name, .. }) = node.answer(bad) else {
        panic!("{}", node.told(bad))
    };
    assert_eq!((event.as_str(), *type_name), ("n", "u64"));
    let elsewhere = send(&mut node, &raise("n", "no number", "k1"));
    node.pass_requests().settle();
    let Some(CallReply::Refused { reason, .. }) = node.reply(elsewhere) else {
        panic!("{:?}", node.reply(elsewhere))
    };
    assert!(reason.starts_with("PER-0103"), "{reason}");
    assert_eq!(node.status("a"), "running", "nothing blocks it");
    node.raise("a", "n", crate::shard_cases::number(2));
    node.settle();
    assert_eq!(node.status("a"), "completed");
    let bad = node.lines("a").into_iter().filter(|line| line.contains("no number"));
    assert_eq!(bad.count(), 0, "nothing of it is recorded");
}

#[test]
fn g28_only_the_event_that_blocks_an_instance_can_be_skipped() {
    let mut node = started("adds");
    node.send_event("a", "n", "no number");
    node.send_event("a", "n", crate::shard_cases::number(1));
    node.pass_inbox().settle();
    let asked = node.request("a", Request::Skip(Skippable::Event(EventId(5))));
    node.settle();
    let Some(Response::NotBlockedBy { blocking: Some(blocking) }) = node.answer(asked).cloned() else {
        panic!("{}", node.told(asked))
    };
    let skipped = node.request("a", Request::Skip(blocking));
    node.settle();
    assert_eq!(node.told(skipped), "accepted");
    node.raise("a", "n", crate::shard_cases::number(2));
    node.settle();
    assert_eq!(node.status("a"), "completed");
}
