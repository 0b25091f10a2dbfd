//! Start-or-raise from beside the runtime: an event that comes as the instance ends starts the next one (G17).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use perennial::prelude::*;
use perennial::{OnExisting, RuntimeBuilder, StartOptions};
use perennial_testkit::invariants::ClientLog;

use crate::support::soon;
use crate::support::stage::{Stage, on_each_lasting_stage};

const USERS: u64 = 400;
/// How long a mutex that nobody wants waits for the next user before it ends.
const IDLE: Duration = Duration::ZERO;

const ACQUIRE: ExternalEvent<u64> = ExternalEvent::named("acquire");

/// Serves its users one after another, and ends when nobody has come for a while. A user who comes in the turn in which
/// that while is over is not read.
async fn mutex(ctx: OrchestrationContext, _: ()) -> Result<(), String> {
    while let Ok(user) = ctx.timeout(IDLE, ctx.schedule_wait(ACQUIRE)).await {
        let serve = Activity::<u64, (), String>::named("serve");
        ctx.schedule_activity(serve, user).await?;
    }
    Ok(())
}

/// Ends in the turn that reads its second event: one that comes with it is not read.
async fn pair(ctx: OrchestrationContext, _: ()) -> Result<(u64, u64), String> {
    Ok((ctx.schedule_wait(ACQUIRE).await, ctx.schedule_wait(ACQUIRE).await))
}

fn orchestrations(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.orchestration("mutex", "1.0.0", mutex).orchestration("pair", "1.0.0", pair)
}

/// Has each user of several guests start an orchestration or raise at it, all at once; whether each started it.
async fn start_or_raise_all(stage: &Stage, name: &str, users: u64) -> Vec<bool> {
    let guests: Vec<Client> = (0..4).filter_map(|_| stage.guest()).collect();
    let acquire = async |user: u64| {
        let options = StartOptions::default().or_raise(ACQUIRE, user).on_existing(OnExisting::ReplaceEnded);
        let client = &guests[user as usize % guests.len()];
        client.start_with(name, "m", (), options.version("1.0.0")).await.map(|run| run.is_new())
    };
    let outcomes = soon(join_all((0..users).map(acquire))).await;
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_users_beside_the_runtime_whose_event_came_too_late_start_the_next_instance() {
    const USERS: u64 = 60;
    on_each_lasting_stage(async |stage| {
        let runtime = orchestrations(stage.runtime()).start().await.unwrap();
        let are_new = start_or_raise_all(stage, "pair", USERS).await;
        // Each instance takes two: an event that is lost or taken twice leaves another number of them.
        assert_eq!(are_new.iter().filter(|is_new| **is_new).count() as u64, USERS / 2);
        soon(runtime.client().wait("m")).await.unwrap();
        let mut log = ClientLog::default();
        log.started("m");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_four_hundred_users_beside_the_runtime_start_or_raise_a_mutex_and_all_are_served_once() {
    on_each_lasting_stage(async |stage| {
        let served: Arc<Mutex<Vec<u64>>> = Arc::default();
        let serving = Arc::clone(&served);
        let serve = move |_: ActivityContext, user: u64| {
            serving.lock().unwrap().push(user);
            async { Ok::<_, String>(()) }
        };
        let runtime = orchestrations(stage.runtime()).activity("serve", serve).start().await.unwrap();
        start_or_raise_all(stage, "mutex", USERS).await;
        soon(runtime.client().wait("m")).await.unwrap();
        let mut served = served.lock().unwrap().clone();
        served.sort_unstable();
        assert_eq!(served, (0..USERS).collect::<Vec<_>>());
        let mut log = ClientLog::default();
        log.started("m");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}
