//! The spans of a client's calls, and the trace contexts that its requests carry.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use perennial_core::trace::{self, SpanContext, SpanId, TraceId};
use perennial_core::{TraceContext, log};
use tracing::Span;
use tracing::field::{Empty, display};
use uuid::Uuid;

use super::Client;
use crate::error::ClientError;

/// A call may take as long as the code that answers it, which may wait for months. Its span does not: a backend shows no
/// span that has not ended.
const LONGEST: Duration = Duration::from_secs(1);

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
    /// Waits for a call. The span ends with its outcome, or after [`LONGEST`] with the outcome `waiting`: what the call
    /// waits for has spans of its own.
    pub(super) async fn over<T>(
        self,
        call: impl Future<Output = Result<T, ClientError>>,
        outcome: impl FnOnce(&T) -> &'static str,
    ) -> Result<T, ClientError> {
        let Some(span) = self.span else { return call.await };
        let mut call = pin!(call);
        let Ok(answer) = tokio::time::timeout(LONGEST, &mut call).await else {
            span.record("outcome", "waiting");
            drop(span);
            return call.await;
        };
        match &answer {
            Ok(answer) => span.record("outcome", outcome(answer)),
            Err(error) => span.record("error", error.code().as_str()).record("outcome", "failed"),
        };
        answer
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
