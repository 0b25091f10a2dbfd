//! Refused programs, and the texts of the refusals.

use std::collections::HashMap;
use std::sync::OnceLock;

use futures::future::{self, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment};
use tokio::sync::{Notify, oneshot, watch};

use super::{Output, REPLAYS, after, note, noted};
use crate::support::until_blocked;

/// Runs it until its decisions differ from what was recorded, and returns the report.
macro_rules! divergence {
    ($orchestration:ident) => {{
        let environment = || TestEnvironment::new().register($orchestration).register(note);
        let mut env = environment();
        // Debug builds replay while it runs, so that it may be found at once.
        match env.run($orchestration, ()) {
            Err(Failure::Blocked { report, .. }) => report,
            _ => {
                let history = env.export();
                let found = (0..REPLAYS).find_map(|_| {
                    let check = environment().replay_lines(&history);
                    check.differences.into_iter().next()
                });
                found.expect("replays differ").report
            }
        }
    }};
}

#[track_caller]
fn assert_names(report: &str, words: &[&str]) {
    assert!(report.contains("PER-0203"), "{report}");
    for word in words {
        assert!(report.contains(word), "{word} is named: {report}");
    }
}

// ---- what chooses at random -------------------------------------------------------------------------------------

#[orchestration]
async fn unbiased(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for _ in 0..32 {
        let winner = tokio::select! {
            _ = future::ready(()) => 1,
            _ = future::ready(()) => 2,
        };
        order.push(noted(&ctx, winner).await);
    }
    Ok(order)
}

/// The winner is always the same, but the timers are made in the order in which the branches are polled.
#[orchestration]
async fn unbiased_timers(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for _ in 0..32 {
        order.push(tokio::select! {
            _ = after(ctx.clone(), 1) => 1,
            _ = after(ctx.clone(), 2) => 2,
        });
    }
    Ok(order)
}

#[orchestration]
async fn futures_select(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for _ in 0..32 {
        let (mut first, mut second) = (future::ready(()), future::ready(()));
        let winner = futures::select! { _ = first => 1, _ = second => 2 };
        order.push(noted(&ctx, winner).await);
    }
    Ok(order)
}

#[test]
fn e7_selects_that_choose_by_chance_diverge_and_the_report_says_what_to_write() {
    let report = divergence!(unbiased);
    assert_names(&report, &["write `biased;` in tokio::select!"]);
    let report = divergence!(unbiased_timers);
    assert_names(&report, &["tokio::select!", "`biased;`", "ctx.select2"]);
    assert_names(&divergence!(futures_select), &["What may be awaited"]);
}

/// A watch wakes its receivers in random order, and `FuturesUnordered` goes by that order.
#[orchestration]
async fn watched_unordered(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for _ in 0..8 {
        let (changing, changed) = watch::channel(0);
        let mut watching: FuturesUnordered<_> = (0..8)
            .map(|number| {
                let mut changed = changed.clone();
                async move {
                    changed.changed().await.ok();
                    number
                }
            })
            .collect();
        let change = ctx.spawn({
            let ctx = ctx.clone();
            async move {
                after(ctx, 1).await;
                changing.send(1).ok();
            }
        });
        while let Some(number) = watching.next().await {
            order.push(noted(&ctx, number).await);
        }
        change.await;
    }
    Ok(order)
}

#[test]
fn e7_a_watch_in_futures_unordered_diverges() {
    assert_names(&divergence!(watched_unordered), &["Likely a value"]);
}

// ---- what differs from run to run ----------------------------------------------------------------------------------

#[allow(clippy::iter_over_hash_type, reason = "it is what must not be done")]
#[orchestration]
async fn hash_map(ctx: OrchestrationContext) -> Output {
    let places: HashMap<u64, u64> = (0..16).map(|number| (number, number)).collect();
    let mut order = Vec::new();
    for place in places.keys() {
        order.push(noted(&ctx, *place).await);
    }
    Ok(order)
}

#[orchestration]
async fn wall_clock(ctx: OrchestrationContext) -> Output {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Ok(vec![noted(&ctx, now.as_nanos() as u64).await])
}

#[orchestration]
async fn instants(ctx: OrchestrationContext) -> Output {
    static FIRST: OnceLock<tokio::time::Instant> = OnceLock::new();
    let since = FIRST.get_or_init(tokio::time::Instant::now).elapsed();
    ctx.schedule_timer(Duration::from_millis(since.as_nanos() as u64)).await;
    Ok(vec![noted(&ctx, 0).await])
}

#[orchestration]
async fn rng(ctx: OrchestrationContext) -> Output {
    let drawn = uuid::Uuid::new_v4().as_u128() as u64;
    Ok(vec![noted(&ctx, drawn).await])
}

thread_local! {
    static RUNS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[orchestration]
async fn thread_local(ctx: OrchestrationContext) -> Output {
    static RUNS_ANYWHERE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let runs = RUNS_ANYWHERE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let here = RUNS.with(|here| here.replace(here.get() + 1));
    Ok(vec![noted(&ctx, 1_000 * runs + here).await])
}

#[test]
fn e7_maps_clocks_and_statics_diverge_and_the_report_names_the_replacement() {
    assert_names(&divergence!(hash_map), &["HashMap", "BTreeMap"]);
    assert_names(&divergence!(wall_clock), &["replace the clock by ctx.now"]);
    assert_names(&divergence!(rng), &["ctx.random and ctx.uuid4"]);
    assert_names(&divergence!(instants), &["Likely the clock", "ctx.now"]);
    assert_names(&divergence!(thread_local), &["thread locals", "ctx.side_effect"]);
}

// ---- what belongs to another world ---------------------------------------------------------------------------------

#[orchestration]
async fn tokio_sleep(_: OrchestrationContext) -> Output {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(Vec::new())
}

#[orchestration]
async fn tokio_timeout(ctx: OrchestrationContext) -> Output {
    let timer = ctx.schedule_timer(Duration::from_secs(1));
    tokio::time::timeout(Duration::from_millis(1), timer).await.map_err(|error| error.to_string())?;
    Ok(Vec::new())
}

#[orchestration]
async fn tokio_interval(_: OrchestrationContext) -> Output {
    tokio::time::interval(Duration::from_millis(1)).tick().await;
    Ok(Vec::new())
}

#[orchestration]
async fn tokio_blocking(_: OrchestrationContext) -> Output {
    tokio::task::spawn_blocking(Vec::new).await.map_err(|error| error.to_string())
}

#[orchestration]
async fn tokio_set(_: OrchestrationContext) -> Output {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async { 1 });
    Ok(tasks.join_all().await)
}

#[orchestration]
async fn tokio_spawn(_: OrchestrationContext) -> Output {
    tokio::spawn(async {}).await.map_err(|error| error.to_string())?;
    Ok(Vec::new())
}

#[orchestration]
async fn another_thread(_: OrchestrationContext) -> Output {
    let (sender, mut receiver) = oneshot::channel();
    let (go, gone) = std::sync::mpsc::channel();
    std::thread::spawn(move || gone.recv().map(|()| sender.send(1)));
    // It is sent once somebody waits for it.
    let got = future::poll_fn(move |cx| {
        let got = receiver.poll_unpin(cx);
        go.send(()).ok();
        got
    });
    Ok(vec![got.await.map_err(|error| error.to_string())?])
}

/// One channel for all instances: what one of them sends, none may wait for.
#[orchestration]
async fn another_instance(ctx: OrchestrationContext) -> Output {
    static BELL: Notify = Notify::const_new();
    ctx.schedule_timer(Duration::ZERO).await;
    BELL.notified().await;
    Ok(Vec::new())
}

#[orchestration]
async fn nobody(_: OrchestrationContext) -> Output {
    future::pending::<()>().await;
    Ok(Vec::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e8_what_other_tasks_threads_and_instances_wake_is_refused_with_the_replacement() {
    let runtime = Runtime::open("memory:")
        .register(tokio_sleep)
        .register(tokio_timeout)
        .register(tokio_interval)
        .register(tokio_blocking)
        .register(tokio_set)
        .register(tokio_spawn)
        .register(another_thread)
        .register(another_instance)
        .register(nobody)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    for (name, code, replacement) in [
        ("tokio_sleep", "PER-0201", "use schedule_timer for time"),
        ("tokio_timeout", "PER-0201", "use schedule_timer for time"),
        ("tokio_interval", "PER-0201", "use schedule_timer for time"),
        ("tokio_blocking", "PER-0201", "activities for I/O"),
        ("tokio_set", "PER-0201", "spawn for units"),
        ("tokio_spawn", "PER-0201", "spawn for units"),
        ("another_thread", "PER-0202", "activities, timers, events"),
        ("another_instance", "PER-0202", "channel, lock or future"),
        ("nobody", "PER-0202", "activities, timers, events"),
    ] {
        client.start(name, name, ()).await.unwrap();
        let status = until_blocked(&client, name, code).await;
        let report = status.blocked.unwrap().report;
        assert!(report.contains(replacement), "{name}: {report}");
    }
    runtime.shutdown().await.unwrap();
}
