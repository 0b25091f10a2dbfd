//! An HTTP service with axum: it places orders, takes approvals, and answers what became of an order. It stops
//! cleanly on Ctrl-C and SIGTERM.
//!
//! ```sh
//! cargo run --example web_service
//! curl -X PUT localhost:3000/orders/42 -H 'content-type: application/json' -d '"socks"'
//! curl localhost:3000/orders/42
//! curl -X POST localhost:3000/orders/42/approval
//! ```

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use perennial::prelude::*;

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");

#[activity]
async fn ship(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(format!("{item} are on their way"))
}

#[orchestration(uses(ship))]
async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    if !ctx.schedule_wait(APPROVED).await {
        return Err("not approved".to_owned());
    }
    Ok(ctx.schedule_activity(ship, item).await?)
}

/// Durable when it is answered. A repeated request finds the same order.
async fn place(
    State(client): State<Client>,
    Path(id): Path<String>,
    Json(item): Json<String>,
) -> Result<StatusCode, Failure> {
    let options = StartOptions::default().on_existing(OnExisting::Use);
    client.start_with(order, &id, item, options).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn approve(State(client): State<Client>, Path(id): Path<String>) -> Result<StatusCode, Failure> {
    client.raise_event(&id, APPROVED, true).await?;
    Ok(StatusCode::ACCEPTED)
}

/// The result, or what the order waits for. A handler must not wait for an order without a limit: orders take days.
async fn look(State(client): State<Client>, Path(id): Path<String>) -> Result<Response, Failure> {
    match client.run(order, &id).result_within(Duration::from_secs(1)).await {
        Ok(shipped) => Ok(shipped.into_response()),
        Err(RunError::Client(ClientError::Elapsed { .. })) => {
            let waits = client.explain(&id).await?.to_string();
            Ok((StatusCode::ACCEPTED, waits).into_response())
        }
        Err(RunError::Client(error)) => Err(error.into()),
        // The order's own error, or that somebody cancelled or terminated it.
        Err(error) => Ok((StatusCode::CONFLICT, error.to_string()).into_response()),
    }
}

/// An error of the client as an answer.
struct Failure(ClientError);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            ClientError::NotFound { .. } => StatusCode::NOT_FOUND,
            ClientError::Ended { .. } | ClientError::AlreadyExists { .. } => StatusCode::CONFLICT,
            error if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        (status, format!("{}; {}\n", self.0, self.0.remedy())).into_response()
    }
}

/// Completes on Ctrl-C, and on the SIGTERM of a supervisor.
async fn stop_requested() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let store = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let runtime = Runtime::open(&store).register(order).register(ship).start().await?;
    let service = Router::new()
        .route("/orders/{id}", get(look).put(place))
        .route("/orders/{id}/approval", post(approve))
        .with_state(runtime.client());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, service).into_future() => served?,
        stopped = stop_requested() => stopped?,
        // A full disk, for instance. The supervisor starts the process again.
        error = runtime.failed() => return Err(error.into()),
    }
    // Running activities get 10 s to finish, everything in flight is written, and the store is released.
    runtime.shutdown().await?;
    println!("stopped");
    Ok(())
}
