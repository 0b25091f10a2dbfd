//! The workloads of `perennial-load` on DBOS Transact: `peer-dbos --server URL --runs N WORKLOAD…`.
//!
//! `cargo xtask bench --peers` runs it on the same server, right after the same workload of Perennial. The program uses
//! DBOS as its documentation shows, with its default settings but for the number of connections, of which it gets as
//! many as it uses. Prints one JSON object per result and line. Each run uses a schema of its own, which stays behind:
//! whoever gave the server drops it.

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use dbos::{Config, DBOS, StartOptions, WorkflowRef, recv, step};
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream;
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Arguments {
    #[arg(required = true)]
    workloads: Vec<Workload>,
    /// The server, as postgres://…
    #[arg(long)]
    server: String,
    #[arg(long, default_value_t = 3)]
    runs: usize,
    #[arg(long, default_value_t = 20)]
    connections: u32,
    /// Divides the amount of work
    #[arg(long, default_value_t = 1)]
    scale: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Workload {
    Hello,
    Sequence,
    Fanout,
    Parallel,
    Latency,
    Signal,
}

async fn nothing() -> dbos::Result<u64> {
    Ok(1)
}

/// `count` steps, one after another.
async fn in_sequence(count: u64) -> dbos::Result<u64> {
    let mut sum = 0;
    for _ in 0..count {
        sum += step("nothing", nothing).await?;
    }
    Ok(sum)
}

/// `count` steps at the same time.
async fn side_by_side(count: u64) -> dbos::Result<u64> {
    let steps: Vec<_> = (0..count).map(|_| step("nothing", nothing)).collect();
    Ok(try_join_all(steps).await?.into_iter().sum())
}

/// Waits for one message.
async fn receive(_: u64) -> dbos::Result<u64> {
    let message: Option<u64> = recv(Some("go"), Duration::from_secs(60)).await?;
    Ok(message.unwrap_or(0))
}

struct Peer {
    dbos: DBOS,
    in_sequence: WorkflowRef<u64, u64>,
    side_by_side: WorkflowRef<u64, u64>,
    receive: WorkflowRef<u64, u64>,
}

impl Peer {
    async fn launch(arguments: &Arguments, schema: String) -> Outcome<Peer> {
        let dbos = DBOS::new(Config {
            max_connections: arguments.connections,
            schema,
            app_version: Some("1.0.0".to_owned()),
            ..Config::new("peer-bench", &arguments.server)
        });
        let in_sequence = dbos.register_workflow("in_sequence", in_sequence)?;
        let side_by_side = dbos.register_workflow("side_by_side", side_by_side)?;
        let receive = dbos.register_workflow("receive", receive)?;
        dbos.launch().await?;
        Ok(Peer { dbos, in_sequence, side_by_side, receive })
    }
}

/// Runs `count` workflows, `in_flight` at a time. Returns the seconds that it took.
async fn run_many(
    workflow: &WorkflowRef<u64, u64>,
    prefix: &str,
    count: u64,
    in_flight: usize,
    input: u64,
) -> Outcome<f64> {
    let begun = Instant::now();
    let run = |index: u64| {
        let id = format!("{prefix}-{index}");
        async move {
            let options = StartOptions { workflow_id: Some(&id), ..StartOptions::default() };
            workflow.start_with(input, options).await?.result().await
        }
    };
    let mut running = stream::iter((0..count).map(run)).buffer_unordered(in_flight);
    while let Some(done) = running.next().await {
        done?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    for workload in arguments.workloads.clone() {
        measure(&arguments, workload).await?;
    }
    Ok(())
}

async fn measure(arguments: &Arguments, workload: Workload) -> Outcome<()> {
    let scale = arguments.scale;
    let sizes: &[u64] = match workload {
        Workload::Sequence => &[10, 100, 1_000],
        Workload::Fanout => &[1_000],
        _ => &[1],
    };
    for size in sizes {
        let mut runs = Vec::new();
        for run in 0..arguments.runs {
            let name =
                workload.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
            let peer = Peer::launch(arguments, format!("peer_dbos_{name}_{size}_{run}")).await?;
            runs.push(once(&peer, workload, *size, scale).await?);
            peer.dbos.shutdown().await;
        }
        print(workload, *size, &runs);
    }
    Ok(())
}

/// One run of a workload, in the unit that [`print`] names.
async fn once(peer: &Peer, workload: Workload, size: u64, scale: u64) -> Outcome<f64> {
    Ok(match workload {
        Workload::Hello => {
            let count = 4_000 / scale;
            run_many(&peer.in_sequence, "warm", count / 10, 128, 1).await?;
            count as f64 / run_many(&peer.in_sequence, "hello", count, 128, 1).await?
        }
        Workload::Sequence => {
            run_many(&peer.in_sequence, "warm", 3, 1, 20).await?;
            size as f64 / run_many(&peer.in_sequence, "sequence", 1, 1, size).await?
        }
        Workload::Fanout => {
            run_many(&peer.side_by_side, "warm", 1, 1, 100).await?;
            run_many(&peer.side_by_side, "fanout", 1, 1, size / scale).await?
        }
        Workload::Parallel => {
            let count = 1_000 / scale;
            run_many(&peer.side_by_side, "warm", count / 10, 20, 5).await?;
            count as f64 / run_many(&peer.side_by_side, "parallel", count, 20, 5).await?
        }
        Workload::Latency => {
            run_many(&peer.in_sequence, "warm", 20, 1, 1).await?;
            let mut each = Vec::new();
            for index in 0..500 / scale {
                each.push(run_many(&peer.in_sequence, &format!("latency-{index}"), 1, 1, 1).await? * 1_000.0);
            }
            median(&each)
        }
        Workload::Signal => {
            let mut each = Vec::new();
            for index in 0..500 / scale + 20 {
                let id = format!("signal-{index}");
                let options = StartOptions { workflow_id: Some(&id), ..StartOptions::default() };
                let handle = peer.receive.start_with(0, options).await?;
                let begun = Instant::now();
                let options = dbos::SendOptions { topic: Some("go"), ..dbos::SendOptions::default() };
                peer.dbos.send_with(&id, &1_u64, options).await?;
                handle.result().await?;
                if index >= 20 {
                    each.push(begun.elapsed().as_secs_f64() * 1_000.0);
                }
            }
            median(&each)
        }
    })
}

fn print(workload: Workload, size: u64, runs: &[f64]) {
    let (name, unit) = match workload {
        Workload::Hello => ("hello", "instances/s"),
        Workload::Sequence => ("sequence", "steps/s"),
        Workload::Fanout => ("fanout", "seconds"),
        Workload::Parallel => ("parallel", "instances/s"),
        Workload::Latency => ("latency", "ms p50"),
        Workload::Signal => ("signal", "ms p50"),
    };
    let report = json!({"workload": name, "peer": "dbos", "unit": unit, "size": size, "median": median(runs), "runs": runs});
    println!("{report}");
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
