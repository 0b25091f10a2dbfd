//! A file has one owner at a time.

use std::time::Duration;

use perennial::{OrchestrationContext, Payload, Runtime, RuntimeBuilder};
use perennial_testkit::invariants::ClientLog;

use crate::support::{Place, event, relaxed, soon};

async fn waiter(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    Ok(ctx.schedule_wait(event("go")).await)
}

fn runtime(place: &Place) -> RuntimeBuilder {
    Runtime::open(place.url()).options(relaxed()).orchestration("waiter", "1.0.0", waiter)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_runtime_on_the_file_is_refused_and_disturbs_nothing() {
    let place = Place::new();
    let first = runtime(&place).start().await.unwrap();
    first.client().start("waiter", "w", Payload::null()).await.unwrap();
    let error = match runtime(&place).start().await {
        Ok(_) => panic!("two runtimes on one file"),
        Err(error) => error.to_string(),
    };
    assert!(error.starts_with("PER-0507 store in use: ") && error.contains("shop.db"), "{error}");
    first.client().raise_event("w", "go", "went").await.unwrap();
    soon(first.client().result("w")).await.unwrap();
    first.shutdown().await.unwrap();
    place.check(&ClientLog::default(), &runtime(&place).handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g31_a_runtime_that_starts_while_another_stops_waits_for_the_store() {
    let place = Place::new();
    let first = runtime(&place).start().await.unwrap();
    let second = tokio::spawn(runtime(&place).start());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished(), "the store has an owner");
    first.shutdown().await.unwrap();
    second.await.unwrap().unwrap().shutdown().await.unwrap();
}
