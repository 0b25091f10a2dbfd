//! How instances end, and waiting for it.

use std::time::Duration;

use axum::http::{HeaderValue, Method, StatusCode, header};
use perennial::client::Blocked;
use perennial::history::Ending;
use perennial::{Client, InstanceKey, Status};
use serde::Serialize;

use super::instances::Ended;
use super::{KEY, OF_INSTANCE, WAIT, handler};
use crate::ask::Ask;
use crate::problem::Problem;
use crate::redact;
use crate::route::{Answered, Route, json};
use crate::schema::{Schema, nullable, object, payload, reference, string};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "instances/{id}/result",
            "getResult",
            "How an instance ended.",
            handler!(result),
        )
        .takes(&[KEY, WAIT])
        .answers(&[
            json(200, "It ended; a failed instance has `error`.", result_schema),
            json(202, "It has not ended.", result_schema),
        ])
        .fails_with(OF_INSTANCE),
    ]
}

fn result_schema() -> Schema {
    object(
        &[
            ("id", string()),
            ("key", string()),
            ("status", reference("Status")),
            ("blocked", nullable(reference("Blocked"))),
        ],
        &[("output", payload()), ("error", payload()), ("reason", string())],
    )
}

#[derive(Serialize)]
struct ResultView<'a> {
    id: &'a str,
    key: InstanceKey,
    status: Status,
    blocked: Option<Blocked>,
    #[serde(flatten)]
    ended: Ended,
}

async fn result(ask: Ask) -> Answered {
    let client = ask.client()?;
    let mut view = client.status(ask.id()).await?;
    let client = client.bound_to(view.key);
    let ending = match (view.status.is_final(), ask.wait()) {
        (true, _) => Some(client.wait(ask.id()).await?),
        (false, Some(limit)) => wait_for_end(&ask, &client, ask.id(), limit).await?,
        (false, None) => None,
    };
    if ask.hides_payloads() {
        redact::instance(&mut view);
    }
    let Some(ending) = ending else {
        if ask.wait().is_some() {
            view = client.status(ask.id()).await?;
        }
        let (key, status, blocked, ended) = (view.key, view.status, view.blocked, Ended::default());
        let answer = ResultView { id: ask.id(), key, status, blocked, ended };
        let mut response = ask.answer(StatusCode::ACCEPTED, &answer)?;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return Ok(response);
    };
    let (status, ended) = (Status::after(&ending), Ended::from(&ending));
    ask.ok(&ResultView { id: ask.id(), key: view.key, status, blocked: None, ended })
}

/// Waits for an instance to end. `None` if it did not, in the time that its caller is willing to wait.
pub(crate) async fn wait_for_end(
    ask: &Ask,
    client: &Client,
    id: &str,
    limit: Duration,
) -> Result<Option<Ending>, Problem> {
    Ok(ask.wait_for(limit, client.wait(id)).await.transpose()?)
}
