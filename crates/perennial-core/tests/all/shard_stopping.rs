//! Activities that are asked to stop, and whose end is waited for (G38).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, secs};
use perennial_core::shard::ShardOptions;
use perennial_core::{ActivityError, Handlers, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

/// An activity with retries that is asked to stop by an event; ends with what came of it.
async fn stops(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let policy = RetryPolicy::fixed(Duration::from_millis(60_000)).attempts(5).jitter(0);
    let mut work = ctx.schedule_activity("work", ()).retry(policy).timeout(secs(3_600));
    ctx.select2(&mut work, ctx.schedule_wait("n")).await;
    work.cancel();
    Ok(format!("{:?}", work.await).into())
}

fn all() -> Handlers {
    handlers().with("stops", ManualNode::VERSION, stops)
}

fn started() -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start("stops", "a", ());
    node.settle();
    node
}

fn ask(node: &mut ManualNode) {
    node.raise("a", "n", ());
    node.settle();
}

fn result(node: &ManualNode) -> String {
    let last = node.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ").unwrap_or_else(|| panic!("{last}")).1.to_owned()
}

#[test]
fn g38_the_attempt_is_told_and_its_own_last_result_counts() {
    for (outcome, expected) in [
        (Ok("half".into()), r#""Ok(\"half\")""#),
        (Err(ActivityError::Cancelled), r#""Err(Cancelled)""#),
        (Err(ActivityError::Application("torn".into())), r#""Err(Application(\"torn\"))""#),
    ] {
        let mut node = started();
        ask(&mut node);
        assert_eq!((node.stops(), node.status("a")), (&["a work".to_owned()][..], "running".into()));
        let task = node.pick_activity("a", "work");
        node.bring_result(&task, outcome);
        node.settle();
        assert_eq!(result(&node), expected, "it is not tried again");
    }
}

#[test]
fn g38_one_that_waits_for_its_next_attempt_ends_at_once() {
    let mut node = started();
    node.fail("a", "work", "broke").settle();
    assert_eq!(node.tasks("a").len(), 1);
    ask(&mut node);
    assert_eq!((result(&node), node.tasks("a")), (r#""Err(Cancelled)""#.to_owned(), vec![]));
}

#[test]
fn g38_one_whose_process_is_gone_ends_without_running_again() {
    let mut node = started();
    ask(&mut node);
    node.restart();
    node.settle();
    assert_eq!(node.runs().len(), 1, "{:?}", node.runs());
    assert_eq!(result(&node), r#""Err(Cancelled)""#);
}

/// A node that cannot run `work` itself.
fn with_work_elsewhere() -> ManualNode {
    let options =
        ShardOptions { served: Some(ManualNode::served(&["other"], &[]).into()), ..ShardOptions::default() };
    let mut node = ManualNode::with_options(all(), options);
    node.start("stops", "a", ());
    node.settle();
    node
}

#[test]
fn g38_what_nobody_has_taken_ends_at_once() {
    let mut node = with_work_elsewhere();
    ask(&mut node);
    assert_eq!((result(&node), node.tasks("a")), (r#""Err(Cancelled)""#.to_owned(), vec![]));
}

#[test]
fn g38_what_another_node_runs_is_waited_for() {
    let mut node = with_work_elsewhere();
    let task = node.take_tasks(&["work"], 30_000).pop().expect("it is queued");
    ask(&mut node);
    assert_eq!(node.status("a"), "running");
    let renewal = node.renew_task(task.id, None, 30_000);
    assert_eq!(renewal, perennial_core::store::TaskRenewal::Cancelled, "the holder is told");
    assert!(node.finish_task(&task, Err(ActivityError::Application("torn".into()))));
    node.pass_inbox().settle();
    assert_eq!(result(&node), r#""Err(Application(\"torn\"))""#, "it is not tried again");
}

#[test]
fn g38_what_another_node_ran_ends_when_its_lease_is_over() {
    let mut node = with_work_elsewhere();
    node.take_tasks(&["work"], 30_000).pop().expect("it is queued");
    ask(&mut node);
    node.at(20_000).settle();
    assert_eq!(node.status("a"), "running");
    node.at(60_000).settle();
    node.at(61_000).settle();
    assert_eq!(result(&node), r#""Err(Cancelled)""#);
}
