//! Commands that look: list, show, history, tree, export.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use perennial::explain::{Wait, WaitReason};
use perennial::history::TraceContext;
use perennial::history::{Decision, Event, EventKind, Job, Reset, Turn};
use perennial::{
    Client, ClientError, Ending, ExportedInstance, Filter, History, InstanceKey, InstanceView, PageKey,
    Payload, StoreError, Tree,
};
use serde::Serialize;

use crate::attempts::{Tried, tried};
use crate::exit::{ExitKind, Failure};
use crate::output::{columns, line, many, moment, now_ms, object, pairs, progress, short, span, table};
use crate::remedy::remedy;
use crate::timeline;

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
    let explained = client.explain_each(&page.rows).await?;
    if as_json {
        return page.rows.iter().zip(&explained).try_for_each(|(instance, explained)| {
            object(&ListedObject { instance, waits_for: &explained.waits })
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
            None => row.status.name().to_owned(),
        };
        shown.add_row([
            short(&row.id, 60),
            row.name.clone(),
            version(&row.version).to_owned(),
            status,
            row.execution.to_string(),
            moment(row.created_ms),
            row.ended_ms.map_or_else(String::new, |ended_ms| span(ended_ms.saturating_sub(row.created_ms))),
            short(&explained.short(), 60),
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

/// A row of a list as programs get it.
#[derive(Serialize)]
struct ListedObject<'a> {
    #[serde(flatten)]
    instance: &'a InstanceView,
    waits_for: &'a [Wait],
}

/// One instance as programs get it.
#[derive(Serialize)]
struct ShownObject<'a> {
    #[serde(flatten)]
    instance: &'a InstanceView,
    /// Absent if the history is damaged.
    turns: Option<usize>,
    events: Option<usize>,
    input: Option<&'a Payload>,
    output: Option<&'a Payload>,
    error: Option<&'a Payload>,
    reason: Option<&'a str>,
    waits_for: &'a [Wait],
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
    let waits = match damage {
        None => client.explain(id).await?.waits,
        Some(_) => Vec::new(),
    };
    let tried = tried(&history, &tasks);
    let started = history.started();
    let trace = started.and_then(|started| started.trace.as_deref());
    let parent = started.and_then(|started| started.parent.as_ref());
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
        let input = started.map(|started| &started.input);
        let (turns, events) = damage.is_none().then_some((history.turns.len(), events)).unzip();
        let reason = reason.map(String::as_str);
        let activities = tried;
        return object(&ShownObject {
            instance: &status,
            turns,
            events,
            input,
            output,
            error,
            reason,
            waits_for: &waits,
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
    if let Some(ended_ms) = status.ended_ms {
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
    rows.extend(started.map(|started| ("input", short(started.input.as_json(), 400))));
    rows.extend(output.map(|output| ("output", short(output.as_json(), 400))));
    rows.extend(error.map(|error| ("error", short(error.as_json(), 400))));
    rows.extend(reason.map(|reason| ("reason", reason.clone())));
    // What blocks it is told below, with its remedy.
    let is_told =
        |wait: &&Wait| !matches!(wait.reason, WaitReason::Blocked { .. } | WaitReason::Paused { .. });
    for wait in waits.iter().filter(is_told) {
        rows.push((if wait.reason.is_state() { "because" } else { "waits for" }, wait.text.clone()));
        rows.extend(wait.remedy.clone().map(|remedy| ("remedy", remedy)));
    }
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
    execution: Option<u64>,
    as_json: bool,
    as_timeline: bool,
) -> Result<(), Failure> {
    let status = client.status(id).await?;
    let execution = execution.unwrap_or(status.execution);
    if execution == 0 || execution > status.execution {
        let message =
            format!("instance {id:?} has no execution {execution}; the latest is {}", status.execution);
        return Err(Failure::new(ExitKind::NotFound, message));
    }
    let history = client.history_of(id, execution).await?;
    if as_json {
        for turn in &history {
            for event in &turn.events {
                object(&EventLine { execution, turn: turn.number, at_ms: turn.at_ms, event })?;
            }
        }
        return Ok(());
    }
    if as_timeline {
        let drawn = timeline::draw(id, &history, now_ms(), None);
        return drawn.iter().try_for_each(|drawn| line(drawn.trim_end()));
    }
    history_table(&history)
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
        _ => event.summary(),
    }
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
    let waits = waits.map(|explained| (explained.key, short(&explained.short(), 60))).collect();
    line(tree_line(&tree.instance, &waits))?;
    branches(&tree, &waits, "")
}

/// How many instances of a tree are explained.
const EXPLAINED: usize = 100;

fn instances(tree: &Tree) -> Vec<InstanceView> {
    let below = tree.children.iter().flat_map(instances);
    std::iter::once(tree.instance.clone()).chain(below).collect()
}

fn tree_line(instance: &InstanceView, waits: &BTreeMap<InstanceKey, String>) -> String {
    let blocked =
        instance.blocked.as_ref().map_or_else(String::new, |blocked| format!(", blocked {}", blocked.code));
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
