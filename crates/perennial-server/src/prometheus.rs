//! Prometheus text, for [`Options::metrics`](crate::Options::metrics).
//!
//! ```
//! use perennial::prelude::*;
//! use perennial_server::{Access, Options, Role, prometheus};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Before the runtime starts.
//! let metrics = prometheus::install()?;
//! let runtime = Runtime::open("memory:").start().await?;
//! let options = Options::default().access(Access::everybody(Role::Reader)).metrics(metrics);
//! let app: axum::Router = axum::Router::new().nest("/ops", perennial_server::router(runtime.client(), options));
//! // Prometheus scrapes /ops/metrics.
//! # runtime.shutdown().await?;
//! # Ok(())
//! # }
//! ```

use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use perennial::metrics::{ENGINE, Kind, Metric};

use crate::meters::HTTP;
use crate::options::MetricsHandle;

/// How often the samples of histograms are sorted into their buckets. Until then each takes memory.
const UPKEEP_PAUSE: Duration = Duration::from_secs(5);

impl From<PrometheusHandle> for MetricsHandle {
    fn from(handle: PrometheusHandle) -> MetricsHandle {
        MetricsHandle::new(move || handle.render())
    }
}

/// A builder of a recorder whose histograms have buckets that fit the metrics of the engine and of the HTTP API, for an
/// application that adds its own settings. Whoever builds it has to call `PrometheusHandle::run_upkeep` from time to time.
pub fn builder() -> PrometheusBuilder {
    let all = ENGINE.iter().chain(HTTP);
    let histograms = all.filter_map(|Metric { name, kind, .. }| match kind {
        Kind::Histogram(_, buckets) => Some((*name, *buckets)),
        Kind::Counter | Kind::Gauge(_) => None,
    });
    histograms.fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
        builder
            .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
            .expect("every histogram has buckets")
    })
}

/// Installs a recorder for the whole process, and a thread that keeps it small. To be called before a runtime starts.
/// Returns an error if there is a recorder already.
pub fn install() -> Result<MetricsHandle, BuildError> {
    let handle = builder().install_recorder()?;
    let kept = handle.clone();
    let keep = move || {
        loop {
            thread::sleep(UPKEEP_PAUSE);
            kept.run_upkeep();
        }
    };
    let spawned = thread::Builder::new().name("perennial-metrics".to_owned()).spawn(keep);
    spawned.expect("a thread starts");
    Ok(handle.into())
}
