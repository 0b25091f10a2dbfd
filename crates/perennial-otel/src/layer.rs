//! The layer: gives each span its place in a trace, and exports it when it is closed.

use std::sync::Arc;
use std::time::SystemTime;

use perennial_core::TraceContext;
use perennial_core::trace::{SpanContext, TraceSource, set_source};
use tracing::dispatcher;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::Inner;
use crate::fields::Fields;
use crate::finished::finished;

/// Exports spans. See [`Traces::layer`](crate::Traces::layer).
pub struct TraceLayer {
    inner: Arc<Inner>,
}

/// A span that is not closed.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    /// Its place in a trace; `None` if it is in none.
    pub(crate) context: Option<SpanContext>,
    pub(crate) parent: Option<u64>,
    /// Whether it is a span of Perennial's, which brings its own ids.
    pub(crate) is_perennials: bool,
    pub(crate) began: SystemTime,
    pub(crate) fields: Fields,
}

impl OpenSpan {
    fn is_exported(&self) -> bool {
        self.context.as_ref().is_some_and(SpanContext::is_sampled)
    }
}

impl TraceLayer {
    pub(crate) fn new(inner: Arc<Inner>) -> TraceLayer {
        // The first layer of a process decides what is sampled.
        let _ = set_source(Source { inner: Arc::clone(&inner) });
        TraceLayer { inner }
    }

    fn open(&self, metadata: &Metadata<'_>, fields: Fields, parent: Option<&OpenSpan>) -> OpenSpan {
        let began = SystemTime::now();
        if metadata.target().starts_with("perennial::") {
            // Without an id of its own it is only there for the log, and so is everything in it.
            let context = fields.trace_id().zip(fields.id("span_id"));
            let context = context.map(|(trace_id, span_id)| SpanContext::root(trace_id, span_id, true));
            return OpenSpan { context, parent: None, is_perennials: true, began, fields };
        }
        let (parent, context) = match parent {
            Some(parent) => {
                let context = parent.context.as_ref().map(|context| context.with_span(random_id()));
                (parent.context.as_ref().map(|context| context.span_id), context)
            }
            None => {
                let trace_id = u128::from(random_id()) << 64 | u128::from(random_id());
                let is_sampled = self.inner.sampling.samples(trace_id);
                (None, Some(SpanContext::root(trace_id, random_id(), is_sampled)))
            }
        };
        OpenSpan { context, parent, is_perennials: false, began, fields }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let open = match span.parent() {
            Some(parent) => self.open(attributes.metadata(), fields, parent.extensions().get::<OpenSpan>()),
            None => self.open(attributes.metadata(), fields, None),
        };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>().filter(|open| open.is_exported()) {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let open = span.extensions_mut().remove::<OpenSpan>().filter(OpenSpan::is_exported);
        if let Some(data) = open.and_then(|open| finished(open, span.metadata(), &self.inner.scope)) {
            self.inner.processor.on_end(data);
        }
    }
}

/// Tells Perennial which span is current.
struct Source {
    inner: Arc<Inner>,
}

impl TraceSource for Source {
    fn current(&self) -> Option<TraceContext> {
        dispatcher::get_default(|dispatch| {
            let current = dispatch.current_span();
            let span = dispatch.downcast_ref::<Registry>()?.span(current.id()?)?;
            let extensions = span.extensions();
            let context = extensions.get::<OpenSpan>()?.context.as_ref()?;
            Some(*context.to_context())
        })
    }

    fn samples(&self, trace_id: u128) -> bool {
        self.inner.sampling.samples(trace_id)
    }
}

/// A random number, not zero.
fn random_id() -> u64 {
    getrandom::u64().expect("the system has random numbers").max(1)
}
