//! Commands on one instance: start, raise, query, update, skip, activity.

use std::io::Read;
use std::time::Duration;

use perennial::history::EventId;
use perennial::{Client, InstanceView, Payload, StartOptions, Status};
use serde_json::json;

use crate::arguments::{Attempt, Input, payload};
use crate::exit::Failure;
use crate::output::{line, object};

/// The interval between looks at an instance whose end is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn read_input(input: &Input) -> Result<Payload, Failure> {
    match (&input.input, &input.input_file) {
        (text, None) => text_input(text.as_deref()),
        (Some(text), Some(_)) => text_input(Some(text)),
        (None, Some(path)) => {
            let mut text = String::new();
            let read = match path.to_str() {
                Some("-") => std::io::stdin().read_to_string(&mut text),
                _ => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
            };
            read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            let not_json = |error| Failure::usage(format!("{}: invalid JSON: {error}", path.display()));
            Payload::from_json(text.trim()).map_err(not_json)
        }
    }
}

/// Parses an input given as text.
pub(crate) fn text_input(text: Option<&str>) -> Result<Payload, Failure> {
    let Some(text) = text else { return Ok(Payload::null()) };
    payload(text).map_err(|problem| Failure::usage(format!("the input: {problem}")))
}

pub(crate) async fn start(
    client: &Client,
    name: &str,
    id: &str,
    input: Payload,
    options: StartOptions,
    wait: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let run = client.start_with(name, id, input, options).await?;
    if !wait {
        return done(as_json, id, if run.is_new() { "started" } else { "exists" });
    }
    let output = tokio::select! {
        output = client.result(id) => output?,
        failure = report_obstacles(client, id, as_json) => return Err(failure),
    };
    if as_json { object(&json!({"id": id, "output": output})) } else { line(output.to_text()) }
}

/// Prints once, to standard error, why an awaited instance makes no progress: it is blocked, or no runtime
/// has taken it. Returns only if the instance can no longer be read.
async fn report_obstacles(client: &Client, id: &str, as_json: bool) -> Failure {
    let mut printed = String::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let why = match client.status(id).await {
            Ok(InstanceView { blocked: Some(blocked), .. }) => {
                format!("{id} is blocked until the cause is fixed: {}", blocked.reason)
            }
            Ok(InstanceView { status: Status::Pending, .. }) => {
                format!("{id} has not started: it is delayed, or no runtime runs on this store")
            }
            Ok(_) => continue,
            Err(error) => return error.into(),
        };
        if why != printed {
            if as_json {
                eprintln!("{}", json!({"waiting": {"id": id, "message": why}}))
            } else {
                eprintln!("{why}")
            }
            printed = why;
        }
    }
}

/// Prints the result of an action on an instance.
pub(crate) fn done(as_json: bool, id: &str, what: &str) -> Result<(), Failure> {
    if as_json { object(&json!({"id": id, "outcome": what})) } else { line(format!("{id}: {what}")) }
}

/// Raises an event; with a key, at most once.
pub(crate) async fn raise(
    client: &Client,
    id: &str,
    event: &str,
    input: Payload,
    key: Option<String>,
    as_json: bool,
) -> Result<(), Failure> {
    let raise = client.raise_event(id, event, input);
    match key {
        Some(key) => raise.once(key).await?,
        None => raise.await?,
    }
    done(as_json, id, "raised")
}

pub(crate) async fn skip(
    client: &Client,
    id: &str,
    event: Option<EventId>,
    message: Option<u64>,
    as_json: bool,
) -> Result<(), Failure> {
    if let Some(event) = event {
        client.skip_event(id, event).await?;
        skipped(as_json, id, "event", event.0)?;
    }
    if let Some(number) = message {
        client.skip_message(id, number).await?;
        skipped(as_json, id, "message", number)?;
    }
    Ok(())
}

/// Makes a call with a completion token.
pub(crate) async fn complete(client: &Client, attempt: Attempt, as_json: bool) -> Result<(), Failure> {
    let outcome = match attempt {
        Attempt::Complete { token, result } => {
            client.complete_activity(&token, result).await.map(|()| "completed")
        }
        Attempt::Fail { token, error } => client.fail_activity(&token, error).await.map(|()| "failed"),
        Attempt::Heartbeat { token, details } => {
            client.heartbeat_activity(&token, details).await.map(|()| "under way")
        }
    };
    print_outcome(as_json, outcome?)
}

fn skipped(as_json: bool, id: &str, kind: &str, number: u64) -> Result<(), Failure> {
    let what = "skip requested";
    if as_json {
        object(&json!({"id": id, kind: number, "outcome": what}))
    } else {
        line(format!("{id}: {what}, {kind} {number}"))
    }
}

/// Prints the result of a call with a completion token.
fn print_outcome(as_json: bool, outcome: &str) -> Result<(), Failure> {
    if as_json { object(&json!({"outcome": outcome})) } else { line(outcome) }
}

/// Prints the answer of an instance.
pub(crate) fn answer(as_json: bool, id: &str, answer: &Payload) -> Result<(), Failure> {
    if as_json { object(&json!({"id": id, "answer": answer})) } else { line(answer.to_text()) }
}
