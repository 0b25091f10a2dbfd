//! Nodes that share a store: lanes, workers, and versions during an upgrade.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perennial::prelude::*;
use perennial::{Filter, Registrations, RuntimeOptions, StartOptions, Status};
use perennial_testkit::postgres::TestServer;
use tokio::sync::Semaphore;

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

const WORK: Activity<u64, u64> = Activity::named("work");

/// The activity of the tests of spill-over: it counts where it runs, and may wait for a gate.
fn counted(ran: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Registrations {
    let (ran, gate) = (Arc::clone(ran), Arc::clone(gate));
    Registrations::new().activity("work", move |_: ActivityContext, number: u64| {
        let (ran, gate) = (Arc::clone(&ran), Arc::clone(&gate));
        async move {
            ran.fetch_add(1, Ordering::Relaxed);
            gate.acquire().await.map_err(|error| error.to_string())?.forget();
            Ok::<_, String>(number)
        }
    })
}

#[orchestration]
async fn many_works(ctx: OrchestrationContext, count: u64) -> Result<u64, String> {
    let works = (0..count).map(|number| ctx.schedule_activity(WORK, number));
    let done = ctx.join(works).await;
    done.into_iter().try_fold(0, |sum, number| Ok(sum + number.map_err(|error| error.to_string())?))
}

/// One node has a single slot, whose activity does not end: everything else runs on the other one.
async fn waiting_work_runs_on_the_other_node(other: RuntimeOptions, instances: u64, works: u64) {
    let url = TestServer::shared().new_schema();
    let (ran_here, ran_there) = (Arc::default(), Arc::default());
    let (closed, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
    let narrow =
        RuntimeOptions { activity_slots: 1, spill_after: Duration::from_millis(100), ..options("narrow") };
    let narrow = Runtime::open(&url).options(narrow).register(many_works);
    let narrow = narrow.registrations(counted(&ran_here, &closed)).start().await.unwrap();
    let wide = Runtime::open(&url).options(other).register(many_works);
    let wide = soon(wide.registrations(counted(&ran_there, &open)).start()).await.unwrap();
    let client = narrow.client();
    for number in 0..instances {
        client.start(many_works, &format!("many-{number}"), works).await.unwrap();
    }
    let total = usize::try_from(instances * works).unwrap();
    let all_but_one = async {
        while ran_there.load(Ordering::Relaxed) < total - 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(all_but_one).await;
    assert_eq!(ran_here.load(Ordering::Relaxed), 1, "what began here is not given away");
    closed.add_permits(total);
    for number in 0..instances {
        let sum: u64 = soon(client.result(&format!("many-{number}"))).await.unwrap().decode().unwrap();
        assert_eq!(sum, (0..works).sum::<u64>());
    }
    let ran = ran_here.load(Ordering::Relaxed) + ran_there.load(Ordering::Relaxed);
    assert_eq!(ran, total, "each of them ran once");
    soon(wide.shutdown()).await.unwrap();
    soon(narrow.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_work_that_waits_for_a_slot_runs_on_another_node_with_room() {
    waiting_work_runs_on_the_other_node(options("wide"), 20, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_work_that_waits_for_a_slot_runs_on_a_worker_without_shards() {
    let worker = RuntimeOptions { owns_shards: false, ..options("worker") };
    waiting_work_runs_on_the_other_node(worker, 1, 20).await;
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

/// The parts of an upgrade that callers see: whether instances wait for code, and whether one is blocked.
async fn waiting_and_blocked(client: &Client, ids: &[String]) -> (Vec<String>, usize) {
    let mut waiting = Vec::new();
    for id in ids {
        let view = client.status(id).await.unwrap();
        assert_eq!(view.blocked, None, "{id} is not shown as blocked");
        waiting.extend(view.missing_code.map(|_| id.clone()));
    }
    let blocked = client.list(Filter::new().blocked(true), None, 10).await.unwrap().rows.len();
    (waiting, blocked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_instances_of_a_new_version_wait_at_an_old_node_until_it_is_upgraded() {
    let (url, began) = (TestServer::shared().new_schema(), Arc::default());
    let start = |node: &'static str, number| {
        Runtime::open(&url).options(options(node)).registrations(release(number, &began)).start()
    };
    let old = start("old", 1).await.unwrap();
    let new = soon(start("new", 2)).await.unwrap();
    let client = new.client();
    let both_own = async {
        while client.nodes().await.unwrap().iter().any(|node| node.shards != 128) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(both_own).await;
    let ids: Vec<String> = (0..40).map(|number| format!("order-{number}")).collect();
    let second = StartOptions::default().version("2.0.0");
    for id in &ids {
        client.start_with("order", id, (), second.clone()).await.unwrap();
    }
    let all_settle = async {
        loop {
            let (waiting, blocked) = waiting_and_blocked(&client, &ids).await;
            assert_eq!(blocked, 0);
            let ended = client.count(Filter::new().status(Status::Completed)).await.unwrap().rows;
            if waiting.len() + usize::try_from(ended).unwrap() == ids.len() {
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waiting = soon(all_settle).await;
    assert!(!waiting.is_empty() && waiting.len() < ids.len(), "each node owns some: {waiting:?}");
    let explained = client.explain(&waiting[0]).await.unwrap();
    let text = explained.to_string();
    assert!(text.contains("its node does not have `order` 2.0.0, new has it"), "{text}");
    assert!(!explained.is_stuck(), "{text}");
    let stuck = client.find_stuck().await.unwrap();
    assert_eq!((stuck.findings.len(), stuck.waiting[0].count), (0, waiting.len()), "{stuck:?}");
    soon(old.shutdown()).await.unwrap();
    let upgraded = soon(start("upgraded", 2)).await.unwrap();
    for id in &ids {
        let version: u64 = soon(client.result(id)).await.unwrap().decode().unwrap();
        assert_eq!(version, 2);
    }
    soon(upgraded.shutdown()).await.unwrap();
    soon(new.shutdown()).await.unwrap();
}
