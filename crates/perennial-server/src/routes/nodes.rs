//! Nodes, shards, and the orchestrations that nodes have.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use perennial::client::{NodeView, ShardView};
use perennial::{Filter, Status, Timestamp};
use serde::Serialize;

use super::handler;
use super::stats::{CountView, count_schema};
use crate::ask::Ask;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, component, integer, nullable, object, reference, string, time};

const DAY_MS: u64 = 86_400_000;
/// How many open instances are read to find versions that no node has any more.
const OPEN_ROWS: usize = 500;

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![
        get("nodes", "listNodes", "The nodes of the store.", handler!(nodes)).answers(&[json(
            200,
            "The nodes.",
            nodes_schema,
        )]),
        get("shards", "listShards", "The owner of each shard, and how late its work is.", handler!(shards))
            .cost(Cost::Heavy)
            .answers(&[json(200, "The shards.", shards_schema)]),
        get(
            "orchestrations",
            "listOrchestrations",
            "Names and versions, which nodes have them, and which instances need them.",
            handler!(orchestrations),
        )
        .cost(Cost::Heavy)
        .takes(&[parameter(
            "since_ms",
            Kind::Number(0, u64::MAX >> 12),
            "Since when starts are counted; since midnight (UTC) if not given.",
        )])
        .answers(&[json(200, "One row per name and version.", orchestrations_schema)]),
    ]
}

fn nodes_schema() -> Schema {
    component("Nodes", object(&[("nodes", array(reference("Node"))), ("at_ms", time())], &[]))
}

async fn nodes(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Nodes {
        nodes: Vec<NodeView>,
        at_ms: u64,
    }
    let client = ask.client()?;
    let nodes = client.nodes().await?;
    ask.ok(&Nodes { nodes, at_ms: client.now().await?.as_millis() })
}

fn shards_schema() -> Schema {
    let shard = object(
        &[
            ("shard", integer()),
            ("node", nullable(string())),
            ("unowned_since_ms", nullable(time())),
            ("lag_ms", integer()),
        ],
        &[],
    );
    let members = [("shards", array(component("Shard", shard))), ("lag_ms", integer())];
    component("Shards", object(&members, &[]))
}

async fn shards(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Shards {
        shards: Vec<ShardView>,
        /// Of the whole store.
        lag_ms: u64,
    }
    let client = ask.client()?;
    let shards = client.shards().await?;
    ask.ok(&Shards { shards, lag_ms: client.stats().await?.lag_ms })
}

fn orchestrations_schema() -> Schema {
    let row = object(
        &[
            ("name", string()),
            ("version", string()),
            ("nodes", array(string())),
            ("open", count_schema()),
            ("blocked", count_schema()),
            ("started", count_schema()),
            ("is_needed", boolean()),
        ],
        &[("oldest_ms", time()), ("last_start_ms", time())],
    );
    let members = [("orchestrations", array(component("OrchestrationVersion", row))), ("since_ms", time())];
    component("Orchestrations", object(&members, &[]))
}

#[derive(Serialize)]
struct Row {
    name: String,
    version: String,
    nodes: BTreeSet<String>,
    open: CountView,
    blocked: CountView,
    /// How many of the newest were started since the given time, up to 10,000.
    started: CountView,
    /// Whether an open instance is pinned to this version.
    is_needed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_start_ms: Option<u64>,
}

async fn orchestrations(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Rows {
        orchestrations: Vec<Row>,
        since_ms: u64,
    }
    let client = ask.client()?;
    let now_ms = client.now().await?.as_millis();
    let since_ms = ask.query.number("since_ms").unwrap_or(now_ms - now_ms % DAY_MS);
    let mut known: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for node in client.nodes().await?.into_iter().filter(|node| node.is_live) {
        for registered in node.orchestrations {
            known.entry(registered).or_default().insert(node.id.clone());
        }
    }
    // Versions that no node has any more, of the oldest open instances and of blocked ones.
    let open = || Filter::new().statuses([Status::Pending, Status::Running]);
    for filter in [open(), open().blocked(true)] {
        for row in client.list(filter, None, OPEN_ROWS).await?.rows {
            known.entry((row.name, row.version)).or_default();
        }
    }
    let mut orchestrations = Vec::new();
    for ((name, version), nodes) in known {
        let of_version = || Filter::new().orchestration(name.as_str()).version(version.as_str());
        let open = || of_version().statuses([Status::Pending, Status::Running]);
        let oldest = client.list(open(), None, 1).await?;
        let newest = client.list(of_version().newest_first(true), None, 1).await?;
        let last_start_ms = newest.rows.first().map(|row| row.created.as_millis());
        let is_recent = last_start_ms.is_some_and(|last_ms| last_ms >= since_ms);
        let started = match is_recent {
            true => client.count(of_version().created_from(Timestamp::from_millis(since_ms))).await?,
            false => perennial::client::Count { rows: 0, more: false },
        };
        orchestrations.push(Row {
            open: client.count(open()).await?.into(),
            blocked: client.count(open().blocked(true)).await?.into(),
            started: started.into(),
            is_needed: !oldest.rows.is_empty(),
            oldest_ms: oldest.rows.first().map(|row| row.created.as_millis()),
            last_start_ms,
            nodes,
            name: name.clone(),
            version: version.clone(),
        });
    }
    ask.ok(&Rows { orchestrations, since_ms })
}
