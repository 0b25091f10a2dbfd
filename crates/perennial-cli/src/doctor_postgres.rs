//! `perennial doctor` on PostgreSQL: the server, the schema, its nodes, and its rows.

use std::time::Instant;

use perennial::ErrorCode;
use perennial::store::shown_url;
use perennial_postgres::{Content, Inspection, inspect};
use perennial_sqlite::UnreadableMessage;
use serde_json::{Value, json};

use crate::doctor::{
    BEHIND_MS, Instances, Sign, findings, message_signs, moved_sign, problem, schema_sign, size, stats_signs,
    tell,
};
use crate::exit::{ExitKind, Failure};
use crate::output::{line, many, now_ms, object, span};
use crate::store::StoreAt;
use crate::top::stats_object;

/// Runs all checks. Each problem is printed with a remedy.
pub(crate) async fn run(store: &StoreAt, url: &str, as_json: bool) -> Result<(), Failure> {
    let shown = shown_url(url);
    let (asked, before_ms) = (Instant::now(), now_ms());
    let found = inspect(url).await.map_err(perennial::Error::from)?;
    // The server read its clock about halfway.
    let here_ms = before_ms.saturating_add(asked.elapsed().as_millis() as u64 / 2);
    let mut signs =
        vec![server_sign(&found), schema_sign(found.schema, found.known_schema, "the schema is empty")];
    signs.extend(safety_signs(&found));
    signs.extend(checksum_sign(&found));
    signs.extend(clock_sign(found.now_ms, here_ms));
    let (mut stats, mut instances) = (None, Instances::default());
    if let Some(content) = &found.content {
        let client = store.open_to_look()?;
        let counted = client.stats().await?;
        let is_owned = content.nodes.iter().any(|(node, _)| node.owns_shards);
        signs.extend(moved_sign(&client).await?);
        signs.extend(node_signs(content));
        signs.push(Sign::Ok(format!("{} of tables and indexes", size(content.bytes))));
        let rows = rows_of(content);
        signs.extend(stats_signs(&counted, &rows, is_owned));
        signs.extend(message_signs(&rows));
        instances = Instances::read(&client, &mut signs).await?;
        stats = Some(counted);
    }
    let is_healthy = instances.are_healthy(&signs);
    if as_json {
        let content = found.content.as_ref();
        let nodes = content.map(|content| content.nodes.iter().map(node_object).collect::<Vec<Value>>());
        object(&json!({
            "store": shown,
            "healthy": is_healthy,
            "server": found.server,
            "unsafe_settings": found.unsafe_settings,
            "data_checksums": found.has_data_checksums,
            "clock_ahead_ms": i128::from(found.now_ms) - i128::from(here_ms),
            "schema": {"name": found.schema_name, "store": found.schema, "known": found.known_schema},
            "nodes": nodes,
            "owned_shards": content.map(|content| content.owned_shards),
            "database_bytes": content.map(|content| content.bytes),
            "stats": stats.as_ref().map(stats_object),
            "findings": findings(store, &signs),
            "stuck": instances.stuck,
            "blocked": instances.blocked_objects(store),
        }))?;
    } else {
        line(format!("ok    {shown} can be read"))?;
        signs.iter().try_for_each(|sign| tell(store, sign))?;
        if stats.is_some() {
            instances.tell_blocked(store)?;
        }
    }
    if is_healthy { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

fn server_sign(found: &Inspection) -> Sign {
    Sign::Ok(format!("the server is PostgreSQL {}, the schema is {:?}", found.server, found.schema_name))
}

/// A server that does not sync is a risk for every acknowledged commit.
fn safety_signs(found: &Inspection) -> Vec<Sign> {
    if found.unsafe_settings.is_empty() {
        return vec![Sign::Ok("the server syncs every commit".to_owned())];
    }
    let sign = |name: &String| {
        let effect = match name.as_str() {
            "synchronous_commit" => "a crash of the server loses commits that were acknowledged",
            _ => "a crash of the server's machine can damage the whole database",
        };
        // The other settings can only be changed for the whole server.
        let role = if name == "synchronous_commit" { ", or for this role and database," } else { "" };
        problem(
            format!("{name} is off on the server: {effect}"),
            format!("set {name} = on in postgresql.conf{role} and reload the server"),
        )
    };
    found.unsafe_settings.iter().map(sign).collect()
}

/// The store has checksums of bodies and turns. Those of the server cover everything else.
fn checksum_sign(found: &Inspection) -> Option<Sign> {
    (!found.has_data_checksums).then(|| Sign::Note {
        what: "the server has no checksums of its pages: damage by the disk may stay unnoticed".to_owned(),
        remedy: "stop the server, and turn them on with `pg_checksums --enable`".to_owned(),
    })
}

/// The store's time is the server's. This machine's clock matters only to people who compare the two.
fn clock_sign(there_ms: u64, here_ms: u64) -> Vec<Sign> {
    let apart_ms = there_ms.abs_diff(here_ms);
    if apart_ms <= BEHIND_MS {
        return vec![Sign::Ok(format!("the server's clock is {} from this machine's", span(apart_ms)))];
    }
    let side = if there_ms > here_ms { "behind" } else { "ahead of" };
    vec![Sign::Note {
        what: format!(
            "this machine's clock is {} {side} the server's ({})",
            span(apart_ms),
            ErrorCode::ClockFarOff
        ),
        remedy: "correct the wrong one (NTP); timers follow the server's clock".to_owned(),
    }]
}

fn node_signs(content: &Content) -> Vec<Sign> {
    let named = |(node, shards): &(perennial::store::NodeInfo, u64)| {
        format!("{} (process {} on {}, {})", node.name, node.process, node.host, many(*shards, "shard"))
    };
    let names: Vec<String> = content.nodes.iter().map(named).collect();
    let mut signs = Vec::new();
    match (names.len() as u64, content.owed) {
        (0, 0) if content.expired == 0 => {
            signs.push(Sign::Ok("no runtime uses the store; the last one was shut down".to_owned()));
        }
        (0, 0) => signs.push(problem(
            "no runtime uses the store; the last one ended without a shutdown",
            "start the program again; it continues where that process stopped",
        )),
        (0, owed) => signs.push(problem(
            format!("no runtime uses the store; instances with activities to run: {owed}"),
            "start the program",
        )),
        (count, _) => signs.push(Sign::Ok(format!("{}: {}", many(count, "live node"), names.join(", ")))),
    }
    let owns = content.nodes.iter().any(|(node, _)| node.owns_shards);
    let free = (perennial::store::SHARDS as u64).saturating_sub(content.owned_shards);
    if owns && free > 0 {
        signs.push(Sign::Note {
            what: format!("{} without a live owner", many(free, "shard")),
            remedy: "live nodes take them over within the lease of the last owner and a second".to_owned(),
        });
    }
    signs
}

/// The findings about rows, in the form that both kinds of stores share.
fn rows_of(content: &Content) -> perennial_sqlite::Content {
    let mut rows = perennial_sqlite::Content::default();
    rows.oldest_overdue.clone_from(&content.oldest_overdue);
    rows.owed = content.owed;
    rows.queued.clone_from(&content.queued);
    rows.waiting = content.waiting;
    let unreadable = content.unreadable.iter().cloned();
    rows.unreadable = unreadable
        .map(|(number, instance, is_newer)| UnreadableMessage { number, instance, is_newer })
        .collect();
    rows
}

fn node_object((node, shards): &(perennial::store::NodeInfo, u64)) -> Value {
    json!({"name": node.name, "host": node.host, "process": node.process, "version": node.version, "shards": shards})
}
