//! Requests are bound to the instance that they were found to be for, and nothing is left of those whose callers went
//! away (N9, G2, G17); what an instance does without its code is read away from the shard (N4); bounded hand-over (N8).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::{Request, RequestId, Response};
use perennial_core::{OrchestrationContext, Payload, SHARDS};
use perennial_testkit::ManualNode;

fn collecting() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node
}

/// Whether a caller was told to settle with the instance that has an id.
fn is_bound(node: &ManualNode, request: RequestId) -> bool {
    let expected = node.row("a").key;
    match node.answer(request) {
        Some(Response::Moved { key }) => *key == Some(expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn n9_who_hears_moved_is_told_which_instance_it_had_reached() {
    for is_found in [false, true] {
        let mut node = collecting();
        let waiting = node.await_end("a");
        node.raise("a", "n", "1");
        node.take_turns();
        let queued = [node.raise("a", "n", "2"), node.cancel("a", "enough"), node.terminate("a", "enough")];
        let asked = node.update("a", "none", None, ());
        if !is_found {
            node.crash();
            let early = [node.raise("a", "n", "3"), node.retry("a")];
            node.lose_shards();
            for request in early {
                assert!(!is_bound(&node, request), "nobody has looked which instance it is");
            }
            continue;
        }
        node.lose_shards();
        for request in queued.into_iter().chain([waiting, asked]) {
            assert!(is_bound(&node, request));
        }
    }
}

#[test]
fn n9_an_answer_that_could_not_leave_in_time_says_which_instance_it_was_about() {
    let options = LaneOptions { lease_ms: 10_000, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    let terminated = node.terminate("a", "enough");
    node.cut_off(true).at(10_000);
    node.cut_off(false).commit();
    assert_eq!((node.status("a"), node.told(terminated)), ("terminated".into(), "nothing".into()));
    node.fence();
    node.at(11_000);
    assert!(is_bound(&node, terminated), "it was done, and the next of that id is not meant");
}

#[test]
fn g2_a_bound_request_finds_its_instance_while_somebody_wants_to_start_the_id() {
    for is_over in [false, true] {
        let mut node = collecting();
        if is_over {
            node.raise("a", "n", "end");
            node.settle();
        }
        node.crash();
        let key = node.row("a").key;
        let refused = node.start("collect", "a", ());
        let request = Box::new(Request::AwaitEnd);
        let waiting = node.request("a", Request::Bound { key, request });
        node.settle();
        assert_eq!(node.told(refused).split(':').next(), Some("already exists"));
        if !is_over {
            node.raise("a", "n", "end");
            node.settle();
        }
        let told = node.told(waiting);
        assert!(told.starts_with("ended"), "{told}");
    }
}

/// An update that waits for an activity.
async fn slow(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let works = ctx.clone();
    ctx.on_update(
        "slow",
        |_: &Payload| Ok(()),
        move |_: Payload| {
            let ctx = works.clone();
            async move { ctx.schedule_activity("work", ()).await.map_err(|_| Payload::from("failed")) }
        },
    );
    Ok(ctx.schedule_wait("n").await)
}

#[test]
fn g17_a_caller_that_went_away_waits_for_no_update() {
    let mut node = ManualNode::new(handlers_and("slow", slow));
    node.start("slow", "a", ());
    node.settle();
    let accepted = node.update("a", "slow", Some("k"), ());
    node.settle();
    let known = node.update("a", "slow", Some("k"), ());
    node.settle();
    let early = node.update("a", "slow", Some("k"), ());
    for request in [accepted, known, early] {
        node.abandon("a", request);
    }
    node.settle();
    let waits = node.update("a", "slow", Some("k"), ());
    node.settle();
    node.finish("a", "work", "done").settle();
    assert_eq!(node.told_all([accepted, known, early]), ["nothing"; 3], "nobody is there to be told");
    assert_eq!(node.told(waits), r#"answered: "done""#);
}

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

#[test]
fn n4_histories_of_blocked_and_terminated_instances_are_read_on_turn_threads() {
    let mut node = collecting();
    node.start("collect", "b", ());
    node.settle().crash();
    node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.status("a"), node.histories_read()), ("terminated".into(), 1), "it was dormant");
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics));
    node.raise("b", "n", "1");
    node.settle();
    assert_eq!((node.status("b"), node.histories_read()), ("running, blocked: PER-0201".into(), 1));
    node.retry("b");
    node.settle();
    assert_eq!(node.histories_read(), 2, "what it has to end for stands in its history");
    node.replace_code(handlers());
    node.retry("b");
    node.settle();
    assert_eq!((node.status("b"), node.histories_read()), ("running".into(), 3));
    node.raise("b", "n", "end");
    node.settle();
    assert_eq!(node.last_lines("b", 1), [r#"6 OrchestrationCompleted ["1"]"#]);
}

#[test]
fn g28_what_comes_while_a_history_is_read_is_taken_into_account() {
    let mut node = collecting();
    node.replace_code(handlers().with("collect", ManualNode::VERSION, panics)).crash();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.hold_histories(true);
    node.retry("a");
    node.settle();
    let terminated = node.terminate("a", "enough");
    node.settle();
    assert_eq!(node.told(terminated), "nothing");
    node.hold_histories(false);
    node.settle();
    assert_eq!((node.told(terminated), node.status("a")), ("accepted".into(), "terminated".into()));
}

#[test]
fn n8_attempts_are_handed_over_in_bounded_batches() {
    let options =
        LaneOptions { lease_ms: 10_000, releases_per_renewal: SHARDS, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers(), options);
    node.start("fan", "a", number(600));
    node.settle();
    node.set_target(0).at(5_000);
    node.settle();
    let rows = |line: &String| line.matches(" leased").count();
    let writes: Vec<usize> = node.writes("a").iter().map(rows).filter(|rows| *rows > 0).collect();
    assert_eq!(writes, [256, 256, 88]);
    assert_eq!((node.handed_over("a").len(), node.stops().len()), (600, 0));
    assert!(node.lane().shards().is_empty());
}

/// Runs 600 activities at once; panics on `n`.
async fn panicking_fan(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let tasks: Vec<_> = (1..=600).map(|number| ctx.schedule_activity(format!("A{number}"), ())).collect();
    let _: Payload = ctx.schedule_wait("n").await;
    drop(tasks);
    panic!("boom")
}

#[test]
fn n8_attempts_of_a_blocked_instance_are_handed_over_in_bounded_batches() {
    let options =
        LaneOptions { lease_ms: 10_000, releases_per_renewal: SHARDS, ..ManualNode::lane_options() };
    let mut node = ManualNode::with_lane_options(handlers_and("panicking_fan", panicking_fan), options);
    node.start("panicking_fan", "a", ());
    node.settle();
    node.raise("a", "n", ());
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    node.set_target(0).at(5_000);
    node.settle();
    assert_eq!((node.handed_over("a").len(), node.stops().len()), (600, 0));
    assert!(node.lane().shards().is_empty());
}
