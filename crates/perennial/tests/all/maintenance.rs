//! Clients that own the store for a moment, while no runtime does.

use std::time::Duration;

use futures::future::join_all;
use perennial::{Client, OrchestrationContext, Payload, Runtime, RuntimeBuilder};

use super::support::{Place, event, relaxed, soon};

async fn waiter(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    Ok(ctx.schedule_wait(event("go")).await)
}

fn runtime(place: &Place) -> RuntimeBuilder {
    Runtime::open(place.url()).options(relaxed()).orchestration("waiter", "1.0.0", waiter)
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
    let second = second.unwrap();
    // Those that came and went do not count as nodes: all shards are the runtime's.
    let nodes = second.client().nodes().await.unwrap();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    soon(async {
        while second.client().shards().await.unwrap().iter().any(|shard| shard.node.is_none()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    second.shutdown().await.unwrap();
    assert_eq!(place.snapshot().instances.len(), 0);
}
