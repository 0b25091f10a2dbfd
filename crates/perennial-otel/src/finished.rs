//! A closed span in the form of OpenTelemetry: names, kinds, attributes, links and status.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tracing::Metadata;

use crate::fields::Fields;
use crate::layer::OpenSpan;

/// The attributes of Perennial's spans, by the names of their fields.
const ATTRIBUTES: [(&str, &str); 12] = [
    ("instance", "perennial.instance.id"),
    ("key", "perennial.instance.key"),
    ("execution", "perennial.execution"),
    ("orchestration", "perennial.orchestration"),
    ("version", "perennial.version"),
    ("turn", "perennial.turn"),
    ("event", "perennial.event.id"),
    ("activity", "perennial.activity"),
    ("attempt", "perennial.attempt"),
    ("node", "perennial.node"),
    ("outcome", "perennial.outcome"),
    ("error", ERROR_TYPE),
];

const ERROR_TYPE: &str = "error.type";

/// The span as it is exported; `None` if it is one of Perennial's that came to nothing: a turn that was not recorded, or an
/// attempt that runs again elsewhere.
pub(crate) fn finished(
    open: OpenSpan,
    metadata: &Metadata<'_>,
    scope: &InstrumentationScope,
) -> Option<SpanData> {
    let OpenSpan { context, parent, is_perennials, began, fields } = open;
    let context = context?;
    let is_http = metadata.name() == "http";
    let is_complete = fields.has(if is_http { "http.response.status_code" } else { "outcome" });
    if is_perennials && !is_complete {
        return None;
    }
    // Recorded at the end: lines of the log show what is recorded before.
    let (span_id, parent) = match is_perennials {
        true => (fields.id("span_id").unwrap_or(context.span_id), fields.id("parent_id")),
        false => (context.span_id, parent),
    };
    let mut links = SpanLinks::default();
    links.links = fields.text("links").into_iter().flat_map(str::split_whitespace).filter_map(link).collect();
    let (name, span_kind) = match is_perennials {
        true => (perennials_name(metadata.name(), &fields), perennials_kind(metadata.name())),
        false => (own_name(metadata, &fields), own_kind(&fields)),
    };
    let status = status(is_perennials, &fields);
    let attributes = match is_perennials {
        true => fields.into_values().filter_map(|(name, value)| perennials_attribute(name, value)).collect(),
        false => fields.into_values().filter_map(|(name, value)| own_attribute(name, value)).collect(),
    };
    Some(SpanData {
        span_context: span_context(context.trace_id, span_id),
        parent_span_id: SpanId::from(parent.unwrap_or_default()),
        parent_span_is_remote: is_http && parent.is_some(),
        span_kind,
        name,
        start_time: began,
        end_time: SystemTime::now().max(began),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: scope.clone(),
    })
}

fn span_context(trace_id: u128, span_id: u64) -> SpanContext {
    let (trace_id, span_id) = (TraceId::from(trace_id), SpanId::from(span_id));
    SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, false, TraceState::default())
}

fn link(text: &str) -> Option<Link> {
    let (trace_id, span_id) = text.split_once('-')?;
    let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
    let span_id = u64::from_str_radix(span_id, 16).ok()?;
    Some(Link::new(span_context(trace_id, span_id), Vec::new(), 0))
}

fn perennials_name(name: &'static str, fields: &Fields) -> Cow<'static, str> {
    let (what, subject) = match name {
        "http" => (fields.text("http.request.method").unwrap_or("HTTP"), fields.text("http.route")),
        "activity" | "query" | "update" => (name, fields.text(name)),
        _ => (name, fields.text("orchestration")),
    };
    match subject {
        Some(subject) => Cow::Owned(format!("{what} {subject}")),
        None => Cow::Owned(what.to_owned()),
    }
}

fn perennials_kind(name: &str) -> SpanKind {
    match name {
        "start" => SpanKind::Producer,
        "turn" => SpanKind::Consumer,
        "query" | "update" => SpanKind::Client,
        "http" => SpanKind::Server,
        _ => SpanKind::Internal,
    }
}

fn perennials_attribute(name: &'static str, value: Value) -> Option<KeyValue> {
    // Attributes of HTTP have the names of the conventions already.
    let is_final = name.contains('.');
    let known = ATTRIBUTES.iter().find(|(field, _)| *field == name).map(|(_, attribute)| *attribute);
    let attribute = if is_final { Some(name) } else { known };
    attribute.map(|attribute| KeyValue::new(Key::from_static_str(attribute), value))
}

/// The name of a span of the program's own code. The fields that begin with `otel.` are those that
/// `tracing-opentelemetry` knows.
fn own_name(metadata: &Metadata<'_>, fields: &Fields) -> Cow<'static, str> {
    Cow::Owned(fields.text("otel.name").unwrap_or(metadata.name()).to_owned())
}

fn own_kind(fields: &Fields) -> SpanKind {
    match fields.text("otel.kind").map(str::to_ascii_lowercase).as_deref() {
        Some("server") => SpanKind::Server,
        Some("client") => SpanKind::Client,
        Some("producer") => SpanKind::Producer,
        Some("consumer") => SpanKind::Consumer,
        _ => SpanKind::Internal,
    }
}

fn own_attribute(name: &'static str, value: Value) -> Option<KeyValue> {
    (!name.starts_with("otel.")).then(|| KeyValue::new(Key::from_static_str(name), value))
}

fn status(is_perennials: bool, fields: &Fields) -> Status {
    if is_perennials {
        let has_failed = fields.has("error") || fields.has(ERROR_TYPE);
        return if has_failed { Status::error("") } else { Status::Unset };
    }
    match fields.text("otel.status_code").map(str::to_ascii_lowercase).as_deref() {
        Some("ok") => Status::Ok,
        Some("error") => Status::error(fields.text("otel.status_message").unwrap_or_default().to_owned()),
        _ => Status::Unset,
    }
}
