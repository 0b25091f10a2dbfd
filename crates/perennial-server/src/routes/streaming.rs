//! The stream of live changes.

use axum::http::Method;
use perennial::ErrorCode;

use super::handler;
use crate::ask::Ask;
use crate::query::{Kind, Parameter, parameter};
use crate::route::{Answered, Cost, Output, Route};
use crate::stream;

pub(crate) fn routes() -> Vec<Route> {
    let many = |name, about| Parameter { many: true, ..parameter(name, Kind::Text, about) };
    let events = Output {
        status: 200,
        about: "Messages, until either side ends it.",
        media: "text/event-stream",
        schema: None,
    };
    vec![
        Route::new(
            Method::GET,
            "stream",
            "followChanges",
            "Live changes over one connection.",
            handler!(follow),
        )
        .cost(Cost::Stream)
        .takes(&[
            many("instance", "An instance whose turns are sent, each once and in order; up to 20."),
            many("list", "A filter whose rows are sent, which may have `include`; up to 5."),
            parameter("stats", Kind::Flag, "Whether counts are sent."),
            parameter("operations", Kind::Flag, "Whether the operations of this server are sent."),
            parameter(
                "others",
                Kind::OneOf(&["beginning", "now"]),
                "Where instances begin that `from` does not know; at their beginning if not given.",
            ),
            parameter(
                "from",
                Kind::Text,
                "The id of the last message, or `now`; the header Last-Event-ID is preferred.",
            ),
        ])
        .answers(&[events])
        .fails_with(&[ErrorCode::BadCursor, ErrorCode::InvalidName]),
    ]
}

async fn follow(ask: Ask) -> Answered {
    stream::open(&ask).await
}
