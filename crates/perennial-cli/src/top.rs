//! `perennial top`: live counts.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use perennial::client::{Count, StoreStats};
use perennial::{Client, Status};
use serde_json::{Map, Value, json};

use crate::exit::Failure;
use crate::output::{now_ms, object, pairs, raw, span, table};

/// Clears a terminal and moves the cursor to the upper left.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(crate) fn count(count: Count) -> String {
    if count.more { format!("more than {}", count.rows) } else { count.rows.to_string() }
}

fn of_status(stats: &StoreStats, wanted: Status) -> Count {
    stats
        .instances
        .iter()
        .find(|(status, _)| *status == wanted)
        .map_or_else(Count::default, |(_, count)| *count)
}

pub(crate) fn stats_object(stats: &StoreStats) -> Value {
    let number = |count: Count| json!({"rows": count.rows, "more": count.more});
    let instances: Map<String, Value> = Status::ALL
        .into_iter()
        .map(|status| (status.name().to_owned(), number(of_status(stats, status))))
        .collect();
    json!({
        "at_ms": now_ms(),
        "instances": instances,
        "blocked": number(stats.blocked),
        "inbox": number(stats.inbox),
        "tasks_queued": number(stats.tasks_queued),
        "tasks_leased": number(stats.tasks_leased),
        "tasks_waiting": number(stats.tasks_waiting),
        "requests": number(stats.requests),
        "lag_ms": stats.lag_ms,
    })
}

/// Prints counts until it is interrupted.
pub(crate) async fn top(client: &Client, every: Duration, once: bool, as_json: bool) -> Result<(), Failure> {
    let every = every.max(Duration::from_millis(100));
    let mut before: Option<(Instant, u64)> = None;
    loop {
        let stats = client.stats().await?;
        let ended: Count = of_status(&stats, Status::Completed);
        // Counts are exact up to a bound; beyond it, no rate can be computed.
        let rate = before.filter(|_| !ended.more).map(|(at, completed)| {
            ended.rows.saturating_sub(completed) as f64 / at.elapsed().as_secs_f64().max(0.001)
        });
        before = Some((Instant::now(), ended.rows));
        if as_json {
            object(&stats_object(&stats))?;
        } else {
            if !once && std::io::stdout().is_terminal() {
                raw(CLEAR)?;
            }
            let mut rows: Vec<(&'static str, String)> = Status::ALL
                .into_iter()
                .map(|status| (status.name(), count(of_status(&stats, status))))
                .collect();
            rows.extend([
                ("blocked", count(stats.blocked)),
                ("inbox", count(stats.inbox)),
                (
                    "tasks",
                    format!(
                        "{} queued, {} running, {} waiting",
                        count(stats.tasks_queued),
                        count(stats.tasks_leased),
                        count(stats.tasks_waiting)
                    ),
                ),
                ("requests", count(stats.requests)),
                ("lag", span(stats.lag_ms)),
            ]);
            rows.extend(rate.map(|rate| ("completed/s", format!("{rate:.0}"))));
            table(&pairs(rows))?;
        }
        if once {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}
