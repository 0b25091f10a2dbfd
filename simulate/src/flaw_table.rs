//! How soon each planted bug is noticed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial_testkit::simulator::{Case, PLANTED, Planted};

use crate::arguments::Arguments;
use crate::outcome;

/// The distance of the first seeds of two samples.
const STRIDE: u64 = 1_000_000;
/// A sample gives up after this many times the seeds that are stated.
const BEYOND: u64 = 5;

/// The searches for one planted bug.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The bug.
    pub planted: Planted,
    /// The number of seeds until it was noticed, in ascending order; `None` if a sample gave up.
    pub seeds: Vec<Option<u64>>,
    /// The invariants by which it was noticed, with counts.
    pub noticed_by: Vec<(String, u64)>,
}

impl Measured {
    fn text(count: Option<u64>) -> String {
        count.map_or_else(|| "none".to_owned(), |count| count.to_string())
    }

    /// Whether it was always noticed within the stated number of seeds, and for a stated reason.
    pub fn is_good(&self) -> bool {
        let is_stated = |name: &str| self.planted.noticed_by.contains(&name);
        self.seeds.iter().all(|count| count.is_some_and(|count| count <= self.planted.within))
            && self.noticed_by.iter().all(|(name, _)| is_stated(name))
    }
}

/// Searches for a planted bug from a seed on.
fn search(planted: &Planted, first: u64) -> Option<(u64, String)> {
    (0..planted.within * BEYOND).find_map(|number| {
        let case = Case {
            storm: planted.in_storm,
            flaw: Some(format!("{:?}", planted.flaw)),
            ..Case::of_seed(first + number)
        };
        match outcome::run(&case) {
            Ok(_) => None,
            Err(outcome::Failure::Violation(mishap)) => Some((number + 1, mishap.invariant().to_owned())),
            Err(_) => Some((number + 1, "panic".to_owned())),
        }
    })
}

/// Searches for a planted bug several times.
pub fn measure(planted: &Planted, first: u64, samples: u64) -> Measured {
    let mut measured = Measured { planted: *planted, seeds: Vec::new(), noticed_by: Vec::new() };
    for sample in 0..samples {
        let found = search(planted, first + sample * STRIDE);
        if let Some((_, by)) = &found {
            match measured.noticed_by.iter_mut().find(|(name, _)| name == by) {
                Some((_, count)) => *count += 1,
                None => measured.noticed_by.push((by.clone(), 1)),
            }
        }
        measured.seeds.push(found.map(|(count, _)| count));
    }
    measured.seeds.sort_by_key(|count| count.unwrap_or(u64::MAX));
    measured
}

/// Prints the table of all planted bugs. Returns whether each was noticed within the stated number of seeds.
pub fn print(arguments: &Arguments, samples: u64) -> bool {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    println!(
        "| planted bug | median seeds | worst of {samples} | stated | noticed by |\n|---|---|---|---|---|"
    );
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads() {
            scope.spawn(|| {
                while let Some(planted) = PLANTED.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let measured = measure(planted, arguments.first, samples);
                    let by: Vec<String> =
                        measured.noticed_by.iter().map(|(name, count)| format!("{name} ({count})")).collect();
                    println!(
                        "| {:?} | {} | {} | {} | {} |{}",
                        planted.flaw,
                        Measured::text(measured.seeds[measured.seeds.len() / 2]),
                        Measured::text(measured.seeds[measured.seeds.len() - 1]),
                        planted.within,
                        by.join(", "),
                        if measured.is_good() { "" } else { " NOT AS STATED" },
                    );
                    results.lock().expect("no thread panics with the lock").push(measured.is_good());
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panics with the lock");
    println!("\n{} planted bugs, {} not as stated", results.len(), results.iter().filter(|it| !**it).count());
    results.into_iter().all(|is_good| is_good)
}
