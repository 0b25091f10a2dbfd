//! Generated cases for property tests: many in an ordinary run, and any of them by its seed.
//!
//! - `PERENNIAL_CASES=20000` runs this many cases.
//! - `PERENNIAL_SEED=17` runs this case; with `PERENNIAL_CASES`, this many cases starting from it.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Features, Program, Rng, World, generate};

/// A program and the world it runs in.
#[derive(Debug)]
pub struct Case {
    /// The seed of both.
    pub seed: u64,
    /// The program.
    pub program: Program,
}

impl Case {
    /// Creates the case of a seed.
    pub fn new(seed: u64, features: &Features) -> Case {
        let mut rng = Rng::new(seed);
        let size = rng.weighted(&[(1, 4), (3, 12), (3, 24), (1, 40)]);
        Case { seed, program: generate(rng.draw(), features, size) }
    }

    /// Creates the world of the case.
    pub fn world(&self) -> World {
        World::new(self.seed)
    }
}

/// Runs a property over generated cases. Prints the seed and the program of a case that fails.
pub fn for_each_case(count: u64, features: &Features, mut property: impl FnMut(&Case)) {
    let first = number("PERENNIAL_SEED");
    let count = number("PERENNIAL_CASES").unwrap_or(if first.is_some() { 1 } else { count });
    let first = first.unwrap_or(0);
    for seed in first..first.saturating_add(count) {
        let case = Case::new(seed, features);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(&case))) {
            let program = serde_json::to_string(&case.program).expect("a program encodes");
            eprintln!("\nfailed with PERENNIAL_SEED={seed}, the program {program}");
            resume_unwind(panic);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text:?} is not a number: {error}"),
    }
}
