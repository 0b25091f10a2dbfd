//! O3: gauges of the node and of the store, also after a node was killed and another took over.

use perennial::prelude::*;

use crate::recorder::{Kept, alone};
use crate::shop::{Store, builder, order, soon};

#[tokio::test(flavor = "multi_thread")]
async fn o3_gauges_of_the_store_are_the_same_beside_the_runtime() {
    let (kept, _one) = alone().await;
    for store in Store::each() {
        let runtime = builder(&store.url).start().await.unwrap();
        let client = runtime.client();
        for id in ["a", "b", "c"] {
            client.start(order, id, 1).await.unwrap();
            soon(client.wait(id)).await.unwrap();
        }
        client.start("waits", "w", ()).await.unwrap();
        client.start("broken", "x", ()).await.unwrap();
        let _ = soon(client.result_unless_blocked("x")).await;
        let code = client.status("x").await.unwrap().blocked.unwrap().code;
        let is_memory = store.url == "memory:";
        let guest = if is_memory { client.clone() } else { Client::open(&store.url).unwrap() };
        for reader in [&client, &guest] {
            reader.refresh_metrics().await.unwrap();
            let gauge = |series: &str| kept.gauge(&format!("perennial_store_{series}"));
            assert_eq!(gauge("instances{status=completed}"), Some(3.0), "{}", store.url);
            assert_eq!(gauge("instances{status=running}"), Some(1.0));
            assert_eq!(gauge("instances{status=pending}"), Some(1.0), "the blocked one has not begun");
            assert_eq!(gauge("instances_is_lower_bound{status=running}"), Some(0.0));
            assert_eq!(gauge(&format!("blocked{{code={code}}}")), Some(1.0));
            assert_eq!(gauge("tasks{state=queued}"), Some(0.0));
            assert!(gauge("inbox").is_some() && gauge("lag_seconds").is_some());
            if store.url.starts_with("sqlite:") {
                assert!(gauge("bytes{part=file}").unwrap() > 4_096.0);
            }
            if store.url.starts_with("postgres") {
                assert!(gauge("bytes{part=turns}").unwrap() > 0.0);
            }
        }
        // They are read at most every five seconds.
        client.start("waits", "another", ()).await.unwrap();
        client.refresh_metrics().await.unwrap();
        assert_eq!(kept.gauge("perennial_store_instances{status=running}"), Some(1.0));
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_a_count_beyond_ten_thousand_is_marked_as_a_lower_bound() {
    let (kept, _one) = alone().await;
    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client();
    let starts = (0..10_001).map(|number| {
        let client = client.clone();
        async move { client.start("waits", &format!("w-{number}"), ()).await.map(drop) }
    });
    for started in futures::future::join_all(starts).await {
        started.unwrap();
    }
    client.refresh_metrics().await.unwrap();
    runtime.shutdown().await.unwrap();
    assert_eq!(kept.gauge("perennial_store_instances{status=running}"), Some(10_000.0));
    assert_eq!(kept.gauge("perennial_store_instances_is_lower_bound{status=running}"), Some(1.0));
    assert_eq!(kept.gauge("perennial_store_instances_is_lower_bound{status=failed}"), Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_gauges_of_a_node_follow_its_end_and_the_next_owner() {
    let (kept, _one) = alone().await;
    let store = Store::file();
    let shards = || kept.gauge("perennial_shards_owned");
    let runtime = builder(&store.url).start().await.unwrap();
    runtime.client().start("waits", "w", ()).await.unwrap();
    runtime.client().refresh_metrics().await.unwrap();
    assert_eq!((shards(), kept.gauge("perennial_resident_instances")), (Some(256.0), Some(1.0)));
    assert!(kept.gauge("perennial_lease_remaining_seconds").unwrap() > 0.0);
    assert_eq!(kept.gauge("perennial_activity_slots{state=free}"), Some(1_000.0));
    assert_eq!(kept.gauge("perennial_lost_threads"), Some(0.0));
    // As if it was killed.
    drop(runtime);
    assert_eq!((shards(), kept.gauge("perennial_resident_instances")), (Some(0.0), Some(0.0)));
    assert_eq!(kept.gauge("perennial_lease_remaining_seconds"), Some(0.0));
    let runtime = builder(&store.url).start().await.unwrap();
    runtime.client().refresh_metrics().await.unwrap();
    assert_eq!(shards(), Some(256.0));
    runtime.shutdown().await.unwrap();
    assert_eq!(shards(), Some(0.0));
}

/// Each node has a recorder of its own, as if it was a process.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn o3_a_node_that_takes_over_shows_the_shards_of_the_other() {
    let (_, _one) = alone().await;
    let store = Store::schema();
    let start = || async {
        let kept = Kept::default();
        let local = metrics::set_default_local_recorder(&kept);
        let runtime = builder(&store.url).start().await.unwrap();
        drop(local);
        (runtime, kept.clone())
    };
    let until = |runtime: &Runtime, kept: &Kept, shards: f64| {
        let (client, kept) = (runtime.client(), kept.clone());
        soon(async move {
            loop {
                client.refresh_metrics().await.unwrap();
                if kept.gauge("perennial_shards_owned") == Some(shards) {
                    return;
                }
                client.changed(Duration::from_millis(50)).await;
            }
        })
    };
    let (first, of_first) = start().await;
    until(&first, &of_first, 256.0).await;
    let (second, of_second) = start().await;
    until(&first, &of_first, 128.0).await;
    until(&second, &of_second, 128.0).await;
    first.shutdown().await.unwrap();
    assert_eq!(of_first.gauge("perennial_shards_owned"), Some(0.0));
    until(&second, &of_second, 256.0).await;
    second.shutdown().await.unwrap();
}
