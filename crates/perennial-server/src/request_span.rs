//! The span of a request, by OpenTelemetry's conventions for HTTP servers.
//!
//! It ends with the head of the answer, so that a stream does not keep it open. The requests of its handler to the engine
//! belong to it.

use axum::body::Body;
use axum::extract::OriginalUri;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Response};
use perennial::traces::{self, SpanContext, SpanId, TraceContext, TraceId};
use tracing::Span;
use tracing::field::{Empty, display};
use uuid::Uuid;

use crate::route::Route;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

/// Opens the span of a request, and makes it the trace context of the request. Without a span the context stays as the
/// caller sent it. A request without one belongs to the current span, which the application around a mounted router may
/// have opened.
pub(crate) fn open(parts: &mut Parts, is_secure: bool) -> Span {
    let Some(source) = traces::source() else { return Span::none() };
    let header = |name: &HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let sent = header(&PARENT).and_then(|parent| TraceContext::new(parent, header(&STATE)).ok());
    // A malformed context is ignored, as the standard asks.
    let sent = sent.as_ref().and_then(SpanContext::parse);
    let caller = sent.or_else(|| SpanContext::parse(&source.current()?));
    let draw = || Uuid::new_v4().as_u128();
    // The lower half of a UUID is never zero.
    let span_id = draw() as u64;
    let context = match &caller {
        Some(caller) => caller.with_span(span_id),
        None => {
            let trace_id = draw();
            SpanContext::root(trace_id, span_id, source.samples(trace_id))
        }
    };
    if !context.is_sampled() {
        carry(parts, &context, caller.is_none());
        return Span::none();
    }
    let span = tracing::info_span!(
        target: crate::LOG,
        "http",
        http.request.method = parts.method.as_str(),
        url.path = whole_path(parts),
        url.scheme = if is_secure { "https" } else { "http" },
        trace_id = %TraceId(context.trace_id),
        span_id = %SpanId(context.span_id),
        parent_id = caller.as_ref().map(|caller| display(SpanId(caller.span_id))),
        http.route = Empty,
        http.response.status_code = Empty,
        error.type = Empty,
    );
    carry(parts, &context, !span.is_disabled());
    span
}

/// Notes which route answers, below the prefix under which the router is mounted.
pub(crate) fn route(route: &Route, parts: &Parts) {
    let span = Span::current();
    if !span.is_disabled() {
        let prefix = whole_path(parts).strip_suffix(parts.uri.path()).unwrap_or_default();
        let base = if route.path.starts_with('/') { "" } else { "/api/v1/" };
        span.record("http.route", display(format_args!("{prefix}{base}{}", route.path)));
    }
}

/// The path that the caller asked for: a router that is mounted sees the rest of it.
fn whole_path(parts: &Parts) -> &str {
    parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |original| original.0.path())
}

/// Ends the span with the answer. The errors of callers are not errors of the server.
pub(crate) fn end(span: &Span, response: &Response<Body>, code: Option<&str>) {
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("error.type", code.unwrap_or(status.as_str()));
    }
}

fn carry(parts: &mut Parts, context: &SpanContext, is_changed: bool) {
    if let Ok(parent) = HeaderValue::from_str(&context.traceparent())
        && is_changed
    {
        parts.headers.insert(PARENT, parent);
    }
}
