//! `list`, `show` and `tree`: instances and where they stand.

use perennial::client::{Blocked, ExportedInstance, InstanceRow, PageKey, Tree};
use perennial::history::TraceContext;
use perennial::history::{Attributes, Ending, History, Job, Reset, Turn};
use perennial::{Client, ClientError, Filter, InstanceKey, InstanceStatus, Payload, Status, StoreError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::attempts::{Tried, tried};
use crate::exit::Failure;
use crate::output::{columns, fitting, line, many, moment, object, pairs, span, table};
use crate::remedy::remedy;
use crate::waiting::waiting_for;

pub(crate) async fn list(
    client: &Client,
    filter: Filter,
    limit: usize,
    after: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let after = after.map(str::parse::<PageKey>).transpose().map_err(Failure::usage)?;
    let page = client.list(filter, after, limit).await?;
    if as_json {
        return page.rows.iter().try_for_each(|row| object(&row_object(row)));
    }
    if page.rows.is_empty() {
        return line("no instances");
    }
    let mut shown = columns(&["id", "orchestration", "version", "status", ">execution", "started", "took"]);
    for row in &page.rows {
        let status = match &row.blocked {
            Some(blocked) if blocked.pause.is_some() => format!("{}, paused", row.status.name()),
            Some(blocked) => format!("{}, blocked {}", row.status.name(), blocked.code),
            None => row.status.name().to_owned(),
        };
        shown.add_row([
            fitting(&row.id, 60),
            row.name.clone(),
            version(&row.version).to_owned(),
            status,
            row.execution.to_string(),
            moment(row.created_ms),
            row.ended_ms.map_or_else(String::new, |ended_ms| span(ended_ms.saturating_sub(row.created_ms))),
        ]);
    }
    table(&shown)?;
    for row in &page.rows {
        if let Some(blocked) = row.blocked.as_ref().filter(|blocked| blocked.event.is_some()) {
            line(format!("\n{} is blocked by an event: {}", row.id, remedy(&row.id, &row.name, blocked)))?;
        }
    }
    if let (Some(_), Some(last)) = (page.next, page.rows.last()) {
        line(format!("\nmore: --after {}", last.key))?;
    }
    Ok(())
}

/// A version that is not settled before the first turn is the latest.
pub(crate) fn version(version: &str) -> &str {
    if version.is_empty() { "latest" } else { version }
}

/// A row as programs get it. Payloads are written as they are recorded.
#[derive(Serialize)]
pub(crate) struct RowObject<'a> {
    id: &'a str,
    key: InstanceKey,
    name: &'a str,
    version: &'a str,
    status: Status,
    execution: u64,
    blocked: Option<&'a Blocked>,
    attributes: &'a Attributes,
    published: Option<&'a Payload>,
    parent: Option<&'a str>,
    created_ms: u64,
    ended_ms: Option<u64>,
}

pub(crate) fn row_object(row: &InstanceRow) -> RowObject<'_> {
    RowObject {
        id: &row.id,
        key: row.key,
        name: &row.name,
        version: &row.version,
        status: row.status,
        execution: row.execution,
        blocked: row.blocked.as_ref(),
        attributes: &row.attributes,
        published: row.published.as_ref(),
        parent: row.parent.as_ref().map(|link| &*link.instance),
        created_ms: row.created_ms,
        ended_ms: row.ended_ms,
    }
}

/// One instance as programs get it.
#[derive(Serialize)]
struct ShownObject<'a> {
    #[serde(flatten)]
    row: RowObject<'a>,
    /// Absent if the history is damaged.
    turns: Option<usize>,
    events: Option<usize>,
    input: Option<&'a Payload>,
    output: Option<&'a Payload>,
    error: Option<&'a Payload>,
    reason: Option<&'a str>,
    waits_for: Vec<String>,
    /// Activities that were tried more than once, failed or are retried.
    activities: Vec<Tried<'a>>,
    trace: Option<&'a TraceContext>,
    /// What to do about what blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// Why there is no history to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

pub(crate) async fn show(client: &Client, id: &str, as_json: bool) -> Result<(), Failure> {
    let status = client.status(id).await?;
    // Of an instance that is damaged there is at least the row to show.
    let (history, tasks, damage) = match (client.history(id).await, client.tasks(id).await) {
        (Ok(history), Ok(tasks)) => (history, tasks, None),
        (Err(ClientError::Store { source: damage @ StoreError::CorruptRow(_), .. }), _)
        | (_, Err(ClientError::Store { source: damage @ StoreError::CorruptRow(_), .. })) => {
            (History::default(), Vec::new(), Some(damage.to_string()))
        }
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
    };
    let tried = tried(&history, &tasks);
    let started = history.started();
    let trace = started.and_then(|started| started.trace.as_deref());
    let parent = started.and_then(|started| started.parent.as_ref());
    let ended_ms = history.turns.last().filter(|_| status.status.is_final()).map(|turn| turn.at_ms);
    let (output, error, reason) = match history.ending() {
        Some(Ending::OrchestrationCompleted { output }) => (Some(output), None, None),
        Some(Ending::OrchestrationFailed { error }) => (None, Some(error), None),
        Some(Ending::OrchestrationCancelled { reason, .. } | Ending::OrchestrationTerminated { reason }) => {
            (None, None, Some(reason))
        }
        Some(Ending::OrchestrationContinuedAsNew { .. }) | None => (None, None, None),
    };
    let events = history.flatten().count();
    if as_json {
        let row = RowObject {
            id: &status.id,
            key: status.key,
            name: &status.name,
            version: &status.version,
            status: status.status,
            execution: status.execution,
            blocked: status.blocked.as_ref(),
            attributes: &status.attributes,
            published: status.published.as_ref(),
            parent: parent.map(|link| &*link.instance),
            created_ms: status.created.as_millis(),
            ended_ms,
        };
        let input = started.map(|started| &started.input);
        let (turns, events) = damage.is_none().then_some((history.turns.len(), events)).unzip();
        let reason = reason.map(String::as_str);
        let waits_for = waiting_for(&history);
        let activities = tried;
        return object(&ShownObject {
            row,
            turns,
            events,
            input,
            output,
            error,
            reason,
            waits_for,
            activities,
            trace,
            remedy: status.blocked.as_ref().map(|blocked| remedy(&status.id, &status.name, blocked)),
            damage,
        });
    }
    let mut rows = vec![
        ("id", status.id.clone()),
        ("key", status.key.to_string()),
        ("orchestration", format!("{} {}", status.name, version(&status.version))),
        ("status", status.status.name().to_owned()),
        ("execution", status.execution.to_string()),
        ("started", moment(status.created.as_millis())),
    ];
    if let Some(ended_ms) = ended_ms {
        let took = span(ended_ms.saturating_sub(status.created.as_millis()));
        rows.push(("ended", format!("{}, after {took}", moment(ended_ms))));
    }
    rows.extend(started.and_then(|started| started.reset.as_ref()).map(|reset| {
        let Reset { execution, turn, at_ms, why, .. } = &**reset;
        ("reset", format!("to turn {turn} of execution {execution}, {}, {why}", moment(*at_ms)))
    }));
    rows.extend(last_resume(&history).map(|words| ("resumed", words)));
    rows.extend(parent.map(|link| ("parent", link.instance.clone())));
    // Of a damaged history nobody can say how long it is.
    if damage.is_none() {
        let (turns, events) = (many(history.turns.len() as u64, "turn"), many(events as u64, "event"));
        rows.push(("history", format!("{turns}, {events}")));
    }
    for (name, value) in &status.attributes {
        rows.push(("attribute", format!("{name} = {}", value.as_json())));
    }
    rows.extend(status.published.as_ref().map(|published| ("published", published.to_text())));
    rows.extend(started.map(|started| ("input", fitting(started.input.as_json(), 400))));
    rows.extend(output.map(|output| ("output", fitting(output.as_json(), 400))));
    rows.extend(error.map(|error| ("error", fitting(error.as_json(), 400))));
    rows.extend(reason.map(|reason| ("reason", reason.clone())));
    rows.extend(waiting_for(&history).into_iter().map(|what| ("waits for", what)));
    rows.extend(trace.map(|trace| ("trace", trace.parent.clone())));
    rows.extend(trace.and_then(|trace| trace.state.clone()).map(|state| ("trace state", state)));
    rows.extend(tried.iter().flat_map(Tried::lines).map(|line| ("attempts", line)));
    rows.extend(damage.map(|damage| ("damage", damage)));
    if let Some(blocked) = &status.blocked {
        match &blocked.pause {
            Some(pause) => {
                rows.push(("paused", format!("since {}, {}", moment(blocked.since_ms), pause.why)));
            }
            None => {
                let tried = many(blocked.attempts.into(), "time");
                rows.push(("blocked", format!("since {}, tried {tried}", moment(blocked.since_ms))));
            }
        }
        rows.push(("remedy", remedy(&status.id, &status.name, blocked)));
    }
    table(&pairs(rows))?;
    if let Some(blocked) = &status.blocked {
        line(format!("\n{}", blocked.report.trim_end()))?;
    }
    Ok(())
}

/// The last time that the instance was resumed, and the pause that it ended. The history has those before.
fn last_resume(history: &History) -> Option<String> {
    let of_turn = |turn: &Turn| {
        turn.jobs().find_map(|(_, job)| match job {
            Job::InstanceResumed { why, paused_ms, paused } => {
                Some(format!("{}, {why}; it was paused {}, {paused}", moment(turn.at_ms), moment(*paused_ms)))
            }
            _ => None,
        })
    };
    history.turns.iter().rev().find_map(of_turn)
}

pub(crate) async fn tree(client: &Client, id: &str, as_json: bool) -> Result<(), Failure> {
    let tree = client.tree(id).await?;
    if as_json {
        return object(&tree_object(&tree));
    }
    line(tree_line(&tree.instance))?;
    branches(&tree, "")
}

fn tree_object(tree: &Tree) -> Value {
    let InstanceStatus { id, key, name, version, status, execution, .. } = &tree.instance;
    let children: Vec<Value> = tree.children.iter().map(tree_object).collect();
    json!({
        "id": id, "key": key, "name": name, "version": version, "status": status, "execution": execution,
        "blocked": tree.instance.blocked.as_ref().map(|blocked| &blocked.code), "children": children,
    })
}

fn tree_line(instance: &InstanceStatus) -> String {
    let blocked =
        instance.blocked.as_ref().map_or_else(String::new, |blocked| format!(", blocked {}", blocked.code));
    let version = version(&instance.version);
    format!("{}  {} {version}  {}{blocked}", instance.id, instance.name, instance.status.name())
}

fn branches(tree: &Tree, indent: &str) -> Result<(), Failure> {
    for (place, child) in tree.children.iter().enumerate() {
        let is_last = place + 1 == tree.children.len();
        let (knee, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        line(format!("{indent}{knee}{}", tree_line(&child.instance)))?;
        branches(child, &format!("{indent}{below}"))?;
    }
    Ok(())
}
