//! O4 and O13: the guide's tables, the dashboard and the alert rules name what exists, and all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use perennial::metrics::{ENGINE, Kind, Metric, Unit};
use perennial_server::HTTP;
use serde_json::Value;

fn read(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn all() -> impl Iterator<Item = &'static Metric> {
    ENGINE.iter().chain(HTTP)
}

/// The row of a metric in the guide.
fn row(metric: &Metric) -> String {
    let unit = |unit: Unit| match unit {
        Unit::Count => "count",
        Unit::Seconds => "seconds",
        Unit::Bytes => "bytes",
    };
    let (kind, unit) = match metric.kind {
        Kind::Counter => ("counter", "count"),
        Kind::Gauge(of) => ("gauge", unit(of)),
        Kind::Histogram(of, _) => ("histogram", unit(of)),
    };
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
    format!("| `{}` | {kind} | {unit} | {labels} | {} |", metric.name, metric.about)
}

#[test]
fn o4_the_guides_tables_are_what_is_registered() {
    let page = read("src/metrics.md");
    let is_row = |line: &&str| line.starts_with("| `perennial_") || line.starts_with("| `http_");
    let documented: Vec<&str> = page.lines().filter(is_row).collect();
    let registered: Vec<String> = all().map(row).collect();
    assert_eq!(documented, registered);
}

#[test]
fn o4_names_end_with_their_unit_and_buckets_ascend() {
    let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
    assert_eq!(names.len(), all().count(), "no name twice");
    for metric in all() {
        match metric.kind {
            Kind::Counter => assert!(metric.name.ends_with("_total"), "{}", metric.name),
            Kind::Gauge(Unit::Seconds) | Kind::Histogram(Unit::Seconds, _) => {
                assert!(metric.name.ends_with("_seconds"), "{}", metric.name);
            }
            Kind::Gauge(Unit::Bytes) => assert!(metric.name.ends_with("_bytes"), "{}", metric.name),
            Kind::Gauge(_) | Kind::Histogram(..) => assert!(!metric.name.ends_with("_total")),
        }
        if let Kind::Histogram(_, buckets) = metric.kind {
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{}", metric.name);
        }
    }
    let of_instances = all().find(|metric| metric.name == "perennial_instance_duration_seconds").unwrap();
    let Kind::Histogram(_, buckets) = of_instances.kind else { panic!("a histogram") };
    assert_eq!((buckets.first(), buckets.last()), (Some(&0.01), Some(&(30.0 * 86_400.0))));
}

/// The words of a query that can be names of metrics or labels.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The metrics that a query names. Panics if it names one that does not exist, or a series that its kind does not have.
fn metrics_of(query: &str) -> BTreeSet<&'static str> {
    let named = words(query).filter(|word| word.starts_with("perennial_") || word.starts_with("http_"));
    named
        .map(|word| {
            let series = |metric: &&Metric| match metric.kind {
                Kind::Histogram(..) => {
                    ["_bucket", "_sum", "_count"].iter().any(|end| word == format!("{}{end}", metric.name))
                }
                Kind::Counter | Kind::Gauge(_) => word == metric.name,
            };
            all().find(series).unwrap_or_else(|| panic!("no metric has the series {word}: {query}")).name
        })
        .collect()
}

/// The labels by which a query groups.
fn labels_of(query: &str) -> BTreeSet<String> {
    let groups = query.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
    groups.flat_map(|(labels, _)| labels.split(',')).map(|label| label.trim().to_owned()).collect()
}

fn check_labels(query: &str, labels: impl IntoIterator<Item = String>) {
    let metrics = metrics_of(query);
    for label in labels {
        // These are the scraper's, and the bound of a bucket.
        let is_known = ["instance", "job", "le"].contains(&label.as_str())
            || all().any(|metric| metrics.contains(metric.name) && metric.labels.contains(&label.as_str()));
        assert!(is_known, "no metric of {query} has the label {label}");
    }
}

/// What stands in `{{…}}` of a legend.
fn placeholders(legend: &str) -> Vec<String> {
    let parts = legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    parts.map(|(label, _)| label.trim().trim_start_matches("$labels.").to_owned()).collect()
}

fn is_balanced(query: &str) -> bool {
    let depth = query.chars().try_fold(0_u32, |depth, c| match c {
        '(' => Some(depth + 1),
        ')' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

#[test]
fn o13_the_dashboard_shows_every_metric_once() {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let rows: Vec<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    let wanted = "Throughput, Latency, Lag, Blocked, Retries, Commits, Residency, Nodes, HTTP";
    assert_eq!(rows.join(", "), wanted);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "Grafana tells panels apart by their ids");
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let mut of_panel = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            let (query, legend) =
                (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            assert!(is_balanced(query), "{query}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "it is chosen when it is loaded");
            check_labels(query, labels_of(query));
            check_labels(query, placeholders(legend));
            of_panel.extend(metrics_of(query));
        }
        assert!(!of_panel.is_empty(), "{}", panel["title"]);
        of_panel.into_iter().for_each(|name| *shown.entry(name).or_default() += 1);
    }
    let expected: BTreeMap<&str, usize> = all().map(|metric| (metric.name, 1)).collect();
    assert_eq!(shown, expected);
}

/// The rules of the file. It uses a small part of YAML: lines of `key: value` by indentation, and `- ` before the first
/// line of a rule.
fn rules(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut rules: Vec<BTreeMap<String, String>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        assert!(!line.contains('\t'), "{line}");
        let content = line.trim_start();
        let is_first = content.starts_with("- alert: ");
        let (key, value) = content.trim_start_matches("- ").split_once(':').unwrap();
        if is_first {
            rules.push(BTreeMap::new());
        }
        if let Some(rule) = rules.last_mut() {
            let plain = !value.contains(": ")
                && !value.contains(" #")
                && !value.trim_start().starts_with(['{', '[', '*', '&']);
            assert!(plain, "not a plain scalar of YAML: {line}");
            assert_eq!(rule.insert(key.to_owned(), value.trim().to_owned()), None, "{line}");
        }
    }
    rules
}

#[test]
fn o13_the_alert_rules_name_metrics_and_labels_that_exist() {
    let text = read("grafana/alerts.yml");
    assert!(text.contains("groups:\n  - name: perennial\n    rules:\n"));
    let rules = rules(&text);
    let names: Vec<&str> = rules.iter().map(|rule| rule["alert"].trim_start_matches("Perennial")).collect();
    assert_eq!(names, ["Blocked", "Lag", "NoOwner", "RetriesRising", "LeaseShort", "CommitsSlow", "Disk"]);
    for rule in &rules {
        let query = &rule["expr"];
        assert!(is_balanced(query) && !metrics_of(query).is_empty(), "{query}");
        check_labels(query, labels_of(query));
        let told = placeholders(&rule["description"]).into_iter().filter(|label| !label.starts_with('$'));
        check_labels(query, told);
        let grouped = labels_of(query);
        let used = placeholders(&rule["description"]).into_iter().filter(|label| !label.starts_with('$'));
        used.for_each(|label| assert!(grouped.contains(&label), "{query} has no label {label}"));
        for key in ["for", "severity", "summary"] {
            assert!(!rule[key].is_empty(), "{}: {key}", rule["alert"]);
        }
    }
}
