//! The timeline of an execution: its operations with their times, attempts and outcomes.

use axum::http::Method;
use perennial::{ErrorCode, InstanceKey};
use serde::Serialize;

use super::{KEY, OF_INSTANCE, handler};
use crate::ask::Ask;
use crate::query::{Kind, parameter};
use crate::route::{Answered, Cost, Route, json};
use crate::schema::{Schema, component, integer, object, string, time};
use crate::timeline::{self, Shown};

/// How many operations are shown at most.
const ROWS: u64 = 2_000;
const MAX_NUMBER: u64 = u64::MAX >> 12;

pub(crate) fn routes() -> Vec<Route> {
    let about = "The operations of an execution, with their times, attempts and outcomes.";
    vec![
        Route::new(Method::GET, "instances/{id}/timeline", "getTimeline", about, handler!(get))
            .cost(Cost::Heavy)
            .takes(&[
                KEY,
                parameter(
                    "execution",
                    Kind::Number(1, MAX_NUMBER),
                    "The execution; the current one if not given.",
                ),
                parameter(
                    "from_ms",
                    Kind::Number(0, MAX_NUMBER),
                    "Only operations that had not ended before then.",
                ),
                parameter(
                    "to_ms",
                    Kind::Number(0, MAX_NUMBER),
                    "Only operations that were scheduled before then.",
                ),
                parameter("limit", Kind::Number(0, ROWS), "The most operations; 2,000 if not given."),
            ])
            .answers(&[json(
                200,
                "In the order in which they were scheduled. Of more than the limit, the last ones, and counts of all.",
                schema,
            )])
            .fails_with(OF_INSTANCE)
            .fails_with(&[ErrorCode::NoExecution]),
    ]
}

fn schema() -> Schema {
    let mut members = vec![
        ("key", string()),
        ("execution", integer()),
        ("current", integer()),
        ("at_ms", time()),
        ("last_turn", integer()),
    ];
    members.extend(timeline::schema());
    component("Timeline", object(&members, &[]))
}

#[derive(Serialize)]
struct Drawn {
    key: InstanceKey,
    execution: u64,
    current: u64,
    /// The store's clock, up to which open operations last.
    at_ms: u64,
    last_turn: u64,
    #[serde(flatten)]
    shown: Shown,
}

async fn get(ask: Ask) -> Answered {
    let client = ask.client()?;
    let view = client.status(ask.id()).await?;
    let client = client.bound_to(view.key);
    let execution = ask.query.number("execution").unwrap_or(view.execution);
    let window = (ask.query.number("from_ms").unwrap_or(0), ask.query.number("to_ms").unwrap_or(u64::MAX));
    let limit = ask.query.number("limit").unwrap_or(ROWS);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let tasks = match execution == view.execution && !view.status.is_final() {
        true => client.tasks(ask.id()).await?,
        false => Vec::new(),
    };
    let drawn = ask.server.histories.timeline(&client, ask.id(), view.key, execution).await?;
    let at_ms = client.now().await?.as_millis();
    let shown = drawn.shown(window, limit, &tasks, at_ms, ask.hides_payloads());
    let last_turn = drawn.last_turn();
    // Written to the answer without keeping others waiting.
    drop(drawn);
    ask.ok(&Drawn { key: view.key, execution, current: view.execution, at_ms, last_turn, shown })
}
