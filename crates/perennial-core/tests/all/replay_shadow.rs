//! Shadow replay: code that differs from run to run shows while it is being written.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use perennial_core::{
    Execution, ExecutionOptions, Nondeterminism, OrchestrationContext, OrchestrationHandler, Payload,
    Started, TurnFailure,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

fn options(shadow_replay: bool) -> ExecutionOptions {
    ExecutionOptions { shadow_replay, ..ExecutionOptions::default() }
}

fn prepare(handler: impl OrchestrationHandler, shadow_replay: bool) -> Drive {
    let started = Started::new("orchestration", "1.0.0", (), 42);
    Drive::prepare(Arc::new(handler), started, options(shadow_replay)).expect("it can start")
}

fn diverged(turn: Result<impl Sized, TurnFailure>) -> Nondeterminism {
    match turn {
        Err(TurnFailure::Nondeterminism(divergence)) => *divergence,
        Err(other) => panic!("expected nondeterminism, got {other}"),
        Ok(_) => panic!("the turn was taken"),
    }
}

async fn in_hash_order(ctx: OrchestrationContext, _: Payload) -> Output {
    let items: HashMap<u32, &str> = (0..50).map(|number| (number, "item")).collect();
    let mut tasks = Vec::new();
    #[allow(clippy::iter_over_hash_type, reason = "that is what is to be found")]
    for (number, item) in items {
        tasks.push(ctx.schedule_activity(item, number.to_string()));
    }
    ctx.join(tasks).await;
    Ok(Payload::null())
}

async fn by_the_clock(ctx: OrchestrationContext, _: Payload) -> Output {
    let _ = ctx.schedule_activity("Wait", "").await;
    let before = SystemTime::now();
    while SystemTime::now() == before {}
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let _ = ctx.schedule_activity("Use", format!("{now:?}")).await;
    Ok(Payload::null())
}

/// Counts in memory that outlives the execution, from a certain turn on.
fn by_a_static(turn: u32) -> impl OrchestrationHandler {
    let counter = Arc::new(AtomicU32::new(0));
    move |ctx: OrchestrationContext, _: Payload| {
        let counter = Arc::clone(&counter);
        async move {
            for _ in 1..turn {
                ctx.schedule_wait("tick").await;
            }
            ctx.set_status(counter.fetch_add(1, Ordering::Relaxed).to_string());
            loop {
                if ctx.schedule_wait("tick").await == Payload::from("end") {
                    return Ok(Payload::null());
                }
            }
        }
    }
}

#[test]
fn e28_hash_order_shows_in_the_first_turn() {
    let divergence = diverged(prepare(in_hash_order, true).try_turn([]));
    assert_eq!(divergence.turn, 1);
    assert_eq!(divergence.recorded.kind, "ActivityScheduled");
    assert!(divergence.hint.contains("order of a HashMap"), "{}", divergence.hint);
}

#[test]
fn e28_the_clock_shows_in_the_turn_that_uses_it() {
    let mut drive = prepare(by_the_clock, true);
    drive.turn([]);
    let divergence = diverged(drive.try_turn([Drive::completed(2, "")]));
    assert_eq!((divergence.turn, divergence.event.0), (2, 4));
    assert!(divergence.hint.contains("the clock"), "{}", divergence.hint);
}

#[test]
fn e28_a_static_counter_shows_in_the_first_turn() {
    let divergence = diverged(prepare(by_a_static(1), true).try_turn([]));
    assert_eq!((divergence.turn, divergence.event.0), (1, 2));
    assert_eq!(divergence.recorded.line, r#"StatusSet "0""#);
    assert_eq!(divergence.code.line, r#"StatusSet "1""#);
}

#[test]
fn e28_turns_are_replayed_at_1_2_4_8_and_at_the_end() {
    // Counted by hand: how often the code of an innocent orchestration begins.
    let begun = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&begun);
    let mut drive = prepare(
        move |ctx: OrchestrationContext, _: Payload| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                for _ in 1..11 {
                    ctx.schedule_wait("tick").await;
                }
                Ok(Payload::null())
            }
        },
        true,
    );
    let mut shadows = Vec::new();
    drive.turn([]);
    shadows.push(begun.load(Ordering::Relaxed) - 1);
    for _ in 2..=11 {
        drive.raise("tick", ());
        shadows.push(begun.load(Ordering::Relaxed) - 1);
    }
    assert!(drive.execution().has_ended());
    assert_eq!(shadows, [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5]);
}

#[test]
fn e28_what_differs_in_a_turn_between_shows_with_the_next_replay() {
    let mut drive = prepare(by_a_static(3), true);
    drive.turn([]).raise("tick", ()).raise("tick", ());
    let divergence = diverged(drive.try_turn([Drive::event("tick", ())]));
    assert_eq!(divergence.turn, 3, "it names the turn that differs");

    let mut drive = prepare(by_a_static(3), true);
    drive.turn([]).raise("tick", ());
    let both = [Drive::event("tick", ()), Drive::event("tick", "end")];
    assert_eq!(diverged(drive.try_turn(both)).turn, 3, "the last turn is always replayed");
}

#[test]
fn e28_shadow_replay_goes_on_after_hydration() {
    let mut first = prepare(by_a_static(4), true);
    first.turn([]).raise("tick", ()).raise("tick", ());
    let mut hydrated = first.replayed(&first.history().clone()).expect("nothing differs yet");
    let divergence = diverged(hydrated.take_turn(1_000, vec![Drive::event("tick", ())]));
    assert_eq!((divergence.turn, divergence.event.0), (4, 8));
}

#[test]
fn e28_a_failed_shadow_fails_the_turn_and_nothing_is_recorded() {
    let mut drive = prepare(by_a_static(2), true);
    drive.turn([]);
    assert!(drive.try_turn([Drive::event("tick", ())]).is_err());
    assert_eq!(drive.history().turns.len(), 1);
}

#[test]
fn e28_nothing_is_replayed_when_it_is_off() {
    let mut hashing = prepare(in_hash_order, false);
    hashing.turn([]);
    let mut timing = prepare(by_the_clock, false);
    timing.turn([]).complete(2, "");
    let mut counting = prepare(by_a_static(1), false);
    counting.turn([]).raise("tick", ());
    counting.raise("tick", "end");
    assert_eq!(counting.lines()[1], r#"2 StatusSet "0""#);
    assert!(counting.execution().has_ended());
}

#[test]
fn e28_it_is_on_in_debug_builds() {
    assert_eq!(ExecutionOptions::default().shadow_replay, cfg!(debug_assertions));
}

#[test]
fn e28_the_shadow_has_no_effects_of_its_own() {
    let effects = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&effects);
    let mut drive = prepare(
        move |ctx: OrchestrationContext, _: Payload| {
            let count = Arc::clone(&count);
            async move {
                let first = ctx.side_effect("count", || count.fetch_add(1, Ordering::Relaxed)).await;
                ctx.set_status(first.to_string());
                ctx.schedule_timer(Duration::from_secs(1)).await;
                Ok(Payload::null())
            }
        },
        true,
    );
    drive.turn([]);
    drive.fire(4).evict();
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

#[test]
fn e28_the_hint_does_not_blame_a_change_that_cannot_have_been_made() {
    // What comes first differs in kind. The code is one and the same, so a new version is no cure.
    let flip = Arc::new(AtomicU32::new(0));
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let even = flip.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        async move {
            if even {
                ctx.set_status("even");
            }
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut execution =
        Execution::new("flipping", Arc::new(handler), started, options(true)).expect("it can start");
    let divergence = diverged(execution.take_turn(1_000, vec![]));
    assert_ne!(divergence.recorded.kind, divergence.code.kind);
    assert!(divergence.hint.contains("differs from run to run"), "{}", divergence.hint);
    assert!(!divergence.hint.contains("a new version"), "{}", divergence.hint);
}
