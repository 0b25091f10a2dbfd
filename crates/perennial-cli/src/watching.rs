//! Commands for those who operate a store: top, doctor.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use perennial::{Blocked, Client, Count, Filter, InstanceRow, Status, StoreStats};
use serde_json::{Map, Value, json};

use crate::exit::{ExitKind, Failure};
use crate::looking::{row_object, version};
use crate::output::{line, moment, now_ms, object, pairs, span, table};

/// Later than this, and nobody seems to take care of the store.
const LATE_MS: u64 = 10_000;
/// A store in which nothing moves for so long while messages wait has no runtime.
const STILL: Duration = Duration::from_millis(500);
/// How many blocked instances are shown.
const SHOWN_BLOCKED: usize = 20;
/// Clears a terminal and goes to its upper left.
const CLEAR: &str = "\x1b[2J\x1b[H";

fn count(count: Count) -> String {
    if count.more { format!("more than {}", count.rows) } else { count.rows.to_string() }
}

fn of_status(stats: &StoreStats, wanted: Status) -> Count {
    stats
        .instances
        .iter()
        .find(|(status, _)| *status == wanted)
        .map_or_else(Count::default, |(_, count)| *count)
}

fn stats_object(stats: &StoreStats) -> Value {
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
        "asks": number(stats.asks),
        "lag_ms": stats.lag_ms,
    })
}

/// Shows counts until it is interrupted.
pub(crate) async fn top(client: &Client, every: Duration, once: bool, as_json: bool) -> Result<(), Failure> {
    let every = every.max(Duration::from_millis(100));
    let mut before: Option<(Instant, u64)> = None;
    loop {
        let stats = client.stats().await?;
        let ended: Count = of_status(&stats, Status::Completed);
        // Counts are exact up to a bound, and say nothing about rates beyond it.
        let rate = before.filter(|_| !ended.more).map(|(at, completed)| {
            ended.rows.saturating_sub(completed) as f64 / at.elapsed().as_secs_f64().max(0.001)
        });
        before = Some((Instant::now(), ended.rows));
        if as_json {
            object(&stats_object(&stats))?;
        } else {
            if !once && std::io::stdout().is_terminal() {
                line(CLEAR)?;
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
                ("questions", count(stats.asks)),
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

/// Looks for trouble. What it finds comes with what to do about it.
pub(crate) async fn doctor(client: &Client, url: &str, as_json: bool) -> Result<(), Failure> {
    let mut stats = client.stats().await?;
    let mut is_still = false;
    // A runtime takes messages within milliseconds. Those to blocked instances stay, and say nothing.
    if stats.inbox.rows > 0 && stats.blocked.rows == 0 {
        tokio::time::sleep(STILL).await;
        let later = client.stats().await?;
        is_still = StoreStats { lag_ms: 0, ..later.clone() } == StoreStats { lag_ms: 0, ..stats };
        stats = later;
    }
    let blocked_filter = Filter { blocked: Some(true), ..Filter::default() };
    let blocked = client.list(blocked_filter, None, SHOWN_BLOCKED).await?.rows;
    let findings = findings(&stats, is_still);
    if as_json {
        let blocked: Vec<Value> = blocked
            .iter()
            .map(|row| {
                let remedy = row.blocked.as_ref().map(remedy);
                json!({"instance": row_object(row), "remedy": remedy})
            })
            .collect();
        object(&json!({
            "store": url, "healthy": findings.is_empty() && blocked.is_empty(), "stats": stats_object(&stats),
            "findings": findings, "blocked": blocked,
        }))?;
    } else {
        line(format!("ok    {url} opens, and its schema is one that this version knows"))?;
        tell(&stats, &findings, &blocked)?;
    }
    if findings.is_empty() && blocked.is_empty() { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

fn tell(stats: &StoreStats, findings: &[String], blocked: &[InstanceRow]) -> Result<(), Failure> {
    if stats.lag_ms <= LATE_MS {
        line(format!("ok    nothing is late (lag {})", span(stats.lag_ms)))?;
    }
    for finding in findings {
        line(format!("look  {finding}"))?;
    }
    if blocked.is_empty() {
        return line("ok    no instance is blocked");
    }
    line(format!("look  blocked instances: {}", count(stats.blocked)))?;
    for row in blocked {
        let Some(blocked) = &row.blocked else { continue };
        line(format!("      {}  {} {}", row.id, row.name, version(&row.version)))?;
        line(format!(
            "        {} (since {}, tried {} times)",
            blocked.reason,
            moment(blocked.since_ms),
            blocked.attempts
        ))?;
        line(format!("        {}", remedy(blocked)))?;
    }
    Ok(())
}

fn findings(stats: &StoreStats, is_still: bool) -> Vec<String> {
    let mut findings = Vec::new();
    if stats.lag_ms > LATE_MS {
        let lag = span(stats.lag_ms);
        findings.push(format!(
            "something has been due for {lag}: no runtime seems to run on this store; start one"
        ));
    }
    if is_still {
        let inbox = count(stats.inbox);
        findings.push(format!("messages wait ({inbox}) and nothing moves: start a runtime on this store"));
    }
    if stats.asks.rows > 0 {
        let asks = count(stats.asks);
        findings.push(format!(
            "questions without an answer: {asks}; a runtime answers them, or sweeps them later"
        ));
    }
    findings
}

/// What to do about a blocked instance, by the code of what blocks it.
fn remedy(blocked: &Blocked) -> &'static str {
    match blocked.code.as_str() {
        "PER-0101" => {
            "remedy: its history cannot be read; keep a copy of the store, then terminate the instance"
        }
        "PER-0102" | "PER-0103" => {
            "remedy: check that this store is served by the newest program that wrote to it"
        }
        "PER-0201" => "remedy: mend the panic, start the program again, and `perennial retry` it",
        "PER-0202" => "remedy: await only what the context gives; move other waiting into an activity",
        "PER-0203" => {
            "remedy: `perennial show` tells where code and record differ; gate the change with patched()"
        }
        "PER-0204" => "remedy: continue as new earlier, or keep payloads elsewhere and pass references",
        "PER-0205" => "remedy: move the long computation into an activity",
        "PER-0301" => "remedy: register that orchestration and version, and start the program again",
        "PER-0302" => "remedy: mend what ends the process, then `perennial retry` it",
        _ => "remedy: `perennial show` has the whole report; when mended, `perennial retry` it",
    }
}
