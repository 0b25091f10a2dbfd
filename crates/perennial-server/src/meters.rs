//! What is measured of requests. Without a recorder of metrics nothing is measured or allocated.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use axum::body::Body;
use axum::http::{Method, Response};
use metrics::{Gauge, Histogram};
use perennial::ErrorCode;
use perennial::metrics::{Kind, Metric, OTHER, SHORT, Unit};

use crate::route::{Found, Route, find};

/// The metrics of the HTTP API, in addition to [`ENGINE`](perennial::metrics::ENGINE).
pub const HTTP: &[Metric] = &[DURATION, ACTIVE, STREAMS, REFUSED];

const DURATION: Metric = Metric {
    name: "http_server_request_duration_seconds",
    kind: Kind::Histogram(Unit::Seconds, SHORT),
    labels: &["method", "route", "status"],
    about: "Time from the head of a request to the head of its answer.",
};
const ACTIVE: Metric = Metric {
    name: "http_server_active_requests",
    kind: Kind::Gauge(Unit::Count),
    labels: &[],
    about: "Requests that are being answered.",
};
const STREAMS: Metric = Metric {
    name: "perennial_http_streams",
    kind: Kind::Gauge(Unit::Count),
    labels: &[],
    about: "Open streams of changes.",
};
const REFUSED: Metric = Metric {
    name: "perennial_http_refused_total",
    kind: Kind::Counter,
    labels: &["reason"],
    about: "Requests that were refused before anything was done for them.",
};

/// The methods that are told apart.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// Why requests are refused.
const REASONS: [(ErrorCode, &str); 9] = [
    (ErrorCode::NotAuthenticated, "not_authenticated"),
    (ErrorCode::ForOperators, "not_for_readers"),
    (ErrorCode::HostNotAllowed, "host"),
    (ErrorCode::OriginNotAllowed, "origin"),
    (ErrorCode::MediaType, "media_type"),
    (ErrorCode::TooLarge, "too_large"),
    (ErrorCode::Busy, "busy"),
    (ErrorCode::Stopping, "stopping"),
    (ErrorCode::Stopped, "stopping"),
];

/// Method, route and status of a request. Routes are told apart by their place in memory, which is that of the table.
type Series = (&'static str, &'static str, u16);

pub(crate) struct Meters {
    recorded: Option<Recorded>,
}

struct Recorded {
    durations: RwLock<BTreeMap<Series, Histogram>>,
    active: Gauge,
    streams: Gauge,
}

/// A request that is being answered.
pub(crate) struct Measured {
    method: &'static str,
    route: &'static str,
    began: Instant,
    active: Gauge,
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.active.decrement(1.0);
    }
}

/// An open stream.
pub(crate) struct OpenStream(Option<Gauge>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(streams) = &self.0 {
            streams.decrement(1.0);
        }
    }
}

impl Meters {
    pub(crate) fn new() -> Meters {
        // The facade's own no-op recorder has no size, and the facade has no other way to ask.
        let has_recorder = metrics::with_recorder(|recorder| size_of_val(recorder) > 0);
        let register = || {
            metrics::describe_histogram!(DURATION.name, metrics::Unit::Seconds, DURATION.about);
            metrics::describe_gauge!(ACTIVE.name, metrics::Unit::Count, ACTIVE.about);
            metrics::describe_gauge!(STREAMS.name, metrics::Unit::Count, STREAMS.about);
            metrics::describe_counter!(REFUSED.name, metrics::Unit::Count, REFUSED.about);
            for (_, reason) in REASONS {
                metrics::counter!(REFUSED.name, "reason" => reason).increment(0);
            }
            Recorded {
                durations: RwLock::default(),
                active: metrics::gauge!(ACTIVE.name),
                streams: metrics::gauge!(STREAMS.name),
            }
        };
        Meters { recorded: has_recorder.then(register) }
    }

    /// A request has arrived.
    pub(crate) fn begin(&self, method: &Method, path: &str) -> Option<Measured> {
        let recorded = self.recorded.as_ref()?;
        let asked = if *method == Method::HEAD { &Method::GET } else { method };
        let route = match find(asked, path) {
            Found::Route(route, _) => template(route),
            Found::Methods(_) | Found::Nothing => OTHER,
        };
        let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER);
        recorded.active.increment(1.0);
        Some(Measured { method, route, began: Instant::now(), active: recorded.active.clone() })
    }

    /// A request was answered.
    pub(crate) fn end(&self, measured: Option<Measured>, response: &Response<Body>) {
        let (Some(measured), Some(recorded)) = (measured, &self.recorded) else { return };
        recorded.note((measured.method, measured.route, response.status().as_u16()), measured.began);
        let code = response.extensions().get::<ErrorCode>();
        if let Some((_, reason)) = REASONS.iter().find(|(of, _)| Some(of) == code) {
            metrics::counter!(REFUSED.name, "reason" => *reason).increment(1);
        }
    }

    pub(crate) fn stream_opened(&self) -> OpenStream {
        let streams = self.recorded.as_ref().map(|recorded| recorded.streams.clone());
        if let Some(streams) = &streams {
            streams.increment(1.0);
        }
        OpenStream(streams)
    }
}

impl Recorded {
    fn note(&self, series: Series, began: Instant) {
        let took = began.elapsed().as_secs_f64();
        let known = self.durations.read().unwrap_or_else(PoisonError::into_inner).get(&series).cloned();
        let histogram = known.unwrap_or_else(|| {
            let (method, route, status) = series;
            let labels =
                [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
            let histogram = metrics::histogram!(DURATION.name, &labels);
            let mut durations = self.durations.write().unwrap_or_else(PoisonError::into_inner);
            durations.entry(series).or_insert(histogram).clone()
        });
        histogram.record(took);
    }
}

/// The path of a route, with names in place of its variables.
fn template(route: &'static Route) -> &'static str {
    route.path
}
