//! A file has one owner at a time.

use std::time::Duration;

use futures::future::join_all;
use perennial::{Client, OrchestrationContext, Payload, Runtime, RuntimeBuilder};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_guests_that_want_the_store_at_the_same_moment_all_get_what_they_want() {
    let place = Place::new();
    let first = runtime(&place).start().await.unwrap();
    let ids: Vec<String> = (0..20).map(|number| format!("c-{number}")).collect();
    for id in &ids {
        first.client().start("waiter", id, Payload::null()).await.unwrap();
    }
    first.shutdown().await.unwrap();
    let deleting = ids.iter().map(|id| {
        let guest = Client::open(&place.url()).unwrap();
        async move { guest.delete(id, true).await }
    });
    // An owner that comes in between waits for those that have it for a moment.
    let coming = runtime(&place).start();
    let (deleted, second) = soon(async { tokio::join!(join_all(deleting), coming) }).await;
    assert!(deleted.iter().all(|deleted| *deleted == Ok(1)), "{deleted:?}");
    second.unwrap().shutdown().await.unwrap();
    assert_eq!(place.snapshot().instances.len(), 0);
}
