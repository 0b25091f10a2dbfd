//! Export of the traces of `serve`.

use clap::Args;

use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct Traces {
    /// Send traces to this collector over OTLP (HTTP with protobuf), such as http://localhost:4318. Without it,
    /// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is used, if set
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// The exporter, if there is one.
pub(crate) struct Exported {
    #[cfg(feature = "otel")]
    traces: Option<perennial_server::otel::Traces>,
}

impl Traces {
    /// Begins to export traces, if a collector is named.
    #[cfg(feature = "otel")]
    pub(crate) fn begin(self) -> Result<Exported, Failure> {
        use perennial_server::otel::{self, OtlpOptions};
        use tracing_subscriber::layer::SubscriberExt;

        let options = OtlpOptions::default().service_name("perennial serve");
        let options = match self.otlp_endpoint {
            Some(endpoint) => options.endpoint(endpoint),
            None if is_named_by_environment() => options,
            None => return Ok(Exported { traces: None }),
        };
        let traces = otel::Traces::otlp(options).map_err(Failure::usage)?;
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        tracing::subscriber::set_global_default(subscriber)
            .map_err(|error| Failure::failed(error.to_string()))?;
        Ok(Exported { traces: Some(traces) })
    }

    #[cfg(not(feature = "otel"))]
    pub(crate) fn begin(self) -> Result<Exported, Failure> {
        match self.otlp_endpoint {
            Some(_) => Err(Failure::usage(
                "this command was built without traces; install it with `cargo install perennial-cli --features otel`",
            )),
            None => Ok(Exported {}),
        }
    }
}

impl Exported {
    /// Sends what is left.
    pub(crate) fn end(self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = self.traces {
            traces.shutdown();
        }
    }
}

#[cfg(feature = "otel")]
fn is_named_by_environment() -> bool {
    let names = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
    names.iter().any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
}
