//! `cargo xtask chaos`: runs nodes under faults for any length of time.
//!
//! Exits with 0 if no problem was found, 1 if there were problems, and 2 for invalid arguments.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use perennial_chaos::director::run;
use perennial_chaos::embedded;
use perennial_chaos::idle::{self, IdleCost};
use perennial_chaos::power_loss::{self, PowerLoss, PowerOutcome};
use perennial_chaos::takeover;
use perennial_chaos::{Outcome, Plan};

/// Runs nodes as processes over one store, under a mixed load, and injects faults.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// The store: `postgres` starts a private server with several nodes, `sqlite` runs one process after the other on a
    /// file.
    #[arg(long, default_value = "postgres", value_parser = ["postgres", "sqlite"])]
    store: String,
    /// Minimum time during which faults are injected, in minutes.
    #[arg(long, default_value_t = 0.0)]
    minutes: f64,
    /// Minimum number of faults.
    #[arg(long, default_value_t = 50)]
    faults: usize,
    /// The seed of the run. The same seed repeats the same faults, but the timing of processes and networks differs.
    #[arg(long)]
    seed: Option<u64>,
    /// Minimum and maximum number of nodes, such as `3..5`.
    #[arg(long, default_value = "3..5", value_parser = parse_range)]
    nodes: (usize, usize),
    /// The lease of nodes in milliseconds, at least 1000.
    #[arg(long, default_value_t = 1_000)]
    lease_ms: u64,
    /// Measures this many takeovers after a kill instead of injecting faults.
    #[arg(long)]
    takeover: Option<usize>,
    /// Measures the cost of an idle node for this many seconds instead of injecting faults.
    #[arg(long)]
    idle: Option<u64>,
    /// Opens what this many power failures leave of a SQLite file, instead of injecting faults. Needs a C compiler, on Linux.
    #[arg(long)]
    power_loss: Option<usize>,
    /// With `--power-loss`: runs the load without synced commits, to see that losses are found.
    #[arg(long, hide = true)]
    relaxed: bool,
    /// Keeps the logs of the run.
    #[arg(long)]
    keep: bool,
    /// Prints only the summary.
    #[arg(long)]
    quiet: bool,
}

fn parse_range(text: &str) -> Result<(usize, usize), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    match (low.parse(), high.parse()) {
        (Ok(low), Ok(high)) if 1 <= low && low <= high && high <= 20 => Ok((low, high)),
        _ => Err(format!("{text:?} is not a range of 1 to 20 nodes, such as 3..5")),
    }
}

/// The path of the node program, which is built into the same directory.
fn node_program() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this program");
    own.with_file_name("perennial-chaos-node")
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let tokio = tokio.expect("a runtime of tokio");
    let lease = Duration::from_millis(arguments.lease_ms.max(1_000));
    if let Some(count) = arguments.takeover {
        let measured = tokio.block_on(takeover::measure(&node_program(), lease, count));
        println!("{}", takeover::summary(lease, &measured));
        return ExitCode::SUCCESS;
    }
    if let Some(seconds) = arguments.idle {
        let nodes = arguments.nodes.0;
        let time = Duration::from_secs(seconds.max(1));
        let IdleCost { transactions, processor_percent } =
            tokio.block_on(idle::measure(&node_program(), nodes, time));
        println!(
            "{nodes} idle nodes: {transactions:.2} transactions/s and {processor_percent:.2} % of a core each"
        );
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()))
    });
    if let Some(cycles) = arguments.power_loss {
        println!("power failures on sqlite, seed {seed}");
        let mut plan = PowerLoss::new(&node_program(), seed, cycles);
        (plan.is_verbose, plan.relaxed) = (!arguments.quiet, arguments.relaxed);
        if plan.relaxed {
            // What is lost never finishes.
            plan.patience = Duration::from_secs(10);
        }
        let outcome = tokio.block_on(power_loss::run(plan));
        print_power_loss(&outcome);
        return if outcome.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    println!("store {}, seed {seed}", arguments.store);
    let plan = Plan {
        program: node_program(),
        seed,
        faults: arguments.faults,
        time: Duration::from_secs_f64(arguments.minutes.max(0.0) * 60.0),
        nodes: arguments.nodes,
        lease,
        pause_ms: (100, 700),
        is_verbose: !arguments.quiet,
        keeps_logs: arguments.keep,
    };
    let outcome = match arguments.store.as_str() {
        "sqlite" => tokio.block_on(embedded::run(plan)),
        _ => tokio.block_on(run(plan)),
    };
    print(&outcome);
    if outcome.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_power_loss(outcome: &PowerOutcome) {
    let PowerOutcome { cycles, recordings, calls, failures, acknowledged, sectors, .. } = outcome;
    println!(
        "{cycles} power failures in {recordings} recordings of {} calls, {} of them syncs",
        calls.0, calls.1
    );
    println!("failed before: {} syncs, {} writes, {} full disks", failures[0], failures[1], failures[2]);
    println!(
        "unsynced sectors: {} lost, {} kept; {acknowledged} requests acknowledged before",
        sectors.0, sectors.1
    );
    for problem in &outcome.problems {
        println!("PROBLEM {problem}");
    }
    match outcome.problems.len() {
        0 => println!("0 lost, 0 doubled, all invariants hold"),
        count => println!("{count} problems"),
    }
}

fn print(outcome: &Outcome) {
    println!("faults:");
    for (fault, count) in &outcome.faults {
        println!("  {count:6}  {fault}");
    }
    println!("  {:6}  commits cut off", outcome.cuts);
    println!("instances:");
    for (ending, count) in &outcome.endings {
        println!("  {count:6}  {ending}");
    }
    println!(
        "requests repeated {}, activities run again {}",
        outcome.repeated_requests, outcome.repeated_runs
    );
    println!("nodes that found no server {}, healed in {:.1?}", outcome.not_started, outcome.healing);
    for problem in &outcome.problems {
        println!("PROBLEM {problem}");
    }
    if let Some(logs) = &outcome.logs {
        println!("the logs are in {}", logs.display());
    }
    match outcome.problems.len() {
        0 => println!("0 lost, 0 doubled, all invariants hold"),
        count => println!("{count} problems"),
    }
}
