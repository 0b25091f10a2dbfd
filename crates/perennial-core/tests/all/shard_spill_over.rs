//! Attempts that waited too long for a free slot here are queued for nodes that have room (G22).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers_and, secs};
use perennial_core::{ActivityError, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

fn shown(result: Result<Payload, ActivityError>) -> Outcome {
    result.map_err(|failure| Payload::from(format!("{failure:?}")))
}

async fn once(ctx: OrchestrationContext, _: Payload) -> Outcome {
    shown(ctx.schedule_activity("remote", "in").await)
}

async fn hurried(ctx: OrchestrationContext, _: Payload) -> Outcome {
    shown(ctx.schedule_activity("remote", "in").queue_timeout(secs(10)).await)
}

async fn twice(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).attempts(2);
    shown(ctx.schedule_activity("remote", "in").retry(retry).await)
}

async fn dropped(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let remote = ctx.schedule_activity("remote", "in");
    let _: Payload = ctx.schedule_wait("go").await;
    drop(remote);
    Ok(ctx.schedule_wait("end").await)
}

async fn stopped(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut remote = ctx.schedule_activity("remote", "in");
    let _: Payload = ctx.schedule_wait("go").await;
    remote.cancel();
    shown(remote.await)
}

fn running(name: &str) -> ManualNode {
    let handlers = handlers_and("once", once).with("twice", ManualNode::VERSION, twice);
    let handlers = handlers.with("dropped", ManualNode::VERSION, dropped);
    let handlers = handlers.with("hurried", ManualNode::VERSION, hurried);
    let mut node = ManualNode::new(handlers.with("stopped", ManualNode::VERSION, stopped));
    node.start(name, "a", ());
    node.settle();
    assert_eq!(node.running("a"), ["remote"]);
    node
}

/// The last event of the instance.
fn ending(node: &ManualNode) -> String {
    let line = node.lines("a").pop().expect("it has a history");
    line.split_once(' ').expect("an id and a summary").1.to_owned()
}

#[test]
fn g22_an_attempt_that_was_withdrawn_becomes_a_row_that_another_node_takes() {
    let mut node = running("once");
    node.spill("a", "remote").settle();
    assert_eq!((node.running("a").len(), node.tasks("a")), (0, vec!["remote 1 queued".to_owned()]));
    assert!(!node.row("a").owed, "the next owner has nothing to start");
    let tasks = node.take_tasks(&["remote"], 10_000);
    assert!(node.finish_task(&tasks[0], Ok("done".into())));
    node.pass_inbox().settle();
    assert_eq!(ending(&node), r#"OrchestrationCompleted "done""#);
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g22_a_retry_that_was_withdrawn_keeps_its_number_and_its_past() {
    let mut node = running("twice");
    node.fail("a", "remote", "no").settle();
    node.at(5_000).settle();
    assert_eq!(node.running("a"), ["remote"]);
    node.spill("a", "remote").settle();
    assert_eq!(node.tasks("a"), ["remote 2 queued"]);
    let tasks = node.take_tasks(&["remote"], 10_000);
    assert_eq!(tasks[0].past.iter().count(), 1);
    assert!(node.finish_task(&tasks[0], Err(ActivityError::Application("no".into()))));
    node.pass_inbox().settle();
    assert!(ending(&node).starts_with("OrchestrationFailed"), "there is no third attempt");
}

#[test]
fn g22_a_result_and_a_withdrawal_of_the_same_attempt_do_not_both_count() {
    let mut node = running("once");
    let task = node.pick_activity("a", "remote");
    node.bring_spilled(&task);
    node.bring_result(&task, Ok("late".into()));
    node.settle();
    assert_eq!(node.tasks("a"), ["remote 1 queued"], "the result of what was withdrawn is stale");
    let mut node = running("once");
    let task = node.pick_activity("a", "remote");
    node.bring_result(&task, Ok("first".into()));
    node.bring_spilled(&task);
    node.settle();
    assert_eq!(ending(&node), r#"OrchestrationCompleted "first""#);
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g23_a_cancelled_attempt_does_not_become_a_row() {
    let mut node = running("dropped");
    let task = node.pick_activity("a", "remote");
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(node.take_cancelled().len(), 1);
    node.bring_spilled(&task);
    node.settle();
    assert!(node.tasks("a").is_empty());
    // The other way around, its row is deleted.
    let mut node = running("dropped");
    node.spill("a", "remote").settle();
    node.raise("a", "go", ());
    node.settle();
    assert!(node.tasks("a").is_empty());
}

#[test]
fn g23_an_attempt_that_was_asked_to_stop_ends_instead_of_moving() {
    let mut node = running("stopped");
    let task = node.pick_activity("a", "remote");
    node.raise("a", "go", ());
    node.settle();
    node.bring_spilled(&task);
    node.settle();
    assert!(node.tasks("a").is_empty());
    assert_eq!(ending(&node), r#"OrchestrationFailed "Cancelled""#);
}

#[test]
fn g21_the_time_in_the_queue_counts_from_before_the_withdrawal() {
    let mut node = running("hurried");
    let began_ms = node.row("a").created_ms;
    node.at(began_ms + 8_000).spill("a", "remote").settle();
    node.at(began_ms + 9_999).settle();
    assert_eq!(node.tasks("a"), [format!("remote 1 queued, due {}", began_ms + 10_000)]);
    node.at(began_ms + 10_000).settle();
    assert_eq!(ending(&node), r#"OrchestrationFailed "Timeout(Queue)""#);
}

#[test]
fn g22_a_withdrawn_attempt_is_queued_after_a_crash_before_its_row_is_written() {
    let mut node = running("once");
    node.spill("a", "remote");
    node.restart();
    assert_eq!(node.running("a"), ["remote"], "nothing says that it ran or moved");
}
