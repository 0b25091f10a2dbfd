//! Counts now.

use std::collections::BTreeMap;

use axum::http::Method;
use perennial::client::{Count, RuntimePresence};
use perennial::{Client, Filter};
use serde::Serialize;

use super::handler;
use crate::ask::Ask;
use crate::problem::Problem;
use crate::route::{Answered, Route, json};
use crate::schema::{Schema, boolean, component, integer, map, nullable, object, time};

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![get("stats", "getStats", "Row counts and scheduling lag.", handler!(stats)).answers(&[json(
        200,
        "The counts.",
        stats_schema,
    )])]
}

pub(crate) fn count_schema() -> Schema {
    component("Count", object(&[("rows", integer()), ("more", boolean())], &[]))
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CountView {
    rows: u64,
    more: bool,
}

impl CountView {
    /// Counts one more.
    pub(crate) fn add(&mut self) {
        self.rows += 1;
    }
}

impl From<Count> for CountView {
    fn from(count: Count) -> CountView {
        CountView { rows: count.rows, more: count.more }
    }
}

pub(crate) fn stats_schema() -> Schema {
    let runtime = object(&[("live", integer()), ("last_seen_ms", nullable(time()))], &[]);
    let count = count_schema;
    let stats = object(
        &[
            ("instances", map(count())),
            ("blocked", count()),
            ("paused", count()),
            ("waiting_for_code", count()),
            ("inbox", count()),
            ("tasks_queued", count()),
            ("tasks_leased", count()),
            ("tasks_waiting", count()),
            ("requests", count()),
            ("lag_ms", integer()),
            ("runtime", component("RuntimePresence", runtime)),
        ],
        &[],
    );
    component("Stats", stats)
}

/// Row counts, with the same names as `perennial top --json`.
#[derive(Debug, Serialize)]
pub(crate) struct StatsView {
    instances: BTreeMap<&'static str, CountView>,
    /// As `GET blocked` counts them.
    blocked: CountView,
    paused: CountView,
    waiting_for_code: CountView,
    inbox: CountView,
    tasks_queued: CountView,
    tasks_leased: CountView,
    tasks_waiting: CountView,
    requests: CountView,
    lag_ms: u64,
    runtime: RuntimePresence,
}

impl StatsView {
    pub(crate) async fn read(client: &Client) -> Result<StatsView, Problem> {
        let stats = client.stats().await?;
        let (blocked, paused) = match stats.blocked.rows {
            0 => (stats.blocked, stats.blocked),
            _ => {
                let blocked = client.count(Filter::new().blocked(true).paused(false)).await?;
                (blocked, client.count(Filter::new().paused(true)).await?)
            }
        };
        let others = stats.blocked.rows.saturating_sub(blocked.rows + paused.rows);
        Ok(StatsView {
            instances: stats
                .instances
                .iter()
                .map(|(status, count)| (status.name(), (*count).into()))
                .collect(),
            blocked: blocked.into(),
            paused: paused.into(),
            waiting_for_code: Count { rows: others, more: stats.blocked.more }.into(),
            inbox: stats.inbox.into(),
            tasks_queued: stats.tasks_queued.into(),
            tasks_leased: stats.tasks_leased.into(),
            tasks_waiting: stats.tasks_waiting.into(),
            requests: stats.requests.into(),
            lag_ms: stats.lag_ms,
            runtime: client.runtime_presence().await?,
        })
    }
}

async fn stats(ask: Ask) -> Answered {
    let stats = StatsView::read(&ask.client()?).await?;
    ask.ok(&stats)
}
