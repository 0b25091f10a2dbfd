//! Two releases of a program that run concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perennial::prelude::*;
use perennial_chaos::log::Log;
use perennial_chaos::node::NodeOptions;

use crate::support::{Load, stage, until, until_divided};

/// Starts instances of the orchestration that changes, until it is told to stop, and waits for each of them.
async fn greet(
    client: Client,
    log: Log,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
) -> Vec<(String, String)> {
    let mut results = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("greet-{number}");
        log.note("send", &["start", &id, "greet"]);
        client.start("greet", &id, Payload::null()).await.unwrap();
        log.note("ok", &["start", &id, "greet"]);
        let result = client.result_within(&id, Duration::from_secs(60)).await.unwrap();
        results.push((client.status(&id).await.unwrap().version, result.to_text()));
        done.fetch_add(1, Ordering::Relaxed);
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_nodes_are_upgraded_one_by_one_under_load_and_nothing_is_blocked_or_fails() {
    let mut stage = stage(3).await;
    until_divided(&stage, 3).await;
    let load = Load::begin(&stage, &["sequence", "mail", "family"]);
    let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let greeting = tokio::spawn(greet(
        stage.client(),
        stage.callers.of_writer("greeter"),
        Arc::clone(&stop),
        Arc::clone(&done),
    ));
    for old in stage.fleet.numbers() {
        let before = done.load(Ordering::Relaxed);
        until("progress of both releases", async || done.load(Ordering::Relaxed) > before + 3).await;
        let new = NodeOptions { release: 2, ..stage.fleet.template().clone() };
        let new = stage.fleet.add_with(new);
        stage.ready(new).await;
        stage.stop(old).await;
    }
    until_divided(&stage, 3).await;
    let before = done.load(Ordering::Relaxed);
    until("progress of the new release", async || done.load(Ordering::Relaxed) > before + 3).await;
    stop.store(true, Ordering::Relaxed);
    let results = greeting.await.unwrap();
    // The new version is used only after every node has it.
    let is_fine = |(version, result): &(String, String)| {
        matches!((version.as_str(), result.as_str()), ("1.0.0", "1") | ("2.0.0", "2"))
    };
    assert!(results.iter().all(is_fine), "{results:?}");
    let first_new = results.iter().position(|(version, _)| version == "2.0.0");
    assert!(first_new.is_some_and(|first| first > 6), "{results:?}");
    assert!(results[first_new.unwrap()..].iter().all(|(version, _)| version == "2.0.0"), "{results:?}");
    load.end(&stage).await;
}
