//! The store's clock counts, not the caller's, and not one that was set back (G9).

use std::sync::Arc;
use std::time::Duration;

use perennial::{
    Client, LocalClock, OnExisting, OrchestrationContext, Payload, Prune, Runtime, RuntimeBuilder,
    RuntimeOptions, StartOptions, Status,
};
use perennial_core::store::{MemoryStore, Store};
use perennial_sqlite::{SqliteOptions, SqliteStore};

use crate::support::hands::{Hands, NOON_MS};
use crate::support::log::Log;
use crate::support::{Place, event, now_ms, soon, until};

type Outcome = Result<Payload, Payload>;

const SECOND: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;

async fn waiter(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

/// Sleeps for a minute.
async fn sleeper(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(60 * SECOND).await;
    Ok(Payload::from("slept"))
}

fn builder(store: Arc<dyn Store>, hands: &Arc<Hands>) -> RuntimeBuilder {
    // No lease runs out while the hands are moved.
    Runtime::open("")
        .options(RuntimeOptions { lease: Duration::from_millis(10 * HOUR_MS), ..RuntimeOptions::default() })
        .store(store)
        .clock(Arc::clone(hands) as _)
        .orchestration("waiter", "1.0.0", waiter)
        .orchestration("sleeper", "1.0.0", sleeper)
}

/// A store whose clock says something else than this process's, and a client beside its runtime.
fn far_from(store_ms: u64) -> (Arc<Hands>, Arc<MemoryStore>, Client) {
    let hands = Hands::new();
    hands.set_store_ms(store_ms);
    hands.set_system_ms(store_ms);
    let clock = Arc::clone(&hands);
    let store = Arc::new(MemoryStore::new(move || clock.store_ms()));
    let client = Client::of_store(Arc::clone(&store) as _);
    (hands, store, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_the_timeout_of_a_client_whose_clock_is_behind_counts_in_full() {
    let (hands, store, guest) = far_from(now_ms() + HOUR_MS);
    let runtime = builder(store, &hands).start().await.unwrap();
    let minute = StartOptions::default().timeout(60 * SECOND);
    guest.start_with("waiter", "short", Payload::null(), minute.clone()).await.unwrap();
    guest.start_with("waiter", "long", Payload::null(), minute).await.unwrap();
    hands.pass(59 * SECOND);
    until(&guest, "short", |status| status.status == Status::Running).await;
    guest.raise_event("short", "go", "went").await.unwrap();
    assert_eq!(soon(guest.result("short")).await.unwrap(), Payload::from("went"));
    hands.pass(2 * SECOND);
    let ended = until(&guest, "long", |status| status.status.is_final()).await;
    assert_eq!(ended.status, Status::Terminated, "its minute is over");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_the_delay_of_a_client_whose_clock_is_ahead_is_no_longer_than_asked_for() {
    let (hands, store, guest) = far_from(now_ms() - HOUR_MS);
    let runtime = builder(store, &hands).start().await.unwrap();
    let delay = StartOptions::default().delay(10 * SECOND).on_existing(OnExisting::Use);
    guest.start_with("waiter", "w", Payload::null(), delay).await.unwrap();
    let created_ms = guest.status("w").await.unwrap().created.as_millis();
    assert_eq!(created_ms, hands.store_ms(), "and it is dated by the store's clock");
    hands.pass(9 * SECOND);
    assert_eq!(guest.status("w").await.unwrap().status, Status::Pending);
    hands.pass(2 * SECOND);
    until(&guest, "w", |status| status.status == Status::Running).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g33_a_client_whose_clock_is_ahead_prunes_by_the_stores() {
    let (hands, store, guest) = far_from(now_ms() - 25 * HOUR_MS);
    let runtime = builder(store, &hands).start().await.unwrap();
    guest.start("sleeper", "s", Payload::null()).await.unwrap();
    until(&guest, "s", |status| status.status == Status::Running).await;
    guest.terminate("s", "enough").await.unwrap();
    until(&guest, "s", |status| status.status.is_final()).await;
    let of_yesterday = || Prune::all().older_than(Duration::from_millis(24 * HOUR_MS));
    assert_eq!(guest.prune(of_yesterday(), |_| ()).await.unwrap().done, 0, "it ended just now");
    hands.pass(Duration::from_millis(24 * HOUR_MS + 1_000));
    assert_eq!(guest.prune(of_yesterday(), |_| ()).await.unwrap().done, 1);
    runtime.shutdown().await.unwrap();
}

/// A runtime on a file, by clocks whose hands are moved.
fn on_file(place: &Place, hands: &Arc<Hands>) -> RuntimeBuilder {
    builder(Arc::new(SqliteStore::open(place.path(), by_hands(hands)).unwrap()), hands)
}

fn by_hands(hands: &Arc<Hands>) -> SqliteOptions {
    let (clock, steady) = (Arc::clone(hands), Arc::clone(hands));
    SqliteOptions::default()
        .relaxed(true)
        .clock(move || clock.store_ms())
        .steady_clock(move || steady.running())
}

/// The machine's clock, by which an embedded store goes.
fn set_clock(hands: &Hands, ms: u64) {
    hands.set_system_ms(ms);
    hands.set_store_ms(ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_clock_that_was_set_back_between_two_runs_makes_no_timer_late() {
    let (place, hands, log) = (Place::new(), Hands::new(), Log::default());
    let runtime = on_file(&place, &hands).start().await.unwrap();
    runtime.client().start("sleeper", "s", Payload::null()).await.unwrap();
    runtime.shutdown().await.unwrap();
    set_clock(&hands, NOON_MS - HOUR_MS);
    let warns = tracing::subscriber::set_default(log.clone());
    let second = on_file(&place, &hands);
    drop(warns);
    let warned = log.take();
    assert!(warned.iter().any(|line| line.starts_with("WARN clock set back")), "{warned:?}");
    let runtime = second.start().await.unwrap();
    // Guests have the same time, or this one would be over before it begins.
    let guest = Client::of_store(Arc::new(SqliteStore::open_guest(place.path(), by_hands(&hands)).unwrap()));
    let minute = StartOptions::default().timeout(60 * SECOND);
    guest.start_with("waiter", "w", Payload::null(), minute).await.unwrap();
    hands.pass(59 * SECOND);
    until(&guest, "w", |status| status.status == Status::Running).await;
    assert_eq!(guest.status("s").await.unwrap().status, Status::Running);
    hands.pass(2 * SECOND);
    assert_eq!(soon(runtime.client().result("s")).await.unwrap(), Payload::from("slept"));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_clock_that_was_years_ahead_for_a_while_stops_nothing_when_it_is_right_again() {
    let (place, hands) = (Place::new(), Hands::new());
    set_clock(&hands, NOON_MS + 5 * 365 * 24 * HOUR_MS);
    let runtime = on_file(&place, &hands).start().await.unwrap();
    runtime.client().start("sleeper", "s", Payload::null()).await.unwrap();
    runtime.shutdown().await.unwrap();
    set_clock(&hands, NOON_MS);
    let runtime = on_file(&place, &hands).start().await.unwrap();
    runtime.client().start("sleeper", "t", Payload::null()).await.unwrap();
    hands.pass(61 * SECOND);
    for id in ["s", "t"] {
        assert_eq!(soon(runtime.client().result(id)).await.unwrap(), Payload::from("slept"));
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_guests_follow_a_clock_that_is_set_back_while_the_owner_runs() {
    let (place, hands) = (Place::new(), Hands::new());
    let options = RuntimeOptions { lease: Duration::from_secs(30), ..RuntimeOptions::default() };
    let runtime = on_file(&place, &hands).options(options).start().await.unwrap();
    let guest = Client::of_store(Arc::new(SqliteStore::open_guest(place.path(), by_hands(&hands)).unwrap()));
    set_clock(&hands, NOON_MS - HOUR_MS);
    // With its next renewal the owner tells.
    hands.pass(11 * SECOND);
    soon(async {
        while guest.now().await.unwrap().as_millis() < NOON_MS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let minute = StartOptions::default().timeout(60 * SECOND);
    guest.start_with("waiter", "w", Payload::null(), minute).await.unwrap();
    until(&guest, "w", |status| status.status == Status::Running).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g9_a_machine_whose_clock_is_far_off_is_warned_about() {
    let (hands, log) = (Hands::new(), Log::default());
    let clock = Arc::clone(&hands);
    let store = Arc::new(MemoryStore::new(move || clock.store_ms()));
    hands.set_system_ms(NOON_MS + HOUR_MS);
    // On one thread, and a store that answers on it.
    let _warns = tracing::subscriber::set_default(log.clone());
    let runtime = builder(store, &hands).start().await.unwrap();
    let warned = log.take();
    let far_off = "WARN clock far off: this machine's clock says 2027-01-15T09:00:00Z and the store's 2027-01-15T08:00:00Z";
    assert!(warned.iter().any(|line| line.starts_with(far_off)), "{warned:?}");
    drop(runtime);
}
