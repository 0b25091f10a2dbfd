//! Nodes that share a store: lanes, workers, and versions during an upgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::prelude::*;
use perennial::{Registrations, RuntimeOptions, StartOptions};
use perennial_testkit::postgres::TestServer;

use crate::support::soon;

#[activity]
async fn double(_: ActivityContext, number: u64) -> Result<u64, String> {
    Ok(2 * number)
}

#[orchestration]
async fn sum(ctx: OrchestrationContext, numbers: u64) -> Result<u64, String> {
    let doubled = ctx.join((0..numbers).map(|number| ctx.schedule_activity(double, number))).await;
    doubled.into_iter().try_fold(0, |sum, doubled| Ok(sum + doubled?))
}

/// Short leases, so that nodes notice each other soon.
fn options(node: &str) -> RuntimeOptions {
    RuntimeOptions { node: node.to_owned(), lease: Duration::from_secs(1), ..RuntimeOptions::default() }
}

async fn sums(client: &Client, prefix: &str) {
    for number in 0..40 {
        client.start(sum, &format!("{prefix}-{number}"), number).await.unwrap();
    }
    for number in 0..40_u64 {
        let sum: u64 = soon(client.result(&format!("{prefix}-{number}"))).await.unwrap().decode().unwrap();
        assert_eq!(sum, (0..number).map(|number| 2 * number).sum::<u64>());
    }
}

async fn lanes_share_the_shards(url: &str) {
    let options = RuntimeOptions { lanes: 3, ..options("one") };
    let runtime = Runtime::open(url).options(options).register(sum).register(double).start().await.unwrap();
    sums(&runtime.client(), "a").await;
    let nodes = runtime.client().nodes().await.unwrap();
    assert_eq!((nodes.len(), nodes[0].lanes, nodes[0].shards), (1, 3, 256));
    sums(&runtime.client(), "b").await;
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_a_node_divides_its_shards_among_its_lanes() {
    lanes_share_the_shards("memory:").await;
    lanes_share_the_shards(&TestServer::shared().new_schema()).await;
}

#[tokio::test]
async fn h41_a_node_without_a_name_is_named_after_its_process() {
    let runtime = Runtime::open("memory:").register(sum).start().await.unwrap();
    let nodes = runtime.client().nodes().await.unwrap();
    assert!(nodes[0].name.ends_with(&format!("-{}", std::process::id())), "{:?}", nodes[0].name);
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n7_a_worker_owns_no_shards_and_runs_activities_of_others() {
    let url = TestServer::shared().new_schema();
    let owner = Runtime::open(&url).options(options("owner")).register(sum).start().await.unwrap();
    let worker = RuntimeOptions { owns_shards: false, ..options("worker") };
    let worker = soon(Runtime::open(&url).options(worker).register(double).start()).await.unwrap();
    // The worker has not registered the orchestration that its client starts.
    sums(&worker.client(), "a").await;
    sums(&owner.client(), "b").await;
    let nodes = worker.client().nodes().await.unwrap();
    let shards = |name: &str| nodes.iter().find(|node| node.name == name).map(|node| node.shards);
    assert_eq!((shards("owner"), shards("worker")), (Some(256), Some(0)));
    soon(worker.shutdown()).await.unwrap();
    soon(owner.shutdown()).await.unwrap();
}

/// A program at a version: it has the versions up to this one.
fn release(number: u64, began: &Arc<AtomicUsize>) -> Registrations {
    let began = Arc::clone(began);
    (1..=number).fold(Registrations::new(), |all, version| {
        let began = Arc::clone(&began);
        let code = move |_: OrchestrationContext, (): ()| {
            began.fetch_add(1, Ordering::Relaxed);
            async move { Ok::<_, String>(version) }
        };
        all.orchestration("order", &format!("{version}.0.0"), code)
    })
}

/// The version that a start uses once all nodes know each other.
async fn version_of_starts(client: &Client, wanted: u64) {
    let settled = async {
        for number in 0.. {
            let id = format!("order-{wanted}-{number}");
            client.start_with("order", &id, (), StartOptions::default()).await.unwrap();
            let version: u64 = client.result(&id).await.unwrap().decode().unwrap();
            if version == wanted {
                return;
            }
            assert!(version <= 2);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(settled).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_a_new_version_is_used_once_all_nodes_have_it() {
    let (url, began) = (TestServer::shared().new_schema(), Arc::default());
    let start = |node: &'static str, number| {
        Runtime::open(&url).options(options(node)).registrations(release(number, &began)).start()
    };
    let old = start("old", 1).await.unwrap();
    let new = soon(start("new", 2)).await.unwrap();
    version_of_starts(&new.client(), 1).await;
    for number in 0..50 {
        let id = format!("during-{number}");
        new.client().start("order", &id, ()).await.unwrap();
        let version: u64 = soon(new.client().result(&id)).await.unwrap().decode().unwrap();
        assert_eq!(version, 1, "the old node would not know what to do with another");
    }
    soon(old.shutdown()).await.unwrap();
    version_of_starts(&new.client(), 2).await;
    soon(new.shutdown()).await.unwrap();
}
