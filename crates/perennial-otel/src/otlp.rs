//! Export over OTLP, in batches, on a thread of its own.

use std::collections::HashMap;

use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};

use crate::http::BlockingClient;
use crate::{Sampling, Traces};

/// Where and how traces are sent. What is not set here is taken from the variables of OpenTelemetry:
/// `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT` (and the same with `TRACES`),
/// `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and `OTEL_BSP_*`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct OtlpOptions {
    endpoint: Option<String>,
    service_name: Option<String>,
    headers: HashMap<String, String>,
    sampling: Option<Sampling>,
}

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The exporter refused its settings.
    #[error("traces cannot be exported: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// Another protocol was asked for.
    #[error(
        "traces are sent as http/protobuf; OTEL_EXPORTER_OTLP_PROTOCOL asks for {0:?}, which is not supported"
    )]
    Protocol(String),
    /// There is no way to check the certificates of collectors.
    #[error("the TLS certificates of this machine cannot be used: {0}")]
    Tls(#[source] rustls::Error),
}

impl OtlpOptions {
    /// The URL of the collector. One without a path gets the standard one, `/v1/traces`.
    pub fn endpoint(mut self, url: impl Into<String>) -> OtlpOptions {
        self.endpoint = Some(url.into());
        self
    }

    /// The name under which the program appears in traces.
    pub fn service_name(mut self, name: impl Into<String>) -> OtlpOptions {
        self.service_name = Some(name.into());
        self
    }

    /// A header of each request, such as one that a collector authenticates.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> OtlpOptions {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Which of the traces that begin in this process are exported.
    pub fn sampling(mut self, sampling: Sampling) -> OtlpOptions {
        self.sampling = Some(sampling);
        self
    }
}

impl Traces {
    /// Sends traces to a collector over OTLP, as HTTP with protobuf, in batches and on a thread of its own. Spans are
    /// dropped if the collector is slower than they come.
    pub fn otlp(options: OtlpOptions) -> Result<Traces, SetupError> {
        let OtlpOptions { endpoint, service_name, headers, sampling } = options;
        check_protocol()?;
        let client = BlockingClient::new().map_err(SetupError::Tls)?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client);
        let exporter = exporter.with_protocol(Protocol::HttpBinary).with_headers(headers);
        let exporter = match endpoint {
            Some(endpoint) => exporter.with_endpoint(with_path(endpoint)),
            None => exporter,
        };
        let mut processor = BatchSpanProcessor::builder(exporter.build()?).build();
        let resource = Resource::builder();
        // The variable wins, so that an operator can name what a program calls by default.
        let is_named = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty());
        let resource = match service_name.filter(|_| !is_named) {
            Some(name) => resource.with_service_name(name),
            None => resource,
        };
        processor.set_resource(&resource.build());
        Ok(Traces::with_processor(processor, sampling.unwrap_or_else(Sampling::from_environment)))
    }
}

fn check_protocol() -> Result<(), SetupError> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    match names.into_iter().find_map(|name| std::env::var(name).ok()).as_deref() {
        None | Some("" | "http/protobuf") => Ok(()),
        Some(other) => Err(SetupError::Protocol(other.to_owned())),
    }
}

fn with_path(endpoint: String) -> String {
    let after_scheme = endpoint.find("://").map_or(0, |at| at + 3);
    match endpoint[after_scheme..].trim_end_matches('/').contains('/') {
        true => endpoint,
        false => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::with_path;

    #[test]
    fn o12_an_endpoint_without_a_path_gets_the_standard_one() {
        let with_path = |text: &str| with_path(text.to_owned());
        assert_eq!(with_path("http://localhost:4318"), "http://localhost:4318/v1/traces");
        assert_eq!(with_path("http://localhost:4318/"), "http://localhost:4318/v1/traces");
        assert_eq!(with_path("https://otel.example.com/in"), "https://otel.example.com/in");
    }
}
