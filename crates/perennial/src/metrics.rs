//! The metrics of the engine: names, units, labels and meaning.
//!
//! The engine speaks through the [`metrics`](https://docs.rs/metrics) facade. Install a recorder before
//! [`RuntimeBuilder::start`](crate::RuntimeBuilder::start): what the runtime and the client register is in [`ENGINE`], and
//! the guide's page "Metrics" has the same table in words. Without a recorder nothing is measured or allocated. A recorder
//! whose type has no size (a unit struct) is taken for the facade's own no-op recorder; give it a field.
//!
//! Counters and histograms belong to the process. Gauges of the process are set every five seconds and by
//! [`Client::refresh_metrics`]; those named `perennial_store_*` belong to the whole store, and only that method sets them,
//! because each process that reads them costs the store something. `perennial-server` calls it for each scrape.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use perennial_core::store::{Count, StoreDetails, StoreStats};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::ClientError;

/// The kind of a metric, with the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number of things that happened.
    Counter,
    /// A value that goes up and down.
    Gauge(Unit),
    /// Values that are counted by size. The numbers are upper bounds of buckets that fit them.
    Histogram(Unit, &'static [f64]),
}

/// The unit that values are given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Times, with fractions.
    Seconds,
    /// Sizes in memory or on disk.
    Bytes,
}

impl Unit {
    fn of_facade(self) -> metrics::Unit {
        match self {
            Unit::Count => metrics::Unit::Count,
            Unit::Seconds => metrics::Unit::Seconds,
            Unit::Bytes => metrics::Unit::Bytes,
        }
    }
}

/// An entry of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// As it stands in Prometheus text.
    pub name: &'static str,
    /// Counter, gauge or histogram, with its unit.
    pub kind: Kind,
    /// Label names, in the order in which they are given.
    pub labels: &'static [&'static str],
    /// What it measures.
    pub about: &'static str,
}

/// Buckets for short times: 100 µs to 30 s.
pub const SHORT: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0,
];
/// Buckets for activities and what waits: 1 ms to 1 h.
pub const MEDIUM: &[f64] = &[
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
    3_600.0,
];
/// Buckets for instances: 10 ms to 30 d.
pub const LONG: &[f64] = &[
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3_600.0,
    14_400.0,
    43_200.0,
    86_400.0,
    259_200.0,
    604_800.0,
    2_592_000.0,
];
/// Buckets for the turns of a batch.
pub const BATCH: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    about: &'static str,
) -> Metric {
    Metric { name, kind, labels, about }
}

const SHORT_TIMES: Kind = Kind::Histogram(Unit::Seconds, SHORT);
const MEDIUM_TIMES: Kind = Kind::Histogram(Unit::Seconds, MEDIUM);
const COUNT: Kind = Kind::Gauge(Unit::Count);
const SECONDS: Kind = Kind::Gauge(Unit::Seconds);

/// The label value for names beyond the first 200, and for names that are not registered on this node.
pub const OTHER: &str = "_other";
/// The most names that a label tells apart.
pub const MAX_NAMES: usize = 200;

macro_rules! catalogue {
    ($($constant:ident = $name:literal, $kind:expr, $labels:expr, $about:literal;)*) => {
        $(pub(crate) const $constant: Metric = metric($name, $kind, &$labels, $about);)*

        /// All metrics of the runtime and the client.
        pub const ENGINE: &[Metric] = &[$($constant),*];
    };
}

catalogue! {
    STARTED = "perennial_instances_started_total", Kind::Counter, ["orchestration"],
        "Instances whose first turn was committed.";
    ENDED = "perennial_instances_ended_total", Kind::Counter, ["orchestration", "outcome"],
        "Instances that ended.";
    INSTANCE_DURATION = "perennial_instance_duration_seconds", Kind::Histogram(Unit::Seconds, LONG),
        ["orchestration", "outcome"], "Time from an instance's creation to its end.";
    TURNS = "perennial_turns_total", Kind::Counter, ["orchestration", "outcome"],
        "Turns that code took.";
    TURN_DURATION = "perennial_turn_duration_seconds", SHORT_TIMES, ["orchestration", "outcome"],
        "Time that the code of a turn ran and its record was encoded.";
    COMMIT_DURATION = "perennial_commit_duration_seconds", SHORT_TIMES, [],
        "Time from a batch of commits to the store's answer.";
    COMMIT_TURNS = "perennial_commit_turns", Kind::Histogram(Unit::Count, BATCH), [],
        "Commits in one batch.";
    COMMIT_QUEUE = "perennial_commit_queue", COUNT, [],
        "Commits that wait for the next batch.";
    ATTEMPTS = "perennial_activity_attempts_total", Kind::Counter, ["activity", "outcome"],
        "Attempts of activities that ended here.";
    ACTIVITY_DURATION = "perennial_activity_duration_seconds", MEDIUM_TIMES, ["activity", "outcome"],
        "Time that the code of an attempt ran.";
    ACTIVITY_QUEUE = "perennial_activity_queue_seconds", MEDIUM_TIMES, ["activity"],
        "Time from when an attempt could run to its begin.";
    RUNNING = "perennial_activities_running", COUNT, ["activity"],
        "Attempts whose code runs now.";
    SLOTS = "perennial_activity_slots", COUNT, ["state"],
        "Slots for attempts, used and free.";
    RETRIES = "perennial_activity_retries_total", Kind::Counter, ["activity"],
        "Failed attempts that are followed by another.";
    STALE = "perennial_stale_results_total", Kind::Counter, [],
        "Results, messages and answers that came too late: nothing waited for them.";
    UNDELIVERED = "perennial_undelivered_total", Kind::Counter, [],
        "Messages to instances that did not exist or had ended.";
    TIMER_LATENESS = "perennial_timer_lateness_seconds", MEDIUM_TIMES, [],
        "Time from when a timer was due to the turn that fired it.";
    EVENTS = "perennial_events_total", Kind::Counter, ["outcome"],
        "External events.";
    BLOCKED = "perennial_blocked_total", Kind::Counter, ["code"],
        "Instances that were blocked, by the code of the reason.";
    UNBLOCKED = "perennial_unblocked_total", Kind::Counter, ["code"],
        "Instances that are no longer blocked for this reason: they go on, ended, or are blocked for another.";
    RESIDENT = "perennial_resident_instances", COUNT, [],
        "Instances in memory.";
    RESIDENT_BYTES = "perennial_resident_bytes", Kind::Gauge(Unit::Bytes), [],
        "Size of the histories of idle instances in memory.";
    HYDRATIONS = "perennial_hydrations_total", Kind::Counter, [],
        "Instances that were brought back into memory by replaying their turns.";
    EVICTIONS = "perennial_evictions_total", Kind::Counter, [],
        "Instances that were removed from memory before they ended.";
    HYDRATION_DURATION = "perennial_hydration_seconds", SHORT_TIMES, [],
        "Time to decode and replay the turns of an instance, without reading them from the store.";
    LEASE_REMAINING = "perennial_lease_remaining_seconds", SECONDS, [],
        "Time until the first lease of the node ends if it is not renewed; 0 if it has ended.";
    SHARDS_OWNED = "perennial_shards_owned", COUNT, [],
        "Shards that the node owns, of 256.";
    CLOCK_OFFSET = "perennial_clock_offset_seconds", SECONDS, [],
        "How far the machine's clock is ahead of the store's.";
    LOST_THREADS = "perennial_lost_threads", COUNT, [],
        "Threads that were lost to turns that did not end.";
    STORE_INSTANCES = "perennial_store_instances", COUNT, ["status"],
        "Instances in the store, up to 10,000.";
    STORE_INSTANCES_BOUND = "perennial_store_instances_is_lower_bound", COUNT, ["status"],
        "1 if there are more than 10,000, else 0.";
    STORE_BLOCKED = "perennial_store_blocked", COUNT, ["code"],
        "Blocked instances, up to 10,000.";
    STORE_BLOCKED_BOUND = "perennial_store_blocked_is_lower_bound", COUNT, ["code"],
        "1 if there may be more, else 0.";
    STORE_TASKS = "perennial_store_tasks", COUNT, ["state"],
        "Activities with a row of their own: for another node, retried, or running elsewhere; up to 10,000.";
    STORE_TASKS_BOUND = "perennial_store_tasks_is_lower_bound", COUNT, ["state"],
        "1 if there are more than 10,000, else 0.";
    STORE_INBOX = "perennial_store_inbox", COUNT, [],
        "Messages that have not been applied, up to 10,000.";
    STORE_INBOX_BOUND = "perennial_store_inbox_is_lower_bound", COUNT, [],
        "1 if there are more than 10,000, else 0.";
    STORE_LAG = "perennial_store_lag_seconds", SECONDS, [],
        "How late the most overdue instance is.";
    STORE_BYTES = "perennial_store_bytes", Kind::Gauge(Unit::Bytes), ["part"],
        "Size of the store on disk.";
}

/// Where handles are registered. The recorder is looked up once, on the thread that starts the runtime.
pub(crate) struct Registrar<'a>(&'a dyn Recorder);

impl Registrar<'_> {
    /// Calls a function with the installed recorder; returns `None` if there is none.
    pub(crate) fn with<T>(register: impl FnOnce(&Registrar<'_>) -> T) -> Option<T> {
        metrics::with_recorder(|recorder| {
            // The facade's own no-op recorder has no size, and the facade has no other way to ask.
            (size_of_val(recorder) > 0).then(|| register(&Registrar(recorder)))
        })
    }

    /// Tells the recorder units and meanings.
    pub(crate) fn describe(&self, metrics: &[Metric]) {
        for metric in metrics {
            let (name, about) = (KeyName::from_const_str(metric.name), SharedString::const_str(metric.about));
            match metric.kind {
                Kind::Counter => self.0.describe_counter(name, Some(metrics::Unit::Count), about),
                Kind::Gauge(unit) => self.0.describe_gauge(name, Some(unit.of_facade()), about),
                Kind::Histogram(unit, _) => self.0.describe_histogram(name, Some(unit.of_facade()), about),
            }
        }
    }

    fn key(metric: &Metric, values: &[&str]) -> Key {
        debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
        let labels = metric.labels.iter().zip(values);
        let labels: Vec<Label> = labels.map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
        Key::from_parts(metric.name, labels)
    }

    pub(crate) fn counter(&self, metric: &Metric, values: &[&str]) -> Counter {
        self.0.register_counter(&Registrar::key(metric, values), &METADATA)
    }

    pub(crate) fn gauge(&self, metric: &Metric, values: &[&str]) -> Gauge {
        self.0.register_gauge(&Registrar::key(metric, values), &METADATA)
    }

    pub(crate) fn histogram(&self, metric: &Metric, values: &[&str]) -> Histogram {
        self.0.register_histogram(&Registrar::key(metric, values), &METADATA)
    }
}

static METADATA: Metadata<'static> = Metadata::new("perennial", Level::INFO, Some("perennial"));

/// How often the gauges of the store are read.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// The gauges of a store: shared by all clients that were cloned from each other.
#[derive(Debug, Default)]
pub(crate) struct StoreGauges {
    read: Mutex<StoreRead>,
}

#[derive(Debug, Default)]
struct StoreRead {
    at: Option<Instant>,
    /// The codes that have a gauge. One that nothing is blocked by any more is set to 0.
    codes: Vec<String>,
}

impl StoreGauges {
    async fn refresh(&self, client: &Client) -> Result<(), ClientError> {
        // Others wait for the read that is under way, and then need none.
        let mut read = self.read.lock().await;
        if read.at.is_some_and(|at| at.elapsed() < STORE_PAUSE) {
            return Ok(());
        }
        let stats = client.stats().await?;
        let details = client.call("", |store, reply| store.details(reply)).await?;
        read.at = Some(Instant::now());
        Registrar::with(|registrar| set_store_gauges(registrar, &stats, &details, &mut read.codes));
        Ok(())
    }
}

fn set_store_gauges(
    registrar: &Registrar<'_>,
    stats: &StoreStats,
    details: &StoreDetails,
    codes: &mut Vec<String>,
) {
    let set = |metric: &Metric, bound: &Metric, values: &[&str], count: Count| {
        registrar.gauge(metric, values).set(count.rows as f64);
        registrar.gauge(bound, values).set(f64::from(u8::from(count.more)));
    };
    registrar.describe(ENGINE);
    for (status, count) in &stats.instances {
        set(&STORE_INSTANCES, &STORE_INSTANCES_BOUND, &[status.name()], *count);
    }
    let new = details.blocked.iter().map(|(code, _)| code).filter(|code| !codes.contains(code));
    let new: Vec<String> = new.cloned().collect();
    codes.extend(new);
    for code in codes {
        let counted = details.blocked.iter().find(|(of, _)| of == code);
        set(
            &STORE_BLOCKED,
            &STORE_BLOCKED_BOUND,
            &[code],
            counted.map_or(Count::default(), |(_, count)| *count),
        );
    }
    let tasks =
        [("queued", stats.tasks_queued), ("leased", stats.tasks_leased), ("waiting", stats.tasks_waiting)];
    for (state, count) in tasks {
        set(&STORE_TASKS, &STORE_TASKS_BOUND, &[state], count);
    }
    set(&STORE_INBOX, &STORE_INBOX_BOUND, &[], stats.inbox);
    registrar.gauge(&STORE_LAG, &[]).set(stats.lag().as_secs_f64());
    for (part, bytes) in &details.bytes {
        registrar.gauge(&STORE_BYTES, &[part]).set(*bytes as f64);
    }
}

impl Client {
    /// Sets all gauges to their present values: those of this process, and those of the store (`perennial_store_*`), which
    /// are read at most every five seconds. Does nothing without a recorder. To be called before metrics are rendered or
    /// pushed; `perennial-server` calls it for each scrape.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # async fn push(client: &Client) -> Result<(), ClientError> {
    /// client.refresh_metrics().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn refresh_metrics(&self) -> Result<(), ClientError> {
        if let Some(driver) = self.driver() {
            driver.refresh_metrics();
        }
        match Registrar::with(|_| ()) {
            Some(()) => Arc::clone(self.store_gauges()).refresh(self).await,
            None => Ok(()),
        }
    }
}
