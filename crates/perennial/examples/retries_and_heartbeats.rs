//! A failed activity is retried, and continues from the last heartbeat of the failed attempt.

use perennial::prelude::*;

const ROWS: u32 = 10;

/// Five attempts, unless the call overrides it. An attempt times out after five seconds without a heartbeat.
#[activity(retry = 5, heartbeat_timeout = "5s")]
async fn import(ctx: ActivityContext, file: String) -> Result<String, String> {
    let begin: u32 = ctx.decode_details().unwrap_or(0);
    println!("attempt {} begins after row {begin}", ctx.attempt());
    for row in begin + 1..=ROWS {
        // The connection breaks twice.
        if ctx.attempt() < 3 && row == 4 * ctx.attempt() {
            return Err(format!("connection lost at row {row}"));
        }
        ctx.heartbeat(row);
    }
    Ok(format!("{ROWS} rows of {file}"))
}

/// Some errors are final, however many attempts are left.
#[activity]
async fn charge(ctx: ActivityContext) -> Result<(), String> {
    println!("charge, attempt {}", ctx.attempt());
    Err("card expired".to_owned())
}

#[orchestration]
async fn nightly(ctx: OrchestrationContext) -> Result<String, String> {
    let imported = ctx
        .schedule_activity(import, "prices.csv".to_owned())
        .retry(RetryPolicy::fixed(Duration::from_millis(10)).attempts(5)) // over the attribute's pauses of seconds, for this example
        .timeout(Duration::from_secs(60)) // one attempt
        .total_timeout(Duration::from_secs(3_600)) // all of them
        .await?;
    let policy = RetryPolicy::exponential(5).non_retryable(["card expired"]);
    let charged = ctx.schedule_activity(charge, ()).retry(policy).await;
    Ok(format!("imported {imported}; charged: {charged:?}"))
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime =
        Runtime::open("memory:").register(nightly).register(import).register(charge).start().await?;
    println!("{}", runtime.client().start(nightly, "nightly-1", ()).await?.result().await?);
    runtime.shutdown().await
}
