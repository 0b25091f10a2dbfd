//! What an explanation tells beside waits (H42): events that nothing waits for, and errors of ended instances.

use std::collections::BTreeMap;

use perennial::explain::WaitReason;
use perennial::prelude::*;

use super::explaining::explained;
use super::support::{Place, relaxed, soon, until};

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const TICK: ExternalEvent<u32> = ExternalEvent::named("tick");
const NOTE: ExternalEvent<String> = ExternalEvent::named("note");

#[orchestration]
async fn order(ctx: OrchestrationContext) -> Result<bool, String> {
    let first = ctx.schedule_wait(APPROVED).await;
    let second = ctx.schedule_wait(APPROVED).await;
    if first && second { Ok(true) } else { Err("the card was declined".to_owned()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_events_that_nothing_waits_for_are_named() {
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(order).start().await.unwrap();
    let (client, guest) = (runtime.client(), place.guest());
    client.start(order, "order", ()).await.unwrap();
    client.raise_event("order", APPROVED, true).await.unwrap();
    for _ in 0..2 {
        client.raise_event("order", "aproved", "yes").await.unwrap();
    }
    client.raise_event("order", NOTE, "soon".to_owned()).await.unwrap();
    let expected = BTreeMap::from([("aproved".to_owned(), 2), ("note".to_owned(), 1)]);
    let explained = soon(async {
        loop {
            let explained = guest.explain("order").await.unwrap();
            if explained.untaken_events == expected {
                return explained;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(
        explained.to_string().ends_with("a handler takes them: `aproved` (2), `note` (1)"),
        "{explained}"
    );
    // The second event of a name that is waited for is held by its wait.
    client.raise_event("order", APPROVED, true).await.unwrap();
    until(&guest, "order", |view| view.status.is_final()).await;
    assert!(guest.explain("order").await.unwrap().untaken_events.is_empty());
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_an_ended_instance_is_explained_with_its_error_or_reason() {
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(order).start().await.unwrap();
    let (client, guest) = (runtime.client(), place.guest());
    for id in ["failed", "terminated"] {
        client.start(order, id, ()).await.unwrap();
    }
    client.raise_event("failed", APPROVED, true).await.unwrap();
    client.raise_event("failed", APPROVED, false).await.unwrap();
    client.terminate("terminated", "a duplicate").await.unwrap();
    let expected = [
        ("failed", "nothing: it has failed: the card was declined"),
        ("terminated", "nothing: it has been terminated: a duplicate"),
    ];
    for (id, text) in expected {
        until(&guest, id, |view| view.status.is_final()).await;
        assert_eq!(guest.explain(id).await.unwrap().to_string(), text);
    }
    soon(runtime.shutdown()).await.unwrap();
}

#[orchestration]
async fn ticks(ctx: OrchestrationContext, turns: u32) -> Result<bool, String> {
    for _ in 0..turns {
        ctx.schedule_wait(TICK).await;
    }
    Ok(ctx.schedule_wait(APPROVED).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_a_long_history_is_explained_in_full_but_not_in_a_list() {
    const TURNS: u32 = 2_100;
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(ticks).options(relaxed()).start().await.unwrap();
    let client = runtime.client();
    client.start(ticks, "long", TURNS).await.unwrap();
    for number in 0..TURNS {
        client.raise_event("long", TICK, number).await.unwrap();
    }
    let guest = place.guest();
    let whole = explained(&guest, "long", "event `approved` for").await;
    assert_eq!(whole.waits.len(), 1, "events that came are waited for no more: {whole}");
    assert!(guest.history("long").await.unwrap().turns.len() > 2_000);
    let view = guest.status("long").await.unwrap();
    let brief = guest.explain_each(&[view]).await.unwrap().remove(0);
    assert!(matches!(brief.waits[0].reason, WaitReason::Unread { too_long: true, .. }), "{brief}");
    assert_eq!(brief.short(), "history too long for a list, see `perennial show`");
    assert!(!brief.is_stuck());
    soon(runtime.shutdown()).await.unwrap();
}
