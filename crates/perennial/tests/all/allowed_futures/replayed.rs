//! Allowed programs: they have the same result whatever crashes, and replay.

use std::sync::{Arc, Mutex};

use futures::future::{self, FutureExt};
use futures::stream::{self, FuturesOrdered, FuturesUnordered, StreamExt};
use perennial::prelude::*;
use perennial_testkit::{TestEnvironment, crash_everywhere};
use tokio::sync::{Barrier, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{Output, REPLAYS, after, note, noted};

const SECONDS: [u64; 8] = [3, 1, 2, 1, 3, 2, 1, 3];

/// Runs it through every disaster, and replays its history often.
macro_rules! assert_steady {
    ($orchestration:ident, $expected:expr) => {{
        let environment = |env: TestEnvironment| env.register($orchestration).register(note);
        let expected: Vec<u64> = $expected.into();
        let report = crash_everywhere(|env| environment(env).run($orchestration, ())).unwrap();
        assert!(report.commits > 2, "there is something to crash at");
        assert_replays!($orchestration, expected);
    }};
}

/// Replays its history often.
macro_rules! assert_replays {
    ($orchestration:ident, $expected:expr) => {{
        let environment = || TestEnvironment::new().register($orchestration).register(note);
        let mut env = environment();
        assert_eq!(env.run($orchestration, ()), Ok($expected.to_vec()));
        let history = env.export();
        for _ in 0..REPLAYS {
            let check = environment().replay_lines(&history);
            assert!(check.is_ok(), "{check}");
        }
    }};
}

// ---- futures --------------------------------------------------------------------------------------------------------

#[orchestration]
async fn unordered(ctx: OrchestrationContext) -> Output {
    let mut work: FuturesUnordered<_> =
        SECONDS.into_iter().map(|seconds| after(ctx.clone(), seconds)).collect();
    let mut order = Vec::new();
    while let Some(seconds) = work.next().await {
        order.push(noted(&ctx, seconds).await);
    }
    Ok(order)
}

/// So many that not all of them are polled in one step.
#[orchestration]
async fn unordered_activities(ctx: OrchestrationContext) -> Output {
    let mut work: FuturesUnordered<_> = (0..40).map(|n| ctx.schedule_activity(note, n)).collect();
    let mut order = Vec::new();
    while let Some(done) = work.next().await {
        order.push(noted(&ctx, 100 + done?).await);
    }
    order.sort_unstable();
    Ok(order)
}

#[test]
fn e10_futures_unordered_gives_results_in_an_order_that_replays() {
    assert_steady!(unordered, [1, 1, 1, 2, 2, 3, 3, 3]);
    assert_replays!(unordered_activities, (100..140).collect::<Vec<u64>>());
}

#[orchestration]
async fn joined(ctx: OrchestrationContext) -> Output {
    let noting = |seconds| {
        let ctx = ctx.clone();
        async move { noted(&ctx, after(ctx.clone(), seconds).await).await }
    };
    let mut all = future::join_all(SECONDS.map(noting)).await;
    let (a, b) = future::join(noting(2), noting(1)).await;
    let (c, d) = futures::join!(noting(2), noting(1));
    let pair = future::try_join(noting(1).map(Ok::<_, String>), noting(2).map(Ok)).await?;
    let shared = noting(1).boxed().shared();
    let (shared, twice) = future::join(shared.clone(), shared).await;
    assert_eq!(shared, twice);
    let ordered: FuturesOrdered<_> = [2, 1].into_iter().map(noting).collect();
    all.extend([a, b, c, d, pair.0, pair.1]);
    all.extend(future::try_join_all([2, 1].map(|seconds| noting(seconds).map(Ok::<_, String>))).await?);
    all.extend(ordered.collect::<Vec<u64>>().await);
    Ok(all)
}

/// More than thirty are held in another way.
#[orchestration]
async fn many_joined(ctx: OrchestrationContext) -> Output {
    let noting = |seconds| {
        let ctx = ctx.clone();
        async move { noted(&ctx, after(ctx.clone(), seconds).await).await }
    };
    Ok(future::join_all((0..40).map(|n| noting(n % 3))).await)
}

#[test]
fn e10_joins_of_futures_replay() {
    let expected = [&SECONDS[..], &[2, 1, 2, 1, 1, 2], &[2, 1], &[2, 1]].concat();
    assert_steady!(joined, expected);
    assert_replays!(many_joined, (0..40).map(|n| n % 3).collect::<Vec<u64>>());
}

#[orchestration]
async fn selected(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for round in 0..3 {
        let (first, second) = (after(ctx.clone(), 1).boxed(), after(ctx.clone(), 1 + round % 2).boxed());
        let (winner, rest) = future::select(first, second).await.factor_first();
        order.push(noted(&ctx, winner).await);
        drop(rest);
        let (winner, place, rest) =
            future::select_all(SECONDS.map(|seconds| after(ctx.clone(), seconds).boxed())).await;
        order.push(noted(&ctx, 10 * winner + place as u64).await);
        drop(rest);
        let (mut first, mut second) =
            (after(ctx.clone(), 1).boxed().fuse(), after(ctx.clone(), 1).boxed().fuse());
        order.push(futures::select_biased! { _ = first => 7, _ = second => 8 });
    }
    Ok(order)
}

#[test]
fn e10_selects_of_futures_that_poll_in_order_replay() {
    assert_steady!(selected, [1, 11, 7].repeat(3));
}

#[orchestration]
async fn streamed(ctx: OrchestrationContext) -> Output {
    let work = || stream::iter(SECONDS).map(|seconds| after(ctx.clone(), seconds));
    let mut order = Vec::new();
    let mut some_at_a_time = work().buffer_unordered(3);
    while let Some(seconds) = some_at_a_time.next().await {
        order.push(noted(&ctx, seconds).await);
    }
    order.extend(work().buffered(3).collect::<Vec<u64>>().await);
    let both = stream::select(work().buffered(2).take(2), work().buffered(2).skip(6));
    order.extend(both.then(|seconds| noted(&ctx, seconds).boxed()).collect::<Vec<u64>>().await);
    Ok(order)
}

#[test]
fn e10_streams_replay() {
    let mut env = TestEnvironment::new().register(streamed).register(note);
    let expected = env.run(streamed, ()).unwrap();
    assert_eq!(expected.len(), 8 + 8 + 4);
    assert_steady!(streamed, expected);
}

// ---- tokio's macros ------------------------------------------------------------------------------------------------

#[orchestration]
async fn tokio_macros(ctx: OrchestrationContext) -> Output {
    let noting = |seconds| {
        let ctx = ctx.clone();
        async move { noted(&ctx, after(ctx.clone(), seconds).await).await }
    };
    let (a, b, c) = tokio::join!(noting(2), noting(1), noting(2));
    let (d, e) = tokio::try_join!(noting(1).map(Ok::<_, String>), noting(1).map(Ok))?;
    let mut order = vec![a, b, c, d, e];
    for _ in 0..3 {
        let winner = tokio::select! {
            biased;
            seconds = after(ctx.clone(), 1) => seconds,
            seconds = after(ctx.clone(), 1) => 10 + seconds,
        };
        order.push(noted(&ctx, winner).await);
    }
    Ok(order)
}

#[test]
fn e10_tokios_joins_and_biased_selects_replay() {
    assert_steady!(tokio_macros, [2, 1, 2, 1, 1, 1, 1, 1]);
}

// ---- tokio::sync and channels within one execution -----------------------------------------------------------------

#[orchestration]
async fn channels(ctx: OrchestrationContext) -> Output {
    let (sender, mut receiver) = mpsc::channel(2);
    let producers: Vec<_> = (1..=3)
        .map(|number| {
            let (ctx, sender) = (ctx.clone(), sender.clone());
            ctx.clone().spawn(async move {
                for round in 0..3 {
                    ctx.schedule_timer(Duration::from_secs(number % 2)).await;
                    sender.send(10 * number + round).await.ok();
                }
            })
        })
        .collect();
    drop(sender);
    let mut order = Vec::new();
    while let Some(sent) = receiver.recv().await {
        order.push(noted(&ctx, sent).await);
    }
    for producer in producers {
        producer.await;
    }
    let (sender, receiver) = oneshot::channel();
    let answering = ctx.spawn({
        let ctx = ctx.clone();
        async move { sender.send(after(ctx, 4).await).ok() }
    });
    order.push(receiver.await.map_err(|error| error.to_string())?);
    answering.await;
    let (mut sender, mut receiver) = futures::channel::mpsc::channel(1);
    let sending = ctx.spawn({
        let ctx = ctx.clone();
        async move {
            for number in 50..53 {
                futures::SinkExt::send(&mut sender, number).await.ok();
                after(ctx.clone(), 1).await;
            }
        }
    });
    while let Some(sent) = receiver.next().await {
        order.push(noted(&ctx, sent).await);
    }
    sending.await;
    Ok(order)
}

#[test]
fn e8_channels_between_the_units_of_an_execution_replay() {
    let expected = TestEnvironment::new().register(channels).register(note).run(channels, ()).unwrap();
    assert_eq!((expected.len(), &expected[9..]), (13, &[4, 50, 51, 52][..]));
    assert_steady!(channels, expected);
}

#[orchestration]
async fn locks(ctx: OrchestrationContext) -> Output {
    let order = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let (places, shared) = (Arc::new(Semaphore::new(2)), Arc::new(RwLock::new(0)));
    let (barrier, bell) = (Arc::new(Barrier::new(4)), Arc::new(Notify::new()));
    let units = (0..4_u64).map(|number| {
        let (ctx, order, places, shared) = (ctx.clone(), order.clone(), places.clone(), shared.clone());
        let (barrier, bell) = (barrier.clone(), bell.clone());
        async move {
            {
                let _place = places.acquire().await.expect("it is not closed");
                after(ctx.clone(), 1 + number % 2).await;
                // Held across something durable.
                let mut order = order.lock().await;
                order.push(noted(&ctx, number).await);
                *shared.write().await += number;
            }
            barrier.wait().await;
            if number == 0 {
                bell.notify_waiters();
                bell.notify_one();
            } else if number == 1 {
                bell.notified().await;
            }
            let sum = *shared.read().await;
            order.lock().await.push(noted(&ctx, 10 * sum + number).await);
        }
    });
    ctx.parallel(units).await;
    let order = order.lock().await.clone();
    Ok(order)
}

#[test]
fn e8_locks_between_the_units_of_an_execution_replay() {
    let expected = TestEnvironment::new().register(locks).register(note).run(locks, ()).unwrap();
    assert_eq!(expected.len(), 8);
    assert_steady!(locks, expected);
}

#[orchestration]
async fn broadcasts(ctx: OrchestrationContext) -> Output {
    let (changing, changed) = watch::channel(0);
    let (telling, _) = broadcast::channel(4);
    let stop = CancellationToken::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let listeners: Vec<_> = (1..=4)
        .map(|number| {
            let (ctx, order, stop) = (ctx.clone(), order.clone(), stop.clone());
            let (mut changed, mut told) = (changed.clone(), telling.subscribe());
            ctx.clone().spawn(async move {
                changed.changed().await.ok();
                let seen = *changed.borrow();
                let seen = noted(&ctx, 100 * seen + number).await;
                order.lock().unwrap().push(seen);
                let heard: u64 = told.recv().await.unwrap_or(0);
                let heard = noted(&ctx, 100 * heard + number).await;
                order.lock().unwrap().push(heard);
                stop.cancelled().await;
                order.lock().unwrap().push(number);
            })
        })
        .collect();
    after(ctx.clone(), 1).await;
    changing.send(7).ok();
    after(ctx.clone(), 1).await;
    telling.send(8).ok();
    after(ctx.clone(), 1).await;
    stop.cancel();
    for listener in listeners {
        listener.await;
    }
    let order = order.lock().unwrap().clone();
    Ok(order)
}

#[test]
fn e10_units_that_are_woken_together_go_on_in_their_order_whatever_wakes_them() {
    assert_steady!(broadcasts, [701, 702, 703, 704, 801, 802, 803, 804, 1, 2, 3, 4]);
}

#[orchestration]
async fn yielding(ctx: OrchestrationContext) -> Output {
    let mut order = Vec::new();
    for number in 0..3 {
        tokio::task::yield_now().await;
        order.push(noted(&ctx, number).await);
    }
    Ok(order)
}

#[test]
fn e8_yielding_to_other_units_replays() {
    assert_steady!(yielding, [0, 1, 2]);
}
