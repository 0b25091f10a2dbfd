//! What stays in memory, what is put away, and that nobody can tell the difference (G11).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

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
