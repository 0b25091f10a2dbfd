//! Until when a node may act (G8), and what time it is (G9).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use perennial::{
    ActivityContext, Client, ClientError, OrchestrationContext, Payload, Runtime, RuntimeBuilder,
    RuntimeOptions, Status,
};
use perennial_core::store::{MemoryStore, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Semaphore;

use crate::support::hands::{Hands, NOON_MS};
use crate::support::tapped::{Fate, Tapped};
use crate::support::{Place, failed, soon, until};

type Outcome = Result<Payload, Payload>;

const SECOND: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;

/// Waits for an event and tells the time of the turn that brought it.
async fn clerk(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_wait("go").await;
    turn_ms(&ctx)
}

fn turn_ms(ctx: &OrchestrationContext) -> Outcome {
    Payload::encode(&ctx.now()).map_err(failed)
}

/// A node on a store in memory, both with clocks whose hands are moved by hand.
struct Bench {
    hands: Arc<Hands>,
    store: Arc<Tapped>,
}

impl Bench {
    fn new() -> Bench {
        let hands = Hands::new();
        let clock = Arc::clone(&hands);
        let store = Tapped::new(Arc::new(MemoryStore::new(move || clock.store_ms())));
        Bench { hands, store }
    }

    fn builder(&self) -> RuntimeBuilder {
        Runtime::open("memory:")
            .options(lease_of_30_s())
            .store(Arc::clone(&self.store) as _)
            .clock(Arc::clone(&self.hands) as _)
            .orchestration("clerk", "1.0.0", clerk)
    }

    async fn start(&self) -> Runtime {
        self.builder().start().await.unwrap()
    }

    /// No renewal gets through.
    fn cut_off(&self) {
        self.store.on_renewal(|| Fate::Response(Err(StoreError::Unavailable("cut off".to_owned()))));
    }

    /// Renewals get through again, the next of them at once.
    fn reconnect(&self) {
        self.store.on_renewal(|| Fate::Pass);
        let renewals = self.store.count("renew_session");
        self.hands.pass(SECOND);
        self.store.wait_for("renew_session", renewals + 1);
    }
}

fn lease_of_30_s() -> RuntimeOptions {
    RuntimeOptions { lease: Duration::from_secs(30), ..RuntimeOptions::default() }
}

/// Gives other threads the time to do what they must not.
async fn let_others_run(client: &Client) {
    for _ in 0..200 {
        let _ = client.status("nobody").await;
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_session_is_renewed_at_a_third_of_its_lease() {
    let bench = Bench::new();
    let _runtime = bench.start().await;
    let (hands, times) = (Arc::clone(&bench.hands), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&times);
    bench.store.on_renewal(move || {
        noted.lock().unwrap().push(hands.seconds());
        Fate::Pass
    });
    for renewals in 1..=3 {
        (0..10).for_each(|_| bench.hands.pass(SECOND));
        bench.store.wait_for("renew_session", renewals);
    }
    assert_eq!(*times.lock().unwrap(), [10, 20, 30]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_past_its_deadline_a_node_answers_nothing_until_it_has_renewed() {
    let bench = Bench::new();
    let runtime = bench.start().await;
    let client = runtime.client();
    client.start("clerk", "c", Payload::null()).await.unwrap();
    bench.cut_off();
    bench.hands.pass_unseen(26 * SECOND);
    let again = client.start("clerk", "c", Payload::null()).now_or_never();
    let exists = Err(ClientError::AlreadyExists { id: "c".to_owned(), status: Status::Running });
    assert_eq!(again, Some(exists.clone()), "the lease still holds, less its margin");

    bench.hands.pass_unseen(SECOND);
    let mut again = Box::pin(client.start("clerk", "c", Payload::null()));
    assert_eq!(again.as_mut().now_or_never(), None, "another node may own the instance now");
    bench.reconnect();
    assert_eq!(soon(again).await, exists);
    assert_eq!(runtime.failure(), None, "a store that cannot be reached for a while stops nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_past_its_deadline_a_node_takes_no_turn_and_commits_nothing() {
    let bench = Bench::new();
    let (hands, turns) = (Arc::clone(&bench.hands), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&turns);
    let noting = move |_: OrchestrationContext, _: Payload| {
        noted.lock().unwrap().push(hands.seconds());
        async { Ok::<_, Payload>(Payload::null()) }
    };
    let runtime = bench.builder().orchestration("noting", "1.0.0", noting).start().await.unwrap();
    let client = runtime.client();
    bench.cut_off();
    bench.hands.pass_unseen(28 * SECOND);
    let starting = tokio::spawn({
        let client = client.clone();
        async move { client.start("noting", "n", Payload::null()).await }
    });
    // Wanting to take the turn, the node tries to renew.
    bench.store.wait_for("renew_session", 1);
    let_others_run(&client).await;
    assert_eq!(bench.store.count("commit"), 0);
    bench.reconnect();
    soon(starting).await.unwrap().unwrap();
    let turns = turns.lock().unwrap().clone();
    assert!(turns.iter().all(|second| *second == 29), "turns at {turns:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_batch_that_comes_back_unwritten_past_the_deadline_is_sent_again_after_the_renewal() {
    let bench = Bench::new();
    let runtime = bench.start().await;
    let client = runtime.client();
    bench.cut_off();
    let (hands, mut is_first) = (Arc::clone(&bench.hands), true);
    let commits = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&commits);
    bench.store.on_commit(move || {
        noted.lock().unwrap().push(hands.seconds());
        if std::mem::take(&mut is_first) {
            hands.pass_unseen(28 * SECOND);
            return Fate::Response(Err(StoreError::Unavailable("busy".to_owned())));
        }
        Fate::Pass
    });
    let mut starting = Box::pin(client.start("clerk", "c", Payload::null()));
    assert_eq!(starting.as_mut().now_or_never(), None);
    bench.store.wait_for("commit", 1);
    // Wanting to send it again, the node tries to renew.
    bench.store.wait_for("renew_session", 1);
    bench.reconnect();
    soon(starting).await.unwrap();
    assert_eq!(*commits.lock().unwrap(), [0, 29]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_past_its_deadline_a_node_begins_no_activity_while_those_that_run_go_on() {
    let bench = Bench::new();
    let (hands, gate) = (Arc::clone(&bench.hands), Arc::new(Semaphore::new(0)));
    let begun = Arc::new(Mutex::new(Vec::new()));
    let (noted, opened) = (Arc::clone(&begun), Arc::clone(&gate));
    let work = move |ctx: ActivityContext, _: Payload| {
        noted.lock().unwrap().push(hands.seconds());
        let opened = Arc::clone(&opened);
        async move {
            opened.acquire().await.map_err(failed)?.forget();
            Payload::encode(&ctx.is_cancelled()).map_err(failed)
        }
    };
    let both = |ctx: OrchestrationContext, _: Payload| async move {
        let work = |name: &str| ctx.schedule_activity("work", name);
        let (one, two) = ctx.join2(work("one"), work("two")).await;
        Ok::<_, Payload>(Payload::from(format!("{one:?} {two:?}")))
    };
    let runtime = bench
        .builder()
        .options(RuntimeOptions { activity_slots: 1, ..lease_of_30_s() })
        .orchestration("both", "1.0.0", both)
        .activity("work", work)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("both", "b", Payload::null()).await.unwrap();
    soon(async {
        while begun.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    bench.cut_off();
    bench.hands.pass_unseen(28 * SECOND);
    gate.add_permits(2);
    let_others_run(&client).await;
    assert_eq!(*begun.lock().unwrap(), [0]);
    bench.reconnect();
    let result = soon(client.result("b")).await.unwrap();
    assert!(!result.as_json().contains("true"), "neither was told to stop: {}", result.as_json());
    assert_eq!(*begun.lock().unwrap(), [0, 29]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_deadline_counts_from_before_the_renewal_was_sent() {
    let bench = Bench::new();
    let runtime = bench.start().await;
    let client = runtime.client();
    client.start("clerk", "c", Payload::null()).await.unwrap();
    let (hands, mut is_first) = (Arc::clone(&bench.hands), true);
    bench.store.on_renewal(move || {
        if std::mem::take(&mut is_first) {
            // The answer takes its time.
            hands.pass_unseen(15 * SECOND);
            return Fate::Pass;
        }
        Fate::Response(Err(StoreError::Unavailable("cut off".to_owned())))
    });
    bench.hands.pass(10 * SECOND);
    bench.store.wait_for("renew_session", 1);
    bench.hands.pass_unseen(11 * SECOND);
    assert!(client.start("clerk", "c", Payload::null()).now_or_never().is_some(), "sent at 10 s, now 36 s");
    bench.hands.pass_unseen(SECOND);
    assert!(client.start("clerk", "c", Payload::null()).now_or_never().is_none(), "27 s after it was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_a_node_whose_session_is_gone_forgets_and_goes_on_under_another() {
    let bench = Bench::new();
    let told = Arc::new(Semaphore::new(0));
    let (tell, began) = (Arc::clone(&told), Arc::new(Semaphore::new(0)));
    let begin = Arc::clone(&began);
    let work = move |ctx: ActivityContext, _: Payload| {
        let (tell, begin) = (Arc::clone(&tell), Arc::clone(&begin));
        async move {
            begin.add_permits(1);
            ctx.cancelled().await;
            tell.add_permits(1);
            Ok::<_, Payload>(Payload::null())
        }
    };
    let caller = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_activity("work", "x").await.map_err(failed)
    };
    let builder = bench.builder().orchestration("caller", "1.0.0", caller).activity("work", work);
    let runtime = builder.start().await.unwrap();
    let client = runtime.client();
    client.start("caller", "a", Payload::null()).await.unwrap();
    soon(began.acquire()).await.unwrap().forget();
    let mut waiting = Box::pin(client.wait("a"));
    assert_eq!(waiting.as_mut().now_or_never(), None);

    bench.store.end_session_secretly();
    bench.hands.pass(10 * SECOND);
    // Its attempt had no row: another owner may run it by now.
    soon(told.acquire()).await.unwrap().forget();
    bench.store.wait_for("open_session", 2);
    assert_eq!(runtime.failure(), None);
    // One lease later it takes shards again, and what is unfinished goes on.
    for _ in 0..3 {
        let renewals = bench.store.count("renew_session");
        bench.hands.pass(10 * SECOND);
        bench.store.wait_for("renew_session", renewals + 1);
    }
    soon(began.acquire()).await.unwrap().forget();
    client.cancel("a", "enough").await.unwrap();
    let ending = soon(waiting).await.unwrap();
    assert!(matches!(ending, perennial::history::Ending::OrchestrationCancelled { .. }), "{ending:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_callers_of_a_node_that_lost_its_session_settle_through_the_store() {
    let bench = Bench::new();
    let runtime = bench.start().await;
    let client = runtime.client();
    client.start("clerk", "c", Payload::null()).await.unwrap();
    bench.hands.pass_unseen(28 * SECOND);
    bench.store.on_renewal(|| Fate::Response(Err(StoreError::SessionGone)));
    let answer = soon(client.start("clerk", "c", Payload::null())).await;
    assert!(matches!(answer, Err(ClientError::AlreadyExists { .. })), "{answer:?}");
    soon(client.start("clerk", "d", Payload::null())).await.unwrap();
    assert_eq!(client.status("d").await.unwrap().status, Status::Pending, "it waits for an owner");
}

#[tokio::test(flavor = "multi_thread")]
async fn g8_a_machine_that_slept_past_its_lease_goes_on_with_its_file() {
    let (place, hands) = (Place::new(), Hands::new());
    let clock = Arc::clone(&hands);
    let options = SqliteOptions::default().relaxed(true).clock(move || clock.store_ms());
    let store = Arc::new(SqliteStore::open(place.path(), options).unwrap());
    let runtime = Runtime::open("")
        .options(lease_of_30_s())
        .store(store)
        .clock(Arc::clone(&hands) as _)
        .orchestration("clerk", "1.0.0", clerk)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    clerks(&client, 1).await;
    // Nobody wakes the node: it notices when it has something to do.
    hands.pass_unseen(Duration::from_millis(HOUR_MS));
    assert!(turn_time(&client, "c0").await >= NOON_MS + HOUR_MS);
    runtime.shutdown().await.unwrap();
}

/// The turn time of a clerk who is told to go now.
async fn turn_time(client: &Client, id: &str) -> u64 {
    client.raise_event(id, "go", Payload::null()).await.unwrap();
    soon(client.result(id)).await.unwrap().decode().unwrap()
}

async fn clerks(client: &Client, count: usize) {
    for number in 0..count {
        client.start("clerk", &format!("c{number}"), Payload::null()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_clock_that_jumps_moves_turn_time_at_the_next_renewal_only() {
    let bench = Bench::new();
    let runtime = bench.start().await;
    let client = runtime.client();
    clerks(&client, 3).await;
    bench.hands.pass(5 * SECOND);
    // An embedded store goes by the system's clock.
    bench.hands.set_system_ms(NOON_MS + HOUR_MS);
    bench.hands.set_store_ms(NOON_MS + HOUR_MS);
    assert_eq!(turn_time(&client, "c0").await, NOON_MS + 5_000);
    bench.hands.pass(5 * SECOND);
    bench.store.wait_for("renew_session", 1);
    assert_eq!(turn_time(&client, "c1").await, NOON_MS + HOUR_MS + 5_000);
    // And back.
    bench.hands.set_system_ms(NOON_MS);
    bench.hands.set_store_ms(NOON_MS);
    bench.hands.pass(10 * SECOND);
    bench.store.wait_for("renew_session", 2);
    assert!(turn_time(&client, "c2").await >= NOON_MS + HOUR_MS + 5_000, "it never goes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_turn_time_is_the_stores_and_not_the_systems() {
    let bench = Bench::new();
    bench.hands.set_system_ms(NOON_MS + 4_000);
    let runtime = bench.start().await;
    let client = runtime.client();
    clerks(&client, 1).await;
    bench.hands.pass(SECOND);
    assert_eq!(turn_time(&client, "c0").await, NOON_MS + 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_timers_go_by_the_stores_clock_when_it_is_set_ahead() {
    let bench = Bench::new();
    let sleeper = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_timer(Duration::from_secs(3_000)).await;
        turn_ms(&ctx)
    };
    let runtime = bench.builder().orchestration("sleeper", "1.0.0", sleeper).start().await.unwrap();
    let client = runtime.client();
    client.start("sleeper", "s", Payload::null()).await.unwrap();
    bench.hands.set_system_ms(NOON_MS + HOUR_MS);
    bench.hands.set_store_ms(NOON_MS + HOUR_MS);
    bench.hands.pass(10 * SECOND);
    let woken_ms: u64 = soon(client.result("s")).await.unwrap().decode().unwrap();
    assert_eq!(woken_ms, NOON_MS + HOUR_MS + 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_node_whose_own_clock_is_far_off_warns_and_goes_on() {
    let bench = Bench::new();
    bench.hands.set_system_ms(NOON_MS + HOUR_MS);
    let runtime = bench.start().await;
    let client = runtime.client();
    clerks(&client, 1).await;
    bench.hands.set_system_ms(NOON_MS - HOUR_MS);
    bench.hands.pass(10 * SECOND);
    bench.store.wait_for("renew_session", 1);
    until(&client, "c0", |status| status.status == Status::Running).await;
    assert_eq!(runtime.failure(), None);
    assert_eq!(turn_time(&client, "c0").await, NOON_MS + 10_000);
}
