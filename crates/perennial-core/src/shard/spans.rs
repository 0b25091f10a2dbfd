//! The spans of turns, and the trace contexts that turns pass on.
//!
//! A turn's span is open from before its code runs until its commit is durable, and only then gets its outcome. A span
//! that is closed without an outcome was not recorded, and exporters leave it out. Replayed turns have no spans.
//!
//! A turn is a child of the start of its execution. A child instance is in the trace of its parent; a detached start and
//! the next execution begin a trace of their own, whose start links back to the turn.

use std::fmt::Write;
use std::sync::Arc;

use tracing::Span;
use tracing::field::{Empty, display};

use crate::execution::Execution;
use crate::history::{Decision, Ending, EventId, Job, Ledger, Started, TIMEOUT_REASON, TraceContext, Turn};
use crate::instance::InstanceKey;
use crate::log;
use crate::trace::{
    self, CALLER, SpanContext, SpanId, TraceId, attempt_span_id, failed_turn_span_id, new_trace,
    start_span_id, turn_span_id,
};

use super::block_reason::BlockReason;
use super::outgoing::{Sender, child_id};

/// The links that a span has at most.
const MAX_LINKS: usize = 128;

/// The span of a turn that is being taken.
#[derive(Debug)]
pub struct TurnSpan {
    span: Span,
    /// The start of the execution, which is the parent of the span.
    start: SpanContext,
    /// The turn itself.
    context: SpanContext,
    node: Arc<str>,
}

/// The span of a turn that was taken and is being written.
pub(super) struct TakenSpan {
    span: Span,
    outcome: &'static str,
    error: Option<&'static str>,
    starts: Vec<StartSpan>,
    node: Arc<str>,
}

/// The start of an instance or execution by a turn.
struct StartSpan {
    instance: String,
    execution: u64,
    event: EventId,
    orchestration: String,
    context: SpanContext,
    parent: Option<u64>,
    link: Option<String>,
}

impl TurnSpan {
    /// Opens the span of the next turn of an execution, if its trace is sampled and a subscriber wants it.
    pub(super) fn open(
        key: InstanceKey,
        instance: &str,
        node: &Arc<str>,
        started: &Started,
        turn: u64,
    ) -> Option<Box<TurnSpan>> {
        trace::source()?;
        let start = started.trace.as_deref().and_then(SpanContext::parse).filter(SpanContext::is_sampled)?;
        let context = start.with_span(turn_span_id(key, started.execution, turn));
        let span = tracing::info_span!(
            target: log::TRACE,
            parent: None,
            "turn",
            instance,
            execution = started.execution,
            turn,
            orchestration = started.name,
            trace_id = %TraceId(context.trace_id),
            span_id = %SpanId(context.span_id),
            parent_id = Empty,
            links = Empty,
            event = Empty,
            key = Empty,
            version = Empty,
            node = Empty,
            outcome = Empty,
            error = Empty,
        );
        if span.is_disabled() {
            return None;
        }
        span.record("key", display(key)).record("version", &*started.version);
        Some(Box::new(TurnSpan { span, start, context, node: Arc::clone(node) }))
    }

    /// Opens the span of the turn that an execution is about to take.
    pub(super) fn next(
        key: InstanceKey,
        instance: &str,
        node: Option<&Arc<str>>,
        execution: &Execution,
    ) -> Option<Box<TurnSpan>> {
        TurnSpan::open(key, instance, node?, execution.started(), execution.ledger().turns() + 1)
    }

    /// Runs the code of the turn. Its log lines are in the span.
    pub(super) fn in_scope<T>(span: Option<&TurnSpan>, run: impl FnOnce() -> T) -> T {
        match span {
            Some(span) => span.span.in_scope(run),
            None => run(),
        }
    }

    /// Closes the span of a turn that failed. It is not the span of the turn, which may be taken later.
    pub(super) fn failed(self, key: InstanceKey, execution: &Execution, now_ms: u64, failure: &BlockReason) {
        let of = execution.started().execution;
        let span_id = failed_turn_span_id(key, of, execution.ledger().turns(), now_ms);
        self.span.record("span_id", display(SpanId(span_id)));
        self.span.record("parent_id", display(SpanId(self.start.span_id)));
        self.span.record("node", &*self.node);
        self.span.record("error", failure.code().as_str()).record("outcome", "failed");
    }

    /// The span of a turn that was taken, with everything that is known before it is durable.
    pub(super) fn taken(self, from: &Sender<'_>, turn: &Turn, next: Option<&TraceContext>) -> Box<TakenSpan> {
        let TurnSpan { span, start, context, node } = self;
        span.record("parent_id", display(SpanId(start.span_id))).record("node", &*node);
        if let Some(first) = turn.events.first() {
            span.record("event", first.id.0);
        }
        let links = links(from, &start, turn);
        if !links.is_empty() {
            span.record("links", &*links);
        }
        let (outcome, error) = outcome_of(turn.ending());
        let starts = starts(from, &start, &context, turn, next);
        Box::new(TakenSpan { span, outcome, error, starts, node })
    }
}

impl TakenSpan {
    /// Runs what follows from the turn. Its log lines are in the span.
    pub(super) fn in_scope(span: Option<&TakenSpan>, run: impl FnOnce()) {
        match span {
            Some(span) => span.span.in_scope(run),
            None => run(),
        }
    }

    /// Closes the spans of a turn that is durable, and of the starts that it sent.
    pub(super) fn close(self) {
        let TakenSpan { span, outcome, error, starts, node } = self;
        if let Some(error) = error {
            span.record("error", error);
        }
        span.record("outcome", outcome);
        for start in starts {
            let StartSpan { instance, execution, event, orchestration, context, parent, link } = start;
            let start = tracing::info_span!(
                target: log::TRACE,
                parent: None,
                "start",
                instance,
                execution,
                event = event.0,
                orchestration,
                trace_id = %TraceId(context.trace_id),
                span_id = %SpanId(context.span_id),
                parent_id = parent.map(|parent| display(SpanId(parent))),
                links = link,
                node = &*node,
                outcome = "started",
            );
            drop(start);
        }
    }
}

/// How a turn leaves its execution, and the kind of error that it ends with.
fn outcome_of(ending: Option<&Ending>) -> (&'static str, Option<&'static str>) {
    match ending {
        None => ("running", None),
        Some(Ending::OrchestrationCompleted { .. }) => ("completed", None),
        Some(Ending::OrchestrationFailed { .. }) => ("failed", Some("failed")),
        Some(Ending::OrchestrationContinuedAsNew { .. }) => ("continued", None),
        Some(Ending::OrchestrationCancelled { .. }) => ("cancelled", None),
        Some(Ending::OrchestrationTerminated { reason }) if reason == TIMEOUT_REASON => {
            ("terminated", Some("timeout"))
        }
        Some(Ending::OrchestrationTerminated { .. }) => ("terminated", Some("terminated")),
    }
}

/// The attempts, children, events and updates that woke a turn.
fn links(from: &Sender<'_>, start: &SpanContext, turn: &Turn) -> String {
    let here = |span_id| Some(start.with_span(span_id));
    // The result of an activity that a reset took over may be that of an attempt of an earlier execution.
    let reset = from.started.reset.as_ref();
    let is_kept = |event| reset.is_some_and(|reset| reset.same.iter().any(|(_, last)| event <= *last));
    let linked = turn.jobs().filter_map(|(_, job)| match job {
        Job::ActivityCompleted { source_event_id, attempts, .. }
        | Job::ActivityFailed { source_event_id, attempts, .. } => {
            let id = attempt_span_id(from.key, from.started.execution, *source_event_id, *attempts);
            here(id).filter(|_| *attempts > 0 && !is_kept(*source_event_id))
        }
        Job::SubOrchestrationCompleted { source_event_id, .. }
        | Job::SubOrchestrationFailed { source_event_id, .. } => {
            here(start_span_id(from.key, from.started.starter_of(*source_event_id), *source_event_id))
        }
        Job::ExternalEvent { trace, .. } | Job::UpdateRequested { trace, .. } => {
            trace.as_deref().and_then(SpanContext::parse)
        }
        _ => None,
    });
    let mut links = String::new();
    for link in linked.take(MAX_LINKS) {
        add_link(&mut links, &link);
    }
    links
}

fn add_link(links: &mut String, link: &SpanContext) {
    let separator = if links.is_empty() { "" } else { " " };
    // Writing to a string cannot fail.
    let _ = write!(links, "{separator}{}-{}", TraceId(link.trace_id), SpanId(link.span_id));
}

/// The spans of the starts that a turn sends, and of its own start if nobody else emits that.
fn starts(
    from: &Sender<'_>,
    start: &SpanContext,
    context: &SpanContext,
    turn: &Turn,
    next: Option<&TraceContext>,
) -> Vec<StartSpan> {
    let Sender { key, id, started, .. } = *from;
    let mut starts = Vec::new();
    if turn.number == 1 && start.span_id == start_span_id(key, started.execution, CALLER) {
        starts.push(StartSpan {
            instance: id.to_owned(),
            execution: started.execution,
            event: EventId(1),
            orchestration: started.name.clone(),
            context: start.clone(),
            parent: None,
            link: None,
        });
    }
    let mut back = String::new();
    add_link(&mut back, context);
    for (event, _, decision) in turn.decisions() {
        let (name, instance, sent) = match decision {
            Decision::SubOrchestrationScheduled { name, instance, .. } if turn.ending().is_none() => {
                let derived = || child_id(id, started.execution, event);
                (name, instance.clone().unwrap_or_else(derived), of_child(from, event))
            }
            Decision::OrchestrationChained { name, instance, .. } => {
                (name, instance.clone(), of_detached(from, event))
            }
            _ => continue,
        };
        let Some(sent) = sent.as_deref().and_then(SpanContext::parse) else { continue };
        let is_same_trace = sent.trace_id == context.trace_id;
        starts.push(StartSpan {
            instance,
            execution: 1,
            event,
            orchestration: name.clone(),
            context: sent,
            parent: is_same_trace.then_some(context.span_id),
            link: (!is_same_trace).then(|| back.clone()),
        });
    }
    if let Some(next) = next.and_then(SpanContext::parse) {
        starts.push(StartSpan {
            instance: id.to_owned(),
            execution: started.execution + 1,
            event: turn.events.last().map_or(CALLER, |event| event.id),
            orchestration: started.name.clone(),
            context: next,
            parent: None,
            link: Some(back),
        });
    }
    starts
}

/// The context that the attempts of an activity have as their parent: that of the turn that scheduled it.
pub(super) fn of_attempts(
    key: InstanceKey,
    execution: u64,
    ledger: &Ledger,
    event: EventId,
) -> Option<Box<TraceContext>> {
    let recorded = ledger.trace()?;
    let turn = trace::source().and(ledger.scheduled_in(event));
    let start = SpanContext::parse(recorded).filter(SpanContext::is_sampled);
    Some(match start.zip(turn) {
        Some((start, turn)) => start.with_span(turn_span_id(key, execution, turn)).to_context(),
        None => Box::new(recorded.clone()),
    })
}

/// The context of a child that waits for its start. Without a span that starts it, it has that of its parent's caller.
pub(super) fn of_child(from: &Sender<'_>, event: EventId) -> Option<Box<TraceContext>> {
    sent_with(from, start_span_id(from.key, from.started.execution, event))
}

/// The context of an event that a turn sends to another instance: that of the turn.
pub(super) fn of_sent_event(from: &Sender<'_>) -> Option<Box<TraceContext>> {
    sent_with(from, turn_span_id(from.key, from.started.execution, from.turn.unwrap_or_default()))
}

/// The context of a detached start, or of the next execution: a trace of its own, sampled like this one.
pub(super) fn of_detached(from: &Sender<'_>, event: EventId) -> Option<Box<TraceContext>> {
    let recorded = from.started.trace.as_ref()?;
    Some(match SpanContext::parse(recorded) {
        Some(start) => new_trace(from.key, from.started.execution, event, start.is_sampled()).to_context(),
        None => recorded.clone(),
    })
}

fn sent_with(from: &Sender<'_>, span_id: u64) -> Option<Box<TraceContext>> {
    let recorded = from.started.trace.as_ref()?;
    let start = from.turn.and_then(|_| SpanContext::parse(recorded));
    Some(start.map_or_else(|| recorded.clone(), |start| start.with_span(span_id).to_context()))
}
