//! Repair from the client, in the runtime's process and beside it, over restarts: pausing, resetting, running again
//! (G46 to G49, E39).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use perennial::client::{Pause, Skippable};
use perennial::prelude::*;
use perennial::{Action, Filter, InstanceView, RuntimeBuilder};

use super::support::{Place, soon};

const GO: ExternalEvent<u64> = ExternalEvent::named("go");

/// A shop whose bank may be closed, and how often each of its activities ran.
#[derive(Clone, Default)]
struct Shop {
    is_bank_closed: Arc<AtomicBool>,
    reserved: Arc<AtomicUsize>,
    charged: Arc<AtomicUsize>,
}

/// Reserves, waits for a price, charges it.
async fn order(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let words = |error: ActivityError<Payload>| Payload::from(error.to_string());
    ctx.schedule_activity("reserve", Payload::null()).await.map_err(words)?;
    let price = ctx.schedule_wait(GO).await;
    ctx.schedule_activity("charge", Payload::encode(&price).unwrap()).await.map_err(words)
}

impl Shop {
    fn runtime(&self, url: &str) -> RuntimeBuilder {
        let (shop, bank) = (self.clone(), self.clone());
        Runtime::open(url)
            .orchestration("order", "1.0.0", order)
            .activity("reserve", move |_: ActivityContext, _: Payload| {
                shop.reserved.fetch_add(1, Ordering::Relaxed);
                async { Ok::<_, Payload>(Payload::null()) }
            })
            .activity("charge", move |_: ActivityContext, price: Payload| {
                bank.charged.fetch_add(1, Ordering::Relaxed);
                let is_closed = bank.is_bank_closed.load(Ordering::Relaxed);
                async move { if is_closed { Err(Payload::from("the bank is closed")) } else { Ok(price) } }
            })
    }
}

async fn status(client: &Client, id: &str) -> InstanceView {
    client.status(id).await.unwrap()
}

/// Waits until an instance is as it should be.
async fn until(client: &Client, id: &str, is_it: impl Fn(&InstanceView) -> bool) -> InstanceView {
    soon(async {
        loop {
            let status = status(client, id).await;
            if is_it(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

fn pause_of(status: &InstanceView) -> Option<&Pause> {
    status.blocked.as_ref()?.pause.as_deref()
}

#[tokio::test]
async fn g49_a_failed_order_runs_again_after_a_restart_and_only_what_failed_is_repeated() {
    let (place, shop) = (Place::new(), Shop::default());
    shop.is_bank_closed.store(true, Ordering::Relaxed);
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let client = runtime.client();
    client.start("order", "o", Payload::null()).await.unwrap();
    client.raise_event("o", GO, 7).await.unwrap();
    assert!(soon(client.result("o")).await.is_err());
    runtime.shutdown().await.unwrap();

    shop.is_bank_closed.store(false, Ordering::Relaxed);
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let client = runtime.client();
    let report = soon(async { client.rerun("o").reason("the bank is open").by("ada").await }).await.unwrap();
    assert_eq!((report.execution, report.activities, report.already_made), (2, 1, false));
    assert_eq!(soon(client.result("o")).await.unwrap().as_json(), "7");
    assert_eq!((shop.reserved.load(Ordering::Relaxed), shop.charged.load(Ordering::Relaxed)), (1, 2));
    let history = client.history("o").await.unwrap();
    let reset = history.started().unwrap().reset.clone().unwrap();
    assert_eq!((reset.why.reason.as_str(), reset.why.by.as_deref()), ("the bank is open", Some("ada")));
    let completed = client.rerun("o").await.unwrap_err();
    assert!(completed.to_string().starts_with("PER-0639 not reset"), "{completed}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g48_a_guest_resets_an_order_and_its_events_are_delivered_again() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let guest = place.guest();
    guest.start("order", "o", Payload::null()).await.unwrap();
    guest.raise_event("o", GO, 7).await.unwrap();
    assert_eq!(soon(guest.result("o")).await.unwrap().as_json(), "7");
    let report = soon(async { guest.reset("o").to_turn(1).await }).await.unwrap();
    assert_eq!((report.turn, report.messages, report.results), (1, 1, 1));
    assert_eq!(soon(guest.result("o")).await.unwrap().as_json(), "7");
    assert_eq!((shop.reserved.load(Ordering::Relaxed), shop.charged.load(Ordering::Relaxed)), (1, 2));
    let unsaid = guest.reset("o").await.unwrap_err();
    assert!(unsaid.to_string().starts_with("PER-0614"), "{unsaid}");
    let far = soon(async { guest.reset("o").to_turn(99).await }).await.unwrap_err();
    assert!(matches!(far, ClientError::NotReset { .. }), "{far}");
    let bad = guest.reset("o").to_turn(1).version("one").await.unwrap_err();
    assert!(matches!(bad, ClientError::BadVersion { .. }), "{bad}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g46_a_paused_order_waits_over_a_restart_and_goes_on_when_a_guest_resumes_it() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let client = runtime.client();
    client.start("order", "o", Payload::null()).await.unwrap();
    client.pause("o", Why::new("an audit").by("grace")).await.unwrap();
    client.pause("o", Why::new("an audit").by("grace")).await.unwrap();
    client.raise_event("o", GO, 7).await.unwrap();
    runtime.shutdown().await.unwrap();

    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let guest = place.guest();
    let paused = status(&guest, "o").await;
    let pause = pause_of(&paused).unwrap();
    assert_eq!((pause.why.to_string().as_str(), pause.orchestration), ("by grace: an audit", false));
    let filter = Filter::new().paused(true);
    assert_eq!(guest.count(filter).await.unwrap().rows, 1);
    assert_eq!(shop.charged.load(Ordering::Relaxed), 0);
    for client in [&runtime.client(), &guest] {
        assert_eq!(client.retry("o").await, Err(ClientError::NotBlocked { id: "o".to_owned() }));
    }
    let tried = guest.for_each(Filter::new(), Action::Retry, |_| ()).await.unwrap();
    assert_eq!((tried.done, tried.skipped), (0, 1), "a retry is no resume");
    guest.resume("o", Why::new("it is over").by("ada")).await.unwrap();
    assert_eq!(soon(guest.result("o")).await.unwrap().as_json(), "7");
    let history = guest.history("o").await.unwrap();
    let resumes: Vec<String> = history
        .flatten()
        .map(|event| event.summary())
        .filter(|line| line.starts_with("InstanceResumed"))
        .collect();
    assert_eq!(resumes, ["InstanceResumed by ada: it is over; paused by grace: an audit"]);
    let ended = guest.pause("o", "too late").await.unwrap_err();
    assert!(matches!(ended, ClientError::Ended { .. }), "{ended}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g47_a_paused_orchestration_holds_old_and_new_orders_until_it_is_resumed() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let guest = place.guest();
    guest.start("order", "old", Payload::null()).await.unwrap();
    until(&guest, "old", |status| status.status == Status::Running).await;
    let told = guest.pause_orchestration("order", "the bank is down").await.unwrap();
    assert_eq!(told.done, 1);
    until(&guest, "old", |status| pause_of(status).is_some_and(|pause| pause.orchestration)).await;
    let paused = guest.paused_orchestrations().await.unwrap();
    assert_eq!((paused.len(), &*paused[0].0, &*paused[0].1.why.reason), (1, "order", "the bank is down"));
    runtime.shutdown().await.unwrap();

    // The next runtime knows before it starts anything.
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let client = runtime.client();
    client.start("order", "new", Payload::null()).await.unwrap();
    assert!(pause_of(&status(&client, "new").await).is_some_and(|pause| pause.orchestration));
    let alone = client.resume("new", "repaired").await.unwrap_err();
    assert!(matches!(alone, ClientError::OrchestrationPaused { .. }), "{alone}");
    for id in ["old", "new"] {
        client.raise_event(id, GO, 7).await.unwrap();
    }
    assert_eq!(shop.charged.load(Ordering::Relaxed), 0);
    assert!(guest.resume_orchestration("order", Why::new("done").by("ada")).await.unwrap());
    assert!(
        !guest.resume_orchestration("order", Why::new("done").by("ada")).await.unwrap(),
        "it is as good as once"
    );
    for id in ["old", "new"] {
        assert_eq!(soon(client.result(id)).await.unwrap().as_json(), "7");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g47_an_instance_is_not_resumed_alone_before_it_is_marked_as_paused() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let guest = place.guest();
    guest.start("order", "o", Payload::null()).await.unwrap();
    guest.start("order", "own", Payload::null()).await.unwrap();
    until(&guest, "o", |status| status.status == Status::Running).await;
    runtime.client().pause("own", "this one").await.unwrap();
    runtime.shutdown().await.unwrap();

    // Nobody marks the instances, because no runtime runs.
    guest.pause_orchestration("order", "the bank is down").await.unwrap();
    assert!(pause_of(&status(&guest, "o").await).is_none());
    let alone = guest.resume("o", "repaired").await.unwrap_err();
    assert!(matches!(alone, ClientError::OrchestrationPaused { .. }), "{alone}");
    // A pause of its own can be lifted, and it waits for its orchestration.
    guest.resume("own", "repaired").await.unwrap();
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    for id in ["o", "own"] {
        until(&guest, id, |status| pause_of(status).is_some_and(|pause| pause.orchestration)).await;
    }
    let resume = Action::Resume { why: "repaired".into() };
    let all = guest.for_each(Filter::new(), resume, |_| ()).await.unwrap();
    assert_eq!((all.done, all.skipped), (0, 2));
    assert!(guest.resume_orchestration("order", "done").await.unwrap());
    for id in ["o", "own"] {
        guest.raise_event(id, GO, 7).await.unwrap();
        assert_eq!(soon(guest.result(id)).await.unwrap().as_json(), "7");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g48_a_reset_without_a_runtime_says_that_nobody_answers() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    runtime.client().start("order", "o", Payload::null()).await.unwrap();
    runtime.shutdown().await.unwrap();
    let guest = place.guest().patience(Duration::from_millis(100));
    let nobody = guest.reset("o").to_turn(1).await.unwrap_err();
    assert!(matches!(nobody, ClientError::NotAnswered { .. }), "{nobody}");
    assert_eq!(status(&guest, "o").await.execution, 1);
}

#[tokio::test]
async fn g50_a_message_that_nobody_can_read_is_skipped_by_a_guest_over_a_restart() {
    let (place, shop) = (Place::new(), Shop::default());
    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    runtime.client().start("order", "o", Payload::null()).await.unwrap();
    runtime.shutdown().await.unwrap();
    let guest = place.guest();
    assert_eq!(place.insert_messages(b"{}"), 1);

    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    let is_unreadable = |status: &InstanceView| status.blocked.is_some();
    let blocked = until(&guest, "o", is_unreadable).await.blocked.unwrap();
    assert_eq!(blocked.code, "PER-0308");
    let number = blocked.message.unwrap();
    let refused = runtime.client().skip_message("o", number + 1).await.unwrap_err();
    let expected =
        ClientError::NotBlockedBy { id: "o".to_owned(), blocking: Some(Skippable::Message(number)) };
    assert_eq!(refused, expected);
    assert_eq!(guest.skip_message("o", number + 1).await.unwrap_err(), expected);
    guest.skip_message("o", number).await.unwrap();
    until(&guest, "o", |status| status.blocked.is_none()).await;
    let late = guest.skip_message("o", number).await.unwrap_err();
    assert!(matches!(late, ClientError::NotBlocked { .. }), "{late}");
    runtime.shutdown().await.unwrap();

    let runtime = shop.runtime(&place.url()).start().await.unwrap();
    runtime.client().raise_event("o", GO, 8).await.unwrap();
    assert_eq!(soon(guest.result("o")).await.unwrap().as_json(), "8");
    let history = guest.history("o").await.unwrap();
    let skips = history.flatten().filter(|event| event.summary().starts_with("MessageSkipped"));
    assert_eq!(skips.count(), 1);
    runtime.shutdown().await.unwrap();
}
