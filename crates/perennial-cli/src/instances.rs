//! `list`, `show` and `tree`: instances and their status.

use std::collections::BTreeMap;

use perennial::client::{InstanceDetails, PageKey, Tree};
use perennial::explain::{Wait, WaitReason};
use perennial::history::{History, Job, Reset, Turn};
use perennial::{Client, ClientError, ErrorCode, Filter, InstanceKey, InstanceView, StoreError};
use serde::Serialize;

use crate::attempts::{self, Tried, tried};
use crate::exit::Failure;
use crate::output::{columns, fitting, line, lines, many, moment, object, pairs, span, table};
use crate::remedy::{by_code, remedy};
use crate::store::StoreAt;

pub(crate) async fn list(
    store: &StoreAt,
    client: &Client,
    filter: Filter,
    limit: usize,
    after: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let after = after.map(str::parse::<PageKey>).transpose().map_err(Failure::usage)?;
    let page = client.list(filter, after, limit).await?;
    let explained = client.explain_each(&page.rows).await?;
    if as_json {
        return page.rows.iter().zip(&explained).try_for_each(|(instance, explained)| {
            object(&ListedObject { instance, waits_for: &explained.waits, more_waits: explained.more })
        });
    }
    if page.rows.is_empty() {
        return line("no instances");
    }
    let mut shown =
        columns(&["id", "orchestration", "version", "status", ">execution", "started", "took", "waits for"]);
    for (row, explained) in page.rows.iter().zip(&explained) {
        let status = match &row.blocked {
            Some(blocked) if blocked.pause.is_some() => format!("{}, paused", row.status.name()),
            Some(blocked) => format!("{}, blocked {}", row.status.name(), blocked.code),
            None if row.missing_code.is_some() => format!("{}, waiting for code", row.status.name()),
            None => row.status.name().to_owned(),
        };
        shown.add_row([
            fitting(&row.id, 60),
            row.name.clone(),
            version(&row.version).to_owned(),
            status,
            row.execution.to_string(),
            moment(row.created.as_millis()),
            row.ended.map_or_else(String::new, |ended| {
                span(ended.as_millis().saturating_sub(row.created.as_millis()))
            }),
            fitting(&explained.short(), 60),
        ]);
    }
    table(&shown)?;
    for row in &page.rows {
        if let Some(blocked) = row.blocked.as_ref().filter(|blocked| blocked.event.is_some()) {
            let remedy = store.advice(&remedy(&row.id, &row.name, blocked));
            line("")?;
            line(format!("{} is blocked by an event: {remedy}", row.id))?;
        }
    }
    if let (Some(_), Some(last)) = (page.next, page.rows.last()) {
        line("")?;
        line(format!("more: --after {}", last.key))?;
    }
    Ok(())
}

/// The version is not pinned before the first turn; then it is the latest.
pub(crate) fn version(version: &str) -> &str {
    if version.is_empty() { "latest" } else { version }
}

/// A row of a list as JSON.
#[derive(Serialize)]
struct ListedObject<'a> {
    #[serde(flatten)]
    instance: &'a InstanceView,
    waits_for: &'a [Wait],
    /// The number of open operations that are not listed.
    more_waits: usize,
}

/// One instance as JSON: what the HTTP API answers with, and the activities of its whole history.
#[derive(Serialize)]
struct ShownObject<'a> {
    #[serde(flatten)]
    details: &'a InstanceDetails,
    /// Activities that were retried, failed, or wait for a retry.
    activities: Vec<Tried<'a>>,
    /// The remedy, if the instance is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub(crate) async fn show(store: &StoreAt, id: &str, as_json: bool) -> Result<(), Failure> {
    let client = &store.open_to_look()?;
    let mut details = client.details(id).await?;
    let client = &client.bound_to(details.instance.key);
    // A damaged instance is shown with its row only.
    let (history, tasks) = match (client.history(id).await, client.tasks(id).await) {
        (Ok(history), Ok(tasks)) if details.damage.is_none() => (history, tasks),
        (Ok(_), Ok(_)) => (History::default(), Vec::new()),
        (Err(ClientError::Store { source: damage @ StoreError::CorruptRow(_), .. }), _)
        | (_, Err(ClientError::Store { source: damage @ StoreError::CorruptRow(_), .. })) => {
            details.set_damage(damage.to_string());
            (History::default(), Vec::new())
        }
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
    };
    let tried = tried(&history, &tasks);
    let InstanceDetails { instance: status, output, error, reason, trace, waits_for, .. } = &details;
    if as_json {
        let advice = |blocked| store.advice(&remedy(&status.id, &status.name, blocked));
        let remedy = status.blocked.as_ref().map(advice);
        return object(&ShownObject { details: &details, activities: tried, remedy });
    }
    let started = history.started();
    let parent = started.and_then(|started| started.parent.as_ref());
    let mut rows = vec![
        ("id", status.id.clone()),
        ("key", status.key.to_string()),
        ("orchestration", format!("{} {}", status.name, version(&status.version))),
        ("status", status.status.name().to_owned()),
        ("execution", status.execution.to_string()),
        ("started", moment(status.created.as_millis())),
    ];
    if let Some(ended) = status.ended {
        let took = span(ended.as_millis().saturating_sub(status.created.as_millis()));
        rows.push(("ended", format!("{}, after {took}", moment(ended.as_millis()))));
    }
    rows.extend(started.and_then(|started| started.reset.as_ref()).map(|reset| {
        let Reset { execution, turn, at_ms, why, .. } = &**reset;
        ("reset", format!("to turn {turn} of execution {execution}, {}, {why}", moment(*at_ms)))
    }));
    rows.extend(last_resume(&history).map(|words| ("resumed", words)));
    rows.extend(parent.map(|link| ("parent", link.instance.clone())));
    // The length of a damaged history is unknown.
    if let (Some(turns), Some(events)) = (details.turns, details.events) {
        rows.push(("history", format!("{}, {}", many(turns, "turn"), many(events, "event"))));
    }
    for (name, value) in &status.attributes {
        rows.push(("attribute", format!("{name} = {}", value.as_json())));
    }
    rows.extend(status.published.as_ref().map(|published| ("published", published.to_text())));
    rows.extend(started.map(|started| ("input", fitting(started.input.as_json(), 400))));
    rows.extend(output.as_ref().map(|output| ("output", fitting(output.as_json(), 400))));
    rows.extend(error.as_ref().map(|error| ("error", fitting(error.as_json(), 400))));
    rows.extend(reason.as_ref().map(|reason| ("reason", reason.clone())));
    let why = why_it_waits(status, waits_for).into_iter();
    rows.extend(why.map(|(label, text)| (label, store.advice(&text))));
    let more = details.more_waits;
    rows.extend((more > 0).then(|| ("waits for", format!("{more} more operations"))));
    rows.extend(details.untaken_text().map(|untaken| ("unread", untaken)));
    rows.extend(trace.as_ref().map(|trace| ("trace", trace.parent.clone())));
    let state = trace.as_ref().and_then(|trace| trace.state.clone());
    rows.extend(state.map(|state| ("trace state", state)));
    rows.extend(attempts::latest(&tried).into_iter().map(|line| ("attempts", line)));
    rows.extend(damage_rows(store, status, details.damage.clone()));
    table(&pairs(rows))?;
    if let Some(blocked) = &status.blocked {
        line("")?;
        lines(blocked.report.trim_end())?;
    }
    Ok(())
}

/// What is damaged, with a remedy unless that of the block is shown.
fn damage_rows(
    store: &StoreAt,
    status: &InstanceView,
    damage: Option<String>,
) -> Vec<(&'static str, String)> {
    let Some(damage) = damage else { return Vec::new() };
    let advice = status.blocked.is_none().then(|| store.advice(by_code(Some(ErrorCode::CorruptRow))));
    [("damage", damage)].into_iter().chain(advice.map(|advice| ("remedy", advice))).collect()
}

/// Why the instance does not move. A block or a pause comes first: the waits of a blocked instance are not what keeps it
/// from moving, so they are left out.
fn why_it_waits(status: &InstanceView, waits: &[Wait]) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(blocked) = &status.blocked {
        let since = moment(blocked.since_ms);
        match &blocked.pause {
            Some(pause) => rows.push(("paused", format!("since {since}, {}", pause.why))),
            None => {
                let tried = many(blocked.attempts.into(), "time");
                rows.push(("blocked", format!("since {since}, tried {tried}: {}", blocked.code)));
            }
        }
        rows.push(("remedy", remedy(&status.id, &status.name, blocked)));
    }
    let is_blocked = status.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_none());
    for wait in waits {
        if matches!(wait.reason, WaitReason::Blocked { .. } | WaitReason::Paused { .. }) {
            continue;
        }
        if wait.reason.is_state() || !is_blocked {
            rows.push((if wait.reason.is_state() { "because" } else { "waits for" }, wait.text.clone()));
            rows.extend(wait.remedy.clone().map(|remedy| ("remedy", remedy)));
        }
    }
    rows
}

/// The most recent resume of the instance, and the pause that it ended. Earlier ones are in the history.
fn last_resume(history: &History) -> Option<String> {
    let of_turn = |turn: &Turn| {
        turn.jobs().find_map(|(_, job)| match job {
            Job::InstanceResumed { why, paused_ms, paused } => {
                Some(format!("{}, {why}; paused {}, {paused}", moment(turn.at_ms), moment(*paused_ms)))
            }
            _ => None,
        })
    };
    history.turns.iter().rev().find_map(of_turn)
}

pub(crate) async fn tree(client: &Client, id: &str, as_json: bool) -> Result<(), Failure> {
    let tree = client.tree(id).await?;
    if as_json {
        return object(&tree);
    }
    let open = instances(&tree).into_iter().filter(|instance| !instance.status.is_final());
    let open: Vec<InstanceView> = open.take(EXPLAINED).collect();
    let explained = client.explain_each(&open).await?;
    let waits = explained.iter().filter(|explained| !explained.waits.is_empty());
    let waits = waits.map(|explained| (explained.key, fitting(&explained.short(), 60))).collect();
    line(tree_line(&tree.instance, &waits))?;
    branches(&tree, &waits, "")
}

/// The number of instances of a tree whose waits are printed.
const EXPLAINED: usize = 100;

fn instances(tree: &Tree) -> Vec<InstanceView> {
    let below = tree.children.iter().flat_map(instances);
    std::iter::once(tree.instance.clone()).chain(below).collect()
}

fn tree_line(instance: &InstanceView, waits: &BTreeMap<InstanceKey, String>) -> String {
    let blocked = instance.blocked.as_ref().map_or_else(String::new, |blocked| match blocked.pause {
        Some(_) => ", paused".to_owned(),
        None => format!(", blocked {}", blocked.code),
    });
    let version = version(&instance.version);
    let waits = waits.get(&instance.key).map_or_else(String::new, |waits| format!("  waits for {waits}"));
    format!("{}  {} {version}  {}{blocked}{waits}", instance.id, instance.name, instance.status.name())
}

fn branches(tree: &Tree, waits: &BTreeMap<InstanceKey, String>, indent: &str) -> Result<(), Failure> {
    for (place, child) in tree.children.iter().enumerate() {
        let is_last = place + 1 == tree.children.len();
        let (knee, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        line(format!("{indent}{knee}{}", tree_line(&child.instance, waits)))?;
        branches(child, waits, &format!("{indent}{below}"))?;
    }
    Ok(())
}
