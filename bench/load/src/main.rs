//! The load generator. `cargo xtask bench WORKLOAD… [--store URL] [--json]` runs it in release mode.
//!
//! Every workload warms up, runs several times on a new store, and reports the median and all runs. Figures
//! are comparable only within one run on one machine.

mod bare;
mod figures;
mod fleet;
mod http;
mod nodes;
mod peers;
mod postgres;
mod recording;
mod workloads;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use figures::Report;
use fleet::Place;

/// Measures the performance of Perennial on this machine.
#[derive(Parser)]
struct Arguments {
    /// The workloads to run [default: all]
    workloads: Vec<Workload>,
    /// The store: memory:, sqlite:PATH for a file that is removed afterwards, postgres://… for schemas that
    /// are dropped afterwards, or postgres: for a server of its own [default: a temporary SQLite file]
    #[arg(long)]
    store: Option<String>,
    /// Print one JSON object per result and line
    #[arg(long)]
    json: bool,
    /// Number of runs of each workload
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Number of lanes, which commit side by side [default: what the store recommends]
    #[arg(long, default_value_t = 0)]
    lanes: usize,
    /// Number of nodes, each in a process of its own with its share of the load; for hello on PostgreSQL
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Join the nodes of another process, as this one of them
    #[arg(long, hide = true)]
    join: Option<usize>,
    /// A program that runs the same workloads on another system; needs a PostgreSQL store. `cargo xtask bench --peers`
    /// builds and passes them
    #[arg(long)]
    peer: Vec<PathBuf>,
    /// Install a Prometheus recorder before the first run, to see what metrics cost
    #[arg(long)]
    metrics: bool,
    /// Run a fraction of the work, as a smoke test
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Instances with one trivial activity, 128 in flight
    Hello,
    /// One instance with sequential activities
    Sequence,
    /// One instance with concurrent activities
    Fanout,
    /// 20 concurrent instances with 5 parallel activities each
    Parallel,
    /// Time from start to result of one activity, on an idle node
    Latency,
    /// Time from an event to completion, on an idle node
    Signal,
    /// Instances that sleep for 2 s, started as fast as possible
    Timers,
    /// An instance with 10,000 events, resumed after a restart
    Cold,
    /// Many dormant instances: memory, disk, start-up time
    Sleepers,
    /// The CPU use of a node without work
    Idle,
    /// The HTTP API: starts, streams, slow readers, and lists of 1,000,000 instances
    Http,
    /// Hello and sequence without and with a recorder of metrics, in turns
    Metrics,
    /// A plain program that writes the same rows: the machine's limit
    Bare,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { workloads, store, json, runs, lanes, nodes, join, peer: peers, metrics, quick } =
        Arguments::parse();
    if metrics {
        // The handle renders; the recorder stays installed.
        let _ = perennial_server::prometheus::install()?;
    }
    let workloads = if workloads.is_empty() { Workload::value_variants().to_vec() } else { workloads };
    let place = Place::new(store, lanes)?;
    if let Some(number) = join {
        return nodes::join(&place, number, nodes).await;
    }
    if !json {
        println!("store {}, {runs} runs each, {} cores", place.name(), std::thread::available_parallelism()?);
    }
    for workload in workloads {
        let runs = if quick { 1 } else { runs.max(1) };
        let scale = if quick { 20 } else { 1 };
        let ours = match workload {
            Workload::Hello if nodes > 1 => nodes::hello(&place, runs, 20_000 / scale, nodes).await?,
            _ => measure(workload, &place, runs, scale).await?,
        };
        ours.iter().for_each(|report| report.print(json));
        for peer in &peers {
            let server = place.server().ok_or("peers need a PostgreSQL store: --store postgres:")?;
            let name = workload.to_possible_value().ok_or("a workload without a name")?;
            for report in peers::measure(peer, server, name.get_name(), &ours, (runs, scale)).await? {
                report.print(json);
            }
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
        Workload::Http => http::measure(place, runs, scale).await?,
        Workload::Metrics => recording::measure(place, runs, scale).await?,
        Workload::Bare => match place.server() {
            Some(server) => postgres::bare(server, runs, scale).await?,
            None => bare::measure(runs, scale)?,
        },
    })
}
