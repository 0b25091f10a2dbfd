//! Commands on one or many instances: cancel, terminate, retry, pause, resume, delete.

use std::io::{IsTerminal, Write};

use perennial::client::Progress;
use perennial::{Action, Client, ClientError, InstanceKey};
use serde_json::json;

use crate::arguments::Which;
use crate::exit::{ExitKind, Failure};
use crate::output::{line, object, progress, visible};
use crate::requests::done;
use crate::store;

/// The number of failures that are printed.
const SHOWN_FAILURES: usize = 5;

pub(crate) struct Verb {
    action: Action,
    name: &'static str,
    done: &'static str,
}

impl Verb {
    /// An action, its name, and its past participle.
    pub(crate) fn new(action: Action, name: &'static str, done: &'static str) -> Verb {
        Verb { action, name, done }
    }
}

/// Applies a verb to the named instances, or to those that match a filter.
pub(crate) async fn act(client: &Client, verb: &Verb, which: &Which, as_json: bool) -> Result<(), Failure> {
    match (which.ids.is_empty(), which.filter.is_given()) {
        (true, false) => Err(Failure::usage(format!("name the instances to {}, or use a filter", verb.name))),
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
                Action::Retry => filter.blocked(true),
                Action::Resume { .. } => filter.paused(true),
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

/// Applies a verb to instances one after the other. A failure does not stop the rest, and determines the exit
/// code.
async fn act_on_each(client: &Client, verb: &Verb, ids: &[String], as_json: bool) -> Result<(), Failure> {
    let mut outcome = Ok(());
    for id in ids {
        match act_on(client, verb, id, as_json).await {
            Err(Failure::Message { kind, message }) if kind != ExitKind::Unavailable => {
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
        Action::RetryActivities { .. } => {
            let (listed, mut report) = (client.status(id).await?, Progress::default());
            client.act_on(&[listed], &verb.action, &mut report, |_| (), |_| true).await?;
            if report.done == 0 {
                let error = report.failures.pop().map(|(_, error)| error);
                let nothing = || format!("no activity of instance {id:?} waits for another attempt");
                return Err(Failure::failed(error.unwrap_or_else(nothing)));
            }
        }
        Action::Retry => {
            // Read here, since the owner does not report it.
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

/// Prints the result of a bulk operation.
pub(crate) fn report(as_json: bool, what: &str, outcome: &Progress) -> Result<(), Failure> {
    let Progress { seen, done, skipped, failed, failures, .. } = outcome;
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

/// Asks for confirmation before a change to several instances.
pub(crate) fn confirm(verb: &str, count: u64, more: bool, is_confirmed: bool) -> Result<(), Failure> {
    let many = if more { format!("more than {count}") } else { count.to_string() };
    let plural = if count == 1 && !more { "" } else { "s" };
    ask(&format!("{verb} {many} instance{plural}"), is_confirmed)
}

/// Asks for confirmation. Without a terminal, the answer is no.
pub(crate) fn ask(question: &str, is_confirmed: bool) -> Result<(), Failure> {
    if is_confirmed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let message = format!("this would {question}; pass --yes to confirm");
        return Err(Failure::new(ExitKind::Refused, message));
    }
    eprint!("This would {}. Continue? [y/N] ", visible(question));
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(ExitKind::Refused, "cancelled; nothing was changed")),
    }
}

/// Deletes an instance by its id or its key: a damaged instance may have no usable id.
async fn delete(client: &Client, id: &str, force: bool) -> Result<u64, ClientError> {
    match (client.delete(id, force).await, id.parse::<InstanceKey>()) {
        (Err(ClientError::NotFound { id }), Ok(key)) => match client.delete_damaged(key).await? {
            true => Ok(1),
            false => Err(ClientError::NotFound { id }),
        },
        (deleted, _) => deleted,
    }
}
