//! Counts: now, and by the time of the start.

use std::collections::BTreeMap;

use axum::http::Method;
use perennial::client::Count;
use perennial::{Client, Filter, Status, Timestamp};
use serde::Serialize;

use super::handler;
use crate::ask::Ask;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, integer, map, object, time};

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![
        get("stats", "getStats", "Row counts and scheduling lag.", handler!(stats)).answers(&[json(
            200,
            "The counts.",
            stats_schema,
        )]),
        get(
            "stats/history",
            "getStatsHistory",
            "How many instances were started, by bucket of time.",
            handler!(stats_history),
        )
        .cost(Cost::Heavy)
        .takes(&[
            parameter("from_ms", Kind::Number(0, u64::MAX >> 12), "The begin; an hour ago if not given."),
            parameter("to_ms", Kind::Number(0, u64::MAX >> 12), "The end; now if not given."),
            parameter("buckets", Kind::Number(1, 100), "How many buckets; 60 if not given."),
        ])
        .answers(&[json(200, "The buckets.", stats_history_schema)]),
    ]
}

pub(crate) fn count_schema() -> Schema {
    object(&[("rows", integer()), ("more", boolean())], &[])
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct CountView {
    rows: u64,
    more: bool,
}

impl From<Count> for CountView {
    fn from(count: Count) -> CountView {
        CountView { rows: count.rows, more: count.more }
    }
}

pub(crate) fn stats_schema() -> Schema {
    let count = count_schema;
    object(
        &[
            ("instances", map(count())),
            ("blocked", count()),
            ("inbox", count()),
            ("tasks_queued", count()),
            ("tasks_leased", count()),
            ("tasks_waiting", count()),
            ("requests", count()),
            ("lag_ms", integer()),
        ],
        &[],
    )
}

/// Row counts, with the same names as `perennial top --json`.
#[derive(Serialize)]
pub(crate) struct StatsView {
    instances: BTreeMap<&'static str, CountView>,
    blocked: CountView,
    inbox: CountView,
    tasks_queued: CountView,
    tasks_leased: CountView,
    tasks_waiting: CountView,
    requests: CountView,
    lag_ms: u64,
}

impl StatsView {
    pub(crate) async fn read(client: &Client) -> Result<StatsView, Problem> {
        let stats = client.stats().await?;
        Ok(StatsView {
            instances: stats
                .instances
                .iter()
                .map(|(status, count)| (status.name(), (*count).into()))
                .collect(),
            blocked: stats.blocked.into(),
            inbox: stats.inbox.into(),
            tasks_queued: stats.tasks_queued.into(),
            tasks_leased: stats.tasks_leased.into(),
            tasks_waiting: stats.tasks_waiting.into(),
            requests: stats.requests.into(),
            lag_ms: stats.lag_ms,
        })
    }
}

async fn stats(ask: Ask) -> Answered {
    let stats = StatsView::read(&ask.client()?).await?;
    ask.ok(&stats)
}

fn stats_history_schema() -> Schema {
    let bucket = object(&[("from_ms", time()), ("started", map(count_schema()))], &[]);
    object(&[("buckets", array(bucket)), ("width_ms", integer())], &[])
}

/// Instances by the time of their start and their current status. Exact up to 10,000 in each bucket.
async fn stats_history(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Bucket {
        from_ms: u64,
        started: BTreeMap<&'static str, CountView>,
    }
    #[derive(Serialize)]
    struct Buckets {
        buckets: Vec<Bucket>,
        width_ms: u64,
    }
    let client = ask.client()?;
    let to_ms = match ask.query.number("to_ms") {
        Some(to_ms) => to_ms,
        None => client.now().await?.as_millis(),
    };
    let from_ms = ask.query.number("from_ms").unwrap_or(to_ms.saturating_sub(3_600_000));
    if from_ms >= to_ms {
        return Err(Problem::bad_request("from_ms is not before to_ms"));
    }
    let width_ms = (to_ms - from_ms).div_ceil(ask.query.number("buckets").unwrap_or(60));
    let mut buckets = Vec::new();
    let mut begin = from_ms;
    while begin < to_ms {
        let end = (begin + width_ms).min(to_ms);
        let mut started = BTreeMap::new();
        for status in Status::ALL {
            let filter = Filter::new()
                .status(status)
                .created_from(Timestamp::from_millis(begin))
                .created_before(Timestamp::from_millis(end));
            let count = client.count(filter).await?;
            if count.rows > 0 {
                started.insert(status.name(), CountView::from(count));
            }
        }
        buckets.push(Bucket { from_ms: begin, started });
        begin = end;
    }
    ask.ok(&Buckets { buckets, width_ms })
}
