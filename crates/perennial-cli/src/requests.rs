//! Commands on one instance: start, raise, query, update, skip, activity.

use std::collections::HashSet;
use std::io::Read;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use perennial::explain::{Wait, WaitReason};
use perennial::history::EventId;
use perennial::{Client, Payload};
use serde_json::json;

use crate::arguments::{Attempt, Input, payload};
use crate::exit::Failure;
use crate::output::{complain, line, lines, object};
use crate::remedy::quoted;
use crate::store::StoreAt;

/// The shortest and the longest interval between looks at an instance whose end is awaited.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// An instance that has not ended after this time is explained, even if nothing is wrong.
const USUAL: Duration = Duration::from_secs(3);
/// How long an answer may take before the silence is explained.
const SILENCE: Duration = Duration::from_secs(1);

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

/// Waits for the end of an instance and prints its result. Meanwhile, prints why it has not ended.
pub(crate) async fn wait_for_result(
    store: &StoreAt,
    client: &Client,
    id: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let output = tokio::select! {
        output = client.result(id) => output?,
        failure = report_waits(store, client, id, as_json) => return Err(failure),
    };
    if as_json { object(&json!({"id": id, "output": output})) } else { lines(output.to_text()) }
}

/// Prints to standard error why an awaited instance has not ended: at once if it cannot move, and otherwise after
/// some seconds. Each kind of wait is printed once. Returns only if the instance can no longer be read.
async fn report_waits(store: &StoreAt, client: &Client, id: &str, as_json: bool) -> Failure {
    let (begun, mut pause) = (Instant::now(), LOOK_EVERY.0);
    let mut printed: HashSet<Discriminant<WaitReason>> = HashSet::new();
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_EVERY.1);
        let waits = match client.explain(id).await {
            Ok(explained) => explained.waits,
            Err(error) => return error.into(),
        };
        let is_told = |wait: &&Wait| {
            begun.elapsed() >= USUAL
                || wait.is_stuck()
                || matches!(wait.reason, WaitReason::Start { .. })
                || wait.reason.is_state()
        };
        let told: Vec<&Wait> = waits.iter().filter(is_told).collect();
        for wait in told.iter().filter(|wait| !printed.contains(&discriminant(&wait.reason))) {
            print_wait(store, id, "has not ended", wait, as_json);
        }
        printed = told.into_iter().map(|wait| discriminant(&wait.reason)).collect();
    }
}

/// Waits for an answer. If none comes within a short time, prints to standard error what keeps the instance from
/// answering, if anything does.
pub(crate) async fn told_of_silence<T>(
    store: &StoreAt,
    client: &Client,
    id: &str,
    as_json: bool,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(SILENCE, &mut answer).await {
        return answer;
    }
    // The answer, or its error, is more important than an explanation that cannot be read.
    let waits = client.explain(id).await.map(|explained| explained.waits).unwrap_or_default();
    if let Some(wait) = waits.iter().find(|wait| wait.reason.is_state() || wait.is_stuck()) {
        print_wait(store, id, "has not answered", wait, as_json);
    } else if client.nodes().await.is_ok_and(|nodes| nodes.iter().all(|node| node.shards == 0)) {
        // An instance that has ended waits for nothing, but only a runtime can ask its code.
        let message = format!("{id} has not answered: no runtime is running on this store");
        print_message(id, &message, Some("start the program"), as_json);
    }
    answer.await
}

fn print_wait(store: &StoreAt, id: &str, state: &str, wait: &Wait, as_json: bool) {
    let message = match wait.reason.is_state() {
        true => format!("{id} {state}: {wait}"),
        false => format!("{id} waits for {wait}"),
    };
    let remedy = wait.remedy.as_deref().map(|remedy| store.advice(remedy));
    print_message(id, &message, remedy.as_deref(), as_json);
}

fn print_message(id: &str, message: &str, remedy: Option<&str>, as_json: bool) {
    if as_json {
        complain(json!({"waiting": {"id": id, "message": message, "remedy": remedy}}).to_string());
    } else {
        complain(message);
        remedy.iter().for_each(|remedy| complain(format!("  remedy: {remedy}")));
    }
}

/// Prints the result of an action on an instance.
pub(crate) fn done(as_json: bool, id: &str, what: &str) -> Result<(), Failure> {
    if as_json { object(&json!({"id": id, "outcome": what})) } else { line(format!("{id}: {what}")) }
}

/// Prints that a request is durable. Its effect is not known yet: a value of the wrong type, for instance, blocks the
/// instance later.
pub(crate) fn accepted(store: &StoreAt, what: &str, id: &str, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return done(as_json, id, "accepted");
    }
    let show = store.advice(&format!("`perennial show {}`", quoted(id)));
    line(format!("{id}: {what} accepted; {show} tells what becomes of it"))
}

/// Raises an event; with a key, at most once.
pub(crate) async fn raise(
    client: &Client,
    id: &str,
    event: &str,
    input: Payload,
    key: Option<String>,
) -> Result<(), Failure> {
    let raise = client.raise_event(id, event, input);
    match key {
        Some(key) => raise.once(key).await?,
        None => raise.await?,
    }
    Ok(())
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

/// Makes the next attempt of an activity now.
pub(crate) async fn retry_activity(
    client: &Client,
    id: &str,
    event: EventId,
    as_json: bool,
) -> Result<(), Failure> {
    let status = client.status(id).await?;
    client.bound_to(status.key).retry_activity(id, status.execution, event).await?;
    match as_json {
        true => object(&json!({"id": id, "activity": event, "retried": true})),
        false => line(format!("{id}: the next attempt of activity {event} is made now")),
    }
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
    if as_json { object(&json!({"id": id, "answer": answer})) } else { lines(answer.to_text()) }
}
