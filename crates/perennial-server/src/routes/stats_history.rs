//! Starts and ends over time, and how long instances took, counted from the store.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::Method;
use perennial::{Client, Filter, InstanceKey, InstanceView, Status, Timestamp};
use serde::Serialize;

use super::handler;
use super::stats::{CountView, count_schema};
use crate::ask::Ask;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, component, integer, map, object, string, time};

/// How many instances are read to count starts, and for how long.
const SCANNED: u64 = 50_000;
const SCAN_TIME: Duration = Duration::from_millis(500);
/// Keys contain the time of the caller's clock, which may differ from the store's by so much.
const CLOCK_SLACK_MS: u64 = 600_000;
/// How many of those that ended last are measured.
const MEASURED: usize = 1_000;

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![
        get(
            "stats/history",
            "getStatsHistory",
            "How many instances were started and ended, by bucket of time.",
            handler!(history),
        )
        .cost(Cost::Heavy)
        .takes(&[
            parameter("from_ms", Kind::Number(0, u64::MAX >> 12), "The begin; an hour ago if not given."),
            parameter("to_ms", Kind::Number(0, u64::MAX >> 12), "The end; now if not given."),
            parameter("buckets", Kind::Number(1, 200), "How many buckets; 60 if not given."),
        ])
        .answers(&[json(200, "The buckets.", history_schema)]),
        get(
            "stats/durations",
            "getDurations",
            "How long the instances took that ended last, by orchestration.",
            handler!(durations),
        )
        .cost(Cost::Heavy)
        .answers(&[json(200, "Of about 1,000 instances.", durations_schema)]),
    ]
}

fn history_schema() -> Schema {
    let bucket =
        object(&[("from_ms", time()), ("started", map(count_schema())), ("ended", map(count_schema()))], &[]);
    let members = [
        ("buckets", array(component("StatsBucket", bucket))),
        ("width_ms", integer()),
        ("scanned", integer()),
        ("partial", boolean()),
    ];
    component("StatsHistory", object(&members, &[("started_from_ms", time())]))
}

#[derive(Serialize)]
struct Bucket {
    from_ms: u64,
    /// Instances that were started then, by their current status.
    started: BTreeMap<&'static str, CountView>,
    /// Instances that ended then, by how.
    ended: BTreeMap<&'static str, CountView>,
}

#[derive(Serialize)]
struct Buckets {
    buckets: Vec<Bucket>,
    width_ms: u64,
    scanned: u64,
    /// Whether starts were not counted to the begin: those of buckets before `started_from_ms` are not known.
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_from_ms: Option<u64>,
}

/// Ends are counted by an index, exactly up to 10,000 in each bucket. Starts are read, the newest first, within the limits
/// of a scan.
async fn history(ask: Ask) -> Answered {
    let client = ask.client()?;
    let to_ms = match ask.query.number("to_ms") {
        Some(to_ms) => to_ms,
        None => client.now().await?.as_millis().saturating_add(1),
    };
    let from_ms = ask.query.number("from_ms").unwrap_or(to_ms.saturating_sub(3_600_000));
    if from_ms >= to_ms {
        return Err(Problem::bad_request("from_ms is not before to_ms"));
    }
    let width_ms = (to_ms - from_ms).div_ceil(ask.query.number("buckets").unwrap_or(60));
    // Aligned, so that a bucket has the same bounds in every answer.
    let from_ms = from_ms - from_ms % width_ms;
    let mut buckets = Vec::new();
    let mut begin = from_ms;
    while begin < to_ms {
        let end = (begin + width_ms).min(to_ms);
        let ended = ended_between(&client, begin, end).await?;
        buckets.push(Bucket { from_ms: begin, started: BTreeMap::new(), ended });
        begin = end;
    }
    let began = Instant::now();
    let mut after =
        Some(InstanceKey::new(to_ms.saturating_add(CLOCK_SLACK_MS).min(u64::MAX >> 16), u128::MAX));
    let (mut scanned, mut oldest_ms) = (0, to_ms);
    let mut is_complete = false;
    while !is_complete && scanned < SCANNED && began.elapsed() < SCAN_TIME {
        let page = client.list(Filter::new().newest_first(true), after, 500).await?;
        scanned += page.rows.len() as u64;
        for row in &page.rows {
            let at_ms = row.created.as_millis();
            oldest_ms = row.key.created_ms();
            let place = at_ms.checked_sub(from_ms).filter(|_| at_ms < to_ms).map(|at_ms| at_ms / width_ms);
            let bucket = place.and_then(|place| buckets.get_mut(usize::try_from(place).ok()?));
            if let Some(bucket) = bucket {
                bucket.started.entry(row.status.name()).or_default().add();
            }
        }
        after = page.next;
        is_complete = after.is_none() || oldest_ms.saturating_add(CLOCK_SLACK_MS) < from_ms;
    }
    let started_from_ms = (!is_complete).then_some(oldest_ms);
    ask.ok(&Buckets { buckets, width_ms, scanned, partial: !is_complete, started_from_ms })
}

async fn ended_between(
    client: &Client,
    from_ms: u64,
    before_ms: u64,
) -> Result<BTreeMap<&'static str, CountView>, Problem> {
    let between = || {
        let (from, before) = (Timestamp::from_millis(from_ms), Timestamp::from_millis(before_ms));
        Filter::new().ended_from(from).ended_before(before)
    };
    let mut ended = BTreeMap::new();
    // Most buckets of a quiet store are empty.
    if client.count(between()).await?.rows == 0 {
        return Ok(ended);
    }
    for status in Status::ALL.into_iter().filter(|status| status.is_final()) {
        let count = client.count(between().status(status)).await?;
        if count.rows > 0 {
            ended.insert(status.name(), CountView::from(count));
        }
    }
    Ok(ended)
}

fn durations_schema() -> Schema {
    let row = object(
        &[
            ("name", string()),
            ("ended", integer()),
            ("failed", integer()),
            ("p50_ms", integer()),
            ("p95_ms", integer()),
            ("p99_ms", integer()),
            ("max_ms", integer()),
        ],
        &[],
    );
    let members = [
        ("rows", array(component("Duration", row))),
        ("of", integer()),
        ("from_ms", time()),
        ("at_ms", time()),
    ];
    component("Durations", object(&members, &[]))
}

#[derive(Serialize)]
struct Durations {
    rows: Vec<DurationRow>,
    /// How many were measured.
    of: usize,
    /// All that were measured ended since then.
    from_ms: u64,
    at_ms: u64,
}

#[derive(Serialize)]
struct DurationRow {
    name: String,
    ended: usize,
    failed: usize,
    p50_ms: u64,
    p95_ms: u64,
    p99_ms: u64,
    max_ms: u64,
}

async fn durations(ask: Ask) -> Answered {
    const WINDOWS_MS: [u64; 8] =
        [60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000, u64::MAX];
    let client = ask.client()?;
    let at_ms = client.now().await?.as_millis();
    // The shortest time in which enough of them ended.
    let mut from_ms = 0;
    for window_ms in WINDOWS_MS {
        from_ms = at_ms.saturating_sub(window_ms);
        let count = client.count(Filter::new().ended_from(Timestamp::from_millis(from_ms))).await?;
        if count.more || count.rows >= MEASURED as u64 {
            break;
        }
    }
    let (mut after, mut rows) = (None, Vec::new());
    loop {
        let filter = Filter::new().ended_from(Timestamp::from_millis(from_ms)).newest_first(true);
        let page = client.list(filter, after, 500).await?;
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() || rows.len() >= 2 * MEASURED {
            break;
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.ended));
    rows.truncate(MEASURED);
    let from_ms = rows.last().and_then(|row| row.ended).map_or(from_ms, Timestamp::as_millis);
    ask.ok(&Durations { of: rows.len(), rows: by_name(&rows), from_ms, at_ms })
}

fn by_name(rows: &[InstanceView]) -> Vec<DurationRow> {
    let mut times: BTreeMap<&str, (Vec<u64>, usize)> = BTreeMap::new();
    for row in rows {
        let Some(ended) = row.ended else { continue };
        let (times, failed) = times.entry(&row.name).or_default();
        times.push(ended.as_millis().saturating_sub(row.created.as_millis()));
        *failed += usize::from(row.status == Status::Failed);
    }
    let mut rows: Vec<DurationRow> = times
        .into_iter()
        .map(|(name, (mut times, failed))| {
            times.sort_unstable();
            let count = times.len();
            let percentile = |of: usize| times[(count * of).div_ceil(100).clamp(1, count) - 1];
            let (p50_ms, p95_ms, p99_ms) = (percentile(50), percentile(95), percentile(99));
            DurationRow {
                name: name.to_owned(),
                ended: count,
                failed,
                p50_ms,
                p95_ms,
                p99_ms,
                max_ms: times[count - 1],
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.ended));
    rows
}
