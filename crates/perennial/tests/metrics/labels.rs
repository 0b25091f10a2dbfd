//! O2 and O4: labels are bounded and say nothing of instances, and only what is documented is registered.

use std::collections::{BTreeMap, BTreeSet};

use perennial::metrics::{ENGINE, Kind};
use perennial::prelude::*;
use perennial::{Payload, Registrations};

use crate::recorder::alone;
use crate::shop::{GO, Store, builder, order, soon};

/// Names that break text formats, queries or terminals.
fn hostile(number: usize) -> String {
    match number % 6 {
        0 => format!("plain-{number:03}"),
        1 => format!("quote\"}} 1 # {number:03}"),
        2 => format!("{{{{braces}}}} {number:03}"),
        3 => format!("back\\slash {number:03}"),
        4 => format!("crab 🦀 {number:03}"),
        _ => format!("{} {number:03}", "long ".repeat(30)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o2_with_300_names_of_each_kind_labels_stay_bounded() {
    let (kept, _one) = alone().await;
    let mut registrations = Registrations::new();
    for number in 0..300 {
        let activity = hostile(number);
        let called = activity.clone();
        registrations = registrations
            .activity(&activity, |_: ActivityContext, input: Payload| async move { Ok::<_, Payload>(input) })
            .orchestration(&hostile(number), "1.0.0", move |ctx: OrchestrationContext, input: Payload| {
                let called = called.clone();
                async move { ctx.schedule_activity(called, input).await.map_err(|_| Payload::null()) }
            });
    }
    let before = kept.counts();
    let runtime = Runtime::open("memory:").registrations(registrations).start().await.unwrap();
    let client = runtime.client();
    for number in 0..300 {
        let id = format!("secret-id-{number}");
        let options = StartOptions::default().attribute("secret-attribute", Payload::from("secret-value"));
        client.start_with(&*hostile(number), &id, Payload::from("secret-payload"), options).await.unwrap();
    }
    for number in 0..300 {
        soon(client.wait(&format!("secret-id-{number}"))).await.unwrap();
    }
    client.refresh_metrics().await.unwrap();
    let grown = kept.counts().since(&before);
    runtime.shutdown().await.unwrap();
    for (metric, label) in [
        ("perennial_instances_started_total", "orchestration"),
        ("perennial_activity_attempts_total", "activity"),
    ] {
        let all: Vec<(&String, &u64)> =
            grown.iter().filter(|(series, _)| series.starts_with(&format!("{metric}{{"))).collect();
        assert_eq!(all.len(), 201, "200 names, and all others");
        let others: u64 = all
            .iter()
            .filter(|(series, _)| series.contains(&format!("{label}=_other")))
            .map(|(_, count)| **count)
            .sum();
        assert_eq!((others, all.iter().map(|(_, count)| **count).sum::<u64>()), (100, 300));
    }
    let leaked: Vec<String> = kept.series().into_iter().filter(|series| series.contains("secret")).collect();
    assert_eq!(leaked, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_what_is_registered_is_what_is_in_the_catalogue() {
    let (kept, _one) = alone().await;
    let store = Store::file();
    let runtime = builder(&store.url).start().await.unwrap();
    let client = runtime.client();
    client.start(order, "o", 1).await.unwrap();
    client.start("patient", "p", ()).await.unwrap();
    client.start("broken", "b", ()).await.unwrap();
    client.start("nap", "n", ()).await.unwrap();
    client.start("waits", "w", ()).await.unwrap();
    client.raise_event("w", GO, 1).await.unwrap();
    for id in ["o", "p", "n"] {
        soon(client.wait(id)).await.unwrap();
    }
    let _ = soon(client.result_unless_blocked("b")).await;
    client.terminate("b", "done").await.unwrap();
    soon(client.wait("b")).await.unwrap();
    // The gauge of blocked instances exists once something was blocked.
    client.start("broken", "c", ()).await.unwrap();
    let _ = soon(client.result_unless_blocked("c")).await;
    client.refresh_metrics().await.unwrap();
    runtime.shutdown().await.unwrap();
    let mut registered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for series in kept.series().iter().filter(|series| !series.contains('"')) {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
        registered.entry(name.to_owned()).or_default().extend(labels.map(|(label, _)| label.to_owned()));
    }
    let described = kept.described();
    for metric in ENGINE {
        let labels: BTreeSet<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(registered.remove(metric.name), Some(labels), "{}", metric.name);
        assert_eq!(described[metric.name].1, metric.about);
        let is_total = metric.name.ends_with("_total");
        assert_eq!(is_total, metric.kind == Kind::Counter, "{}", metric.name);
    }
    assert_eq!(registered, BTreeMap::new(), "registered, and not in the catalogue");
}
