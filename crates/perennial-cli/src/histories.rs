//! `history` and `export`: recorded histories.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use perennial::client::ExportedInstance;
use perennial::history::{Decision, Event, EventKind, History};
use perennial::{Client, ClientError, Filter};
use serde::Serialize;

use crate::arguments::Executions;
use crate::exit::{ExitKind, Failure};
use crate::output::{
    columns, complain, create_private, is_terminal, line, moment, now_ms, object, progress, span, table,
    visible,
};
use crate::store::StoreAt;
use crate::timeline;

/// The number of instances that an export reads at a time.
const PAGE: usize = 200;

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
        Some(Executions::One(execution)) if execution > current => {
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
            for execution in client.executions(id).await? {
                match client.history_of(id, execution).await {
                    Ok(history) => {
                        show_history(id, (execution, current), &history, as_json, as_timeline)?;
                    }
                    // It was deleted after the executions were listed.
                    Err(ClientError::NoExecution { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }
}

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
        return line("no history yet");
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

/// An event as text, with readable times.
fn event_words(event: &Event) -> String {
    match &event.kind {
        EventKind::Decision { decision: Decision::TimerCreated { due_ms }, .. } => {
            format!("TimerCreated due {}", moment(*due_ms))
        }
        _ if is_terminal() => event.summary(),
        _ => event.full_summary(),
    }
}

/// Writes histories to standard output, or to a file, which is replaced only after all of them are written. The file is for
/// its user only: histories contain payloads.
pub(crate) async fn export(
    store: &StoreAt,
    client: &Client,
    ids: &[String],
    filter: Filter,
    path: Option<&Path>,
) -> Result<(), Failure> {
    // What is started while this runs is not exported: on a busy store there would be no end.
    let filter = match filter.criteria().created_before_ms {
        Some(_) => filter,
        None => filter.created_before(client.now().await? + Duration::from_millis(1)),
    };
    let Some(path) = path else {
        return export_to(client, ids, filter, &mut BufWriter::new(Visible(std::io::stdout())))
            .await
            .map(drop);
    };
    let at = |path: &Path, error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let is_file = std::fs::metadata(path).map_or(true, |found| found.is_file());
    if is_file && is_link {
        let why = "it is a symbolic link, which is not followed; name the file itself";
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    if store.has_file(path) {
        return Err(Failure::usage(format!("{} belongs to the store; choose another path", path.display())));
    }
    if !is_file {
        // A device or a pipe is written to directly: it cannot be replaced.
        let mut out =
            BufWriter::new(File::options().write(true).open(path).map_err(|error| at(path, error))?);
        let written = export_to(client, ids, filter, &mut out).await?;
        complain(format!("exported {written} instances"));
        return Ok(());
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}-{:x}.part", std::process::id(), now_ms()));
    let part = Path::new(&part);
    let mut out = BufWriter::new(create_private(part).map_err(|error| at(part, error))?);
    let outcome = export_to(client, ids, filter, &mut out).await;
    drop(out);
    let settled = if outcome.is_ok() { std::fs::rename(part, path) } else { std::fs::remove_file(part) };
    settled.map_err(|error| at(path, error))?;
    complain(format!("exported {} instances", outcome?));
    Ok(())
}

/// Standard output, on which every character is visible if it is a terminal. Elsewhere the bytes are those of the store.
struct Visible(std::io::Stdout);

impl Write for Visible {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) if is_terminal() => {
                text.split_inclusive('\n').try_for_each(|line| match line.strip_suffix('\n') {
                    Some(line) => writeln!(self.0, "{}", visible(line)),
                    None => write!(self.0, "{}", visible(line)),
                })?;
                Ok(bytes.len())
            }
            // A character may continue in the next bytes.
            Err(error) if is_terminal() && error.valid_up_to() > 0 => {
                self.write(&bytes[..error.valid_up_to()])
            }
            _ => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Writes histories and returns the number of instances.
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
                // The instance was deleted after it was listed.
                Err(ClientError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if page.next.is_none() || page.next == after {
            break;
        }
        after = page.next;
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(bar.position())
}

/// Writes an instance in the format of the test kit's replay check. Instances without a history are left out.
fn export_one(mut instance: ExportedInstance, out: &mut impl Write) -> Result<u64, Failure> {
    instance.executions.retain(|execution| !execution.turns.is_empty());
    if instance.executions.is_empty() {
        return Ok(0);
    }
    let text = serde_json::to_string(&instance).map_err(Failure::failed)?;
    writeln!(out, "{text}")?;
    Ok(1)
}
