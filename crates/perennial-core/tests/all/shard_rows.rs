//! A turn writes one row; the instance row is written only when a searched column changes (G12).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, number, secs};
use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

#[test]
fn g12_an_ordinary_step_of_a_sequence_writes_its_turn_and_nothing_else() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(4));
    node.settle();
    for step in ["A1", "A2", "A3", "A4"] {
        node.finish("a", step, step).settle();
    }
    assert_eq!(
        node.writes("a"),
        [
            "insert running, owed, turn 1",
            "turn 2",
            "turn 3",
            "turn 4",
            "turn 5, status completed, owed false"
        ]
    );
}

#[test]
fn g12_an_instance_that_ends_in_its_first_turn_is_one_write() {
    let mut node = ManualNode::new(handlers());
    node.start("echo", "a", "hello");
    node.settle();
    assert_eq!(node.writes("a"), ["insert completed, turn 1"]);
}

#[test]
fn g12_owed_changes_when_the_first_activity_opens_and_when_the_last_one_closes() {
    let owing = |ctx: OrchestrationContext, _: Payload| async move {
        for _ in 0..2 {
            let _: Payload = ctx.schedule_wait("n").await;
            ctx.join([ctx.schedule_activity("A1", ()), ctx.schedule_activity("A2", ())]).await;
        }
        Ok(Payload::null())
    };
    let mut node = ManualNode::new(handlers_and("owing", owing));
    node.start("owing", "a", ());
    node.settle();
    node.raise("a", "n", "go");
    node.settle();
    node.finish("a", "A2", "2").settle();
    node.finish("a", "A1", "1").settle();
    assert_eq!(
        node.writes("a"),
        ["insert running, turn 1", "turn 2, owed true", "turn 3", "turn 4, owed false"]
    );
}

#[test]
fn g12_attributes_and_published_status_are_written_when_they_are_set() {
    async fn publishes(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.set_status("one");
        let _: Payload = ctx.schedule_wait("n").await;
        ctx.upsert_attributes([("customer", "Ada")]);
        let _: Payload = ctx.schedule_wait("n").await;
        ctx.set_status("three");
        Ok(ctx.schedule_wait("n").await)
    }
    let mut node = ManualNode::new(handlers_and("publishes", publishes));
    node.start("publishes", "a", ());
    node.settle();
    assert_eq!(node.row("a").published, Some("one".into()));
    for event in ["1", "2"] {
        node.raise("a", "n", event);
        node.settle();
    }
    assert_eq!(node.writes("a"), ["insert running, turn 1", "turn 2, attributes", "turn 3, published"]);
    let row = node.row("a");
    assert_eq!(
        (row.attributes.get("customer").cloned(), row.published),
        (Some("Ada".into()), Some("three".into()))
    );
}

/// Timers by event: each event `n` gives a delay in seconds; `0` drops all timers.
async fn timers(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut all = Vec::new();
    loop {
        let delay: u64 = ctx.schedule_wait("n").typed().await;
        if delay == 0 {
            all.clear();
        } else {
            all.push(ctx.schedule_timer(secs(delay)));
        }
    }
}

fn with_timers() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("timers", timers));
    node.start("timers", "a", ());
    node.settle();
    node
}

fn set_timer(node: &mut ManualNode, delay: u64) -> String {
    node.raise("a", "n", number(delay));
    node.settle();
    node.writes("a").pop().expect("something was written")
}

#[test]
fn g12_wake_at_is_written_when_the_earliest_timer_comes_sooner() {
    let mut node = with_timers();
    assert_eq!(set_timer(&mut node, 20), "turn 2, wake 21000");
    assert_eq!(set_timer(&mut node, 30), "turn 3");
    assert_eq!(set_timer(&mut node, 10), "turn 4, wake 11000");
    assert_eq!(set_timer(&mut node, 15), "turn 5");
    assert_eq!(node.row("a").wake_at_ms, Some(11_000));
}

#[test]
fn g12_wake_at_may_stay_early_and_is_put_right_by_a_later_turn() {
    let mut node = with_timers();
    set_timer(&mut node, 10);
    set_timer(&mut node, 30);
    node.at(11_000).settle();
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 4, wake 31000"), "the next timer is due then");
    assert_eq!(set_timer(&mut node, 0), "turn 5, wake none");
    assert_eq!(set_timer(&mut node, 30), "turn 6, wake 41000");
}

#[test]
fn g12_a_wake_that_is_too_early_costs_a_look_and_fires_nothing() {
    async fn swaps(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let early = ctx.schedule_timer(secs(10));
        let late = ctx.schedule_timer(secs(30));
        let _: Payload = ctx.schedule_wait("n").await;
        drop(early);
        late.await;
        Ok("late".into())
    }
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("swaps", swaps), options);
    node.start("swaps", "a", ());
    node.settle();
    node.raise("a", "n", ());
    node.settle();
    assert_eq!(node.row("a").wake_at_ms, Some(11_000), "early, not late: nothing is written for it");
    node.restart();
    node.at(11_000).settle();
    assert_eq!(
        node.writes("a"),
        ["insert running, wake 11000, turn 1", "turn 2", "wake 31000"],
        "the look puts it right"
    );
    node.at(30_999).settle();
    assert_eq!(node.status("a"), "running");
    node.at(31_000).settle();
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 3, status completed, wake none"));
}

#[test]
fn g12_wake_at_is_never_later_than_what_waits() {
    let mut node = with_timers();
    for (delay, at_ms) in
        [(40, 2_000), (5, 3_000), (7, 4_000), (3, 5_000), (1, 5_500), (20, 9_000), (2, 9_000)]
    {
        node.at(at_ms).settle();
        set_timer(&mut node, delay);
        let stored = node.row("a").wake_at_ms.expect("a timer is open");
        let wanted = node.next_wake_ms("a").expect("a timer is open");
        assert!(stored <= wanted, "stored {stored}, but the earliest timer is due at {wanted}");
    }
}

#[test]
fn g12_a_cancel_taken_over_wakes_at_the_end_of_its_grace() {
    let mut node = ManualNode::new(handlers());
    node.start("cleans_up", "a", ());
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 2, owed true, wake 31000"));
    node.finish("a", "clean", "cleaned").settle();
    assert_eq!(node.writes("a").pop().as_deref(), Some("turn 3, status failed, owed false, wake none"));
}

#[test]
fn g12_jobs_that_are_all_stale_write_nothing() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise_once("a", "n", "key", "1");
    node.settle();
    let again = node.raise_once("a", "n", "key", "1");
    node.settle();
    assert_eq!(node.told(again), "accepted");
    assert_eq!(node.writes("a"), ["insert running, turn 1", "turn 2"]);
    assert_eq!(node.counters("a").events_duplicate, 1);
}

#[test]
fn g12_a_consumed_message_goes_with_the_turn_that_applies_it() {
    let mut node = ManualNode::new(handlers());
    node.send_start("collect", "a", ());
    node.send_event("a", "n", "1");
    node.pass_inbox().settle();
    assert_eq!(node.writes("a"), ["turn 1, status running, consumed 1", "turn 2, consumed 1"]);
    assert!(node.inbox("a").is_empty());
}

#[test]
fn g12_a_turn_that_only_sleeps_writes_when_to_wake() {
    let mut node = ManualNode::new(handlers());
    node.start("sleep", "a", number(u64::from(u32::MAX)));
    node.settle();
    let due_ms = 1_000 + u64::from(u32::MAX);
    assert_eq!(node.writes("a"), [format!("insert running, wake {due_ms}, turn 1")]);
    assert_eq!(Duration::from_millis(due_ms).as_secs() / 86_400, 49, "days from now");
}
