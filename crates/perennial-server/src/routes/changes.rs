//! Requests that change one instance: cancel, terminate, retry, pause, resume, skip, delete.

use axum::http::Method;
use perennial::history::EventId;
use perennial::{ErrorCode, InstanceKey, Why};
use serde::{Deserialize, Serialize};

use super::{KEY, OF_INSTANCE, handler};
use crate::ask::Ask;
use crate::gate::ACCEPTED;
use crate::problem::Problem;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Input, Output, Route, json};
use crate::schema::{Schema, integer, object, string};

pub(crate) fn routes() -> Vec<Route> {
    let post = |path, name, about, handler| {
        Route::new(Method::POST, path, name, about, handler)
            .takes(&[KEY])
            .answers(&[ACCEPTED_OUTPUT])
            .fails_with(OF_INSTANCE)
            .fails_with(&[ErrorCode::Ended])
            .idempotent()
    };
    let force = parameter("force", Kind::Flag, "Whether a running instance is terminated first.");
    vec![
        post("instances/{id}/cancel", "cancelInstance", "Requests cancellation.", handler!(cancel))
            .input(Input::Object(cancel_schema)),
        post(
            "instances/{id}/terminate",
            "terminateInstance",
            "Ends it without running its code.",
            handler!(terminate),
        )
        .input(Input::Object(reason_schema)),
        post("instances/{id}/retry", "retryInstance", "Retries a blocked instance now.", handler!(retry))
            .fails_with(&[ErrorCode::NotBlocked]),
        post("instances/{id}/skip", "skipInput", "Retries it without what blocks it.", handler!(skip))
            .input(Input::Object(skip_schema))
            .fails_with(&[ErrorCode::NotBlocked, ErrorCode::NotBlockedBy]),
        post("instances/{id}/pause", "pauseInstance", "Pauses it until it is resumed.", handler!(pause))
            .input(Input::Object(reason_schema)),
        post("instances/{id}/resume", "resumeInstance", "Resumes a paused instance.", handler!(resume))
            .input(Input::Object(reason_schema))
            .fails_with(&[ErrorCode::NotBlocked, ErrorCode::OrchestrationPaused]),
        Route::new(
            Method::DELETE,
            "instances/{id}",
            "deleteInstance",
            "Deletes it, with its children.",
            handler!(delete),
        )
        .takes(&[KEY, force])
        .answers(&[json(200, "It was deleted.", deleted_schema)])
        .fails_with(OF_INSTANCE)
        .fails_with(&[ErrorCode::NotEnded]),
    ]
}

/// The request is durable.
pub(crate) const ACCEPTED_OUTPUT: Output = json(202, "The request is durable.", accepted_schema);

fn accepted_schema() -> Schema {
    object(&[("id", string())], &[("key", string())])
}

fn reason_schema() -> Schema {
    object(&[], &[("reason", string())])
}

fn cancel_schema() -> Schema {
    object(&[], &[("reason", string()), ("grace_ms", integer())])
}

fn skip_schema() -> Schema {
    object(&[], &[("event", integer()), ("message", integer())])
}

fn deleted_schema() -> Schema {
    object(&[("deleted", integer())], &[])
}

#[derive(Serialize)]
struct Accepted<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<InstanceKey>,
}

/// Says that the request is durable.
pub(crate) fn accepted(ask: &Ask) -> Answered {
    ask.answer(ACCEPTED, &Accepted { id: ask.id(), key: ask.query.key("key")? })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    reason: Option<String>,
    grace_ms: Option<u64>,
}

async fn cancel(ask: Ask) -> Answered {
    let body: CancelBody = ask.object()?;
    let (client, reason) = (ask.client()?, ask.reason(body.reason.as_deref()));
    let mut cancel = client.cancel(ask.id(), &reason);
    if let Some(grace_ms) = body.grace_ms {
        cancel = cancel.grace(std::time::Duration::from_millis(grace_ms));
    }
    cancel.await?;
    accepted(&ask)
}

async fn terminate(ask: Ask) -> Answered {
    let body: Reason = ask.object()?;
    ask.client()?.terminate(ask.id(), &ask.reason(body.reason.as_deref())).await?;
    accepted(&ask)
}

async fn retry(ask: Ask) -> Answered {
    let Nothing {} = ask.object()?;
    let client = ask.client()?;
    let view = client.status(ask.id()).await?;
    // Beside the owner, a retry of an instance that is not blocked would be accepted and mean nothing.
    if view.blocked.is_none() && !view.status.is_final() {
        return Err(perennial::ClientError::NotBlocked { id: view.id }.into());
    }
    client.bound_to(view.key).retry(ask.id()).await?;
    accepted(&ask)
}

/// A body without members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

async fn skip(ask: Ask) -> Answered {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Skip {
        event: Option<u64>,
        message: Option<u64>,
    }
    let body: Skip = ask.object()?;
    let client = ask.client()?;
    match (body.event, body.message) {
        (Some(event), None) => client.skip_event(ask.id(), EventId(event)).await?,
        (None, Some(message)) => client.skip_message(ask.id(), message).await?,
        _ => return Err(Problem::bad_request("the body has either `event` or `message`")),
    }
    accepted(&ask)
}

async fn pause(ask: Ask) -> Answered {
    let why = why(&ask)?;
    ask.client()?.pause(ask.id(), why).await?;
    accepted(&ask)
}

async fn resume(ask: Ask) -> Answered {
    let why = why(&ask)?;
    ask.client()?.resume(ask.id(), why).await?;
    accepted(&ask)
}

fn why(ask: &Ask) -> Result<Why, Problem> {
    let body: Reason = ask.object()?;
    let why = Why::from(body.reason.unwrap_or_default());
    Ok(if ask.caller.name.is_empty() { why } else { why.by(&ask.caller.name) })
}

async fn delete(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Deleted {
        deleted: u64,
    }
    let Nothing {} = ask.object()?;
    let deleted = ask.client()?.delete(ask.id(), ask.query.flag("force").unwrap_or(false)).await?;
    ask.ok(&Deleted { deleted })
}
