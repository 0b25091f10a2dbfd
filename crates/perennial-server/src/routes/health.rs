//! Health checks and metrics.

use std::time::Duration;

use axum::http::{HeaderValue, Method, StatusCode, header};
use perennial::ErrorCode;
use serde::Serialize;

use super::handler;
use crate::answer;
use crate::ask::Ask;
use crate::problem::Problem;
use crate::route::{Answered, Needs, Output, Route, json};
use crate::schema::{Schema, named, object};

/// How long the store may take to answer.
const STORE_PATIENCE: Duration = Duration::from_secs(1);

/// The path of the metrics.
pub(crate) const METRICS_PATH: &str = "/metrics";

pub(crate) fn routes() -> Vec<Route> {
    let open =
        |path, name, about, handler| Route::new(Method::GET, path, name, about, handler).needs(Needs::Nobody);
    let text = Output { status: 200, about: "Prometheus text.", media: "text/plain", schema: None };
    vec![
        open("/livez", "live", "Whether the process answers.", handler!(live)).answers(&[json(
            200,
            "It does.",
            status_schema,
        )]),
        open("/readyz", "ready", "Whether requests can be served.", handler!(ready))
            .answers(&[json(200, "They can.", status_schema)])
            .fails_with(&[ErrorCode::StoreUnavailable, ErrorCode::Stopped, ErrorCode::Stopping]),
        Route::new(Method::GET, METRICS_PATH, "metrics", "The metrics of the process.", handler!(metrics))
            .answers(&[text])
            .fails_with(&[ErrorCode::NoRoute]),
    ]
}

fn status_schema() -> Schema {
    object(&[("status", named(&["ok"]))], &[])
}

#[derive(Serialize)]
struct Healthy {
    status: &'static str,
}

async fn live(ask: Ask) -> Answered {
    ask.ok(&Healthy { status: "ok" })
}

async fn ready(ask: Ask) -> Answered {
    // Callers need not prove who they are, so they learn the code alone.
    let unready = |code: ErrorCode| Err(Problem::new(code, "requests cannot be served"));
    if ask.server.stop().is_stopped() {
        return unready(ErrorCode::Stopping);
    }
    match tokio::time::timeout(STORE_PATIENCE, ask.server.client.check_ready()).await {
        Ok(Ok(())) => ask.ok(&Healthy { status: "ok" }),
        Ok(Err(error)) => match crate::problem::status(error.code()) {
            StatusCode::SERVICE_UNAVAILABLE => unready(error.code()),
            _ => unready(ErrorCode::StoreUnavailable),
        },
        Err(_) => unready(ErrorCode::StoreUnavailable),
    }
}

async fn metrics(ask: Ask) -> Answered {
    let Some(render) = &ask.server.options.metrics else {
        return Err(Problem::new(ErrorCode::NoRoute, "this server has no metrics"));
    };
    // Without the store, what is known of the process is still worth something.
    match tokio::time::timeout(STORE_PATIENCE, ask.server.client.refresh_metrics()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(target: crate::LOG, %error, "gauges of the store cannot be read"),
        Err(_) => tracing::debug!(target: crate::LOG, "gauges of the store were not read in time"),
    }
    let mut response = answer::respond(StatusCode::OK, render.render().into_bytes());
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}
