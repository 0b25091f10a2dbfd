//! The plan of a run, its outcome, and what is said of its course.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::faults::Fault;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The path of the node program.
    pub program: PathBuf,
    /// The seed of the director's random choices. The timing of processes and networks is not deterministic.
    pub seed: u64,
    /// Minimum number of faults.
    pub faults: usize,
    /// Minimum time during which faults are injected.
    pub time: Duration,
    /// Minimum and maximum number of nodes.
    pub nodes: (usize, usize),
    /// The lease of the nodes.
    pub lease: Duration,
    /// Minimum and maximum pause between faults, in milliseconds.
    pub pause_ms: (u64, u64),
    /// Whether progress is printed.
    pub is_verbose: bool,
    /// Whether the logs are kept even if no problem was found.
    pub keeps_logs: bool,
}

impl Plan {
    /// A run with short pauses and printed progress, as tests want it.
    pub fn short(program: &Path, faults: usize, lease: Duration) -> Plan {
        Plan {
            program: program.to_owned(),
            seed: 13,
            faults,
            time: Duration::ZERO,
            nodes: (3, 5),
            lease,
            pause_ms: (100, 500),
            is_verbose: true,
            keeps_logs: false,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of injected faults of each kind.
    pub faults: BTreeMap<Fault, usize>,
    /// Number of connections that were cut at a commit.
    pub cuts: usize,
    /// Number of instances by final status.
    pub endings: BTreeMap<&'static str, usize>,
    /// Number of requests that callers had to repeat.
    pub repeated_requests: usize,
    /// Number of activity runs that repeated an attempt.
    pub repeated_runs: usize,
    /// Number of nodes that could not start because the server was down.
    pub not_started: usize,
    /// Time from the last fault until everything had finished.
    pub healing: Duration,
    /// All problems found.
    pub problems: Vec<String>,
    /// The directory of the logs, if they are kept.
    pub logs: Option<PathBuf>,
}

/// The course of a run: what a director says of it, and the problems that it finds.
pub(crate) struct Course {
    pub(crate) plan: Plan,
    pub(crate) outcome: Outcome,
    begun: Instant,
}

impl Course {
    pub(crate) fn new(plan: Plan) -> Course {
        Course { plan, outcome: Outcome::default(), begun: Instant::now() }
    }

    /// Whether enough faults were injected, for long enough.
    pub(crate) fn is_over(&self, faults: usize) -> bool {
        faults >= self.plan.faults && self.begun.elapsed() >= self.plan.time
    }

    pub(crate) fn say(&self, what: impl Display) {
        if self.plan.is_verbose {
            eprintln!("{:8.2} s  {what}", self.begun.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn problem(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.say(format_args!("PROBLEM {what}"));
        self.outcome.problems.push(what);
    }
}
