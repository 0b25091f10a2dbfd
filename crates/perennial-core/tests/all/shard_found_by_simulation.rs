//! What the simulator found, made small: each test is a run of it, by hand.

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::{Message, ShardOptions};
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Goes on in a version that nobody has.
async fn moves_on(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.continue_as_new_versioned("9.9.9", input).await
}

/// Seed 2948: an execution that continues in another version is terminated before it begins.
#[test]
fn i14_the_row_of_what_was_ended_before_it_began_names_the_version_it_was_to_have() {
    let mut node = ManualNode::new(handlers_and("moves_on", moves_on));
    node.start("moves_on", "a", ());
    node.settle();
    node.terminate("a", "enough");
    node.settle();
    let row = node.row("a");
    assert_eq!((row.execution, row.version.as_str(), row.status.name()), (2, "9.9.9", "terminated"));
}

/// An instance whose turn never ended.
fn abandoned_turn() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", number(1));
    node.lose_turn("a");
    node.settle();
    node
}

/// A new owner comes to an instance that an earlier process gave up on, just while a message for it is being kept.
#[test]
fn g28_a_new_owner_tries_a_blocked_instance_again_also_while_it_keeps_a_message_for_it() {
    let mut node = abandoned_turn();
    assert_eq!(node.row("a").blocked.map(|blocked| blocked.code), Some("PER-0205".to_owned()));
    node.crash();
    let kept = node.raise("a", "n", number(2));
    node.look_up();
    assert_eq!(node.batch(), ["a"]);
    node.take_over().settle();
    assert_eq!((node.told(kept).as_str(), node.row("a").blocked), ("accepted", None));
    assert_eq!(node.jobs("a").len(), 2);
}

/// Seed 6373: while a blocked instance is being tried again, a cancel request for it is sent.
#[test]
fn i14_a_row_wants_nothing_after_a_cancel_that_came_while_it_was_unblocked() {
    let mut node = abandoned_turn();
    node.retry("a");
    node.load();
    let (reason, grace_ms) = ("enough".to_owned(), 60_000);
    let cancel = Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms });
    node.send_message("a", &cancel);
    node.settle();
    node.pass_inbox().settle();
    assert_eq!((node.status("a").as_str(), node.row("a").wake_at_ms), ("cancelled", None));
}

/// An event, then an activity.
async fn works_later(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("go").await;
    ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
}

/// Seed 7570: a lane that has lost its shard and does not know it loads an instance that the next owner has gone on with,
/// and runs the activity that is open there.
#[test]
fn g20_what_a_lane_runs_after_it_lost_the_shard_is_refused_and_the_owners_run_counts() {
    let [mut lost, mut owner] = [0, 1_000].map(|max_resident| {
        let options = ShardOptions { max_resident, ..ShardOptions::default() };
        let mut node = ManualNode::with_options(handlers_and("works_later", works_later), options);
        node.start("works_later", "a", ());
        node.settle();
        node
    });
    owner.raise("a", "go", ());
    owner.settle();
    lost.fence();
    // Both have the same store, as far as the instance goes.
    lost.tables().turns.extend(owner.tables().turns.clone());
    lost.tables().instances.extend(owner.tables().instances.clone());
    let written = lost.lines("a");
    assert_eq!((written.clone(), lost.in_memory("a")), (owner.lines("a"), 0));
    lost.query("a", "anything", ());
    lost.settle();
    assert_eq!((lost.runs(), owner.runs()), (&["a work".to_owned()][..], &["a work".to_owned()][..]));
    let refused = lost.await_end("a");
    lost.finish("a", "work", "later").settle();
    assert_eq!((lost.lines("a"), lost.told(refused)), (written, "moved".to_owned()));
    owner.finish("a", "work", "earlier").settle();
    assert!(owner.last_lines("a", 1)[0].ends_with(r#"OrchestrationCompleted "earlier""#));
}
