//! The span of an attempt: around its code for the log, and in the trace of its instance.

use perennial_core::log;
use perennial_core::shard::ActivityTask;
use perennial_core::trace::{self, SpanContext, SpanId, TraceId, attempt_span_id};
use perennial_core::{ActivityError, Payload, TraceContext};
use tracing::Span;
use tracing::field::{Empty, display};

/// The span of an attempt. It is exported only if [`end`](AttemptSpan::end) is called: an attempt that is released runs
/// again, under the same id.
pub(super) struct AttemptSpan {
    pub(super) span: Span,
    /// The attempt in its trace, if its span is exported.
    context: Option<SpanContext>,
}

impl AttemptSpan {
    pub(super) fn open(task: &ActivityTask) -> AttemptSpan {
        let turn = task.trace.as_deref().and_then(SpanContext::parse);
        let is_exported = |turn: &&SpanContext| turn.is_sampled() && trace::source().is_some();
        let context = turn
            .as_ref()
            .filter(is_exported)
            .map(|turn| turn.with_span(attempt_span_id(task.key, task.execution, task.event, task.attempt)));
        let span = tracing::info_span!(
            target: log::ACTIVITY,
            "activity",
            instance = &*task.instance,
            execution = task.execution,
            event = task.event.0,
            attempt = task.attempt,
            activity = task.name,
            trace_id = turn.as_ref().map(|turn| display(TraceId(turn.trace_id))),
            span_id = context.as_ref().map(|context| display(SpanId(context.span_id))),
            parent_id = Empty,
            key = Empty,
            node = Empty,
            outcome = Empty,
            error = Empty,
        );
        let context = context.filter(|_| !span.is_disabled());
        if let Some(turn) = turn.filter(|_| context.is_some()) {
            span.record("parent_id", display(SpanId(turn.span_id))).record("key", display(task.key));
        }
        AttemptSpan { span, context }
    }

    /// The context that the attempt's own calls carry: its own, or else that of what scheduled it.
    pub(super) fn trace(&self, task: &ActivityTask) -> Option<Box<TraceContext>> {
        self.context.as_ref().map(SpanContext::to_context).or_else(|| task.trace.clone())
    }

    /// Ends the span with the outcome of the attempt.
    pub(super) fn end(self, node: &str, result: &Result<Payload, ActivityError>, is_left_open: bool) {
        if self.context.is_none() {
            return;
        }
        let outcome = match result {
            Ok(_) if is_left_open => "open",
            Ok(_) => "completed",
            Err(ActivityError::Cancelled) => "cancelled",
            Err(ActivityError::Timeout(_)) => "timeout",
            Err(_) => "failed",
        };
        if let Err(error) = result
            && outcome != "cancelled"
        {
            self.span.record("error", error.kind());
        }
        self.span.record("node", node).record("outcome", outcome);
    }
}
