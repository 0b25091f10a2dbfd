//! Results: medians over runs, latencies, and their output.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// The result of one workload.
pub(crate) struct Report {
    workload: String,
    store: String,
    unit: String,
    runs: Vec<f64>,
    more: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(workload: &str, store: &str, unit: &str, runs: Vec<f64>) -> Report {
        let (workload, store, unit) = (workload.to_owned(), store.to_owned(), unit.to_owned());
        Report { workload, store, unit, runs, more: Map::new() }
    }

    /// Adds another value to the report.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Report {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// Whether this is the result for a size, where a workload has several: the number of steps or the width.
    pub(crate) fn has_size(&self, size: &Value) -> bool {
        let own = self.more.get("steps").or_else(|| self.more.get("width"));
        own.is_none_or(|own| own.as_f64() == size.as_f64())
    }

    /// The ratio of the medians. It is above 1 if this report is the better one.
    pub(crate) fn times_better_than(&self, other: &Report) -> f64 {
        let (own, other) = (median(&self.runs), median(&other.runs));
        if self.unit.ends_with("/s") { own / other } else { other / own }
    }

    pub(crate) fn print(&self, as_json: bool) {
        let Report { workload, store, unit, runs, more } = self;
        let median = median(runs);
        if as_json {
            let mut object =
                json!({"workload": workload, "store": store, "unit": unit, "median": median, "runs": runs});
            object.as_object_mut().expect("an object").extend(more.clone());
            println!("{object}");
            return;
        }
        let spread: Vec<String> = runs.iter().map(|run| rounded(*run)).collect();
        let more: Vec<String> = more.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
        println!(
            "{workload:<10} {store:<8} {:>12} {unit:<14} runs {:<36} {}",
            rounded(median),
            spread.join(" "),
            more.join(", ")
        );
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), rounded),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn rounded(number: f64) -> String {
    if number.abs() >= 100.0 { format!("{number:.0}") } else { format!("{number:.3}") }
}

pub(crate) fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies(Histogram::new(3).expect("three digits are allowed"))
    }

    pub(crate) fn record(&mut self, elapsed: std::time::Duration) {
        // Grows as needed. A saturating record would not: whatever takes longer than the first two milliseconds would count
        // as hardly anything.
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.0.record(micros).expect("a histogram that grows takes any time");
    }

    /// A quantile in milliseconds.
    pub(crate) fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1_000.0
    }
}
