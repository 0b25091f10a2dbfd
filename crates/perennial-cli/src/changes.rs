//! Brings the arguments of commands that change something to what does it.

use perennial::{Action, EventId, StartOptions};

use crate::arguments::{Attempt, Change};
use crate::bulk::{Verb, act};
use crate::exit::Failure;
use crate::store::{self, StoreAt};
use crate::{prune, repair, requests};

/// Runs a command that changes something.
pub(crate) async fn run(store: &StoreAt, change: Change, as_json: bool) -> Result<(), Failure> {
    let client = store.open()?;
    match change {
        Change::Start { name, id, input, at_version, on_existing, attributes, delay, timeout, wait } => {
            let mut options = StartOptions::default().on_existing(on_existing.into());
            options = at_version.into_iter().fold(options, StartOptions::version);
            options = delay.into_iter().fold(options, StartOptions::delay);
            options = timeout.into_iter().fold(options, StartOptions::timeout);
            for (name, value) in attributes {
                options = options.attribute(name, value);
            }
            let input = requests::read_input(&input)?;
            requests::start(&client, &name, &id, input, options, wait, as_json).await
        }
        Change::Raise { id, event, input, key } => {
            let input = requests::read_input(&input)?;
            let raise = client.raise_event(&id, &event, input);
            match key {
                Some(key) => raise.once(key).await?,
                None => raise.await?,
            }
            requests::done(as_json, &id, "raised")
        }
        Change::Query { id, query, input, patience } => {
            let input = requests::read_input(&input)?;
            let answer = client.patience(patience).query(&id, &query, input).await?;
            requests::answer(as_json, &id, &answer)
        }
        Change::Update { id, update, input, key, or_start, start_input, patience } => {
            let (client, input) = (client.patience(patience), requests::read_input(&input)?);
            let mut update = client.update(&id, &update, input);
            if let Some(orchestration) = or_start {
                update = update.or_start(orchestration, requests::text_input(start_input.as_deref())?);
            }
            if let Some(key) = key {
                update = update.once(key);
            }
            let answer = update.await;
            requests::answer(as_json, &id, &answer.map_err(perennial::Error::from)?)
        }
        Change::Cancel { which, reason, grace } => {
            let verb =
                Verb { action: Action::Cancel { reason, grace }, name: "cancel", done: "cancel requested" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Terminate { which, reason } => {
            let verb = Verb {
                action: Action::Terminate { reason },
                name: "terminate",
                done: "termination requested",
            };
            act(&client, &verb, &which, as_json).await
        }
        Change::Retry { which } => {
            let verb = Verb { action: Action::Retry, name: "retry", done: "retry requested" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Skip { id, event, message } => {
            if let Some(event) = event {
                client.skip_event(&id, EventId(event)).await?;
                requests::skipped(as_json, &id, "event", event)?;
            }
            if let Some(number) = message {
                client.skip_message(&id, number).await?;
                requests::skipped(as_json, &id, "message", number)?;
            }
            Ok(())
        }
        Change::Activity(attempt) => {
            let outcome = match attempt {
                Attempt::Complete { token, result } => {
                    client.complete_activity(&token, result).await.map(|()| "completed")
                }
                Attempt::Fail { token, error } => {
                    client.fail_activity(&token, error).await.map(|()| "failed")
                }
                Attempt::Heartbeat { token, details } => {
                    client.heartbeat_activity(&token, details).await.map(|()| "under way")
                }
            };
            requests::said(as_json, outcome?)
        }
        Change::Pause { which, orchestration: None, why } => {
            let action = Action::Pause { why: why.into_why() };
            act(&client, &Verb { action, name: "pause", done: "pause requested" }, &which, as_json).await
        }
        Change::Resume { which, orchestration: None, why } => {
            let action = Action::Resume { why: why.into_why() };
            act(&client, &Verb { action, name: "resume", done: "resume requested" }, &which, as_json).await
        }
        Change::Pause { which, orchestration: Some(name), why } => {
            repair::pause_orchestration(&client, &which, &name, why.into_why(), as_json).await
        }
        Change::Resume { which, orchestration: Some(name), why } => {
            repair::resume_orchestration(&client, &which, &name, why.into_why(), as_json).await
        }
        Change::Reset { id, to_turn, at_version, why, patience } => {
            let client = client.patience(patience);
            let reset = client.reset(&id).to_turn(to_turn);
            repair::reset(reset, at_version, why.into_why(), &id, as_json).await
        }
        Change::Rerun { id, at_version, why, patience } => {
            let client = client.patience(patience);
            repair::reset(client.rerun(&id), at_version, why.into_why(), &id, as_json).await
        }
        Change::Delete { which, force } => {
            let verb = Verb { action: Action::Delete { force }, name: "delete", done: "deleted" };
            act(&client, &verb, &which, as_json).await
        }
        Change::Prune { executions: true, older_than, yes, .. } => {
            prune::prune_executions(&client, older_than, yes, as_json).await
        }
        Change::Prune { filter, older_than, keep, yes, executions: false } => {
            let filter = store::filter(&client, &filter).await?;
            let filter = store::ended(&client, filter, older_than).await?;
            prune::prune(&client, filter, keep, yes, as_json).await
        }
    }
}
