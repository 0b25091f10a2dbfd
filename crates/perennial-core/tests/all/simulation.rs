//! Real shards on a few nodes through crashes, refused, unknown and late commits, lost sessions and slow everything:
//! nothing acknowledged is lost or doubled, and once the trouble ends everything finishes.
//!
//! - `PERENNIAL_CASES=20000` runs as many seeds as that.
//! - `PERENNIAL_SEED=17` runs that one; with `PERENNIAL_CASES`, as many from there on.

use std::collections::BTreeMap;

use perennial_testkit::simulator::{CLASSES, Simulation, Tally, unreached};

/// In how many runs of an ordinary one each thing that belongs to a class has to have happened.
const RUNS_PER_CLASS: u64 = 3;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("it is a number"))
}

#[test]
fn i17_nothing_is_lost_or_doubled_and_everything_finishes() {
    let first = number("PERENNIAL_SEED");
    let count = number("PERENNIAL_CASES").unwrap_or(if first.is_some() { 1 } else { 500 });
    let first = first.unwrap_or(0);
    let lines = if count == 1 { 100_000 } else { 150 };
    let (mut tally, mut runs) = (Tally::default(), BTreeMap::<&str, u64>::new());
    for seed in first..first + count {
        let finished =
            Simulation::new(seed).keeping_lines(lines).run().unwrap_or_else(|mishap| panic!("{mishap}"));
        tally.add(&finished.tally);
        for name in CLASSES.iter().flat_map(|(_, names)| *names) {
            *runs.entry(name).or_default() += u64::from(finished.tally.of(name) > 0);
        }
        if count == 1 {
            println!("met: {}", finished.classes().collect::<Vec<_>>().join(", "));
        }
    }
    for (what, count) in tally.iter() {
        println!(
            "{count:>8} {what}{}",
            runs.get(what).map_or(String::new(), |runs| format!(" ({runs} runs)"))
        );
    }
    if count >= 500 {
        let missing = unreached(&tally);
        assert!(missing.is_empty(), "these never happened: {missing:?}");
        let rare: Vec<_> = runs.iter().filter(|(_, runs)| **runs < RUNS_PER_CLASS).collect();
        assert!(rare.is_empty(), "these happened in too few runs: {rare:?}");
    }
}

#[test]
fn i16_who_does_not_need_the_code_that_is_missing_finishes_without_it() {
    let mut beside = 0;
    for seed in 0..80 {
        match Simulation::new(seed).with_late_code().run() {
            Ok(finished) => beside += finished.tally.of("finished beside a blocked one"),
            Err(mishap) => panic!("{mishap}"),
        }
    }
    assert!(beside > 10, "hardly anybody was blocked: {beside}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..8 {
        let hash = |seed| Simulation::new(seed).run().map(|finished| finished.trace_hash).ok();
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
        assert_ne!(hash(seed), hash(seed + 1), "seed {seed}");
    }
}
