//! Real shards on a few nodes through crashes, refused, unknown and late commits, lost sessions and slow everything:
//! nothing acknowledged is lost or doubled, and once the trouble ends everything finishes.
//!
//! - `PERENNIAL_CASES=20000` runs as many seeds as that.
//! - `PERENNIAL_SEED=17` runs that one; with `PERENNIAL_CASES`, as many from there on.

use perennial_testkit::simulator::{Simulation, Tally};

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
}
