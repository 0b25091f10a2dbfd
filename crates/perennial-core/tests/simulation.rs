//! Real shards on a few nodes through crashes, refused, unknown and late commits, lost sessions and slow everything:
//! nothing acknowledged is lost or doubled, and once the trouble ends everything finishes.
//!
//! - `PERENNIAL_CASES=20000` runs as many seeds as that.
//! - `PERENNIAL_SEED=17` runs that one; with `PERENNIAL_CASES`, as many from there on.

use perennial_testkit::simulator::{Flaw, Simulation, Tally};

/// Everything that has to have happened in an ordinary run, or it shows nothing.
const TROUBLE: [&str; 27] = [
    "batch refused",
    "call refused",
    "cancel",
    "commit fenced",
    "commit refused",
    "commit settled",
    "commit unknown and not written",
    "commit unknown and still under way",
    "commit unknown and written",
    "crash",
    "crash with a batch in flight",
    "culprit found",
    "duplicate result",
    "event sent again",
    "eviction",
    "hydration",
    "late turn",
    "pause",
    "rival start",
    "same turn again",
    "session lost",
    "slow call",
    "stale input",
    "takeover",
    "terminate",
    "turn given up",
    "withheld past the deadline",
];

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("it is a number"))
}

#[test]
fn i17_nothing_is_lost_or_doubled_and_everything_finishes() {
    let first = number("PERENNIAL_SEED");
    let count = number("PERENNIAL_CASES").unwrap_or(if first.is_some() { 1 } else { 300 });
    let first = first.unwrap_or(0);
    let lines = if count == 1 { 100_000 } else { 150 };
    let mut tally = Tally::default();
    for seed in first..first + count {
        match Simulation::new(seed).keeping_lines(lines).run() {
            Ok(finished) => tally.add(&finished.tally),
            Err(mishap) => panic!("{mishap}"),
        }
    }
    for (what, count) in tally.iter() {
        println!("{count:>8} {what}");
    }
    if count >= 300 {
        let missing: Vec<_> = TROUBLE.iter().filter(|what| tally.of(what) == 0).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

#[test]
fn i16_who_does_not_need_the_code_that_is_missing_finishes_without_it() {
    let mut beside = 0;
    for seed in 0..60 {
        match Simulation::new(seed).with_late_code().run() {
            Ok(finished) => beside += finished.tally.of("finished beside a blocked one"),
            Err(mishap) => panic!("{mishap}"),
        }
    }
    assert!(beside > 10, "hardly anybody was blocked: {beside}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        let hash = |seed| Simulation::new(seed).run().map(|finished| finished.trace_hash).ok();
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
        assert_ne!(hash(seed), hash(seed + 1), "seed {seed}");
    }
}

/// Which invariant a planted mistake was noticed by.
fn noticed(flaw: Flaw) -> String {
    let mishap = (0..200).find_map(|seed| Simulation::new(seed).with_flaw(flaw).run().err());
    let mishap = mishap.unwrap_or_else(|| panic!("{flaw:?} was not noticed"));
    mishap.what.split([':', ' ']).next().unwrap_or_default().to_owned()
}

#[test]
fn a_store_that_does_not_fence_is_noticed() {
    assert_eq!(noticed(Flaw::NoFencing), "I3");
}

#[test]
fn effects_before_their_commit_are_noticed() {
    assert_eq!(noticed(Flaw::EffectsBeforeCommit), "G5");
}

#[test]
fn batches_that_are_not_recognized_are_noticed() {
    assert_eq!(noticed(Flaw::NoDedupe), "I8");
}

#[test]
fn lost_messages_are_noticed() {
    assert!(["I2", "I8", "I17"].contains(&noticed(Flaw::LostMessages).as_str()));
}

#[test]
fn timers_that_fire_early_are_noticed() {
    assert_eq!(noticed(Flaw::EarlyTimers), "I10");
}

/// A new owner comes to an instance that an earlier process gave up on, just while a message for it is being kept.
#[test]
fn g28_a_new_process_tries_a_blocked_instance_again_also_while_it_keeps_a_message_for_it() {
    if let Err(mishap) = Simulation::new(2903).run() {
        panic!("{mishap}");
    }
}
