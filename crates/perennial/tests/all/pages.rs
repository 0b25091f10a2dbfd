//! H42: long histories in pages, requests bound to an instance, shared documents, readiness.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial::history::EventId;
use perennial::prelude::*;

const APPROVED: ExternalEvent<u32> = ExternalEvent::named("approved");

#[activity]
async fn double(_: ActivityContext, number: u32) -> Result<u32, String> {
    Ok(2 * number)
}

#[orchestration]
async fn sequence(ctx: OrchestrationContext, steps: u32) -> Result<u32, String> {
    for step in 0..steps {
        ctx.schedule_activity(double, step).await?;
    }
    Ok(steps)
}

#[orchestration]
async fn approval(ctx: OrchestrationContext) -> Result<u32, String> {
    let count = ctx.state(0_u32);
    ctx.on_query("count", &count, |count, ()| count.read(|count| *count));
    Ok(ctx.schedule_wait(APPROVED).await)
}

async fn on_stores(test: impl AsyncFn(&Runtime, Client)) {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", directory.path().join("store.db").display());
    for url in ["memory:", &file] {
        let runtime = Runtime::open(url).register(sequence).register(approval).register(double);
        let runtime = runtime.start().await.unwrap();
        test(&runtime, runtime.client()).await;
        if url != "memory:" {
            test(&runtime, Client::open(url).unwrap()).await;
        }
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h42_a_history_is_read_in_pages_and_an_event_by_its_number() {
    on_stores(async |_, client| {
        let id = &format!("sequence-{}", client.is_in_runtime());
        client.start("sequence", id, Payload::encode(&30).unwrap()).await.unwrap();
        client.result(id).await.unwrap();
        let whole = client.history(id).await.unwrap();
        let last = client.last_turn(id, 1).await.unwrap();
        assert_eq!(last, whole.turns.len() as u64);
        for limit in [1, 7, 500] {
            let (mut turns, mut after) = (Vec::new(), 0);
            loop {
                let page = client.turn_page(id, 1, after, limit).await.unwrap();
                assert!(page.turns.len() <= limit);
                after += page.turns.len() as u64;
                turns.extend(page.turns);
                if !page.more {
                    break;
                }
            }
            assert_eq!(turns, whole.turns, "{limit} at a time");
        }
        assert_eq!(client.turn_page(id, 1, last, 5).await.unwrap().turns, []);
        assert_eq!(client.turn_page(id, 1, last + 9, 5).await.unwrap().turns, []);
        let missing = client.turn_page(id, 7, 0, 5).await;
        assert!(matches!(missing, Err(ClientError::NoExecution { execution: 7, .. })), "{missing:?}");
        for turn in &whole.turns {
            for event in &turn.events {
                let found = client.find_event(id, 1, event.id).await.unwrap().unwrap();
                assert_eq!((found.turn, &found.event), (turn.number, event));
            }
        }
        for missing in [0, 10_000] {
            assert_eq!(client.find_event(id, 1, EventId(missing)).await.unwrap(), None);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_a_bound_client_reaches_its_instance_or_none() {
    on_stores(async |runtime, client| {
        let id = &format!("approval-{}", client.is_in_runtime());
        let owner = runtime.client();
        owner.start(approval, id, ()).await.unwrap();
        let bound = client.bound_to(client.status(id).await.unwrap().key);
        assert_eq!(bound.status(id).await.unwrap().id, *id);
        owner.delete(id, true).await.unwrap();
        let gone = |done: Result<(), ClientError>| {
            assert!(matches!(done, Err(ClientError::NotFound { .. })), "{done:?}")
        };
        gone(bound.raise_event(id, APPROVED, 1).await);
        owner.start(approval, id, ()).await.unwrap();
        let another = |done: Result<(), ClientError>| {
            assert!(matches!(done, Err(ClientError::AnotherInstance { .. })), "{done:?}");
        };
        another(bound.status(id).await.map(drop));
        another(bound.raise_event(id, APPROVED, 1).await);
        another(bound.cancel(id, "no").await);
        another(bound.terminate(id, "no").await);
        another(bound.retry(id).await);
        another(bound.pause(id, "no").await);
        another(bound.query(id, "count", ()).await.map(drop));
        another(bound.wait(id).await.map(drop));
        another(bound.history(id).await.map(drop));
        another(bound.explain(id).await.map(drop));
        another(bound.delete(id, true).await.map(drop));
        let rebound = client.bound_to(client.status(id).await.unwrap().key);
        rebound.raise_event(id, APPROVED, 7).await.unwrap();
        assert_eq!(rebound.result(id).await.unwrap().as_json(), "7");
        assert_eq!(rebound.delete(id, false).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h42_changes_of_a_shared_document_are_not_lost() {
    on_stores(async |runtime, client| {
        let name = &format!("views-{}", client.is_in_runtime());
        assert_eq!(client.document::<BTreeMap<String, u32>>(name).await.unwrap(), None);
        let add = |client: Client, key: u32| {
            let name = name.clone();
            async move {
                client
                    .change_document(&name, |document: &mut BTreeMap<String, u32>| {
                        document.insert(key.to_string(), key);
                        Ok(())
                    })
                    .await
                    .unwrap();
            }
        };
        let all = (0..8).map(|key| {
            let client = if key % 2 == 0 { client.clone() } else { runtime.client() };
            tokio::spawn(add(client, key))
        });
        for added in all.collect::<Vec<_>>() {
            added.await.unwrap();
        }
        let document = client.document::<BTreeMap<String, u32>>(name).await.unwrap().unwrap();
        assert_eq!(document.len(), 8, "{document:?}");
        let wrong = client.document::<Vec<u8>>(name).await;
        assert!(wrong.is_err());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h37_a_client_tells_whether_requests_can_be_served() {
    let runtime = Runtime::open("memory:").register(approval).start().await.unwrap();
    let client = runtime.client();
    client.check_ready().await.unwrap();
    assert!(client.is_in_runtime() && !client.is_stopping());
    let shards = client.shards().await.unwrap();
    let node = &client.nodes().await.unwrap()[0].id;
    assert!(shards.len() == 256 && shards.iter().all(|shard| shard.node.as_ref() == Some(node)));
    // A commit is a hint.
    let changed = client.changed(Duration::from_secs(60));
    client.start(approval, "a", ()).await.unwrap();
    assert!(changed.await);
    runtime.shutdown().await.unwrap();
    assert!(client.is_stopping());
    assert!(matches!(client.check_ready().await, Err(ClientError::Stopped { .. })));
}
