//! A recorder that keeps everything, to compare counts before and after.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};

use metrics::atomics::AtomicU64;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tokio::sync::MutexGuard;

#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Series>>);

/// By name and labels, as in `name{label=value}`.
#[derive(Default)]
struct Series {
    counters: BTreeMap<String, Arc<AtomicU64>>,
    gauges: BTreeMap<String, Arc<AtomicU64>>,
    histograms: BTreeMap<String, Arc<Samples>>,
    described: BTreeMap<String, (Option<Unit>, String)>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

static INSTALLED: LazyLock<Kept> = LazyLock::new(|| {
    let kept = Kept::default();
    metrics::set_global_recorder(kept.clone()).unwrap();
    kept
});
static ONE: LazyLock<tokio::sync::Mutex<()>> = LazyLock::new(Default::default);

/// The recorder of the process, for one test at a time.
pub(crate) async fn alone() -> (Kept, MutexGuard<'static, ()>) {
    let guard = ONE.lock().await;
    (INSTALLED.clone(), guard)
}

fn text(key: &Key) -> String {
    let labels: Vec<String> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    if labels.is_empty() { key.name().to_owned() } else { format!("{}{{{}}}", key.name(), labels.join(",")) }
}

/// The values of all counters, and how many samples each histogram has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts(BTreeMap<String, u64>);

impl Counts {
    pub(crate) fn of(&self, series: &str) -> u64 {
        self.0.get(series).copied().unwrap_or(0)
    }

    /// What has grown since, without what follows the clock and the store alone.
    pub(crate) fn since(&self, before: &Counts) -> BTreeMap<String, u64> {
        let grown = self.0.iter().map(|(series, count)| (series.clone(), count - before.of(series)));
        grown.filter(|(_, count)| *count > 0).collect()
    }
}

impl Kept {
    pub(crate) fn counts(&self) -> Counts {
        let series = self.0.lock().unwrap();
        let counters = series.counters.iter().map(|(key, value)| (key.clone(), value.load(Ordering::SeqCst)));
        let histograms = series.histograms.iter();
        let histograms =
            histograms.map(|(key, samples)| (key.clone(), samples.0.lock().unwrap().len() as u64));
        Counts(counters.chain(histograms).collect())
    }

    pub(crate) fn gauge(&self, series: &str) -> Option<f64> {
        let found = self.0.lock().unwrap().gauges.get(series).cloned();
        found.map(|value| f64::from_bits(value.load(Ordering::SeqCst)))
    }

    pub(crate) fn samples(&self, series: &str) -> Vec<f64> {
        let found = self.0.lock().unwrap().histograms.get(series).cloned();
        found.map_or(Vec::new(), |samples| samples.0.lock().unwrap().clone())
    }

    /// All series, by name and labels.
    pub(crate) fn series(&self) -> Vec<String> {
        let series = self.0.lock().unwrap();
        let all = series.counters.keys().chain(series.gauges.keys()).chain(series.histograms.keys());
        all.cloned().collect()
    }

    pub(crate) fn described(&self) -> BTreeMap<String, (Option<Unit>, String)> {
        self.0.lock().unwrap().described.clone()
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, about: &SharedString) {
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), (unit, about.to_string()));
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(&name, unit, &about);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(&name, unit, &about);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, about: SharedString) {
        self.describe(&name, unit, &about);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().counters.entry(text(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(self.0.lock().unwrap().gauges.entry(text(key)).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(self.0.lock().unwrap().histograms.entry(text(key)).or_default()))
    }
}
