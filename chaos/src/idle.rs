//! Measures the cost of an idle node: transactions on the server, and CPU time.

use std::path::Path;
use std::time::Duration;

use crate::director::Stage;

/// The default lease of nodes.
const LEASE: Duration = Duration::from_secs(10);
/// How long an idle node takes to reach its lowest polling rate.
const WARM_UP: Duration = Duration::from_secs(40);
/// Clock ticks per second in `/proc`; the same on all current Linux systems.
const TICKS: f64 = 100.0;

/// The cost of one idle node.
#[derive(Clone, Copy, Debug)]
pub struct IdleCost {
    /// Transactions per second.
    pub transactions: f64,
    /// CPU time of the process, in percent of one core.
    pub processor_percent: f64,
}

/// Measures idle nodes for `time`.
///
/// # Panics
///
/// If a node does not start, or the machine has no `/proc`.
pub async fn measure(program: &Path, nodes: usize, time: Duration) -> IdleCost {
    let mut stage = Stage::new(program, LEASE).await;
    let numbers = stage.add_nodes(nodes).await;
    tokio::time::sleep(WARM_UP).await;
    let processes: Vec<u32> =
        numbers.iter().filter_map(|number| stage.fleet.node(*number).process()).collect();
    let database = stage.database().await;
    let transactions = async || {
        let sql =
            "SELECT pg_stat_clear_snapshot(), sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
        let row = database.query_one(sql, &[]).await.expect("the server answers");
        row.get::<_, i64>(1) as f64
    };
    let used = || processes.iter().map(|process| ticks(*process)).sum::<f64>() / TICKS;
    let (before, used_before) = (transactions().await, used());
    tokio::time::sleep(time).await;
    // Sessions report their statistics with a delay of up to a second, at the start and at the end alike.
    let (after, used_after) = (transactions().await, used());
    let of_node = |amount: f64| amount / nodes as f64 / time.as_secs_f64();
    IdleCost {
        transactions: of_node(after - before - 1.0),
        processor_percent: 100.0 * of_node(used_after - used_before),
    }
}

/// CPU time that a process has used, in clock ticks.
fn ticks(process: u32) -> f64 {
    let stat =
        std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux, and the process lives");
    // The name of the program is in parentheses and may contain anything. Fields 14 and 15 are the times.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}
