//! What stays in memory, what is put away, and that nobody can tell the difference (G11).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{handlers, handlers_and, number};

fn residents(max_resident: usize) -> ShardOptions {
    ShardOptions { max_resident, ..ShardOptions::default() }
}

/// Whether an instance is dormant: an event makes it load.
fn is_dormant(desk: &mut Desk, id: &str) -> bool {
    desk.raise(id, "n", "knock");
    desk.look_up();
    let dormant = desk.loads_to_make() == [id];
    desk.settle();
    dormant
}

#[test]
fn g11_past_the_count_the_least_recently_used_is_put_away() {
    let ids = Desk::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    let mut desk = Desk::with_options(handlers(), residents(2));
    for (id, at_ms) in [(a, 2_000), (b, 3_000)] {
        desk.set_clock(at_ms);
        desk.start("collect", id, ());
        desk.settle();
    }
    desk.set_clock(4_000);
    desk.raise(a, "n", "1");
    desk.settle().set_clock(5_000);
    assert_eq!((desk.in_memory(a), desk.counters(a).evictions), (2, 0));
    desk.start("collect", c, ());
    desk.settle();
    assert_eq!((desk.in_memory(a), desk.counters(a).evictions), (2, 1));
    assert!(!is_dormant(&mut desk, a), "it was used after b");
    assert!(!is_dormant(&mut desk, c));
    assert!(is_dormant(&mut desk, b));
}

#[test]
fn g11_what_was_idle_for_long_is_put_away() {
    let ids = Desk::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    let options = ShardOptions { idle_ms: 10_000, ..ShardOptions::default() };
    let mut desk = Desk::with_options(handlers(), options);
    desk.start("collect", a, ());
    desk.start("collect", b, ());
    desk.settle().at(6_000).settle();
    desk.raise(b, "n", "1");
    desk.settle().at(11_000).settle();
    assert_eq!(desk.in_memory(a), 2, "ten seconds are not over ten seconds");
    desk.at(11_001).settle();
    assert_eq!((desk.in_memory(a), desk.counters(a).evictions), (1, 1));
    assert!(!is_dormant(&mut desk, b));
    assert!(is_dormant(&mut desk, a));
}

#[test]
fn g11_what_has_something_under_way_stays() {
    let mut desk = Desk::with_options(handlers(), residents(0));
    desk.start("collect", "turning", ());
    desk.start("collect", "committing", ());
    desk.take_turn("committing");
    desk.at(1_000_000);
    assert_eq!((desk.in_memory("turning"), desk.in_memory("committing")), (1, 1));
    desk.settle();
    assert_eq!((desk.in_memory("turning"), desk.in_memory("committing")), (0, 0));
}

#[test]
fn g11_a_dormant_instance_costs_no_memory() {
    let mut desk = Desk::with_options(handlers(), residents(0));
    desk.start("collect", "waits", ());
    desk.start("sleep", "sleeps", number(61_000));
    desk.start("sleep", "naps", number(59_000));
    desk.settle();
    for id in ["waits", "sleeps", "naps"] {
        assert_eq!(desk.in_memory(id), 0);
    }
    assert_eq!(desk.next_wake_ms("sleeps"), None, "it is due beyond the look-ahead of a minute");
    assert_eq!(desk.next_wake_ms("naps"), Some(60_000));
}

/// A tour with an activity, an event and a timer.
fn tour(options: ShardOptions) -> Desk {
    let mut desk = Desk::with_options(handlers(), options);
    desk.start("tour", "a", ());
    desk.settle().finish("a", "first", "1").settle();
    desk.raise("a", "n", "2");
    desk.settle().at(20_000).settle();
    desk.finish("a", "last", "3").settle();
    desk
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
    let desk = tour(residents(0));
    assert_eq!(desk.runs(), ["a first", "a last"], "there was no crash");
}

#[test]
fn g11_hydration_leaves_running_activities_alone() {
    let mut desk = Desk::with_options(handlers(), residents(0));
    desk.start("fan", "a", number(3));
    desk.settle();
    desk.raise("a", "n", "knock");
    desk.settle();
    assert_eq!(desk.runs(), ["a A1", "a A2", "a A3"]);
    desk.finish("a", "A2", "two").settle();
    assert_eq!(desk.running("a"), ["A1", "A3"]);
    assert_eq!(desk.runs().len(), 3, "the result of one runs none of them again");
}

#[test]
fn g11_an_evicted_execution_can_be_ended_and_its_activities_told() {
    let mut desk = Desk::with_options(handlers(), residents(0));
    desk.start("fan", "a", number(2));
    desk.settle();
    let (ended, terminated) = (desk.await_end("a"), desk.terminate("a", "enough"));
    desk.settle();
    assert_eq!(
        desk.told_all([terminated, ended]),
        ["accepted", r#"ended: OrchestrationTerminated "enough""#]
    );
    assert_eq!(desk.stops(), ["a A1", "a A2"]);
    assert_eq!(desk.counters("a").hydrations, 0, "no code was needed");
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
    let ids = Desk::ids_of_one_shard(3);
    let [a, b, c] = [&ids[0], &ids[1], &ids[2]].map(String::as_str);
    let mut desk = Desk::with_options(handlers(), heavy(25_000));
    for (ms, id) in [(2_000, a), (3_000, b)] {
        desk.at(ms).start("collect", id, load(10));
        desk.settle();
    }
    desk.at(4_000).raise(a, "n", "small");
    desk.settle();
    assert_eq!(desk.counters(a).evictions, 0, "two of ten thousand bytes are within the limit");
    desk.at(5_000).start("collect", c, load(10));
    desk.settle();
    assert_eq!(desk.counters(a).evictions, 1);
    assert!(is_dormant(&mut desk, b), "it was used before the others");
}

#[test]
fn g11_bytes_are_those_of_what_is_in_memory_now() {
    let ids = Desk::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    let mut desk = Desk::with_options(handlers(), heavy(25_000));
    desk.start("collect", a, load(10));
    desk.settle();
    for ms in 1..=20 {
        desk.at(2_000 + ms).raise(a, "n", "small");
        desk.settle();
    }
    desk.start("collect", b, load(1));
    desk.settle();
    assert_eq!(
        desk.counters(a).evictions,
        0,
        "an execution weighs its history once, however often it is used"
    );
    desk.terminate(a, "enough");
    desk.settle();
    desk.raise(b, "n", load(20).as_str());
    desk.settle();
    assert_eq!(desk.counters(a).evictions, 0, "what has ended weighs nothing");
}

#[test]
fn g11_a_history_that_is_over_the_bytes_alone_stays_while_it_is_the_last_one_used() {
    let ids = Desk::ids_of_one_shard(2);
    let [a, b] = [&ids[0], &ids[1]].map(String::as_str);
    let mut desk = Desk::with_options(handlers(), heavy(5_000));
    desk.start("collect", a, load(10));
    desk.settle();
    desk.raise(a, "n", "small");
    desk.settle();
    assert_eq!(desk.counters(a).hydrations, 0, "it would be replayed at every turn");
    desk.at(2_000).start("collect", b, ());
    desk.settle();
    assert_eq!(desk.counters(a).evictions, 1);
    assert!(is_dormant(&mut desk, a));
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
    let mut options = ShardOptions { idle_ms: 10_000, ..ShardOptions::default() };
    (options.retry_first_ms, options.retry_max_ms) = (50_000, 50_000);
    let mut desk = Desk::with_options(panics(), options);
    desk.start("panics", "a", ());
    desk.settle();
    desk.at(2_000).raise("a", "n", "now");
    desk.settle();
    assert_eq!((desk.row("a").blocked.unwrap().attempts, desk.in_memory("a")), (1, 1));
    desk.at(13_000).settle();
    assert_eq!(desk.in_memory("a"), 0);
    assert_eq!(desk.next_wake_ms("a"), Some(52_000), "it is due within the look-ahead of a minute");
    desk.at(52_000).settle();
    assert_eq!(desk.row("a").blocked.unwrap().attempts, 2);
}

#[test]
fn g11_blocked_instances_count_and_lose_nothing_when_they_are_forgotten() {
    let mut options = residents(0);
    (options.retry_first_ms, options.retry_max_ms) = (500_000, 500_000);
    let mut desk = Desk::with_options(panics(), options);
    desk.start("panics", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(desk.in_memory("a"), 0);
    let second = desk.raise("a", "n", "2");
    desk.settle();
    assert_eq!((desk.told(second), desk.in_memory("a")), ("accepted".to_owned(), 0));
    assert_eq!(
        desk.row("a").blocked.unwrap().attempts,
        1,
        "a message to a blocked instance is kept, not tried"
    );
    desk.replace_code(handlers_and("panics", shard_cases::collect));
    desk.retry("a");
    desk.settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.last_lines("a", 1), [r#"8 OrchestrationCompleted ["1","2"]"#]);
}

#[test]
fn g11_a_blocked_instance_whose_activities_run_is_not_forgotten() {
    let both = |ctx: OrchestrationContext, _: Payload| async move {
        let _slow = ctx.schedule_activity("slow", ());
        ctx.schedule_wait("n").await;
        panic!("while it runs")
    };
    let mut options = residents(0);
    (options.retry_first_ms, options.retry_max_ms) = (500_000, 500_000);
    let mut desk = Desk::with_options(handlers_and("both", both), options);
    desk.start("both", "a", ());
    desk.settle();
    desk.raise("a", "n", "now");
    desk.settle();
    assert_eq!((desk.row("a").blocked.unwrap().attempts, desk.in_memory("a")), (1, 1));
    desk.finish("a", "slow", "done").settle();
    assert_eq!(desk.row("a").blocked.unwrap().attempts, 1, "a result does not make it try again");
    assert_eq!(desk.in_memory("a"), 0);
}

#[test]
fn g11_a_blocked_instance_that_was_only_asked_something_is_forgotten_when_idle() {
    let mut options = ShardOptions::default();
    (options.retry_first_ms, options.retry_max_ms) = (36_000_000, 36_000_000);
    let mut desk = Desk::with_options(panics(), options);
    desk.start("panics", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle();
    desk.crash();
    let asked = desk.query("a", "unknown", ());
    desk.settle();
    assert_eq!((desk.told(asked), desk.in_memory("a")), ("blocked: PER-0201".into(), 1));
    desk.at(1_000 + ShardOptions::default().idle_ms + 1);
    assert_eq!(desk.in_memory("a"), 0);
}
