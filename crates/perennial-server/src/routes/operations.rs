//! Operations over all instances that a filter shows.

use axum::http::{HeaderValue, Method, header};
use perennial::client::Count;
use perennial::{Action, ErrorCode, Payload, Why};
use serde::{Deserialize, Serialize};

use super::handler;
use super::stats::{CountView, count_schema};
use crate::ask::Ask;
use crate::gate::ACCEPTED;
use crate::listing::Selection;
use crate::operations::{Plan, Progress, Verb};
use crate::problem::Problem;
use crate::route::{Answered, Cost, Input, Route, json};
use crate::schema::{
    Schema, array, boolean, component, integer, named, object, payload, reference, string, time,
};

/// How many instances a dry run names.
const SAMPLES: usize = 20;
const VERBS: &[&str] =
    &["cancel", "terminate", "raise", "retry", "retry_activities", "pause", "resume", "delete", "prune"];

pub(crate) fn routes() -> Vec<Route> {
    let one = || reference("Operation");
    vec![
        Route::new(
            Method::POST,
            "operations",
            "beginOperation",
            "Acts on every instance of a filter.",
            handler!(begin),
        )
        .cost(Cost::Heavy)
        .input(Input::Object(input_schema))
        .keyed()
        .answers(&[json(202, "It has begun.", one), json(200, "What it would act on.", dry_schema)]),
        Route::new(
            Method::GET,
            "operations",
            "listOperations",
            "The operations of this server.",
            handler!(list),
        )
        .answers(&[json(200, "The newest first.", || {
            component("Operations", object(&[("operations", array(reference("Operation")))], &[]))
        })]),
        Route::new(
            Method::GET,
            "operations/{o}",
            "getOperation",
            "Where an operation stands.",
            handler!(get),
        )
        .answers(&[json(200, "The operation.", one)])
        .fails_with(&[ErrorCode::NoSuchThing]),
        Route::new(
            Method::POST,
            "operations/{o}/stop",
            "stopOperation",
            "Stops it after its current instance.",
            handler!(stop),
        )
        .idempotent()
        .answers(&[json(202, "It stops.", one)])
        .fails_with(&[ErrorCode::NoSuchThing]),
    ]
}

fn input_schema() -> Schema {
    object(
        &[("action", named(VERBS)), ("filter", string())],
        &[
            ("reason", string()),
            ("event", string()),
            ("activity", string()),
            ("payload", payload()),
            ("force", boolean()),
            ("at_most", integer()),
            ("dry_run", boolean()),
        ],
    )
}

fn dry_schema() -> Schema {
    component("DryRun", object(&[("count", count_schema()), ("samples", array(string()))], &[]))
}

/// An operation as answers show it.
pub(crate) fn operation_schema() -> Schema {
    let failure = object(&[("id", string()), ("error", string())], &[]);
    let reason = object(&[("code", string()), ("text", string()), ("count", integer())], &[]);
    object(
        &[
            ("id", string()),
            ("action", named(VERBS)),
            ("filter", string()),
            ("by", string()),
            ("state", named(&["running", "done", "stopped", "failed"])),
            ("began_ms", integer()),
            ("seen", integer()),
            ("done", integer()),
            ("skipped", integer()),
            ("failed", integer()),
            ("failures", array(component("OperationFailure", failure))),
            ("reasons", array(component("OperationReason", reason))),
            ("total", count_schema()),
        ],
        &[("ended_because", string()), ("ended_ms", time()), ("reason", string()), ("event", string())],
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    action: Verb,
    filter: String,
    reason: Option<String>,
    event: Option<String>,
    /// The name of the activities that are retried.
    activity: Option<String>,
    payload: Option<Payload>,
    #[serde(default)]
    force: bool,
    at_most: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

async fn begin(ask: Ask) -> Answered {
    let begin: Begin = ask.object()?;
    let client = ask.client()?;
    if begin.activity.is_some() && begin.action != Verb::RetryActivities {
        return Err(Problem::bad_request("`activity` belongs to the action `retry_activities`"));
    }
    if (begin.action == Verb::Raise) != begin.event.is_some() {
        return Err(Problem::bad_request("`event` belongs to the action `raise`, and only to that"));
    }
    let selection = Selection::parse(&client, &begin.filter).await?;
    if begin.dry_run {
        return dry_run(&ask, &client, &selection).await;
    }
    let key = ask.idempotency_key()?;
    let begun = key.and_then(|key| ask.server.operations.begun(key));
    let progress = match begun {
        Some(progress) => progress,
        None => {
            let plan = Plan {
                verb: begin.action,
                action: action(&ask, &begin),
                filter: begin.filter,
                at_most: begin.at_most,
                total: selection.count(&client).await?.0.into(),
                reason: begin.reason,
                event: begin.event,
            };
            let at = (client.now().await?, ask.server.stop().clone());
            ask.server.operations.begin(client, (selection, plan), &ask.caller.name, key, at)
        }
    };
    let mut response = ask.answer(ACCEPTED, &progress)?;
    if let Ok(location) = HeaderValue::from_str(&format!("operations/{}", progress.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What is done to each instance.
fn action(ask: &Ask, begin: &Begin) -> Action {
    let given = begin.reason.as_deref();
    let reason = || ask.reason(given);
    let why = || {
        let why = Why::from(given.unwrap_or_default());
        if ask.caller.name.is_empty() { why } else { why.by(&ask.caller.name) }
    };
    match begin.action {
        Verb::Cancel => Action::Cancel { reason: reason(), grace: None },
        Verb::Terminate => Action::Terminate { reason: reason() },
        Verb::Raise => Action::Raise {
            event: begin.event.clone().unwrap_or_default(),
            payload: begin.payload.clone().unwrap_or_else(Payload::null),
        },
        Verb::Retry => Action::Retry,
        Verb::RetryActivities => Action::RetryActivities { name: begin.activity.clone() },
        Verb::Pause => Action::Pause { why: why() },
        Verb::Resume => Action::Resume { why: why() },
        Verb::Delete => Action::Delete { force: begin.force },
        // An instance that has not ended is skipped.
        Verb::Prune => Action::Delete { force: false },
    }
}

async fn dry_run(ask: &Ask, client: &perennial::Client, selection: &Selection) -> Answered {
    #[derive(Serialize)]
    struct Dry {
        count: CountView,
        samples: Vec<String>,
    }
    let (count, _): (Count, _) = selection.count(client).await?;
    let sampled = selection.page(client, None, SAMPLES).await?.rows.into_iter().take(SAMPLES);
    let samples = sampled.map(|row| row.id).collect();
    ask.ok(&Dry { count: count.into(), samples })
}

async fn list(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct All {
        operations: Vec<Progress>,
    }
    ask.ok(&All { operations: ask.server.operations.all() })
}

async fn get(ask: Ask) -> Answered {
    let progress = ask.server.operations.get(ask.variable("o")).ok_or_else(|| missing(&ask))?;
    ask.ok(&progress)
}

async fn stop(ask: Ask) -> Answered {
    let progress = ask.server.operations.stop(ask.variable("o")).ok_or_else(|| missing(&ask))?;
    ask.answer(ACCEPTED, &progress)
}

fn missing(ask: &Ask) -> Problem {
    Problem::nothing(format!("this server has no operation {:?}", ask.variable("o")))
}
