//! Events, queries and updates.

use std::time::Duration;

use axum::http::Method;
use perennial::client::HandlerNames;
use perennial::{ClientError, ErrorCode, Payload, UpdateError};
use serde::Serialize;

use super::changes::{ACCEPTED_OUTPUT, accepted};
use super::{KEY, OF_INSTANCE, WAIT, handler};
use crate::ask::Ask;
use crate::problem::Problem;
use crate::route::{Answered, Input, Needs, Route, json};
use crate::schema::{Schema, array, boolean, component, object, payload, string};

/// How long the owner may take to name the handlers.
const HANDLERS_PATIENCE: Duration = Duration::from_secs(5);

const CALLED: &[ErrorCode] = &[
    ErrorCode::TooLarge,
    ErrorCode::Refused,
    ErrorCode::Blocked,
    ErrorCode::NotAnswered,
    ErrorCode::Ended,
    ErrorCode::PayloadUndecodable,
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "instances/{id}/events/{name}",
            "raiseEvent",
            "Raises an event.",
            handler!(raise),
        )
        .takes(&[KEY])
        .input(Input::Payload("The payload of the event."))
        .keyed()
        .answers(&[ACCEPTED_OUTPUT])
        .fails_with(OF_INSTANCE)
        .fails_with(&[ErrorCode::Ended, ErrorCode::TooLarge, ErrorCode::Full, ErrorCode::BadEvent]),
        Route::new(
            Method::GET,
            "instances/{id}/handlers",
            "getHandlers",
            "The queries, updates and events that its code takes.",
            handler!(handlers),
        )
        .takes(&[KEY])
        .answers(&[json(200, "If its code does not run now, `known` is false.", handlers_schema)])
        .fails_with(OF_INSTANCE)
        .fails_with(&[ErrorCode::Unreadable]),
        Route::new(
            Method::POST,
            "instances/{id}/queries/{name}",
            "query",
            "Asks a query; nothing is recorded.",
            handler!(query),
        )
        .needs(Needs::PayloadReader)
        .idempotent()
        .takes(&[KEY, WAIT])
        .input(Input::Payload("The input of the query."))
        .answers(&[json(200, "The answer of the code.", payload)])
        .fails_with(OF_INSTANCE)
        .fails_with(CALLED),
        Route::new(
            Method::POST,
            "instances/{id}/updates/{name}",
            "update",
            "Updates it and waits for the result.",
            handler!(update),
        )
        .takes(&[KEY, WAIT])
        .input(Input::Payload("The input of the update."))
        .keyed()
        .answers(&[json(200, "The result of the handler.", payload)])
        .fails_with(OF_INSTANCE)
        .fails_with(CALLED)
        .fails_with(&[ErrorCode::UpdateFailed, ErrorCode::Unanswered, ErrorCode::OutcomeDeleted]),
    ]
}

fn handlers_schema() -> Schema {
    let names = ["queries", "updates", "events"].map(|kind| (kind, array(string())));
    component("Handlers", object(&[&[("known", boolean())][..], &names].concat(), &[("because", string())]))
}

/// What the code takes is known to the code alone, so its owner is asked. Nobody waits for an owner that is not there.
async fn handlers(ask: Ask) -> Answered {
    #[derive(Default, Serialize)]
    struct Handlers {
        known: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        because: Option<String>,
        #[serde(flatten)]
        names: HandlerNames,
    }
    let client = ask.client()?.patience(HANDLERS_PATIENCE);
    match client.handlers(ask.id()).await {
        Ok(names) => ask.ok(&Handlers { known: true, because: None, names }),
        Err(
            error @ (ClientError::NotAnswered { .. }
            | ClientError::Blocked { .. }
            | ClientError::Refused { .. }
            | ClientError::Ended { .. }),
        ) => {
            let because = match error {
                ClientError::NotAnswered { .. } => "no runtime that runs it has answered".to_owned(),
                error => error.to_string(),
            };
            ask.ok(&Handlers { because: Some(because), ..Handlers::default() })
        }
        Err(error) => Err(error.into()),
    }
}

async fn raise(ask: Ask) -> Answered {
    let (client, payload) = (ask.client()?, ask.payload()?);
    let mut event = client.raise_event(ask.id(), ask.variable("name"), payload);
    if let Some(key) = ask.idempotency_key()? {
        event = event.once(key);
    }
    event.await?;
    accepted(&ask)
}

async fn query(ask: Ask) -> Answered {
    let mut client = ask.client()?;
    if let Some(limit) = ask.wait() {
        client = client.patience(limit);
    }
    let answer = client.query(ask.id(), ask.variable("name"), ask.payload()?);
    let answer: Payload = match ask.wait() {
        // A little longer than the client waits itself: its own error says more.
        Some(limit) => ask.wait_for(2 * limit, answer).await.ok_or_else(|| no_answer(&ask))??,
        None => answer.await?,
    };
    ask.ok(&answer)
}

async fn update(ask: Ask) -> Answered {
    let mut client = ask.client()?;
    if let Some(limit) = ask.wait() {
        client = client.patience(limit);
    }
    let mut update = client.update(ask.id(), ask.variable("name"), ask.payload()?);
    let key = ask.idempotency_key()?;
    if let Some(key) = key {
        update = update.once(key);
    }
    let answer: Result<Payload, _> = match ask.wait() {
        Some(limit) => ask.wait_for(limit, update.into_future()).await.ok_or_else(|| unknown(&ask))?,
        None => update.await,
    };
    match answer {
        Ok(answer) => ask.ok(&answer),
        Err(error) => Err(refusal(error)),
    }
}

fn no_answer(ask: &Ask) -> Problem {
    let id = ask.id();
    Problem::new(
        ErrorCode::NotAnswered,
        format!("instance {id:?} did not answer in time; nothing was recorded"),
    )
}

fn unknown(ask: &Ask) -> Problem {
    let detail = format!(
        "instance {:?} has not answered the update in time, which may still be carried out; repeat it with the same \
         Idempotency-Key to get its result",
        ask.id()
    );
    Problem::new(ErrorCode::OutcomeUnknown, detail)
}

/// The error of an update by name, whose handler's error is a payload.
fn refusal(error: UpdateError<Payload>) -> Problem {
    match error {
        UpdateError::Client(error) => error.into(),
        UpdateError::Failed { id, error } => perennial::ClientError::UpdateFailed { id, error }.into(),
        UpdateError::Refused { id, reason, error } => {
            perennial::ClientError::Refused { id, reason, error }.into()
        }
        error => Problem::new(error.code(), error.to_string()),
    }
}
