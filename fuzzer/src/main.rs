//! `cargo xtask fuzz`: runs hostile inputs. Exits with 0 if nothing was found, 1 for a panic or a hang, 2 for arguments.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use perennial_fuzzer::{Campaign, Target, run};

/// Runs hostile inputs through targets, on all cores.
#[derive(Debug, Parser)]
#[command(name = "fuzz")]
struct Arguments {
    /// The targets; all if none is named.
    #[arg(value_parser = target)]
    targets: Vec<Target>,
    /// How many inputs for each target.
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// How many seconds each target may take.
    #[arg(long)]
    seconds: Option<u64>,
    /// The seed of the inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many threads; all cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Runs the inputs of these files instead.
    #[arg(long, num_args = 1..)]
    inputs: Vec<std::path::PathBuf>,
}

fn target(name: &str) -> Result<Target, String> {
    let names: Vec<&str> = Target::ALL.iter().map(|target| target.name()).collect();
    Target::from_name(name).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let targets = if arguments.targets.is_empty() { Target::ALL.to_vec() } else { arguments.targets };
    for path in &arguments.inputs {
        let input = std::fs::read(path).expect("the input can be read");
        targets.iter().for_each(|target| println!("{}: accepted {}", target.name(), target.run(&input)));
    }
    if !arguments.inputs.is_empty() {
        return ExitCode::SUCCESS;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut is_fine = true;
    for target in targets {
        let outcome = run(&Campaign {
            target,
            executions: arguments.executions,
            time: arguments.seconds.map(Duration::from_secs),
            seed: arguments.seed,
            threads: arguments.threads.unwrap_or(cores),
            is_verbose: true,
        });
        let seconds = outcome.time.as_secs_f64();
        println!(
            "{}: {} executions in {seconds:.1} s ({:.0}/s), {} accepted, {} failures",
            target.name(),
            outcome.executions,
            outcome.executions as f64 / seconds,
            outcome.accepted,
            outcome.failures.len()
        );
        for failure in &outcome.failures {
            is_fine = false;
            println!("FAILURE cargo xtask fuzz {} --inputs {}", target.name(), failure.display());
        }
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
