//! Exports the traces of Perennial, and of the program around it, through OpenTelemetry.
//!
//! [`Traces::layer`] is a layer for `tracing-subscriber`. It exports every span that reaches it: Perennial's, with the ids
//! that Perennial gives them, and those of your own code, as children of the span that they are in. So the spans of an
//! activity's code belong to its attempt, and an instance that is started within a span belongs to that span.
//!
//! ```no_run
//! use perennial_otel::{OtlpOptions, Traces};
//! use tracing_subscriber::prelude::*;
//!
//! # fn main() -> Result<(), perennial_otel::SetupError> {
//! // Sends to http://localhost:4318, unless OTEL_EXPORTER_OTLP_ENDPOINT names another collector.
//! let traces = Traces::otlp(OtlpOptions::default().service_name("shop"))?;
//! tracing_subscriber::registry().with(traces.layer()).init();
//! // Run your program, and at its end:
//! traces.shutdown();
//! # Ok(())
//! # }
//! ```

mod fields;
mod finished;
mod http;
mod layer;
mod otlp;
mod sampling;

use std::fmt;
use std::sync::Arc;

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::SpanProcessor;

pub use layer::TraceLayer;
pub use otlp::{OtlpOptions, SetupError};
pub use sampling::Sampling;

/// An exporter of traces. Cloning is cheap.
#[derive(Clone)]
pub struct Traces {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) processor: Box<dyn SpanProcessor>,
    pub(crate) sampling: Sampling,
    pub(crate) scope: InstrumentationScope,
}

impl Traces {
    /// Hands finished spans to a span processor of yours, such as a `BatchSpanProcessor` with an exporter of your choice.
    /// Resource attributes are the processor's own matter.
    pub fn with_processor(processor: impl SpanProcessor + 'static, sampling: Sampling) -> Traces {
        let scope =
            InstrumentationScope::builder("perennial").with_version(env!("CARGO_PKG_VERSION")).build();
        Traces { inner: Arc::new(Inner { processor: Box::new(processor), sampling, scope }) }
    }

    /// The layer that exports spans. Creating the first one of a process makes Perennial emit its spans, and begins
    /// to decide which traces are sampled.
    pub fn layer(&self) -> TraceLayer {
        TraceLayer::new(Arc::clone(&self.inner))
    }

    /// Exports all finished spans now.
    pub fn flush(&self) {
        report(self.inner.processor.force_flush());
    }

    /// Exports all finished spans and ends the exporter. To be called at the end of the program, after the runtime has
    /// shut down: spans that finish later are lost.
    pub fn shutdown(&self) {
        report(self.inner.processor.shutdown());
    }
}

/// Spans are for people who look at them, so a program does not fail because they are lost.
fn report(outcome: opentelemetry_sdk::error::OTelSdkResult) {
    if let Err(error) = outcome {
        tracing::warn!(target: "perennial::otel", %error, "traces cannot be exported");
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("sampling", &self.inner.sampling).finish_non_exhaustive()
    }
}
