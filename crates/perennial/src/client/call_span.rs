//! The spans of a client's calls, and the trace contexts that its requests carry.

use std::borrow::Cow;

use perennial_core::trace::{self, SpanContext, SpanId, TraceId};
use perennial_core::{ErrorCode, TraceContext, log};
use tracing::Span;
use tracing::field::{Empty, display};
use uuid::Uuid;

use super::Client;

/// The span of a start, query or update, if there is one.
pub(super) struct CallSpan {
    span: Option<Span>,
    /// The context that the request carries: that of the span, or else that of the caller.
    trace: Option<Box<TraceContext>>,
}

/// What a client is asked to do.
#[derive(Clone, Copy)]
pub(super) enum Call<'a> {
    Start(&'a str),
    Query(&'a str),
    Update(&'a str),
}

impl Client {
    /// The trace context of the caller: the one that was given, else that of the current span, else that of the attempt
    /// that the client belongs to.
    pub(super) fn caller_trace(&self) -> Option<Box<TraceContext>> {
        let current = || trace::source().and_then(|source| source.current()).map(Box::new);
        self.trace.clone().or_else(current).or_else(|| self.attempt_trace.clone())
    }

    /// Opens the span of a call. A call without a trace begins one, if it is sampled.
    pub(super) fn call_span(&self, call: Call<'_>, id: &str) -> CallSpan {
        let caller = self.caller_trace();
        let Some(source) = trace::source() else { return CallSpan { span: None, trace: caller } };
        let draw = || Uuid::new_v4().as_u128();
        let (parent, context) = match &caller {
            Some(caller) => match SpanContext::parse(caller) {
                Some(caller) => (Some(caller.span_id), caller.with_span(span_id(draw()))),
                None => return CallSpan { span: None, trace: Some(caller.clone()) },
            },
            None => {
                let trace_id = draw();
                (None, SpanContext::root(trace_id, span_id(draw()), source.samples(trace_id)))
            }
        };
        // A decision not to sample is recorded, too, so that nobody decides again.
        let unsampled = || Some(caller.clone().unwrap_or_else(|| context.to_context()));
        if !context.is_sampled() {
            return CallSpan { span: None, trace: unsampled() };
        }
        let span = open(call, id, &context, parent);
        match span.is_disabled() {
            true => CallSpan { span: None, trace: caller },
            false => CallSpan { span: Some(span), trace: Some(context.to_context()) },
        }
    }

    /// This client, for the requests of a call. Most calls have no span, and need no client of their own.
    pub(super) fn within(&self, span: &CallSpan) -> Cow<'_, Client> {
        match &span.trace {
            Some(trace) => Cow::Owned(Client { trace: Some(trace.clone()), ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }
}

impl CallSpan {
    /// Ends the span with the outcome of the call.
    pub(super) fn end(self, outcome: Result<&'static str, ErrorCode>) {
        let Some(span) = self.span else { return };
        if let Err(code) = outcome {
            span.record("error", code.as_str());
        }
        span.record("outcome", outcome.unwrap_or("failed"));
    }
}

/// The lower half of a random number, which is never zero for a UUID.
fn span_id(random: u128) -> u64 {
    random as u64
}

fn open(call: Call<'_>, instance: &str, context: &SpanContext, parent: Option<u64>) -> Span {
    let trace_id = display(TraceId(context.trace_id));
    let span_id = display(SpanId(context.span_id));
    let parent_id = parent.map(|parent| display(SpanId(parent)));
    match call {
        Call::Start(orchestration) => tracing::info_span!(
            target: log::TRACE, "start", instance, orchestration, trace_id, span_id, parent_id,
            outcome = Empty, error = Empty
        ),
        Call::Query(query) => tracing::info_span!(
            target: log::TRACE, "query", instance, query, trace_id, span_id, parent_id,
            outcome = Empty, error = Empty
        ),
        Call::Update(update) => tracing::info_span!(
            target: log::TRACE, "update", instance, update, trace_id, span_id, parent_id,
            outcome = Empty, error = Empty
        ),
    }
}
