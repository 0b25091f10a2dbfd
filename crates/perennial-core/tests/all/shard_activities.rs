//! Activities that nobody waits for any more are told to stop, once that is durable (G5, G20, G23).

use crate::shard_cases::{Outcome, handlers, handlers_and, number, secs};
use perennial_core::Timestamp;
use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

#[test]
fn g23_the_loser_of_a_race_is_told_to_stop_once_that_is_durable() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(6_000).take_turns();
    assert!(node.stops().is_empty(), "the commit is under way");
    node.commit();
    assert_eq!(node.stops(), ["a slow"]);
    assert_eq!(node.running("a"), ["slow", "after"], "it may take its time to stop");
}

#[test]
fn g20_the_result_of_an_activity_that_was_told_to_stop_is_dropped_and_counted() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(6_000).settle();
    node.finish("a", "slow", "too late").settle();
    assert_eq!(node.counters("a").stale, 1);
    node.finish("a", "after", "done").settle();
    assert_eq!(node.last_lines("a", 1), [r#"8 OrchestrationCompleted "done""#]);
}

#[test]
fn g20_a_result_that_comes_while_its_cancel_is_committed_is_dropped_and_counted() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(6_000).take_turns();
    node.finish("a", "slow", "just too late");
    node.settle();
    assert_eq!(
        (node.counters("a").stale, node.runs()),
        (1, &["a slow".to_owned(), "a after".to_owned()][..])
    );
    assert_eq!(node.lines("a").len(), 6);
}

#[test]
fn g23_a_fenced_decision_tells_nobody_to_stop() {
    let mut node = ManualNode::new(handlers());
    node.start("race", "a", ());
    node.settle().at(6_000).take_turns();
    node.fence();
    node.commit();
    assert_eq!(node.runs(), ["a slow"], "`after` was decided, and is not durable");
}

#[test]
fn g23_an_instance_that_ends_tells_its_running_activities_to_stop() {
    async fn leaves(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _work = (ctx.schedule_activity("one", ()), ctx.schedule_activity("two", ()));
        let three = ctx.schedule_activity("three", ());
        three.await.map_err(|_| Payload::null())
    }
    for max_resident in [0, 1_000] {
        let options = ShardOptions { max_resident, ..ShardOptions::default() };
        let mut node = ManualNode::with_options(handlers_and("leaves", leaves), options);
        node.start("leaves", "a", ());
        node.start("steps", "b", number(1));
        node.settle();
        node.finish("a", "three", "3");
        node.load();
        while node.take_turns() {}
        assert!(node.stops().is_empty());
        node.settle();
        assert_eq!(
            (node.status("a"), node.stops()),
            ("completed".to_owned(), &["a one".to_owned(), "a two".to_owned()][..])
        );
        node.finish("a", "one", "late").settle();
        assert_eq!((node.counters("a").stale, node.in_memory("a")), (1, 0));
    }
}

#[test]
fn g5_an_activity_scheduled_and_dropped_in_one_turn_never_runs() {
    async fn fickle(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let dropped = ctx.schedule_activity("dropped", ());
        let _: Timestamp = ctx.utc_now().await;
        ctx.spawn(async move { drop(dropped) }).await;
        ctx.schedule_activity("kept", ()).await.map_err(|_| Payload::null())
    }
    let mut node = ManualNode::new(handlers_and("fickle", fickle));
    node.start("fickle", "a", ());
    node.settle();
    assert_eq!(node.runs(), ["a kept"]);
    node.restart();
    assert_eq!(node.runs(), ["a kept", "a kept"]);
}

#[test]
fn g5_an_activity_scheduled_in_the_turn_that_ends_the_instance_never_runs() {
    async fn hasty(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _never = ctx.schedule_activity("never", ());
        Ok("done".into())
    }
    let mut node = ManualNode::new(handlers_and("hasty", hasty));
    node.start("hasty", "a", ());
    node.settle().restart();
    assert_eq!((node.status("a"), node.runs().len(), node.stops().len()), ("completed".into(), 0, 0));
}

#[test]
fn g20_a_result_that_waits_for_its_turn_does_not_run_its_activity_again() {
    let mut node = ManualNode::new(handlers());
    node.start("fan", "a", number(2));
    node.settle();
    node.raise_once("a", "n", "key", "1");
    node.settle();
    node.raise_once("a", "n", "key", "1");
    assert_eq!(node.turns_to_take(), ["a"], "a turn whose only job is stale");
    node.finish("a", "A1", "one");
    node.settle();
    assert_eq!(node.runs(), ["a A1", "a A2"]);
}

#[test]
fn g20_a_result_in_a_turn_that_conflicted_does_not_run_its_activity_again() {
    let mut node = ManualNode::new(handlers());
    node.start("steps", "a", number(2));
    node.settle();
    node.finish("a", "A1", "one").take_turns();
    let conflict = perennial_core::store::Conflict::OtherTurn;
    node.commit_as("a", perennial_core::store::CommitOutcome::Conflict(conflict));
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"4 ActivityScheduled "A2" "one""#]);
    assert_eq!(node.runs(), ["a A1", "a A2"]);
}

#[test]
fn g23_activities_of_an_instance_that_cleans_up_run_on() {
    async fn careful(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let work = ctx.schedule_activity("work", ());
        ctx.cancelled().await;
        ctx.timeout(secs(10), work)
            .await
            .map_err(|_| "gave up".into())
            .and_then(|done| done.map_err(|_| Payload::null()))
    }
    let mut node = ManualNode::new(handlers_and("careful", careful));
    node.start("careful", "a", ());
    node.settle();
    node.cancel("a", "enough");
    node.settle();
    assert!(node.stops().is_empty());
    node.finish("a", "work", "worked").settle();
    assert_eq!(node.last_lines("a", 1), [r#"6 OrchestrationCompleted "worked""#]);
}
