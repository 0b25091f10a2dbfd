//! The HTTP API of Perennial, for programs in any language, for `curl`, and for dashboards.
//!
//! [`router`] is an axum `Router` over a [`Client`], to nest under any prefix of an application.
//! [`serve`] is the same router on a listener of its own; the command `perennial serve` calls it. Both give the same
//! answers.
//!
//! ```
//! use perennial::prelude::*;
//! use perennial_server::{Access, Options, Role};
//!
//! # #[tokio::main]
//! # async fn main() -> perennial::Result<()> {
//! let runtime = Runtime::open("memory:").start().await?;
//! let options = Options::default().access(Access::everybody(Role::Operator));
//! let app: axum::Router = axum::Router::new().nest("/ops", perennial_server::router(runtime.client(), options));
//! // Answers at /ops/api/v1/instances, /ops/api/v1/openapi.json, /ops/readyz and so on.
//! # runtime.shutdown().await
//! # }
//! ```
//!
//! One table of routes defines paths, roles, parameters and answers; the OpenAPI document at
//! `api/v1/openapi.json` is made from it.
//!
//! | module | contents |
//! |---|---|
//! | `dashboard` | the files of the dashboard, on every path that is not of the API |
//! | `gate` | the way of every request: host, caller, role, origin, sizes, parameters |
//! | `access` | tokens, sessions, host and origin checks |
//! | `ask`, `answer`, `problem` | a request that was let in; its answer as JSON; errors |
//! | `query`, `segment`, `cursor` | parameters; ids in paths; places in lists |
//! | `route`, `schema`, `components`, `openapi` | the table of routes, and the document |
//! | `routes` | the handlers, one file per group |
//! | `listing`, `list_pages`, `listed`, `turn_walk` | filters of lists; pages and bounded scans; their rows; histories |
//! | `histories`, `timeline` | what was computed from histories, brought forward by new turns |
//! | `stream` | live changes whose cursor is the history |
//! | `operations` | work over all instances of a filter |
//! | `meters`, `prometheus` | what is measured of requests; Prometheus text |
//! | `serve` | listeners, TLS, limits of connections, stopping |

mod access;
mod answer;
mod ask;
mod components;
mod cursor;
mod dashboard;
mod gate;
mod histories;
mod list_pages;
mod listed;
mod listing;
mod meters;
mod openapi;
mod operations;
mod options;
mod problem;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod query;
mod redact;
mod request_span;
mod route;
mod routes;
mod schema;
mod segment;
mod serve;
mod server;
mod stop;
mod stream;
mod timeline;
mod times;
mod turn_walk;

/// The guide's page, so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/http.md")]
mod guide {}

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use perennial::Client;

/// Export of traces through OpenTelemetry.
#[cfg(feature = "otel")]
pub use perennial_otel as otel;

pub use access::{NewToken, TokenFile, TokenFileError};
pub use meters::HTTP;
pub use openapi::document;
pub use options::{Access, Caller, MetricsHandle, Options, Role};
pub use serve::{TlsFiles, serve};
pub use stop::Stop;

/// The target of log lines.
pub(crate) const LOG: &str = "perennial::http";

/// The API over a client, to nest under any prefix of an application.
///
/// The router keeps no runtime alive: after [`Runtime::shutdown`](perennial::Runtime::shutdown) its requests are refused.
/// Until [`Options::access`] is set, all requests are.
pub fn router(client: Client, options: Options) -> Router {
    let server = server::Server::new(client, options);
    Router::new().fallback(move |request: Request<Body>| gate::handle(server.clone(), request))
}
