//! Operations over all instances that a filter shows.

use axum::http::{HeaderValue, Method, header};
use perennial::client::Count;
use perennial::{ErrorCode, Payload};
use serde::{Deserialize, Serialize};

use super::{handler, stats::CountView};
use crate::ask::Ask;
use crate::gate::ACCEPTED;
use crate::listing::Selection;
use crate::operations::{Plan, Progress, Verb};
use crate::problem::Problem;
use crate::route::{Answered, Cost, Input, Route, json};
use crate::schema::{Schema, array, boolean, integer, named, object, payload, reference, string};

/// How many instances a dry run names.
const SAMPLES: usize = 20;
const VERBS: &[&str] = &["cancel", "terminate", "raise", "retry", "pause", "resume", "delete", "prune"];

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
            object(&[("operations", array(reference("Operation")))], &[])
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
            ("payload", payload()),
            ("force", boolean()),
            ("at_most", integer()),
            ("dry_run", boolean()),
        ],
    )
}

fn dry_schema() -> Schema {
    let count = object(&[("rows", integer()), ("more", boolean())], &[]);
    object(&[("count", count), ("samples", array(string()))], &[])
}

/// An operation as answers show it.
pub(crate) fn operation_schema() -> Schema {
    let failure = object(&[("id", string()), ("error", string())], &[]);
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
            ("failures", array(failure)),
        ],
        &[("ended_because", string())],
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    action: Verb,
    filter: String,
    reason: Option<String>,
    event: Option<String>,
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
                filter: begin.filter,
                reason: ask.reason(begin.reason.as_deref()),
                event: begin.event.unwrap_or_default(),
                payload: begin.payload.unwrap_or_else(Payload::null),
                force: begin.force,
                at_most: begin.at_most,
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

async fn dry_run(ask: &Ask, client: &perennial::Client, selection: &Selection) -> Answered {
    #[derive(Serialize)]
    struct Dry {
        count: CountView,
        samples: Vec<String>,
    }
    let (count, _): (Count, _) = selection.count(client).await?;
    let samples = selection.page(client, None, SAMPLES).await?.rows.into_iter().map(|row| row.id).collect();
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
