//! Commands that change something: one instance, or many.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use perennial::{
    Action, Client, ClientError, Filter, InstanceKey, InstanceView, Payload, Progress, Prune, StartOptions,
    Status,
};
use serde_json::json;

use crate::arguments::{Input, Which, payload};
use crate::exit::{ExitKind, Failure};
use crate::output::{line, object, progress};
use crate::store;

/// How many failures are shown.
const SHOWN_FAILURES: usize = 5;

/// How often somebody who waits is told what is in the way.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What goes with a request.
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
            let not_json = |error| Failure::usage(format!("{}: this is not JSON: {error}", path.display()));
            Payload::from_json(text.trim()).map_err(not_json)
        }
    }
}

/// An input that is given as text.
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
        failure = tell_why_it_takes_so_long(client, id, as_json) => return Err(failure),
    };
    if as_json { object(&json!({"id": id, "output": output})) } else { line(output.to_text()) }
}

/// Says on standard error, once, what keeps an instance from its end: trouble that waits for a cure, or that nobody takes
/// it. Ends only if there is nothing to look at any more.
async fn tell_why_it_takes_so_long(client: &Client, id: &str, as_json: bool) -> Failure {
    let mut told = String::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let why = match client.status(id).await {
            Ok(InstanceView { blocked: Some(blocked), .. }) => {
                format!("{id} is blocked, and goes on once that is cured: {}", blocked.reason)
            }
            Ok(InstanceView { status: Status::Pending, .. }) => {
                format!("{id} has not begun: its time has not come, or no runtime runs on this store")
            }
            Ok(_) => continue,
            Err(error) => return error.into(),
        };
        if why != told {
            if as_json {
                eprintln!("{}", json!({"waiting": {"id": id, "message": why}}))
            } else {
                eprintln!("{why}")
            }
            told = why;
        }
    }
}

/// Says what was done to an instance.
pub(crate) fn done(as_json: bool, id: &str, what: &str) -> Result<(), Failure> {
    if as_json { object(&json!({"id": id, "outcome": what})) } else { line(format!("{id}: {what}")) }
}

/// Says which event or message is skipped.
pub(crate) fn skipped(as_json: bool, id: &str, kind: &str, number: u64) -> Result<(), Failure> {
    let what = "skip requested";
    if as_json {
        object(&json!({"id": id, kind: number, "outcome": what}))
    } else {
        line(format!("{id}: {what}, {kind} {number}"))
    }
}

/// Prints what came of something that was said about an attempt.
pub(crate) fn said(as_json: bool, outcome: &str) -> Result<(), Failure> {
    if as_json { object(&json!({"outcome": outcome})) } else { line(outcome) }
}

/// Prints what an instance answered.
pub(crate) fn answer(as_json: bool, id: &str, answer: &Payload) -> Result<(), Failure> {
    if as_json { object(&json!({"id": id, "answer": answer})) } else { line(answer.to_text()) }
}

/// A verb that can be done to one instance or many.
pub(crate) struct Verb {
    pub(crate) action: Action,
    pub(crate) name: &'static str,
    pub(crate) done: &'static str,
}

/// Does something to the instances that were named, or that a filter shows.
pub(crate) async fn act(client: &Client, verb: &Verb, which: &Which, as_json: bool) -> Result<(), Failure> {
    match (which.ids.is_empty(), which.filter.is_given()) {
        (true, false) => {
            Err(Failure::usage(format!("which instances? Name them, or use a filter, to {} them", verb.name)))
        }
        (false, true) => Err(Failure::usage("name instances or use a filter, not both")),
        (false, false) => {
            if which.ids.len() > 1 {
                confirm(verb.name, which.ids.len() as u64, false, which.yes)?;
            }
            act_on_each(client, verb, &which.ids, as_json).await
        }
        (true, true) => {
            let filter = store::filter(client, &which.filter).await?;
            let filter = match verb.action {
                Action::Retry => Filter { blocked: Some(true), ..filter },
                Action::Resume { .. } => Filter { paused: Some(true), ..filter },
                _ => filter,
            };
            let count = client.count(filter.clone()).await?;
            if count.rows == 0 {
                return report(as_json, verb.done, &Progress::default());
            }
            confirm(verb.name, count.rows, count.more, which.yes)?;
            let bar = progress((!count.more).then_some(count.rows), verb.done);
            let show = |so_far: &Progress| bar.set_position(so_far.seen);
            let outcome = client.for_each(filter, verb.action.clone(), show).await?;
            bar.finish_and_clear();
            report(as_json, verb.done, &outcome)
        }
    }
}

/// Does something to instances one after the other. One that fails stops no other, and its exit code is ours.
async fn act_on_each(client: &Client, verb: &Verb, ids: &[String], as_json: bool) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for id in ids {
        match act_on(client, verb, id, as_json).await {
            Err(Failure::Told { kind, message }) if kind != ExitKind::Unavailable => {
                Failure::new(kind, message).report(as_json);
                outcome = outcome.and(Err(Failure::Silent(kind)));
            }
            done => done?,
        }
    }
    outcome
}

async fn act_on(client: &Client, verb: &Verb, id: &str, as_json: bool) -> Result<(), Failure> {
    match &verb.action {
        Action::Cancel { reason, grace: None } => client.cancel(id, reason).await?,
        Action::Cancel { reason, grace: Some(grace) } => client.cancel(id, reason).grace(*grace).await?,
        Action::Terminate { reason } => client.terminate(id, reason).await?,
        Action::Raise { event, payload } => client.raise_event(id, event, payload.clone()).await?,
        Action::Retry => {
            // Seen from here, since the owner would not tell.
            let status = client.status(id).await?;
            match (status.blocked, status.status.is_final()) {
                (_, true) => return Err(ClientError::Ended { id: id.to_owned() }.into()),
                (None, false) => return Err(ClientError::NotBlocked { id: id.to_owned() }.into()),
                (Some(_), false) => client.retry(id).await?,
            }
        }
        Action::Pause { why } => client.pause(id, why.clone()).await?,
        Action::Resume { why } => client.resume(id, why.clone()).await?,
        Action::PauseWithOrchestration { .. } | Action::ResumeWithOrchestration { .. } => {
            return Err(Failure::usage("use --orchestration"));
        }
        Action::Delete { force } => {
            let gone = delete(client, id, *force).await?;
            if as_json {
                return object(&json!({"id": id, "outcome": verb.done, "instances": gone}));
            }
        }
    }
    done(as_json, id, verb.done)
}

/// Deletes what has ended, of what a filter shows.
pub(crate) async fn prune(
    client: &Client,
    filter: Filter,
    keep: usize,
    is_confirmed: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let count = client.count(filter.clone()).await?;
    let rows = count.rows.saturating_sub(keep as u64);
    if rows > 0 {
        confirm("prune", rows, count.more, is_confirmed)?;
    }
    let bar = progress((!count.more).then_some(count.rows), "pruned");
    let prune = Prune::all().only(filter).keep_newest(keep);
    let outcome = client.prune(prune, |so_far| bar.set_position(so_far.seen)).await?;
    bar.finish_and_clear();
    report(as_json, "pruned", &outcome)
}

/// Says how something went that was done to many instances.
fn report(as_json: bool, what: &str, outcome: &Progress) -> Result<(), Failure> {
    let Progress { seen, done, skipped, failed, failures } = outcome;
    if as_json {
        let failures: Vec<_> = failures.iter().map(|(id, error)| json!({"id": id, "error": error})).collect();
        object(&json!({
            "outcome": what, "seen": seen, "done": done, "skipped": skipped, "failed": failed, "failures": failures,
        }))?;
    } else {
        line(format!("{what} {done} of {seen}; it did not apply to {skipped} and failed for {failed}"))?;
        for (id, error) in failures.iter().take(SHOWN_FAILURES) {
            line(format!("  {id}: {error}"))?;
        }
    }
    if *failed == 0 { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

/// Asks before something is done to several instances. Where nobody can answer, the answer is no.
fn confirm(verb: &str, count: u64, more: bool, is_confirmed: bool) -> Result<(), Failure> {
    if is_confirmed {
        return Ok(());
    }
    let many = if more { format!("more than {count}") } else { count.to_string() };
    let plural = if count == 1 && !more { "" } else { "s" };
    let question = format!("{verb} {many} instance{plural}");
    if !std::io::stdin().is_terminal() {
        let message = format!("this would {question}; say --yes to do it");
        return Err(Failure::new(ExitKind::Refused, message));
    }
    eprint!("This would {question}. Go on? [y/N] ");
    std::io::stderr().flush()?;
    let mut said = String::new();
    std::io::stdin().read_line(&mut said)?;
    match said.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(ExitKind::Refused, "nothing was done")),
    }
}

/// Deletes an instance by its id, or by its key: one that is damaged may have no id that can be asked for.
async fn delete(client: &Client, id: &str, force: bool) -> Result<u64, ClientError> {
    match (client.delete(id, force).await, id.parse::<InstanceKey>()) {
        (Err(ClientError::NotFound { id }), Ok(key)) => match client.delete_damaged(key).await? {
            true => Ok(1),
            false => Err(ClientError::NotFound { id }),
        },
        (deleted, _) => deleted,
    }
}
