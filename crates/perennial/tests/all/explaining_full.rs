//! Instances that refuse events because too many are unread (N18).

use perennial::explain::FindingKind;
use perennial::prelude::*;

use super::support::{Place, relaxed, soon};

/// Reads no events until it is told to.
async fn busy(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ctx.schedule_wait("begin").await;
    Ok(Payload::null())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_an_instance_that_is_full_is_found_with_a_remedy() {
    let place = Place::new();
    let mut options = relaxed();
    options.shard.max_unread = 4;
    let runtime = Runtime::open(place.url()).options(options).orchestration("busy", "1.0.0", busy);
    let runtime = runtime.start().await.unwrap();
    let client = runtime.client();
    client.start("busy", "b", Payload::null()).await.unwrap();
    assert_eq!(client.find_stuck().await.unwrap().findings, []);
    let refused = soon(async {
        loop {
            if let Err(error) = client.raise_event("b", "item", "x").await {
                return error;
            }
        }
    });
    assert!(matches!(refused.await, perennial::ClientError::Full { .. }));
    let guest = place.guest();
    let findings = soon(async {
        loop {
            let findings = guest.find_stuck().await.unwrap().findings;
            if !findings.is_empty() {
                return findings;
            }
        }
    });
    let findings = findings.await;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].kind, &*findings[0].instances), (FindingKind::Full, &["b".to_owned()][..]));
    assert!(findings[0].text.contains("senders are refused"), "{findings:?}");
    assert!(findings[0].remedy.contains("perennial show"), "{findings:?}");
    runtime.shutdown().await.unwrap();
}
