//! O9: what repeats work, or only looks at it, counts nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perennial::prelude::*;

use crate::recorder::alone;
use crate::shop::{GO, Store, builder, order, soon};

#[tokio::test(flavor = "multi_thread")]
async fn o9_hydrating_counts_no_turn_and_no_start() {
    let (kept, _one) = alone().await;
    for store in Store::each() {
        let before = kept.counts();
        let mut options = RuntimeOptions { relaxed: true, ..RuntimeOptions::default() };
        // Everything that waits is evicted.
        options.shard.max_resident = 0;
        let runtime = builder(&store.url).options(options).start().await.unwrap();
        let client = runtime.client();
        client.start("waits", "w", ()).await.unwrap();
        client.raise_event("w", GO, 1).await.unwrap();
        client.raise_event("w", GO, 2).await.unwrap();
        soon(client.wait("w")).await.unwrap();
        let turns = client.history("w").await.unwrap().turns.len() as u64;
        client.refresh_metrics().await.unwrap();
        let grown = kept.counts().since(&before);
        runtime.shutdown().await.unwrap();
        assert_eq!(
            grown["perennial_turns_total{orchestration=waits,outcome=committed}"], turns,
            "{}",
            store.url
        );
        assert_eq!(grown["perennial_instances_started_total{orchestration=waits}"], 1);
        assert!(grown["perennial_evictions_total"] >= 1 && grown["perennial_hydrations_total"] >= 1);
        assert_eq!(grown["perennial_hydrations_total"], grown["perennial_hydration_seconds"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_shadow_replay_counts_no_turn_and_no_start() {
    let (kept, _one) = alone().await;
    let before = kept.counts();
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    let code = move |_: OrchestrationContext, _: ()| {
        let ran = Arc::clone(&counted);
        async move {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok::<(), String>(())
        }
    };
    let runtime = Runtime::open("memory:").orchestration("shadowed", "1.0.0", code).start().await.unwrap();
    let client = runtime.client();
    client.start("shadowed", "s", ()).await.unwrap();
    soon(client.wait("s")).await.unwrap();
    client.refresh_metrics().await.unwrap();
    let grown = kept.counts().since(&before);
    runtime.shutdown().await.unwrap();
    // Builds with debug assertions replay each turn at once.
    let expected = if cfg!(debug_assertions) { 2 } else { 1 };
    assert_eq!(ran.load(Ordering::Relaxed), expected);
    assert_eq!(grown["perennial_turns_total{orchestration=shadowed,outcome=committed}"], 1);
    assert_eq!(grown["perennial_turn_duration_seconds{orchestration=shadowed,outcome=committed}"], 1);
    assert_eq!(grown["perennial_instances_started_total{orchestration=shadowed}"], 1);
    assert_eq!(grown["perennial_instances_ended_total{orchestration=shadowed,outcome=completed}"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_preflight_and_export_count_nothing() {
    let (kept, _one) = alone().await;
    let store = Store::file();
    let runtime = builder(&store.url).start().await.unwrap();
    let client = runtime.client();
    client.start("waits", "w", ()).await.unwrap();
    client.raise_event("w", GO, 1).await.unwrap();
    client.start(order, "o", 1).await.unwrap();
    soon(client.wait("o")).await.unwrap();
    runtime.shutdown().await.unwrap();
    let before = kept.counts();
    let report = builder(&store.url).preflight().await.unwrap();
    assert!(report.incompatible.is_empty());
    let guest = Client::open(&store.url).unwrap();
    guest.export("w").await.unwrap();
    guest.history("o").await.unwrap();
    guest.list(perennial::Filter::new(), None, 10).await.unwrap();
    assert_eq!(kept.counts().since(&before), Default::default());
}
