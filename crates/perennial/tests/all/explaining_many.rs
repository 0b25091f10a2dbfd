//! Explanations of instances with very many open operations (H42): bounded, and nothing that is stuck is left out.

use std::time::Duration;

use perennial::explain::{ActivityState, WaitReason};
use perennial::prelude::*;

use super::support::{Place, relaxed, soon};

#[activity]
async fn busy(ctx: ActivityContext) -> Result<(), String> {
    ctx.cancelled().await;
    Ok(())
}

/// Many activities that run, and then one that nobody has registered.
#[orchestration]
async fn fans_out(ctx: OrchestrationContext, number: u32) -> Result<(), String> {
    let running: Vec<_> = (0..number).map(|_| ctx.schedule_activity(busy, ())).collect();
    ctx.schedule_activity("forgotten", "5").await?;
    drop(running);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_an_activity_that_is_stuck_is_listed_however_many_are_open() {
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(fans_out).register(busy).start().await.unwrap();
    runtime.client().start(fans_out, "wide", 100).await.unwrap();
    let guest = place.guest();
    let explained = soon(async {
        loop {
            let explained = guest.explain("wide").await.unwrap();
            if explained.is_stuck() {
                return explained;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!((explained.waits.len(), explained.more), (50, 51));
    let last = explained.waits.last().unwrap();
    let is_forgotten = |activity: &perennial::explain::ActivityWait| {
        activity.name == "forgotten" && matches!(activity.state, ActivityState::NotRegistered { .. })
    };
    assert!(matches!(&last.reason, WaitReason::Activity(activity) if is_forgotten(activity)), "{explained}");
    // A list shows the cause rather than the first of many that run.
    let view = guest.status("wide").await.unwrap();
    let short = guest.explain_each(&[view]).await.unwrap().remove(0).short();
    assert!(short.contains("forgotten"), "{short}");
    soon(runtime.shutdown_within(Duration::ZERO)).await.unwrap();
}

/// Waits for many events at once, in as many turns as the limit of decisions demands.
#[orchestration]
async fn listens(ctx: OrchestrationContext, turns: u32) -> Result<usize, String> {
    let mut waits = Vec::new();
    for turn in 0..turns {
        waits.extend((0..WAITS_PER_TURN).map(|number| ctx.schedule_wait(format!("event-{turn}-{number}"))));
        ctx.schedule_timer(Duration::from_millis(1)).await;
    }
    Ok(ctx.join(waits).await.len())
}

const WAITS_PER_TURN: usize = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_ninety_thousand_open_waits_are_explained_before_a_user_gives_up() {
    let runtime = Runtime::open("memory:").register(listens).options(relaxed()).start().await.unwrap();
    let client = runtime.client();
    client.start(listens, "many", 3).await.unwrap();
    let explained = soon(async {
        loop {
            let explained = client.explain("many").await.unwrap();
            if explained.more > 2 * WAITS_PER_TURN {
                return explained;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!((explained.waits.len(), explained.waits.len() + explained.more), (50, 3 * WAITS_PER_TURN));
    soon(runtime.shutdown()).await.unwrap();
}
