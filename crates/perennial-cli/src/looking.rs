//! Commands that look: list, show, history, tree, export.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use perennial::history::TraceContext;
use perennial::history::{Decision, Event, EventKind, Job, Reset, Turn};
use perennial::{
    Attributes, Blocked, Client, ClientError, Ending, ExportedInstance, Filter, History, InstanceKey,
    InstanceRow, InstanceStatus, PageKey, Payload, Status, StoreError, Tree,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::Executions;
use crate::attempts::{Tried, tried};
use crate::exit::{ExitKind, Failure};
use crate::output::{
    columns, fitting, is_terminal, line, many, moment, now_ms, object, pairs, progress, span, table,
};
use crate::remedy::remedy;
use crate::timeline;
use crate::waiting::waiting_for;

/// How many instances an export reads at a time.
const PAGE: usize = 200;

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
            created_ms: status.created_ms,
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
        ("started", moment(status.created_ms)),
    ];
    if let Some(ended_ms) = ended_ms {
        let took = span(ended_ms.saturating_sub(status.created_ms));
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

/// An event on a line of its own.
#[derive(Serialize)]
struct EventLine<'a> {
    execution: u64,
    turn: u64,
    at_ms: u64,
    #[serde(flatten)]
    event: &'a Event,
}

pub(crate) async fn history(
    client: &Client,
    id: &str,
    executions: Option<Executions>,
    as_json: bool,
    as_timeline: bool,
) -> Result<(), Failure> {
    let current = client.status(id).await?.execution;
    match executions {
        Some(Executions::One(execution)) if execution == 0 || execution > current => {
            let message = format!("instance {id:?} has no execution {execution}; the latest is {current}");
            Err(Failure::new(ExitKind::NotFound, message))
        }
        Some(Executions::One(execution)) => {
            let history = client.history_of(id, execution).await?;
            show_history(id, (execution, current), &history, as_json, as_timeline)
        }
        None => {
            let history = client.history_of(id, current).await?;
            show_history(id, (current, current), &history, as_json, as_timeline)
        }
        Some(Executions::All) => {
            for execution in 1..=current {
                match client.history_of(id, execution).await {
                    Ok(history) => {
                        show_history(id, (execution, current), &history, as_json, as_timeline)?;
                    }
                    // Executions are deleted oldest first.
                    Err(ClientError::NoExecution { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }
}

/// Shows one execution of those that an instance has had.
fn show_history(
    id: &str,
    (execution, current): (u64, u64),
    history: &History,
    as_json: bool,
    as_timeline: bool,
) -> Result<(), Failure> {
    if as_json {
        for turn in history {
            for event in &turn.events {
                object(&EventLine { execution, turn: turn.number, at_ms: turn.at_ms, event })?;
            }
        }
        return Ok(());
    }
    if current > 1 {
        line(format!("execution {execution} of {current}"))?;
    }
    if as_timeline {
        let drawn = timeline::draw(id, history, now_ms(), None);
        return drawn.iter().try_for_each(|drawn| line(drawn.trim_end()));
    }
    history_table(history)
}

fn history_table(history: &History) -> Result<(), Failure> {
    let Some(first) = history.turns.first() else {
        return line("nothing is recorded yet");
    };
    line(format!("began {}", moment(first.at_ms)))?;
    let mut shown = columns(&[">turn", ">after", ">event", "what"]);
    for turn in history {
        for (place, event) in turn.events.iter().enumerate() {
            let at_first = |text: String| if place == 0 { text } else { String::new() };
            shown.add_row([
                at_first(turn.number.to_string()),
                at_first(span(turn.at_ms.saturating_sub(first.at_ms))),
                event.id.to_string(),
                event_words(event),
            ]);
        }
    }
    table(&shown)
}

/// An event in words, with moments as people read them.
fn event_words(event: &Event) -> String {
    match &event.kind {
        EventKind::Decision { decision: Decision::TimerCreated { due_ms }, .. } => {
            format!("TimerCreated due {}", moment(*due_ms))
        }
        _ if is_terminal() => event.summary(),
        _ => event.full_summary(),
    }
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

/// Writes histories to standard output, or to a file, which is replaced only once all of them are there.
pub(crate) async fn export(
    client: &Client,
    ids: &[String],
    filter: Filter,
    path: Option<&Path>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        return export_to(client, ids, filter, &mut BufWriter::new(std::io::stdout())).await.map(drop);
    };
    let at = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    // Of a device or a pipe there is nothing to replace.
    let is_file = std::fs::metadata(path).map_or(true, |found| found.is_file());
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = if is_file { Path::new(&part) } else { path };
    let mut out = BufWriter::new(File::create(part).map_err(|error| at(part, error))?);
    let outcome = export_to(client, ids, filter, &mut out).await;
    drop(out);
    if is_file {
        let settled = if outcome.is_ok() { std::fs::rename(part, path) } else { std::fs::remove_file(part) };
        settled.map_err(|error| at(path, error))?;
    }
    outcome.map(|written| eprintln!("exported {written} instances"))
}

/// Writes histories, and says of how many instances.
async fn export_to(
    client: &Client,
    ids: &[String],
    filter: Filter,
    out: &mut impl Write,
) -> Result<u64, Failure> {
    let bar = progress(None, "instances exported");
    for id in ids {
        bar.inc(export_one(client.export(id).await?, out)?);
    }
    let mut after = None;
    while ids.is_empty() {
        let page = client.list(filter.clone(), after, PAGE).await?;
        for row in page.rows {
            match client.export(&row.id).await {
                Ok(instance) => bar.inc(export_one(instance, out)?),
                // It was deleted since it was listed.
                Err(ClientError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(bar.position())
}

/// Writes an instance as the replay check of the test kit reads it. One of which nothing is recorded yet is left out.
fn export_one(mut instance: ExportedInstance, out: &mut impl Write) -> Result<u64, Failure> {
    instance.executions.retain(|execution| !execution.turns.is_empty());
    if instance.executions.is_empty() {
        return Ok(0);
    }
    let text = serde_json::to_string(&instance).map_err(Failure::failed)?;
    writeln!(out, "{text}")?;
    Ok(1)
}
