//! Other systems, measured on the same server right after the same workload.
//!
//! A peer is a program with the workloads of this one: `PROGRAM WORKLOAD --server URL --runs N --scale N`. It prints one
//! JSON object per result and line, with the fields `workload`, `peer`, `unit`, `size` and `runs`.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::figures::Report;
use crate::fleet::Outcome;
use crate::postgres;

/// The workloads that peers have.
const COMMON: [&str; 6] = ["hello", "sequence", "fanout", "parallel", "latency", "signal"];

/// Runs a workload of a peer. Each result also has the factor by which ours is better.
pub(crate) async fn measure(
    program: &Path,
    server: &str,
    workload: &str,
    ours: &[Report],
    (runs, scale): (usize, u64),
) -> Outcome<Vec<Report>> {
    if !COMMON.contains(&workload) {
        return Ok(Vec::new());
    }
    let mut command = Command::new(program);
    command.args([workload, "--server", server]);
    command.args(["--runs", &runs.to_string(), "--scale", &scale.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    postgres::drop_schemas(server, "peer_").await?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", program.display(), output.status).into());
    }
    str::from_utf8(&output.stdout)?.lines().map(|line| read(&serde_json::from_str(line)?, ours)).collect()
}

fn read(result: &Value, ours: &[Report]) -> Outcome<Report> {
    let text = |name: &str| result[name].as_str().ok_or_else(|| format!("a peer's result lacks {name}"));
    let runs = result["runs"].as_array().ok_or("a peer's result lacks runs")?;
    let runs: Vec<f64> = runs.iter().filter_map(Value::as_f64).collect();
    let size = &result["size"];
    let own = ours.iter().find(|own| own.has_size(size));
    let report =
        Report::new(text("workload")?, text("peer")?, text("unit")?, runs).with("size", size.clone());
    Ok(match own {
        Some(own) => {
            let factor = own.times_better_than(&report);
            report.with("ours_is_better_by", factor)
        }
        None => report,
    })
}
