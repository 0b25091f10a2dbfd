//! The store as a whole: blocked causes, nodes, shards, orchestrations, findings, search.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use perennial::client::{NodeView, ShardView};
use perennial::explain::StuckReport;
use perennial::{ClientError, Filter, InstanceView, Status};
use serde::Serialize;

use super::handler;
use super::stats::{CountView, count_schema};
use crate::ask::Ask;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, array, boolean, integer, named, nullable, object, reference, string, time};
use crate::segment;

/// How many rows are read to group blocked instances.
const BLOCKED_ROWS: usize = 10_000;
/// How many instances of a cause are named.
const SAMPLES: usize = 5;
/// How many places a search returns.
const PLACES: usize = 20;

pub(crate) fn routes() -> Vec<Route> {
    let get = |path, name, about, handler| Route::new(Method::GET, path, name, about, handler);
    vec![
        get("blocked", "listCauses", "Blocked instances by cause.", handler!(blocked))
            .cost(Cost::Heavy)
            .answers(&[json(200, "One row per cause.", causes_schema)]),
        get("nodes", "listNodes", "The nodes of the store.", handler!(nodes)).answers(&[json(
            200,
            "The nodes.",
            nodes_schema,
        )]),
        get("shards", "listShards", "The owner of each shard.", handler!(shards))
            .cost(Cost::Heavy)
            .answers(&[json(200, "The shards.", shards_schema)]),
        get(
            "orchestrations",
            "listOrchestrations",
            "Names and versions, and which nodes have them.",
            handler!(orchestrations),
        )
        .cost(Cost::Heavy)
        .answers(&[json(200, "One row per name and version.", orchestrations_schema)]),
        get(
            "doctor",
            "getFindings",
            "Work that does not go on without help, each with its remedy.",
            handler!(doctor),
        )
        .cost(Cost::Heavy)
        .answers(&[json(200, "The findings.", doctor_schema)]),
        get("search", "search", "Up to 20 places for an id, a prefix, a key or a name.", handler!(search))
            .takes(&[parameter("q", Kind::Text, "The text.")])
            .answers(&[json(200, "The places.", search_schema)]),
    ]
}

fn causes_schema() -> Schema {
    let cause = object(
        &[
            ("code", string()),
            ("cause", string()),
            ("name", string()),
            ("version", string()),
            ("count", integer()),
            ("first_ms", time()),
            ("last_ms", time()),
            ("samples", array(string())),
        ],
        &[("difference", string()), ("location", string())],
    );
    object(&[("causes", array(cause)), ("partial", boolean())], &[])
}

#[derive(Serialize)]
struct Cause {
    code: String,
    cause: String,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    count: u64,
    first_ms: u64,
    last_ms: u64,
    samples: Vec<String>,
}

async fn blocked(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Causes {
        causes: Vec<Cause>,
        partial: bool,
    }
    let client = ask.client()?;
    let mut causes: BTreeMap<(String, String, String, String), Cause> = BTreeMap::new();
    let (mut after, mut read) = (None, 0);
    loop {
        let page = client.list(Filter::new().blocked(true).paused(false), after, 500).await?;
        read += page.rows.len();
        page.rows.iter().for_each(|row| note_cause(&mut causes, row));
        after = page.next;
        if after.is_none() || read >= BLOCKED_ROWS {
            break;
        }
    }
    let mut causes: Vec<Cause> = causes.into_values().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    ask.ok(&Causes { causes, partial: after.is_some() })
}

fn note_cause(causes: &mut BTreeMap<(String, String, String, String), Cause>, row: &InstanceView) {
    let Some(blocked) = &row.blocked else { return };
    let place = (blocked.code.clone(), row.name.clone(), row.version.clone(), blocked.cause.clone());
    let divergence = blocked.divergence.as_ref();
    let cause = causes.entry(place).or_insert_with(|| Cause {
        code: blocked.code.clone(),
        cause: blocked.cause.clone(),
        name: row.name.clone(),
        version: row.version.clone(),
        difference: divergence.map(|divergence| divergence.difference.clone()),
        location: divergence.and_then(|divergence| divergence.location.clone()),
        count: 0,
        first_ms: blocked.since_ms,
        last_ms: blocked.since_ms,
        samples: Vec::new(),
    });
    cause.count += 1;
    cause.first_ms = cause.first_ms.min(blocked.since_ms);
    cause.last_ms = cause.last_ms.max(blocked.since_ms);
    if cause.samples.len() < SAMPLES {
        cause.samples.push(row.id.clone());
    }
}

fn nodes_schema() -> Schema {
    object(&[("nodes", array(reference("Node")))], &[])
}

async fn nodes(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Nodes {
        nodes: Vec<NodeView>,
    }
    let nodes = ask.client()?.nodes().await?;
    ask.ok(&Nodes { nodes })
}

fn shards_schema() -> Schema {
    let shard = object(
        &[("shard", integer()), ("node", nullable(string())), ("unowned_since_ms", nullable(time()))],
        &[],
    );
    object(&[("shards", array(shard))], &[])
}

async fn shards(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Shards {
        shards: Vec<ShardView>,
    }
    let shards = ask.client()?.shards().await?;
    ask.ok(&Shards { shards })
}

fn orchestrations_schema() -> Schema {
    let row = object(
        &[("name", string()), ("version", string()), ("nodes", array(string())), ("open", count_schema())],
        &[("last_start_ms", time())],
    );
    object(&[("orchestrations", array(row))], &[])
}

async fn orchestrations(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Row {
        name: String,
        version: String,
        nodes: BTreeSet<String>,
        open: CountView,
        #[serde(skip_serializing_if = "Option::is_none")]
        last_start_ms: Option<u64>,
    }
    #[derive(Serialize)]
    struct Rows {
        orchestrations: Vec<Row>,
    }
    let client = ask.client()?;
    let mut known: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for node in client.nodes().await?.into_iter().filter(|node| node.is_live) {
        for registered in node.orchestrations {
            known.entry(registered).or_default().insert(node.id.clone());
        }
    }
    // Versions that no node has any more, of the oldest open instances.
    let open = Filter::new().statuses([Status::Pending, Status::Running]);
    for row in client.list(open, None, 500).await?.rows {
        known.entry((row.name, row.version)).or_default();
    }
    let mut orchestrations = Vec::new();
    for ((name, version), nodes) in known {
        let of_version = Filter::new().orchestration(name.as_str()).version(version.as_str());
        let open = of_version.clone().statuses([Status::Pending, Status::Running]);
        let open = CountView::from(client.count(open).await?);
        let newest = client.list(of_version.newest_first(true), None, 1).await?;
        let last_start_ms = newest.rows.first().map(|row| row.created.as_millis());
        orchestrations.push(Row { name, version, nodes, open, last_start_ms });
    }
    ask.ok(&Rows { orchestrations })
}

fn doctor_schema() -> Schema {
    let finding = object(
        &[
            ("kind", string()),
            ("text", string()),
            ("remedy", string()),
            ("count", integer()),
            ("instances", array(string())),
        ],
        &[],
    );
    let findings = array(finding);
    let members = [
        ("at_ms", time()),
        ("findings", findings.clone()),
        ("waiting", findings),
        ("is_complete", boolean()),
    ];
    object(&members, &[])
}

async fn doctor(ask: Ask) -> Answered {
    let mut report: StuckReport = ask.client()?.find_stuck().await?;
    if ask.hides_payloads() {
        // The texts quote errors of activities.
        for finding in &mut report.findings {
            finding.text = finding.text.split(" with ").next().unwrap_or_default().to_owned();
        }
    }
    ask.ok(&report)
}

fn search_schema() -> Schema {
    let place =
        object(&[("kind", named(&["instance", "orchestration"])), ("name", string()), ("at", string())], &[]);
    object(&[("places", array(place))], &[])
}

async fn search(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Place {
        kind: &'static str,
        name: String,
        at: String,
    }
    #[derive(Serialize)]
    struct Places {
        places: Vec<Place>,
    }
    let client = ask.client()?;
    let text = ask.query.text("q").unwrap_or_default().trim();
    let mut places: Vec<Place> = Vec::new();
    let instance = |id: &str| Place {
        kind: "instance",
        name: id.to_owned(),
        at: format!("instances/{}", segment::encode(id)),
    };
    if !text.is_empty() {
        let children = match text.parse::<perennial::InstanceKey>() {
            // A key names an instance and, as a parent, its children.
            Ok(key) => client.list(Filter::new().parent(key), None, PLACES).await?.rows,
            Err(_) => Vec::new(),
        };
        let begun = client.list(Filter::new().id_prefix(text).newest_first(true), None, PLACES).await?.rows;
        match client.status(text).await {
            Ok(view) => places.push(instance(&view.id)),
            Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        places
            .extend(begun.iter().chain(&children).filter(|row| row.id != text).map(|row| instance(&row.id)));
        let names: BTreeSet<String> = client
            .nodes()
            .await?
            .into_iter()
            .flat_map(|node| node.orchestrations)
            .map(|(name, _)| name)
            .collect();
        places.extend(names.into_iter().filter(|name| name.contains(text)).map(|name| Place {
            at: format!("instances?name={}", segment::encode(&name)),
            kind: "orchestration",
            name,
        }));
    }
    places.truncate(PLACES);
    ask.ok(&Places { places })
}
