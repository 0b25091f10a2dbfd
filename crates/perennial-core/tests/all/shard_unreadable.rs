//! Instances whose history cannot be read: how they end, and who hears of it.

use crate::shard_cases::{Outcome, handlers, handlers_and, number, settle_for_a_while};
use perennial_core::shard::ShardOptions;
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;
use std::time::Duration;

#[test]
fn g17_an_event_that_comes_with_the_termination_of_an_unreadable_instance_is_told_so() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("a", true);
    let (raised, terminated) = (node.raise("a", "n", "1"), node.terminate("a", "enough"));
    settle_for_a_while(&mut node);
    assert_eq!((node.status("a"), node.told(terminated)), ("terminated".into(), "accepted".into()));
    assert_eq!(node.told(raised), "ended before", "it is not on disk and will not be delivered");
}

async fn waits_in_update(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let inner = ctx.clone();
    ctx.on_update(
        "slow",
        |_: &Payload| Ok(()),
        move |_: Payload| {
            let ctx = inner.clone();
            async move { Ok(ctx.schedule_wait("never").await) }
        },
    );
    Ok(ctx.schedule_wait("n").await)
}

#[test]
fn e21_who_waits_for_an_update_of_an_unreadable_instance_hears_of_its_termination() {
    let options = ShardOptions {
        idle: Duration::from_millis(1_000),
        lookahead: Duration::from_millis(1_000),
        ..ShardOptions::default()
    };
    let mut node = ManualNode::with_options(handlers_and("waits", waits_in_update), options);
    node.start("waits", "a", ());
    node.settle();
    let update = node.update("a", "slow", None, ());
    node.settle();
    assert_eq!(node.told(update), "nothing");
    node.at(60_000).settle();
    assert_eq!(node.in_memory("a"), 0, "it was put away");
    node.set_unreadable("a", true);
    node.terminate("a", "enough");
    settle_for_a_while(&mut node);
    assert_eq!(node.status("a"), "terminated");
    assert_ne!(node.told(update), "nothing", "nobody will ever answer it");
}

#[test]
fn g28_an_unreadable_instance_that_was_terminated_stays_so_and_leaves_no_messages() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(2));
    node.settle();
    node.replace_code(Handlers::default()).restart();
    node.raise("a", "n", "kept");
    node.settle();
    assert_eq!(node.inbox("a").len(), 1);
    node.set_unreadable("a", true);
    node.terminate("a", "enough");
    settle_for_a_while(&mut node);
    assert_eq!(node.status("a"), "terminated");
    node.pass_inbox();
    settle_for_a_while(&mut node);
    assert_eq!((node.status("a"), node.row("a").blocked), ("terminated".into(), None));
    assert_eq!(node.inbox("a"), Vec::<String>::new());
}

#[test]
fn g28_a_query_from_elsewhere_does_not_block_an_unreadable_instance_that_was_terminated() {
    use perennial_core::shard::InstanceCall;
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("a", true);
    node.terminate("a", "enough");
    settle_for_a_while(&mut node);
    assert_eq!(node.status("a"), "terminated");
    node.send_request("a", &InstanceCall::Query { name: "q".to_owned(), payload: ().into() }, 60_000);
    node.pass_requests();
    settle_for_a_while(&mut node);
    assert_eq!((node.status("a"), node.row("a").blocked), ("terminated".into(), None));
}

#[test]
fn g28_the_tasks_of_an_unreadable_instance_go_with_its_termination() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(1));
    node.settle();
    node.release_activities();
    node.settle();
    assert_eq!(node.tasks("a").len(), 1);
    node.crash();
    node.set_unreadable("a", true);
    node.terminate("a", "enough");
    settle_for_a_while(&mut node);
    assert_eq!(node.status("a"), "terminated");
    assert_eq!(node.tasks("a"), Vec::<String>::new());
}

/// Waits for a child and ends with what came of it.
async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration_with_id("collect", "child", ());
    child.await.map_err(|failure| Payload::from(format!("{failure:?}")))
}

#[test]
fn g28_a_parent_hears_that_its_unreadable_child_was_terminated() {
    let mut node = ManualNode::new(handlers_and("parent", parent));
    node.start("parent", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("child", true);
    node.terminate("child", "enough");
    node.settle();
    assert_eq!((node.status("child"), node.status("a")), ("terminated".into(), "failed".into()));
}

#[test]
fn g28_an_unreadable_instance_that_is_blocked_ends_when_the_grace_of_its_cancel_is_over() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.crash();
    node.set_unreadable("a", true);
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0508");
    node.cancel("a", "enough");
    node.settle();
    node.at(60_000).settle();
    assert_eq!(node.status("a"), "terminated");
}
