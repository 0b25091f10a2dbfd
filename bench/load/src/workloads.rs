//! The workloads.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use perennial::{Client, Payload};

use crate::figures::{Latencies, Report, median};
use crate::fleet::{Outcome, Place, Site, number, runtime};
use crate::postgres;

/// A new, empty store for one run.
pub(crate) async fn fresh(place: &Place, name: &str) -> Outcome<Site> {
    let site = place.fresh(name);
    site.clear().await?;
    Ok(site)
}

/// Starts `count` instances, `in_flight` at a time, and waits for each.
pub(crate) async fn run_many(
    client: &Client,
    name: &str,
    prefix: &str,
    count: u64,
    in_flight: usize,
    input: &Payload,
) -> Outcome<()> {
    let run = |index: u64| {
        let (client, id, input) = (client.clone(), format!("{prefix}-{index}"), input.clone());
        let name = name.to_owned();
        async move {
            client.start(&name, &id, input).await?;
            client.result(&id).await.map(|_| ())
        }
    };
    let mut running = stream::iter((0..count).map(run)).buffer_unordered(in_flight);
    while let Some(done) = running.next().await {
        done?;
    }
    Ok(())
}

pub(crate) async fn hello(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let mut rates = Vec::new();
    for run in 0..runs {
        let site = fresh(place, &format!("hello-{run}")).await?;
        let runtime = runtime(&site).await?;
        let client = runtime.client();
        run_many(&client, "hello", "warm", count / 10, 128, &Payload::null()).await?;
        let begun = Instant::now();
        run_many(&client, "hello", "hello", count, 128, &Payload::null()).await?;
        rates.push(count as f64 / begun.elapsed().as_secs_f64());
        runtime.shutdown().await?;
        site.clear().await?;
    }
    Ok(vec![Report::new("hello", place.name(), "instances/s", rates).with("in_flight", 128)])
}

pub(crate) async fn sequence(place: &Place, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let mut reports = Vec::new();
    for steps in [10, 100, 1_000, 10_000] {
        let steps = (steps / scale).max(1);
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for run in 0..runs {
            let site = fresh(place, &format!("sequence-{steps}-{run}")).await?;
            let runtime = runtime(&site).await?;
            let client = runtime.client();
            run_many(&client, "sequence", "warm", 3, 1, &number(20)).await?;
            let begun = Instant::now();
            run_many(&client, "sequence", "sequence", 1, 1, &number(steps)).await?;
            rates.push(steps as f64 / begun.elapsed().as_secs_f64());
            if steps >= 10_000 {
                ratios.push(late_against_early(&client).await?);
            }
            runtime.shutdown().await?;
            site.clear().await?;
        }
        let report = Report::new("sequence", place.name(), "steps/s", rates).with("steps", steps);
        reports.push(if ratios.is_empty() { report } else { report.with("late_to_early", median(&ratios)) });
    }
    Ok(reports)
}

/// The ratio of the mean step among 9,001–10,000 to that among 1–1,000, by the recorded times of the turns.
async fn late_against_early(client: &Client) -> Outcome<f64> {
    let history = client.history("sequence-0").await?;
    let at: Vec<u64> = history.turns.iter().map(|turn| turn.at_ms).collect();
    let span = |from: usize, to: usize| (at[to] - at[from]).max(1) as f64;
    Ok(span(9_000, 10_000) / span(0, 1_000))
}

pub(crate) async fn fanout(place: &Place, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let mut reports = Vec::new();
    for width in [1_000, 10_000] {
        let width = width / scale;
        let mut seconds = Vec::new();
        for run in 0..runs {
            let site = fresh(place, &format!("fanout-{width}-{run}")).await?;
            let runtime = runtime(&site).await?;
            let client = runtime.client();
            run_many(&client, "fanout", "warm", 1, 1, &number(100)).await?;
            let begun = Instant::now();
            run_many(&client, "fanout", "fanout", 1, 1, &number(width)).await?;
            seconds.push(begun.elapsed().as_secs_f64());
            runtime.shutdown().await?;
            site.clear().await?;
        }
        reports.push(Report::new("fanout", place.name(), "seconds", seconds).with("width", width));
    }
    Ok(reports)
}

pub(crate) async fn parallel(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let mut rates = Vec::new();
    for run in 0..runs {
        let site = fresh(place, &format!("parallel-{run}")).await?;
        let runtime = runtime(&site).await?;
        let client = runtime.client();
        run_many(&client, "fanout", "warm", count / 10, 20, &number(5)).await?;
        let begun = Instant::now();
        run_many(&client, "fanout", "parallel", count, 20, &number(5)).await?;
        rates.push(count as f64 / begun.elapsed().as_secs_f64());
        runtime.shutdown().await?;
        site.clear().await?;
    }
    let activities = 5.0 * median(&rates);
    Ok(vec![Report::new("parallel", place.name(), "instances/s", rates).with("activities_per_s", activities)])
}

pub(crate) async fn latency(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let site = fresh(place, &format!("latency-{run}")).await?;
        let runtime = runtime(&site).await?;
        let client = runtime.client();
        run_many(&client, "hello", "warm", 20, 1, &Payload::null()).await?;
        let mut latencies = Latencies::new();
        for index in 0..count {
            let (id, begun) = (format!("latency-{index}"), Instant::now());
            client.start("hello", &id, Payload::null()).await?;
            client.result(&id).await?;
            latencies.record(begun.elapsed());
        }
        p50.push(latencies.ms(0.5));
        p99.push(latencies.ms(0.99));
        runtime.shutdown().await?;
        site.clear().await?;
    }
    Ok(vec![Report::new("latency", place.name(), "ms p50", p50).with("p99_ms", median(&p99))])
}

pub(crate) async fn signal(place: &Place, runs: usize, count: u64) -> Outcome<Vec<Report>> {
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let site = fresh(place, &format!("signal-{run}")).await?;
        let runtime = runtime(&site).await?;
        let client = runtime.client();
        let mut latencies = Latencies::new();
        for index in 0..count + 20 {
            let id = format!("signal-{index}");
            client.start("signal", &id, Payload::null()).await?;
            let begun = Instant::now();
            client.raise_event(&id, "go", Payload::null()).await?;
            client.result(&id).await?;
            if index >= 20 {
                latencies.record(begun.elapsed());
            }
        }
        p50.push(latencies.ms(0.5));
        p99.push(latencies.ms(0.99));
        runtime.shutdown().await?;
        site.clear().await?;
    }
    Ok(vec![Report::new("signal", place.name(), "ms p50", p50).with("p99_ms", median(&p99))])
}

pub(crate) async fn timers(place: &Place, runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let mut reports = Vec::new();
    for count in [5_000, 100_000] {
        let count = count / scale;
        let (mut p99, mut p50, mut totals) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..runs.min(if count > 10_000 { 1 } else { runs }) {
            let site = fresh(place, &format!("timers-{count}-{run}")).await?;
            let runtime = runtime(&site).await?;
            let client = runtime.client();
            let begun = Instant::now();
            let mut lateness = Latencies::new();
            let sleep = |index: u64| {
                let (client, id) = (client.clone(), format!("timer-{index}"));
                async move {
                    client.start("sleeper", &id, number(2_000)).await?;
                    client.result(&id).await
                }
            };
            let mut sleeping: FuturesUnordered<_> = (0..count).map(sleep).collect();
            while let Some(late) = sleeping.next().await {
                lateness.record(Duration::from_millis(late?.decode()?));
            }
            totals.push(begun.elapsed().as_secs_f64());
            p50.push(lateness.ms(0.5));
            p99.push(lateness.ms(0.99));
            runtime.shutdown().await?;
            site.clear().await?;
        }
        let report = Report::new("timers", place.name(), "ms late p99", p99);
        reports
            .push(report.with("count", count).with("p50_ms", median(&p50)).with("total_s", median(&totals)));
    }
    Ok(reports)
}

pub(crate) async fn cold(place: &Place, runs: usize, steps: u64) -> Outcome<Vec<Report>> {
    let mut ms = Vec::new();
    for run in 0..runs {
        let site = fresh(place, &format!("cold-{run}")).await?;
        if !site.is_durable() {
            return Ok(Vec::new());
        }
        // A sequence of half as many steps as events, which then waits for an event that is never raised.
        let first = runtime(&site).await?;
        let client = first.client();
        client.start("sequence", "cold", number(steps + 1)).await?;
        while client.history("cold").await?.turns.len() < steps as usize {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(first);
        let second = runtime(&site).await?;
        let begun = Instant::now();
        second.client().result("cold").await?;
        ms.push(begun.elapsed().as_secs_f64() * 1_000.0);
        second.shutdown().await?;
        site.clear().await?;
    }
    Ok(vec![Report::new("cold", place.name(), "ms", ms).with("events", steps * 2)])
}

pub(crate) async fn sleepers(place: &Place, count: u64) -> Outcome<Vec<Report>> {
    let site = fresh(place, "sleepers").await?;
    if !site.is_durable() {
        return Ok(Vec::new());
    }
    let first = runtime(&site).await?;
    let client = first.client();
    let start = |index: u64| {
        let (client, id) = (client.clone(), format!("sleeper-{index}"));
        async move { client.start("sleeper", &id, number(30 * 86_400_000)).await }
    };
    let mut starting = stream::iter((0..count).map(start)).buffer_unordered(512);
    while let Some(started) = starting.next().await {
        started?;
    }
    drop(starting);
    first.shutdown().await?;
    let (before, begun) = (resident_bytes(), Instant::now());
    let second = runtime(&site).await?;
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let over_empty = resident_bytes().saturating_sub(before) as f64 / 1e6;
    let disk = site.disk_bytes().await? as f64 / 1e6;
    second.shutdown().await?;
    site.clear().await?;
    Ok(vec![
        Report::new("sleepers", place.name(), "s to open", vec![seconds])
            .with("count", count)
            .with("rss_over_empty_mb", over_empty)
            .with("disk_mb", disk),
    ])
}

pub(crate) async fn idle(place: &Place) -> Outcome<Vec<Report>> {
    let site = fresh(place, "idle").await?;
    let runtime = runtime(&site).await?;
    run_many(&runtime.client(), "hello", "warm", 10, 1, &Payload::null()).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let queries = match place.server() {
        Some(server) => Some(postgres::transactions(server).await?),
        None => None,
    };
    let (before, begun) = (cpu_seconds(), Instant::now());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let percent = (cpu_seconds() - before) / seconds * 100.0;
    runtime.shutdown().await?;
    site.clear().await?;
    let report = Report::new("idle", place.name(), "% of a core", vec![percent]);
    Ok(vec![match (place.server(), queries) {
        (Some(server), Some(queries)) => {
            let queries = postgres::transactions(server).await?.saturating_sub(queries);
            report.with("transactions_per_s", queries as f64 / seconds)
        }
        _ => report,
    }])
}

/// The resident memory of this process, as reported by the kernel.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

/// The CPU time of this process, as reported by the kernel.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
