//! Orchestrations whose work is known, and the stores that they run on.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use perennial::RuntimeBuilder;
use perennial::prelude::*;
use tempfile::TempDir;

pub(crate) const GO: ExternalEvent<u32> = ExternalEvent::named("go");

#[activity]
async fn charge(_: ActivityContext, amount: u32) -> Result<u32, String> {
    Ok(amount)
}

/// Fails in the first two attempts.
#[activity]
async fn flaky(ctx: ActivityContext) -> Result<u32, String> {
    if ctx.attempt() < 3 { Err("not yet".to_owned()) } else { Ok(ctx.attempt()) }
}

#[activity]
async fn explode(_: ActivityContext) -> Result<(), String> {
    panic!("as planned")
}

#[activity]
async fn dawdle(ctx: ActivityContext) -> Result<(), String> {
    ctx.cancelled().await;
    std::future::pending::<()>().await;
    Ok(())
}

#[orchestration]
pub(crate) async fn order(ctx: OrchestrationContext, amount: u32) -> Result<u32, String> {
    Ok(ctx.schedule_activity(charge, amount).await?)
}

#[orchestration]
async fn refuses(_: OrchestrationContext) -> Result<(), String> {
    Err("out of stock".to_owned())
}

#[orchestration]
async fn patient(ctx: OrchestrationContext) -> Result<u32, String> {
    let policy = RetryPolicy::fixed(Duration::from_millis(1)).attempts(5);
    Ok(ctx.schedule_activity(flaky, ()).retry(policy).await?)
}

#[orchestration]
async fn careless(ctx: OrchestrationContext) -> Result<(bool, bool), String> {
    let exploded = ctx.schedule_activity(explode, ()).await.is_err();
    let late = ctx.schedule_activity(dawdle, ()).timeout(Duration::from_millis(20)).await.is_err();
    Ok((exploded, late))
}

#[orchestration]
async fn nap(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_timer(Duration::from_millis(10)).await;
    Ok(())
}

/// Waits for two events.
#[orchestration]
async fn waits(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(ctx.schedule_wait(GO).await + ctx.schedule_wait(GO).await)
}

/// Sends to nobody, and starts a child.
#[orchestration]
async fn sends(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.raise_event("nobody", GO, 1);
    Ok(ctx.schedule_sub_orchestration(order, 5).await?)
}

/// Continues as new once, with an event that it has not read.
#[orchestration]
pub(crate) async fn goes_on(ctx: OrchestrationContext, round: u32) -> Result<u32, String> {
    let got = ctx.schedule_wait(GO).await;
    if round == 0 {
        return ctx.continue_as_new(1).await;
    }
    Ok(got)
}

#[orchestration]
async fn broken(_: OrchestrationContext) -> Result<(), String> {
    panic!("a bug")
}

pub(crate) fn builder(url: &str) -> RuntimeBuilder {
    let mut options = RuntimeOptions { relaxed: true, ..RuntimeOptions::default() };
    // Blocked instances stay blocked.
    options.shard.retry_first = Duration::from_secs(3_600);
    options.shard.retry_max = Duration::from_secs(3_600);
    options.activity_cancel_grace = Duration::from_millis(1);
    Runtime::open(url)
        .options(options)
        .register(order)
        .register(refuses)
        .register(patient)
        .register(careless)
        .register(nap)
        .register(waits)
        .register(sends)
        .register(goes_on)
        .register(broken)
        .register(charge)
        .register(flaky)
        .register(explode)
        .register(dawdle)
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Gives up where a test would wait for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// A store of each kind.
pub(crate) struct Store {
    pub(crate) url: String,
    _directory: Option<TempDir>,
}

impl Store {
    pub(crate) fn file() -> Store {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        let name = format!("shop-{}.db", NUMBER.fetch_add(1, Ordering::SeqCst));
        let url = format!("sqlite:{}", directory.path().join(name).display());
        Store { url, _directory: Some(directory) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn schema() -> Store {
        let server = perennial_testkit::postgres::TestServer::shared();
        Store { url: server.new_schema(), _directory: None }
    }

    pub(crate) fn each() -> Vec<Store> {
        vec![
            Store { url: "memory:".to_owned(), _directory: None },
            Store::file(),
            #[cfg(feature = "postgres")]
            Store::schema(),
        ]
    }
}
