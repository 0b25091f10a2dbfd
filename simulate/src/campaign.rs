//! Many seeds: each thread takes the next one, and one percent of them runs twice.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use perennial_testkit::simulator::{Case, Finished, Tally, shrink, unreached};

use crate::arguments::{Arguments, Kind, Until};
use crate::corpus;
use crate::outcome::{self, Failure};
use crate::progress::{self, Rate};

/// A campaign of at least this many seeds must have met everything.
pub const LONG: u64 = 2_000;
/// A campaign ends after this many failures.
const MAX_FAILURES: usize = 5;
/// One seed out of this many runs twice.
const TWICE_EACH: u64 = 100;
/// One seed out of this many is a long run; the others are short ones. It shares no factor with [`TWICE_EACH`], so that
/// some of both kinds run twice.
const LONG_EACH: u64 = 7;

/// What a campaign has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Counts of all runs.
    pub tally: Tally,
    /// Runs that went wrong.
    pub failures: Vec<(Case, Failure)>,
    /// The number of runs that went well.
    pub finished: u64,
    /// The number of these that ran twice, with the same trace.
    pub twice: u64,
    /// The virtual time of all runs.
    pub simulated_ms: u64,
    /// The steps of all runs.
    pub steps: u64,
}

impl Seen {
    fn add(&mut self, case: Case, is_twice: bool, outcome: Result<Finished, Failure>) {
        match outcome {
            Ok(finished) => {
                self.finished += 1;
                self.twice += u64::from(is_twice);
                self.simulated_ms += finished.simulated_ms;
                self.steps += finished.steps;
                self.tally.add(&finished.tally);
            }
            Err(failure) => {
                eprintln!("\nseed {}: {}", case.seed, failure.headline());
                self.failures.push((case, failure));
            }
        }
    }

    /// What a campaign of this length had to meet and did not.
    pub fn unreached(&self) -> Vec<&'static str> {
        if self.finished < LONG { Vec::new() } else { unreached(&self.tally) }
    }
}

/// Runs the corpus and then seeds, makes failing cases smaller, and prints a summary. Returns whether all was well.
///
/// # Errors
///
/// If the corpus cannot be read.
pub fn run(arguments: &Arguments, until: Until) -> Result<bool, String> {
    let past = corpus::read(&arguments.corpus())?;
    let mut has_failed = false;
    for (file, case) in &past {
        // The engine without the bug that was planted then.
        if let Err(failure) = outcome::run(&Case { flaw: None, ..case.clone() }) {
            eprintln!("{}: {}", file.display(), failure.headline());
            has_failed = true;
        }
    }
    println!("corpus: {} cases{}", past.len(), if has_failed { ", some failed" } else { ", all clean" });
    let began = Instant::now();
    let runs = Runs { kind: arguments.kind, flaw: arguments.flaw.clone() };
    let seen = run_seeds(arguments.first, until, &runs, arguments.threads(), true);
    progress::print_summary(&seen, began.elapsed(), arguments.threads());
    for (case, failure) in &seen.failures {
        report(arguments, case, failure);
    }
    Ok(!has_failed && seen.failures.is_empty() && seen.unreached().is_empty())
}

/// The runs of a campaign.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Long or short ones.
    pub kind: Kind,
    /// The planted bug, if there is one.
    pub flaw: Option<String>,
}

/// The run of a seed.
fn case_of(seed: u64, Runs { kind, flaw }: &Runs) -> Case {
    let short = match kind {
        Kind::Mixed => !seed.is_multiple_of(LONG_EACH),
        Kind::Short => true,
        Kind::Long => false,
    };
    Case { short, flaw: flaw.clone(), ..Case::of_seed(seed) }
}

/// Runs seeds on several threads.
pub fn run_seeds(first: u64, until: Until, runs: &Runs, threads: usize, shows_progress: bool) -> Seen {
    let (next, is_over) = (AtomicU64::new(first), AtomicBool::new(false));
    let (seen, began) = (Mutex::new(Seen::default()), Instant::now());
    let take_seed = || {
        let is_due = match until {
            Until::Seeds(_) => false,
            Until::Elapsed(time) => began.elapsed() >= time,
        };
        if is_due || is_over.load(Ordering::Relaxed) {
            return None;
        }
        let seed = next.fetch_add(1, Ordering::Relaxed);
        match until {
            Until::Seeds(count) if seed - first >= count => None,
            _ => Some(seed),
        }
    };
    let work = || {
        while let Some(seed) = take_seed() {
            let (case, is_twice) = (case_of(seed, runs), seed.is_multiple_of(TWICE_EACH));
            let outcome = if is_twice { outcome::run_twice(&case) } else { outcome::run(&case) };
            let mut seen = seen.lock().expect("no thread panics with the lock");
            seen.add(case, is_twice, outcome);
            if seen.failures.len() >= MAX_FAILURES {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        if shows_progress {
            progress::show(&seen, began, || workers.iter().all(std::thread::ScopedJoinHandle::is_finished));
        }
    });
    seen.into_inner().expect("no thread panics with the lock")
}

/// Prints a failure, and stores a smaller case that fails in the same way.
fn report(arguments: &Arguments, case: &Case, failure: &Failure) {
    println!("\nseed {}: {}", case.seed, failure.headline());
    let Failure::Violation(_) = failure else { return store(arguments, case, failure) };
    let shrunk = if arguments.shrink_runs == 0 { Ok(None) } else { shrink(case, arguments.shrink_runs) };
    let Ok(Some(shrunk)) = shrunk else { return store(arguments, case, failure) };
    let (before, after) = shrunk.sizes;
    println!("{}", shrunk.mishap.trace.join("\n"));
    println!("made smaller in {} runs: from {before}\n  to {after}", shrunk.runs);
    store(arguments, &shrunk.case, failure);
}

fn store(arguments: &Arguments, case: &Case, failure: &Failure) {
    let mut case = case.clone();
    if case.violation.is_empty() {
        case.violation = failure.headline();
    }
    println!("{}", corpus::text_of(&case));
    match corpus::write(&arguments.corpus(), &case) {
        Ok(file) => println!("stored; run it again: cargo xtask simulate --case {}", file.display()),
        Err(complaint) => eprintln!("not stored: {complaint}"),
    }
}

/// The rate of a campaign.
pub(crate) fn rate(seen: &Seen, seconds: f64) -> Rate {
    Rate {
        seeds_per_s: seen.finished as f64 / seconds,
        hours_per_s: seen.simulated_ms as f64 / 3_600_000.0 / seconds,
        steps_per_s: seen.steps as f64 / seconds,
    }
}
