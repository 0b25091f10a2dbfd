//! A turn writes one row; the instance row is written only when a searched column changes (G12).

mod shard_cases;

use std::time::Duration;

use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number, secs};

#[test]
fn g12_an_ordinary_step_of_a_sequence_writes_its_turn_and_nothing_else() {
    let mut desk = Desk::new(handlers());
    desk.start("steps", "a", number(4));
    desk.settle();
    for step in ["A1", "A2", "A3", "A4"] {
        desk.finish("a", step, step).settle();
    }
    assert_eq!(
        desk.writes("a"),
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
    let mut desk = Desk::new(handlers());
    desk.start("echo", "a", "hello");
    desk.settle();
    assert_eq!(desk.writes("a"), ["insert completed, turn 1"]);
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
    let mut desk = Desk::new(handlers_and("owing", owing));
    desk.start("owing", "a", ());
    desk.settle();
    desk.raise("a", "n", "go");
    desk.settle();
    desk.finish("a", "A2", "2").settle();
    desk.finish("a", "A1", "1").settle();
    assert_eq!(
        desk.writes("a"),
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
    let mut desk = Desk::new(handlers_and("publishes", publishes));
    desk.start("publishes", "a", ());
    desk.settle();
    assert_eq!(desk.row("a").published, Some("one".into()));
    for event in ["1", "2"] {
        desk.raise("a", "n", event);
        desk.settle();
    }
    assert_eq!(desk.writes("a"), ["insert running, turn 1", "turn 2, attributes", "turn 3, published"]);
    let row = desk.row("a");
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

fn with_timers() -> Desk {
    let mut desk = Desk::new(handlers_and("timers", timers));
    desk.start("timers", "a", ());
    desk.settle();
    desk
}

fn set_timer(desk: &mut Desk, delay: u64) -> String {
    desk.raise("a", "n", number(delay));
    desk.settle();
    desk.writes("a").pop().expect("something was written")
}

#[test]
fn g12_wake_at_is_written_when_the_earliest_timer_comes_sooner() {
    let mut desk = with_timers();
    assert_eq!(set_timer(&mut desk, 20), "turn 2, wake 21000");
    assert_eq!(set_timer(&mut desk, 30), "turn 3");
    assert_eq!(set_timer(&mut desk, 10), "turn 4, wake 11000");
    assert_eq!(set_timer(&mut desk, 15), "turn 5");
    assert_eq!(desk.row("a").wake_at_ms, Some(11_000));
}

#[test]
fn g12_wake_at_may_stay_early_and_is_put_right_by_a_later_turn() {
    let mut desk = with_timers();
    set_timer(&mut desk, 10);
    set_timer(&mut desk, 30);
    desk.at(11_000).settle();
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 4, wake 31000"), "the next timer is due then");
    assert_eq!(set_timer(&mut desk, 0), "turn 5, wake none");
    assert_eq!(set_timer(&mut desk, 30), "turn 6, wake 41000");
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
    let mut desk = Desk::with_options(handlers_and("swaps", swaps), options);
    desk.start("swaps", "a", ());
    desk.settle();
    desk.raise("a", "n", ());
    desk.settle();
    assert_eq!(desk.row("a").wake_at_ms, Some(11_000), "early, not late: nothing is written for it");
    desk.at(11_000).settle();
    assert_eq!(
        desk.writes("a"),
        ["insert running, wake 11000, turn 1", "turn 2", "wake 31000"],
        "the look puts it right"
    );
    desk.at(30_999).settle();
    assert_eq!(desk.status("a"), "running");
    desk.at(31_000).settle();
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 3, status completed, wake none"));
}

#[test]
fn g12_wake_at_is_never_later_than_what_waits() {
    let mut desk = with_timers();
    for (delay, at_ms) in
        [(40, 2_000), (5, 3_000), (7, 4_000), (3, 5_000), (1, 5_500), (20, 9_000), (2, 9_000)]
    {
        desk.at(at_ms).settle();
        set_timer(&mut desk, delay);
        let stored = desk.row("a").wake_at_ms.expect("a timer is open");
        let wanted = desk.next_wake_ms("a").expect("a timer is open");
        assert!(stored <= wanted, "stored {stored}, but the earliest timer is due at {wanted}");
    }
}

#[test]
fn g12_a_cancel_taken_over_wakes_at_the_end_of_its_grace() {
    let mut desk = Desk::new(handlers());
    desk.start("cleans_up", "a", ());
    desk.settle();
    desk.cancel("a", "enough");
    desk.settle();
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 2, owed true, wake 31000"));
    desk.finish("a", "clean", "cleaned").settle();
    assert_eq!(desk.writes("a").pop().as_deref(), Some("turn 3, status failed, owed false, wake none"));
}

#[test]
fn g12_jobs_that_are_all_stale_write_nothing() {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise_once("a", "n", "key", "1");
    desk.settle();
    let again = desk.raise_once("a", "n", "key", "1");
    desk.settle();
    assert_eq!(desk.told(again), "accepted");
    assert_eq!(desk.writes("a"), ["insert running, turn 1", "turn 2"]);
    assert_eq!(desk.counters("a").stale, 1);
}

#[test]
fn g12_a_consumed_message_goes_with_the_turn_that_applies_it() {
    let mut desk = Desk::new(handlers());
    desk.send_start("collect", "a", ());
    desk.send_event("a", "n", "1");
    desk.pass_inbox().settle();
    assert_eq!(desk.writes("a"), ["turn 1, status running, consumed 1", "turn 2, consumed 1"]);
    assert!(desk.inbox("a").is_empty());
}

#[test]
fn g12_a_turn_that_only_sleeps_writes_when_to_wake() {
    let mut desk = Desk::new(handlers());
    desk.start("sleep", "a", number(u64::from(u32::MAX)));
    desk.settle();
    let due_ms = 1_000 + u64::from(u32::MAX);
    assert_eq!(desk.writes("a"), [format!("insert running, wake {due_ms}, turn 1")]);
    assert_eq!(Duration::from_millis(due_ms).as_secs() / 86_400, 49, "days from now");
}
