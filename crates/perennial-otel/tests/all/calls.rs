//! Calls that wait for long have short spans.

use std::time::Duration;

use perennial::prelude::*;

use crate::collected::{collect, of_instance, until};

/// Takes an update whose handler waits for an event.
#[orchestration]
async fn clerk(ctx: OrchestrationContext) -> Result<u32, String> {
    let answered = ctx.state(0_u32);
    let handler = ctx.clone();
    ctx.on_update("sign", &answered, move |answered, page: u32| {
        let ctx = handler.clone();
        async move {
            ctx.schedule_wait("stamp").await;
            answered.update(|answered| *answered += page);
            Ok::<u32, String>(page)
        }
    });
    ctx.wait_until(&answered, |answered| *answered > 0).await;
    ctx.handlers_idle().await;
    Ok(answered.read(|answered| *answered))
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_a_call_that_waits_has_a_span_that_does_not() {
    collect();
    let runtime = Runtime::open("memory:").register(clerk).start().await.unwrap();
    let client = runtime.client();
    client.start("clerk", "clerk", ()).await.unwrap();
    let updating = tokio::spawn({
        let client = client.clone();
        async move { client.update("clerk", "sign", Payload::from(serde_json::json!(7))).await }
    });
    // The span is there while the update still waits.
    let named = |name: &str| of_instance("clerk").into_iter().find(|span| span.name == name);
    let span = until(|| named("update sign")).await;
    assert!(!updating.is_finished(), "nothing was stamped");
    assert_eq!(span.attribute("perennial.outcome"), Some("waiting"));
    assert!(!span.is_error);
    client.raise_event("clerk", "stamp", ()).await.unwrap();
    assert_eq!(updating.await.unwrap().unwrap().as_json(), "7");
    client.run("clerk", "clerk").result().await.unwrap();
    runtime.shutdown().await.unwrap();
    // The whole work is in turns, the first of which links to the update.
    let turns: Vec<_> = of_instance("clerk").into_iter().filter(|found| found.name == "turn clerk").collect();
    assert!(turns.iter().any(|turn| turn.links == [(span.trace.clone(), span.span.clone())]), "{turns:#?}");
    let updates = of_instance("clerk").into_iter().filter(|found| found.name == "update sign").count();
    assert_eq!(updates, 1, "a call has one span");
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_a_query_that_nobody_answers_has_a_short_span() {
    collect();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    let runtime = Runtime::open(&url).register(clerk).start().await.unwrap();
    runtime.client().start("clerk", "unheard", ()).await.unwrap();
    runtime.shutdown().await.unwrap();
    let client = Client::open(&url).unwrap().patience(Duration::from_secs(3_600));
    let asking = tokio::spawn(async move { client.query("unheard", "pages", ()).await });
    let of_query = || of_instance("unheard").into_iter().find(|span| span.name == "query pages");
    let span = until(of_query).await;
    assert_eq!(span.attribute("perennial.outcome"), Some("waiting"));
    assert!(!asking.is_finished());
    asking.abort();
}
