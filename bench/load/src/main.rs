//! The load generator. `cargo xtask bench WORKLOAD… [--store URL] [--json]` runs it in release mode.
//!
//! Every workload warms up, runs several times on a fresh store, and reports the median with all runs beside it.
//! Figures compare only within one run on one machine.

mod bare;
mod figures;
mod fleet;
mod workloads;

use clap::{Parser, ValueEnum};

use figures::Report;
use fleet::Place;

/// Measures how fast Perennial is on this machine.
#[derive(Parser)]
struct Arguments {
    /// What to run; everything if nothing is named.
    workloads: Vec<Workload>,
    /// The store: sqlite:PATH (a file that is used and then removed), or memory:. A temporary SQLite file by default.
    #[arg(long)]
    store: Option<String>,
    /// One JSON object per result, each on a line of its own.
    #[arg(long)]
    json: bool,
    /// How many times each workload is run.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A fraction of the work, to see that everything runs.
    #[arg(long)]
    quick: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Instances of one trivial activity, 128 in flight.
    Hello,
    /// One instance, activities one after another.
    Sequence,
    /// One instance, activities all at once.
    Fanout,
    /// 20 instances at a time, 5 parallel activities each.
    Parallel,
    /// Idle: start to result of one activity.
    Latency,
    /// Idle: event raised to completion.
    Signal,
    /// Instances that sleep 2 s, started as fast as they are taken.
    Timers,
    /// An instance of 10,000 events, resumed after a restart.
    Cold,
    /// Many dormant instances: memory, disk, start-up.
    Sleepers,
    /// A node with nothing to do.
    Idle,
    /// A plain SQLite program that writes the same rows: the machine's limit.
    Bare,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { workloads, store, json, runs, quick } = Arguments::parse();
    let workloads = if workloads.is_empty() { Workload::value_variants().to_vec() } else { workloads };
    let place = Place::new(store)?;
    if !json {
        println!("store {}, {runs} runs each, {} cores", place.name(), std::thread::available_parallelism()?);
    }
    for workload in workloads {
        let runs = if quick { 1 } else { runs.max(1) };
        let scale = if quick { 20 } else { 1 };
        for report in measure(workload, &place, runs, scale).await? {
            report.print(json);
        }
    }
    Ok(())
}

async fn measure(
    workload: Workload,
    place: &Place,
    runs: usize,
    scale: u64,
) -> Result<Vec<Report>, Box<dyn std::error::Error>> {
    Ok(match workload {
        Workload::Hello => workloads::hello(place, runs, 20_000 / scale).await?,
        Workload::Sequence => workloads::sequence(place, runs, scale).await?,
        Workload::Fanout => workloads::fanout(place, runs, scale).await?,
        Workload::Parallel => workloads::parallel(place, runs, 2_000 / scale).await?,
        Workload::Latency => workloads::latency(place, runs, 500 / scale).await?,
        Workload::Signal => workloads::signal(place, runs, 500 / scale).await?,
        Workload::Timers => workloads::timers(place, runs, scale).await?,
        Workload::Cold => workloads::cold(place, runs, 5_000 / scale).await?,
        Workload::Sleepers => workloads::sleepers(place, 1_000_000 / scale).await?,
        Workload::Idle => workloads::idle(place).await?,
        Workload::Bare => bare::measure(runs, scale)?,
    })
}
