//! Two ways to limit a wait: a timeout on one future, and a race between several.

use perennial::prelude::*;

#[activity]
async fn ask(ctx: ActivityContext, supplier: String, takes_ms: u64) -> Result<String, String> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(takes_ms)) => Ok(format!("{supplier} offers")),
        // The losers of a race are cancelled. An activity that checks for cancellation ends at once.
        () = ctx.cancelled() => Err("cancelled".to_owned()),
    }
}

#[orchestration]
async fn quote(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let slow = ctx.schedule_activity(ask, ("Slow & Sons".to_owned(), 60_000));
    // The limit is a durable timer: it survives a crash and does not start over.
    let within_limit = match ctx.timeout(Duration::from_millis(100), slow).await {
        Ok(answer) => answer?,
        Err(_) => "Slow & Sons took too long".to_owned(),
    };

    let quick = ctx.schedule_activity(ask, ("Quick".to_owned(), 20));
    let lazy = ctx.schedule_activity(ask, ("Lazy".to_owned(), 60_000));
    let first = match ctx.select2(quick, lazy).await {
        Either::First(answer) => format!("first: {}", answer?),
        Either::Second(answer) => format!("second: {}", answer?),
    };
    Ok(vec![within_limit, first])
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(quote).register(ask).start().await?;
    for line in runtime.client().start(quote, "quote-1", ()).await?.result().await? {
        println!("{line}");
    }
    runtime.shutdown().await
}
