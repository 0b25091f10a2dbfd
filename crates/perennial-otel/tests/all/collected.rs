//! Exported spans, where tests can look at them, and the checks that every trace has to pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::Context;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use perennial_otel::{Sampling, Traces};
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;

/// A span as it was exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exported {
    pub(crate) trace: String,
    pub(crate) span: String,
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) links: Vec<(String, String)>,
    pub(crate) is_error: bool,
}

impl Exported {
    fn of(data: &SpanData) -> Exported {
        let ns = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let has_parent = data.parent_span_id != SpanId::INVALID;
        let link = |link: &opentelemetry::trace::Link| {
            (link.span_context.trace_id().to_string(), link.span_context.span_id().to_string())
        };
        Exported {
            trace: data.span_context.trace_id().to_string(),
            span: data.span_context.span_id().to_string(),
            parent: has_parent.then(|| data.parent_span_id.to_string()),
            name: data.name.to_string(),
            kind: format!("{:?}", data.span_kind),
            began_ns: ns(data.start_time),
            ended_ns: ns(data.end_time),
            attributes: data.attributes.iter().map(|kv| (kv.key.to_string(), kv.value.to_string())).collect(),
            links: data.links.iter().map(link).collect(),
            is_error: matches!(data.status, Status::Error { .. }),
        }
    }

    fn to_line(&self) -> Value {
        json!({
            "trace": self.trace, "span": self.span, "parent": self.parent, "name": self.name, "kind": self.kind,
            "began_ns": self.began_ns, "ended_ns": self.ended_ns, "attributes": self.attributes,
            "links": self.links, "is_error": self.is_error,
        })
    }

    fn of_line(line: &str) -> Exported {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        Exported {
            trace: text("trace"),
            span: text("span"),
            parent: line["parent"].as_str().map(str::to_owned),
            name: text("name"),
            kind: text("kind"),
            began_ns: line["began_ns"].as_u64().unwrap(),
            ended_ns: line["ended_ns"].as_u64().unwrap(),
            attributes: serde_json::from_value(line["attributes"].clone()).unwrap(),
            links: serde_json::from_value(line["links"].clone()).unwrap(),
            is_error: line["is_error"].as_bool().unwrap(),
        }
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    pub(crate) fn is_of(&self, instance: &str) -> bool {
        self.attribute("perennial.instance.id") == Some(instance)
    }
}

/// Keeps spans in memory, or writes each to a file when it ends, so that a killed process leaves those behind.
#[derive(Debug, Default)]
struct Collector {
    file: Option<Mutex<File>>,
}

static COLLECTED: Mutex<Vec<Exported>> = Mutex::new(Vec::new());

impl SpanProcessor for Collector {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let span = Exported::of(&span);
        match &self.file {
            // One write, so that nobody reads a part of a line.
            Some(file) => file.lock().unwrap().write_all(format!("{}\n", span.to_line()).as_bytes()).unwrap(),
            None => COLLECTED.lock().unwrap().push(span),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Collects the spans of this process from now on.
pub(crate) fn collect() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| install(Collector::default()));
}

/// Writes the spans of this process to a file.
pub(crate) fn collect_to(file: &Path) {
    let file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    install(Collector { file: Some(Mutex::new(file)) });
}

fn install(collector: Collector) {
    let traces = Traces::with_processor(collector, Sampling::Always);
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");
}

/// The spans that another process wrote.
pub(crate) fn written(file: &Path) -> Vec<Exported> {
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines.lines().map(Exported::of_line).collect()
}

/// The spans of one trace that this process collected.
pub(crate) fn of_trace(trace: &str) -> Vec<Exported> {
    in_order(|span| span.trace == trace)
}

/// The spans that this process collected about an instance.
pub(crate) fn of_instance(instance: &str) -> Vec<Exported> {
    in_order(|span| span.is_of(instance))
}

/// Collected spans in the order in which they began.
fn in_order(is_wanted: impl Fn(&Exported) -> bool) -> Vec<Exported> {
    let mut spans: Vec<Exported> =
        COLLECTED.lock().unwrap().iter().filter(|span| is_wanted(span)).cloned().collect();
    spans.sort_by_key(|span| span.began_ns);
    spans
}

/// Waits until this process has collected something, which ends after the caller hears of it.
pub(crate) async fn until<T>(found: impl Fn() -> Option<T>) -> T {
    let search = async {
        loop {
            match found() {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), search).await.expect("it is collected in time")
}

/// Checks that spans are whole: no id twice, every parent there or the caller's, children of a turn after its begin, and the
/// turns of an execution one after the other.
pub(crate) fn check(spans: &[Exported], callers: &[&str]) {
    let mut by_id = BTreeMap::new();
    for span in spans {
        let earlier = by_id.insert((&span.trace, &span.span), span);
        assert_eq!(earlier, None, "an id twice");
        assert!(span.began_ns <= span.ended_ns, "{span:#?}");
    }
    for span in spans {
        let Some(parent) = &span.parent else { continue };
        match by_id.get(&(&span.trace, parent)) {
            Some(parent) => assert!(parent.began_ns <= span.began_ns, "before its parent: {span:#?}"),
            None => assert!(callers.contains(&parent.as_str()), "no parent: {span:#?}\n{spans:#?}"),
        }
    }
    let mut turns: BTreeMap<(&str, &str), Vec<&Exported>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.name.starts_with("turn ") && !span.name.is_empty()) {
        let execution = span.attribute("perennial.execution").unwrap();
        turns.entry((span.attribute("perennial.instance.id").unwrap(), execution)).or_default().push(span);
    }
    for of_execution in turns.values_mut() {
        of_execution.retain(|span| span.attribute("perennial.outcome") != Some("failed") || !span.is_error);
        of_execution.sort_by_key(|span| span.attribute("perennial.turn").unwrap().parse::<u64>().unwrap());
        let numbers: BTreeSet<_> = of_execution.iter().map(|span| span.attribute("perennial.turn")).collect();
        assert_eq!(numbers.len(), of_execution.len(), "one span for each turn");
        for pair in of_execution.windows(2) {
            assert!(pair[0].ended_ns <= pair[1].began_ns, "turns overlap: {pair:#?}");
        }
    }
}

/// The spans of a trace as lines, each under its parent, in the order in which they began.
pub(crate) fn drawn(spans: &[Exported]) -> Vec<String> {
    let known: BTreeSet<&str> = spans.iter().map(|span| &*span.span).collect();
    let is_root = |span: &&Exported| span.parent.as_deref().is_none_or(|parent| !known.contains(parent));
    let mut roots: Vec<&Exported> = spans.iter().filter(is_root).collect();
    roots.sort_by_key(|span| span.began_ns);
    let mut lines = Vec::new();
    roots.iter().for_each(|root| draw(spans, root, 0, &mut lines));
    lines
}

fn draw(spans: &[Exported], span: &Exported, depth: usize, lines: &mut Vec<String>) {
    lines.push(format!("{}{}", "  ".repeat(depth), span.name));
    let mut children: Vec<&Exported> =
        spans.iter().filter(|child| child.parent.as_ref() == Some(&span.span)).collect();
    children.sort_by_key(|child| child.began_ns);
    children.iter().for_each(|child| draw(spans, child, depth + 1, lines));
}
