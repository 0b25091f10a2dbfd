//! The handlers, one file per group of routes. Each file has its part of the table.

mod activities;
mod calls;
mod causes;
mod changes;
mod exports;
mod family;
mod health;
pub(crate) mod histories;
mod instances;
mod nodes;
mod operations;
mod results;
mod session;
mod starting;
mod stats;
mod stats_history;
mod store;
mod streaming;
mod task_groups;
mod timelines;
mod views;

use perennial::ErrorCode;

use crate::query::{Kind, Parameter, parameter};
use crate::route::Route;

/// All routes, in the order of the document.
pub(crate) fn all() -> Vec<Route> {
    [
        instances::routes(),
        starting::routes(),
        results::routes(),
        histories::routes(),
        timelines::routes(),
        family::routes(),
        exports::routes(),
        calls::routes(),
        changes::routes(),
        activities::routes(),
        operations::routes(),
        causes::routes(),
        nodes::routes(),
        store::routes(),
        stats::routes(),
        stats_history::routes(),
        views::routes(),
        streaming::routes(),
        session::routes(),
        health::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Binds a request to the instance that the caller saw.
pub(crate) const KEY: Parameter = parameter(
    "key",
    Kind::Key,
    "The key of the instance that is meant. If the id is another's by now, nothing happens.",
);

pub(crate) const WAIT: Parameter =
    parameter("wait_ms", Kind::Number(0, 60_000), "How long to wait for an answer, in milliseconds.");

pub(crate) const LIMIT: Parameter =
    parameter("limit", Kind::Number(1, 500), "The most rows of a page; 50 if not given.");

pub(crate) const CURSOR: Parameter = parameter("cursor", Kind::Text, "The `next` of the page before.");

/// The codes of a request about one instance.
pub(crate) const OF_INSTANCE: &[ErrorCode] =
    &[ErrorCode::NotFound, ErrorCode::InvalidName, ErrorCode::AnotherInstance, ErrorCode::CorruptRow];

/// The rows of a page.
pub(crate) fn limit(query: &crate::query::Query) -> usize {
    query.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(50)
}

/// Wraps an async function as the handler of a route.
macro_rules! handler {
    ($function:path) => {
        |ask| Box::pin($function(ask))
    };
}
pub(crate) use handler;
pub(crate) use health::METRICS_PATH;
pub(crate) use operations::operation_schema;
pub(crate) use stats::{CountView, StatsView};
