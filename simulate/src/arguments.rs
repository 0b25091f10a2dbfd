//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, ValueEnum};
use perennial_testkit::simulator::Case;

/// Runs simulated nodes with drawn faults, one run per seed, and checks that nothing is lost or doubled.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask simulate", version, about)]
#[command(group = ArgGroup::new("job").required(true).args(["seeds", "minutes", "flaws", "case"]))]
pub struct Arguments {
    /// Run this many seeds.
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// Run seeds for this long.
    #[arg(long, value_name = "M", value_parser = positive)]
    pub minutes: Option<f64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub first: u64,
    /// The number of threads. All cores if not given.
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Which runs: long and short ones, or only one kind.
    #[arg(long, value_enum, default_value_t = Kind::Mixed)]
    pub kind: Kind,
    /// Plant this bug in every run, to see how its failure is made smaller and reported.
    #[arg(long, value_name = "NAME", value_parser = known_flaw, conflicts_with_all = ["flaws", "case"])]
    pub flaw: Option<String>,
    /// Plant each known bug, and print how many seeds it takes to notice it.
    #[arg(long)]
    pub flaws: bool,
    /// How often each planted bug is searched for, each time from another seed on.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..), requires = "flaws")]
    pub samples: u64,
    /// Run the case of a file, and print its trace if it fails.
    #[arg(long, value_name = "FILE")]
    pub case: Option<PathBuf>,
    /// Cases of past failures, which run first, and where new ones are stored. The committed ones if not given.
    #[arg(long, value_name = "DIR")]
    pub corpus: Option<PathBuf>,
    /// The maximum number of runs that make a failing case smaller; 0 leaves it as it is.
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    pub shrink_runs: u64,
}

/// Which runs a campaign has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A long run for every few short ones.
    Mixed,
    /// Few small programs, and faults for a few seconds.
    Short,
    /// Faults for up to minutes.
    Long,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Runs seeds.
    Campaign(Until),
    /// Measures how soon planted bugs are noticed, with this many samples.
    Flaws(u64),
    /// Runs one case.
    Case(PathBuf),
}

/// The end of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this many seeds.
    Seeds(u64),
    /// After this time.
    Elapsed(Duration),
}

impl Arguments {
    /// What to do.
    pub fn job(&self) -> Job {
        match (&self.case, self.seeds, self.minutes) {
            (Some(file), ..) => Job::Case(file.clone()),
            (None, Some(seeds), _) => Job::Campaign(Until::Seeds(seeds)),
            (None, None, Some(minutes)) => {
                Job::Campaign(Until::Elapsed(Duration::from_secs_f64(minutes * 60.0)))
            }
            (None, None, None) => Job::Flaws(self.samples),
        }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(cores, usize::from)
    }

    /// The directory of past failures.
    pub fn corpus(&self) -> PathBuf {
        let committed = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"));
        self.corpus.clone().unwrap_or_else(committed)
    }
}

fn known_flaw(name: &str) -> Result<String, String> {
    let case = Case { flaw: Some(name.to_owned()), ..Case::default() };
    case.planted().map(|_| name.to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err("it must be greater than zero".to_owned())
    }
}
