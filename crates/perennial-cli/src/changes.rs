//! Dispatches commands that change something.

use std::time::Duration;

use perennial::client::SendUpdate;
use perennial::history::EventId;
use perennial::{Action, Payload, StartOptions};

use crate::arguments::{Change, Existing};
use crate::bulk::{Verb, act};
use crate::exit::Failure;
use crate::store::{self, StoreAt};
use crate::{prune, repair, requests};

pub(crate) async fn run(store: &StoreAt, change: Change, as_json: bool) -> Result<(), Failure> {
    let client = store.open()?;
    match change {
        Change::Start { name, id, input, at_version, on_existing, attributes, delay, timeout, wait } => {
            let options = start_options(on_existing, at_version, attributes, (delay, timeout));
            let input = requests::read_input(&input)?;
            let run = client.start_with(&*name, &id, input, options).await?;
            match wait {
                true => requests::wait_for_result(store, &client, &id, as_json).await,
                false if run.is_new() => requests::accepted(store, "start", &id, as_json),
                false => requests::done(as_json, &id, "exists"),
            }
        }
        Change::Raise { id, event, input, key } => {
            let input = requests::read_input(&input)?;
            requests::raise(&client, &id, &event, input, key).await?;
            requests::accepted(store, "event", &id, as_json)
        }
        Change::Query { id, query, input, patience } => {
            let input = requests::read_input(&input)?;
            let client = client.patience(patience);
            let answer =
                requests::told_of_silence(store, &client, &id, as_json, client.query(&id, &query, input));
            requests::answer(as_json, &id, &answer.await?)
        }
        Change::Update { id, update, input, key, or_start, start_input, patience } => {
            let client = client.patience(patience);
            let mut update = client.update(&id, &update, requests::read_input(&input)?);
            if let Some(orchestration) = or_start {
                update = update.or_start(orchestration, requests::text_input(start_input.as_deref())?);
            }
            update = key.into_iter().fold(update, SendUpdate::once);
            let answer = requests::told_of_silence(store, &client, &id, as_json, update.into_future());
            requests::answer(as_json, &id, &answer.await.map_err(perennial::Error::from)?)
        }
        Change::Cancel { which, reason, grace } => {
            let verb = Verb::new(Action::Cancel { reason, grace }, "cancel", "cancel requested");
            act(&client, &verb, &which, as_json).await
        }
        Change::Terminate { which, reason } => {
            let verb = Verb::new(Action::Terminate { reason }, "terminate", "termination requested");
            act(&client, &verb, &which, as_json).await
        }
        Change::Retry { which, activity: Some(event), .. } => match which.ids.as_slice() {
            [id] => requests::retry_activity(&client, id, EventId(event), as_json).await,
            _ => Err(Failure::usage("--activity needs one instance")),
        },
        Change::Retry { which, activities, .. } => {
            let action = if activities { Action::RetryActivities { name: None } } else { Action::Retry };
            act(&client, &Verb::new(action, "retry", "retry requested"), &which, as_json).await
        }
        Change::Skip { id, event, message } => {
            requests::skip(&client, &id, event.map(EventId), message, as_json).await
        }
        Change::Activity(attempt) => requests::complete(&client, attempt, as_json).await,
        Change::Pause(pausing) => repair::pause(&client, pausing, as_json).await,
        Change::Resume(pausing) => repair::resume(&client, pausing, as_json).await,
        Change::Reset { id, to_turn, at_version, why, patience } => {
            let client = client.patience(patience);
            let reset = client.reset(&id).to_turn(to_turn);
            repair::reset(reset, at_version, why.into_why(), &id, as_json).await
        }
        Change::Rerun { id, at_version, why, patience } => {
            let why = why.into_why();
            repair::reset(client.patience(patience).rerun(&id), at_version, why, &id, as_json).await
        }
        Change::Delete { which, force } => {
            let verb = Verb::new(Action::Delete { force }, "delete", "deleted");
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

fn start_options(
    on_existing: Existing,
    version: Option<String>,
    attributes: Vec<(String, Payload)>,
    (delay, timeout): (Option<Duration>, Option<Duration>),
) -> StartOptions {
    let mut options = StartOptions::default().on_existing(on_existing.into());
    options = version.into_iter().fold(options, StartOptions::version);
    options = delay.into_iter().fold(options, StartOptions::delay);
    options = timeout.into_iter().fold(options, StartOptions::timeout);
    attributes.into_iter().fold(options, |options, (name, value)| options.attribute(name, value))
}
