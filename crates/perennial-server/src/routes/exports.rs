//! Exports: histories as lines of JSON.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Response, header};
use perennial::{Client, ClientError, ErrorCode};
use tokio::sync::mpsc;

use super::{KEY, OF_INSTANCE, handler};
use crate::answer::{self, Payloads};
use crate::ask::Ask;
use crate::listing::{FILTERS, Selection};
use crate::problem::Problem;
use crate::redact;
use crate::route::{Answered, Cost, Output, Route};
use crate::stop::Stop;

const LINES: &str = "application/x-ndjson";

pub(crate) fn routes() -> Vec<Route> {
    let about = "Lines of JSON; the last one says that it is complete.";
    let lines = Output { status: 200, about, media: LINES, schema: None };
    vec![
        Route::new(
            Method::GET,
            "instances/{id}/export",
            "exportInstance",
            "Its histories as a line of JSON.",
            handler!(export_one),
        )
        .cost(Cost::Heavy)
        .takes(&[KEY])
        .fails_with(OF_INSTANCE)
        .answers(&[lines]),
        Route::new(
            Method::GET,
            "export",
            "exportInstances",
            "Histories of a filter's instances as lines of JSON.",
            handler!(export),
        )
        .cost(Cost::Heavy)
        .takes(FILTERS)
        .answers(&[lines]),
    ]
}

async fn export_one(ask: Ask) -> Answered {
    let client = ask.client()?;
    let mut exported = client.export(ask.id()).await?;
    if ask.hides_payloads() {
        redact::exported(&mut exported);
    }
    let mut body = answer::json(&exported, ask.payloads())?;
    body.extend_from_slice(b"\n{\"complete\":true,\"instances\":1}\n");
    Ok(lines(Body::from(body)))
}

/// Streams histories. An error after the first byte ends the body without its last line.
async fn export(mut ask: Ask) -> Answered {
    let client = ask.client()?;
    let selection = Selection::of(&client, &ask.query).await?;
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let (payloads, turn) = (ask.payloads(), ask.turn.take());
    let (stop, patience) = (ask.server.stop().clone(), ask.server.options.times.stalled);
    let lines_out = LinesOut { sender, patience };
    tokio::spawn(async move {
        // The export is what takes time, and not the request for it.
        let _turn = turn;
        if let Err(problem) = export_all(&client, &selection, payloads, &lines_out, &stop).await {
            lines_out.send(Err(std::io::Error::other(problem.code().to_string()))).await;
        }
    });
    Ok(lines(Body::from_stream(futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|line| (line, receiver))
    }))))
}

/// Where the lines of an export go.
struct LinesOut {
    sender: mpsc::Sender<Result<Bytes, std::io::Error>>,
    patience: Duration,
}

impl LinesOut {
    /// Sends a line. Returns whether its reader is there: one that takes nothing keeps others from their exports.
    async fn send(&self, line: Result<Bytes, std::io::Error>) -> bool {
        matches!(tokio::time::timeout(self.patience, self.sender.send(line)).await, Ok(Ok(())))
    }
}

async fn export_all(
    client: &Client,
    selection: &Selection,
    payloads: Payloads<'static>,
    lines_out: &LinesOut,
    stop: &Stop,
) -> Result<(), Problem> {
    let (mut after, mut instances) = (None, 0_u64);
    loop {
        if stop.is_stopped() {
            return Err(Problem::new(ErrorCode::Stopping, "the server is stopping"));
        }
        let page = selection.page(client, after, 100).await?;
        for row in &page.rows {
            let mut exported = match client.bound_to(row.key).export(&row.id).await {
                Ok(exported) => exported,
                // Deleted since it was listed.
                Err(ClientError::NotFound { .. } | ClientError::AnotherInstance { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if payloads == Payloads::Hidden {
                redact::exported(&mut exported);
            }
            let mut line = answer::json(&exported, payloads)?;
            line.push(b'\n');
            if !lines_out.send(Ok(line.into())).await {
                return Ok(());
            }
            instances += 1;
        }
        after = page.next;
        if after.is_none() {
            let line = format!("{{\"complete\":true,\"instances\":{instances}}}\n");
            lines_out.send(Ok(line.into())).await;
            return Ok(());
        }
    }
}

fn lines(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    response
}
