//! What stays in memory, what is put away, and that nobody can tell the difference (G11).

use crate::shard_cases::{handlers, handlers_and, number};
use perennial_core::shard::ShardOptions;
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;
use std::time::Duration;

fn residents(max_resident: usize) -> ShardOptions {
    ShardOptions { max_resident, ..ShardOptions::default() }
}

/// Whether an instance is dormant: an event makes it load.
fn is_dormant(node: &mut ManualNode, id: &str) -> bool {
    node.raise(id, "n", "knock");
    node.look_up();
    let dormant = node.loads_to_make() == [id];
    node.settle();
    dormant
}

#[test]
fn g11_past_the_count_the_least_recently_used_is_put_away() {
    let ids = ManualNode::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    let mut node = ManualNode::with_options(handlers(), residents(2));
    for (id, at_ms) in [(a, 2_000), (b, 3_000)] {
        node.set_clock(at_ms);
        node.start("collect", id, ());
        node.settle();
    }
    node.set_clock(4_000);
    node.raise(a, "n", "1");
    node.settle().set_clock(5_000);
    assert_eq!((node.in_memory(a), node.counters(a).evictions), (2, 0));
    node.start("collect", c, ());
    node.settle();
    assert_eq!((node.in_memory(a), node.counters(a).evictions), (2, 1));
    assert!(!is_dormant(&mut node, a), "it was used after b");
    assert!(!is_dormant(&mut node, c));
    assert!(is_dormant(&mut node, b));
}

#[test]
fn g11_what_was_idle_for_long_is_put_away() {
    let ids = ManualNode::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    // Half a look-ahead is the pause between two looks.
    let options = ShardOptions {
        idle: Duration::from_millis(10_000),
        lookahead: Duration::from_millis(2_000),
        ..ShardOptions::default()
    };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("collect", a, ());
    node.start("collect", b, ());
    node.settle().at(6_000).settle();
    node.raise(b, "n", "1");
    node.settle().at(11_000).settle();
    assert_eq!(node.in_memory(a), 2, "ten seconds are not over ten seconds");
    node.at(12_000).settle();
    assert_eq!((node.in_memory(a), node.counters(a).evictions), (1, 1));
    assert!(!is_dormant(&mut node, b));
    assert!(is_dormant(&mut node, a));
}

#[test]
fn g11_what_has_something_under_way_stays() {
    let mut node = ManualNode::with_options(handlers(), residents(0));
    node.start("collect", "turning", ());
    node.start("collect", "committing", ());
    node.take_turn("committing");
    node.at(1_000_000);
    assert_eq!((node.in_memory("turning"), node.in_memory("committing")), (1, 1));
    node.settle();
    assert_eq!((node.in_memory("turning"), node.in_memory("committing")), (0, 0));
}

#[test]
fn g11_a_dormant_instance_costs_no_memory() {
    let mut node = ManualNode::with_options(handlers(), residents(0));
    node.start("collect", "waits", ());
    node.start("sleep", "sleeps", number(61_000));
    node.start("sleep", "naps", number(59_000));
    node.settle();
    for id in ["waits", "sleeps", "naps"] {
        assert_eq!(node.in_memory(id), 0);
    }
    assert_eq!(node.next_wake_ms("sleeps"), None, "it is due beyond the look-ahead of a minute");
    assert_eq!(node.next_wake_ms("naps"), Some(60_000));
}

/// A tour with an activity, an event and a timer.
fn tour(options: ShardOptions) -> ManualNode {
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("tour", "a", ());
    node.settle().finish("a", "first", "1").settle();
    node.raise("a", "n", "2");
    node.settle().at(20_000).settle();
    node.finish("a", "last", "3").settle();
    node
}

#[test]
fn g11_hydration_by_result_event_and_timer_gives_the_same_history() {
    let (resident, dormant) = (tour(residents(1_000)), tour(residents(0)));
    assert_eq!(resident.lines("a"), dormant.lines("a"));
    assert_eq!(
        resident.last_lines("a", 1),
        [r#"10 OrchestrationCompleted ["1","2","3"]"#],
        "the tour is complete"
    );
    assert_eq!(resident.counters("a").hydrations, 0);
    assert_eq!(dormant.counters("a").hydrations, 4);
}

#[test]
fn g11_hydration_writes_nothing_by_itself() {
    let (resident, dormant) = (tour(residents(1_000)), tour(residents(0)));
    assert_eq!(resident.writes("a"), dormant.writes("a"));
}

#[test]
fn g11_hydration_by_its_result_does_not_run_an_activity_again() {
    let node = tour(residents(0));
    assert_eq!(node.runs(), ["a first", "a last"], "there was no crash");
}

#[test]
fn g11_hydration_leaves_running_activities_alone() {
    let mut node = ManualNode::with_options(handlers(), residents(0));
    node.start("fan", "a", number(3));
    node.settle();
    node.raise("a", "n", "knock");
    node.settle();
    assert_eq!(node.runs(), ["a A1", "a A2", "a A3"]);
    node.finish("a", "A2", "two").settle();
    assert_eq!(node.running("a"), ["A1", "A3"]);
    assert_eq!(node.runs().len(), 3, "the result of one runs none of them again");
}

#[test]
fn g11_an_evicted_execution_can_be_ended_and_its_activities_told() {
    let mut node = ManualNode::with_options(handlers(), residents(0));
    node.start("fan", "a", number(2));
    node.settle();
    let (ended, terminated) = (node.await_end("a"), node.terminate("a", "enough"));
    node.settle();
    assert_eq!(
        node.told_all([terminated, ended]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!(node.stops(), ["a A1", "a A2"]);
    assert_eq!(node.counters("a").hydrations, 0, "no code was needed");
}

fn heavy(max_resident_bytes: u64) -> ShardOptions {
    ShardOptions { max_resident_bytes, ..ShardOptions::default() }
}

/// A payload of about so many thousand bytes.
fn load(thousands: usize) -> String {
    "x".repeat(1_000 * thousands)
}

#[test]
fn g11_past_the_bytes_the_least_recently_used_is_put_away() {
    let ids = ManualNode::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    let mut node = ManualNode::with_options(handlers(), heavy(25_000));
    for (ms, id) in [(2_000, a), (3_000, b)] {
        node.at(ms).start("collect", id, load(10));
        node.settle();
    }
    node.at(4_000).raise(a, "n", "small");
    node.settle();
    assert_eq!(node.counters(a).evictions, 0, "two of ten thousand bytes are within the limit");
    node.at(5_000).start("collect", c, load(10));
    node.settle();
    assert_eq!(node.counters(a).evictions, 1);
    assert!(is_dormant(&mut node, b), "it was used before the others");
}

#[test]
fn g11_bytes_are_those_of_what_is_in_memory_now() {
    let ids = ManualNode::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    let mut node = ManualNode::with_options(handlers(), heavy(25_000));
    node.start("collect", a, load(10));
    node.settle();
    for ms in 1..=20 {
        node.at(2_000 + ms).raise(a, "n", "small");
        node.settle();
    }
    node.start("collect", b, load(1));
    node.settle();
    assert_eq!(
        node.counters(a).evictions,
        0,
        "an execution weighs its history once, however often it is used"
    );
    node.terminate(a, "enough");
    node.settle();
    node.raise(b, "n", load(20).as_str());
    node.settle();
    assert_eq!(node.counters(a).evictions, 0, "what has ended weighs nothing");
}

#[test]
fn g11_a_history_that_is_over_the_bytes_alone_stays_while_it_is_the_last_one_used() {
    let ids = ManualNode::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    let mut node = ManualNode::with_options(handlers(), heavy(5_000));
    node.start("collect", a, load(10));
    node.settle();
    node.raise(a, "n", "small");
    node.settle();
    assert_eq!(node.counters(a).hydrations, 0, "it would be replayed at every turn");
    node.at(2_000).start("collect", b, ());
    node.settle();
    assert_eq!(node.counters(a).evictions, 1);
    assert!(is_dormant(&mut node, a));
}

#[test]
fn i19_memory_of_consumed_message_numbers_counts_against_residency() {
    let handlers = handlers_and("sponge", |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_wait("n").await;
        ctx.continue_as_new(()).await
    });
    let ids = ManualNode::ids_of_one_shard(3);
    let [a, b, sponge] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    let mut node = ManualNode::with_options(handlers, heavy(30_000));
    for id in [a, b] {
        node.start("collect", id, load(10));
        node.settle();
    }
    node.start("sponge", sponge, ());
    node.settle();
    assert_eq!(node.counters(a).evictions, 0, "their histories are within the limit");
    for _ in 0..600 {
        node.send_event(sponge, "n", "x");
        node.pass_inbox().settle();
    }
    assert!(node.counters(a).evictions > 0, "the numbers of the messages are remembered");
}

/// An instance that panics at its first event.
fn panics() -> Handlers {
    handlers_and("panics", |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_wait("n").await;
        panic!("at the first event")
    })
}

#[test]
fn g11_a_blocked_instance_is_forgotten_when_idle_and_tried_again_in_time() {
    let mut options = ShardOptions { idle: Duration::from_millis(10_000), ..ShardOptions::default() };
    (options.retry_first, options.retry_max) = (Duration::from_millis(50_000), Duration::from_millis(50_000));
    let mut node = ManualNode::with_options(panics(), options);
    node.start("panics", "a", ());
    node.settle();
    node.at(2_000).raise("a", "n", "now");
    node.settle();
    assert_eq!((node.row("a").blocked.unwrap().attempts, node.in_memory("a")), (1, 1));
    node.at(31_000).settle();
    assert_eq!(node.in_memory("a"), 0);
    assert_eq!(node.next_wake_ms("a"), Some(52_000), "it is due within the look-ahead of a minute");
    node.at(52_000).settle();
    assert_eq!(node.row("a").blocked.unwrap().attempts, 2);
}

#[test]
fn g11_blocked_instances_count_and_lose_nothing_when_they_are_forgotten() {
    let mut options = residents(0);
    (options.retry_first, options.retry_max) =
        (Duration::from_millis(500_000), Duration::from_millis(500_000));
    let mut node = ManualNode::with_options(panics(), options);
    node.start("panics", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.in_memory("a"), 0);
    let second = node.raise("a", "n", "2");
    node.settle();
    assert_eq!((node.told(second), node.in_memory("a")), ("accepted".to_owned(), 0));
    assert_eq!(
        node.row("a").blocked.unwrap().attempts,
        1,
        "a message to a blocked instance is kept, not tried"
    );
    node.replace_code(handlers_and("panics", crate::shard_cases::collect));
    node.retry("a");
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.last_lines("a", 1), [r#"8 OrchestrationCompleted ["1","2"]"#]);
}

#[test]
fn g11_a_blocked_instance_whose_activities_run_is_not_forgotten() {
    let both = |ctx: OrchestrationContext, _: Payload| async move {
        let _slow = ctx.schedule_activity("slow", ());
        ctx.schedule_wait("n").await;
        panic!("while it runs")
    };
    let mut options = residents(0);
    (options.retry_first, options.retry_max) =
        (Duration::from_millis(500_000), Duration::from_millis(500_000));
    let mut node = ManualNode::with_options(handlers_and("both", both), options);
    node.start("both", "a", ());
    node.settle();
    node.raise("a", "n", "now");
    node.settle();
    assert_eq!((node.row("a").blocked.unwrap().attempts, node.in_memory("a")), (1, 1));
    node.finish("a", "slow", "done").settle();
    assert_eq!(node.row("a").blocked.unwrap().attempts, 1, "a result does not make it try again");
    assert_eq!(node.in_memory("a"), 0);
}

#[test]
fn g11_a_blocked_instance_that_was_only_asked_something_is_forgotten_when_idle() {
    let mut options = ShardOptions::default();
    (options.retry_first, options.retry_max) =
        (Duration::from_millis(36_000_000), Duration::from_millis(36_000_000));
    let mut node = ManualNode::with_options(panics(), options);
    node.start("panics", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    node.crash();
    let asked = node.query("a", "unknown", ());
    node.settle();
    assert_eq!((node.told(asked), node.in_memory("a")), ("blocked: PER-0201".into(), 1));
    node.at(1_000 + ShardOptions::default().idle.as_millis() as u64 + 1);
    assert_eq!(node.in_memory("a"), 0);
}
