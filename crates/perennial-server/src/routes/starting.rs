//! Starting instances.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderValue, Method, StatusCode, header};
use perennial::{ClientError, ErrorCode, InstanceKey, OnExisting, Payload, StartOptions, Status};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::instances::Ended;
use super::{WAIT, handler};
use crate::access::hex;
use crate::ask::Ask;
use crate::gate::Made;
use crate::route::{Answered, Input, Route, json};
use crate::routes::results::wait_for_end;
use crate::schema::{Schema, boolean, integer, map, named, object, payload, reference, string};
use crate::segment;

const POLICIES: &[&str] = &["reject", "use", "replace_ended", "terminate_and_replace"];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "instances", "startInstance", "Starts an instance.", handler!(start))
            .takes(&[WAIT])
            .input(Input::Object(input_schema))
            .keyed()
            .answers(&[
                json(201, "It was started, and with `wait_ms` possibly ended.", answer_schema),
                json(200, "It existed, and `on_existing` or `event` says to use it.", answer_schema),
            ])
            .fails_with(&[
                ErrorCode::InvalidName,
                ErrorCode::AlreadyExists,
                ErrorCode::Ended,
                ErrorCode::NotRegistered,
                ErrorCode::BadInput,
                ErrorCode::BadVersion,
                ErrorCode::TooLarge,
                ErrorCode::Full,
                ErrorCode::BadEvent,
            ]),
    ]
}

fn input_schema() -> Schema {
    let event = object(&[("name", string())], &[("payload", payload())]);
    object(
        &[("name", string())],
        &[
            ("id", string()),
            ("input", payload()),
            ("version", string()),
            ("on_existing", named(POLICIES)),
            ("attributes", map(payload())),
            ("delay_ms", integer()),
            ("timeout_ms", integer()),
            ("event", event),
        ],
    )
}

fn answer_schema() -> Schema {
    object(
        &[("id", string()), ("key", string()), ("is_new", boolean()), ("status", reference("Status"))],
        &[("output", payload()), ("error", payload()), ("reason", string())],
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    name: String,
    id: Option<String>,
    input: Option<Payload>,
    version: Option<String>,
    on_existing: Option<Policy>,
    #[serde(default)]
    attributes: BTreeMap<String, Payload>,
    delay_ms: Option<u64>,
    timeout_ms: Option<u64>,
    event: Option<Raised>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Policy {
    Reject,
    Use,
    ReplaceEnded,
    TerminateAndReplace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raised {
    name: String,
    payload: Option<Payload>,
}

#[derive(Serialize)]
struct Started<'a> {
    id: &'a str,
    key: InstanceKey,
    is_new: bool,
    status: Status,
    #[serde(flatten)]
    ended: Ended,
}

async fn start(ask: Ask) -> Answered {
    let start: Start = ask.object()?;
    let (client, once) = (ask.client()?, ask.idempotency_key()?);
    // Repeated with the same key, the request finds the instance that the first one started.
    let is_repeatable = start.id.is_none() && once.is_some();
    let id = match (&start.id, once) {
        (Some(id), _) => id.clone(),
        (None, Some(key)) => format!("http-{}", hex(&Sha256::digest(key.as_bytes())[..16])),
        (None, None) => format!("http-{}", uuid::Uuid::now_v7().simple()),
    };
    let mut options =
        StartOptions::default().on_existing(match start.on_existing.unwrap_or(Policy::Reject) {
            _ if is_repeatable => OnExisting::Use,
            Policy::Reject => OnExisting::Reject,
            Policy::Use => OnExisting::Use,
            Policy::ReplaceEnded => OnExisting::ReplaceEnded,
            Policy::TerminateAndReplace => OnExisting::TerminateAndReplace,
        });
    if let Some(version) = start.version {
        options = options.version(version);
    }
    for (name, value) in start.attributes {
        options = options.attribute(name, value);
    }
    if let Some(delay_ms) = start.delay_ms {
        options = options.delay(Duration::from_millis(delay_ms));
    }
    if let Some(timeout_ms) = start.timeout_ms {
        options = options.timeout(Duration::from_millis(timeout_ms));
    }
    let event = start.event.map(|event| (event.name, event.payload.unwrap_or_else(Payload::null)));
    // A request that may be a repetition raises its event with its own key, so that it arrives once.
    let (event, keyed) = if is_repeatable { (None, event) } else { (event, None) };
    if let Some((name, payload)) = event {
        options = options.or_raise(name.as_str(), payload);
    }
    let input = start.input.unwrap_or_else(Payload::null);
    let run = client.start_with(start.name.as_str(), &id, input, options).await?;
    let is_new = run.is_new() || is_repeatable;
    let key = match run.bound_key() {
        Some(key) => key,
        None => client.status(&id).await?.key,
    };
    let client = client.bound_to(key);
    if let Some((name, payload)) = keyed {
        // The id follows from the key of the request, and is no key that a caller chooses for an event.
        match client.raise_event(&id, name.as_str(), payload).once(&*id).await {
            // It has ended since it was started, here or by the first request.
            Ok(()) | Err(ClientError::Ended { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ending = match ask.wait() {
        Some(limit) => wait_for_end(&ask, &client, &id, limit).await?,
        None => None,
    };
    let (status, ended) = match &ending {
        Some(ending) => (Status::after(ending), Ended::from(ending)),
        // The start is durable, whatever becomes of this read.
        None => (client.status(&id).await.map_or(Status::Pending, |view| view.status), Ended::default()),
    };
    let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = ask.answer(code, &Started { id: &id, key, is_new, status, ended })?;
    // Relative to the list, which is what the request was sent to.
    if let Ok(location) = HeaderValue::from_str(&format!("instances/{}", segment::encode(&id))) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response.extensions_mut().insert(Made { id, key });
    Ok(response)
}
