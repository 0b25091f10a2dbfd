//! The orchestrations and activities that the tests trace.

use std::path::PathBuf;
use std::time::Duration;

use perennial::prelude::*;
use perennial::{Client, RuntimeBuilder};
use tracing::Instrument;

/// Names a directory: an attempt of `charge` leaves a file there when it runs, and waits for another.
pub(crate) const GATE: &str = "PERENNIAL_TEST_GATE";

#[activity]
async fn charge(ctx: ActivityContext, cents: u32) -> Result<String, String> {
    if let Some(gate) = std::env::var_os(GATE).map(PathBuf::from) {
        std::fs::write(gate.join("running"), "").unwrap();
        while !gate.join("go").exists() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    async { tokio::task::yield_now().await }.instrument(tracing::info_span!("call bank", cents)).await;
    Ok(ctx.traceparent().unwrap_or_default())
}

#[activity]
async fn flaky(ctx: ActivityContext) -> Result<u32, String> {
    if ctx.attempt() == 1 { Err("secret words".to_owned()) } else { Ok(ctx.attempt()) }
}

/// Starts an instance from within an activity.
#[activity]
async fn invite(ctx: ActivityContext, guest: String) -> Result<(), String> {
    ctx.client()
        .start(ship, &guest, "invitation".to_owned())
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

#[orchestration]
async fn ship(_ctx: OrchestrationContext, parcel: String) -> Result<String, String> {
    Ok(format!("{parcel} shipped"))
}

#[orchestration]
async fn order(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    let traceparent = ctx.schedule_activity(charge, 5).await?;
    ctx.schedule_sub_orchestration(ship, "parcel".to_owned()).await?;
    ctx.schedule_orchestration(ship, format!("{name}-letter"), "letter".to_owned());
    ctx.schedule_wait("paid").await;
    Ok(traceparent)
}

#[orchestration]
async fn stubborn(ctx: OrchestrationContext) -> Result<u32, String> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts(3);
    Ok(ctx.schedule_activity(flaky, ()).retry(retry).await?)
}

#[orchestration]
async fn host(ctx: OrchestrationContext, guest: String) -> Result<(), String> {
    ctx.schedule_activity(invite, guest).await?;
    Err("the party is over".to_owned())
}

#[orchestration]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<u32, String> {
    if left > 0 { ctx.continue_as_new(left - 1).await } else { Ok(0) }
}

#[orchestration]
async fn dial(ctx: OrchestrationContext) -> Result<u32, String> {
    let position = ctx.state(0_u32);
    ctx.on_query("position", &position, |position, (): ()| position.read(|position| *position));
    ctx.on_update("set", &position, |position, to: u32| async move {
        position.update(|position| *position = to);
        Ok::<u32, String>(to)
    });
    ctx.wait_until(&position, |position| *position == 10).await;
    Ok(10)
}

#[orchestration]
async fn broken(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_wait("break").await;
    panic!("secret words");
}

pub(crate) fn builder(url: &str) -> RuntimeBuilder {
    Runtime::open(url)
        .register(charge)
        .register(flaky)
        .register(invite)
        .register(ship)
        .register(order)
        .register(stubborn)
        .register(host)
        .register(rounds)
        .register(dial)
        .register(broken)
}

#[activity]
async fn paint(ctx: ActivityContext) -> Result<String, String> {
    Ok(ctx.traceparent().unwrap_or_default())
}

/// Schedules an activity that only nodes with a tag run.
#[orchestration(name = "afar")]
async fn afar_code(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.schedule_activity(paint, ()).tag("gpu").await?)
}

/// A runtime with the orchestration `afar`, or with its activity.
pub(crate) fn afar(url: &str, is_worker: bool) -> RuntimeBuilder {
    match is_worker {
        true => Runtime::open(url).register(paint),
        false => Runtime::open(url).register(afar_code),
    }
}

/// Waits until an instance has this many turns.
pub(crate) async fn turns(client: &Client, id: &str, turns: usize) {
    let wait = async {
        while client.history(id).await.map_or(0, |history| history.turns.len()) < turns {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it gets there in time");
}
