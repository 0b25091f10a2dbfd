//! Many instances, long instances, wide instances.

use std::time::Duration;

use futures::future::join_all;
use perennial::{ActivityContext, OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;

use crate::support::{Place, check_client, failed, number, relaxed};

type Outcome = Result<Payload, Payload>;

async fn hello(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("add_one", number(0)).await.map_err(failed)
}

async fn sequence(ctx: OrchestrationContext, steps: Payload) -> Outcome {
    let mut value = 0;
    for _ in 0..steps.decode::<u64>().map_err(failed)? {
        value = ctx.schedule_activity("add_one", number(value)).typed::<u64>().await.map_err(failed)?;
    }
    Ok(number(value))
}

async fn fanout(ctx: OrchestrationContext, width: Payload) -> Outcome {
    let width = width.decode::<u64>().map_err(failed)?;
    let calls: Vec<_> =
        (0..width).map(|value| ctx.schedule_activity("add_one", number(value)).typed::<u64>()).collect();
    Ok(number(ctx.try_join(calls).await.map_err(failed)?.into_iter().sum()))
}

async fn add_one(_: ActivityContext, value: Payload) -> Outcome {
    Ok(number(value.decode::<u64>().map_err(failed)? + 1))
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("hello", "1.0.0", hello)
        .orchestration("sequence", "1.0.0", sequence)
        .orchestration("fanout", "1.0.0", fanout)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

fn runtime(url: &str) -> RuntimeBuilder {
    orchestrations(Runtime::open(url)).activity("add_one", add_one)
}

/// Long enough for a debug build on a busy machine.
async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(300), future).await.expect("it takes too long")
}

async fn run_one(url: &str, options: RuntimeOptions, name: &str, size: u64, expected: u64) {
    let runtime = runtime(url).options(options).start().await.unwrap();
    let client = runtime.client();
    client.start(name, "it", number(size)).await.unwrap();
    assert_eq!(in_time(client.result("it")).await.unwrap(), number(expected));
    let mut log = ClientLog::default();
    log.started("it");
    check_client(&client, &log, &handlers()).await;
    runtime.shutdown().await.unwrap();
}

async fn ten_thousand(url: &str) -> ClientLog {
    let runtime = runtime(url).options(relaxed()).start().await.unwrap();
    let client = runtime.client();
    let ids: Vec<String> = (0..10_000).map(|count| format!("hello-{count}")).collect();
    let one = async |id: &str| {
        client.start("hello", id, Payload::null()).await.unwrap();
        client.result(id).await.unwrap()
    };
    let results = in_time(join_all(ids.iter().map(|id| one(id)))).await;
    assert!(results.iter().all(|result| *result == number(1)));
    let mut log = ClientLog::default();
    ids.iter().for_each(|id| log.started(id));
    check_client(&client, &log, &handlers()).await;
    runtime.shutdown().await.unwrap();
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_instances_at_a_time_in_memory() {
    ten_thousand("memory:").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_instances_at_a_time_on_sqlite() {
    let place = Place::new();
    let log = ten_thousand(&place.url()).await;
    place.check(&log, &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_of_ten_thousand_steps_in_memory() {
    run_one("memory:", RuntimeOptions::default(), "sequence", 10_000, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_of_a_thousand_synced_steps_on_sqlite() {
    let place = Place::new();
    run_one(&place.url(), RuntimeOptions::default(), "sequence", 1_000, 1_000).await;
    place.check(&ClientLog::default(), &handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_of_ten_thousand_in_memory() {
    run_one("memory:", RuntimeOptions::default(), "fanout", 10_000, 50_005_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_of_ten_thousand_on_sqlite() {
    let place = Place::new();
    run_one(&place.url(), RuntimeOptions::default(), "fanout", 10_000, 50_005_000).await;
    place.check(&ClientLog::default(), &handlers());
}
