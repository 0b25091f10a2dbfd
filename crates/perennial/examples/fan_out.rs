//! Many activities at once, with results in the order of the calls.

use perennial::prelude::*;

#[activity]
async fn square(_: ActivityContext, number: u64) -> Result<u64, String> {
    // Larger numbers finish earlier; the order of the results does not depend on it.
    tokio::time::sleep(Duration::from_millis(60 - 10 * number)).await;
    Ok(number * number)
}

#[orchestration]
async fn squares(ctx: OrchestrationContext, upto: u64) -> Result<Vec<u64>, String> {
    // Scheduling returns at once. `try_join` returns at the first error and cancels the rest.
    let running = (1..=upto).map(|number| ctx.schedule_activity(square, number));
    Ok(ctx.try_join(running).await?)
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(squares).register(square).start().await?;
    let squares = runtime.client().start(squares, "squares-1", 5).await?.result().await?;
    println!("{squares:?}, together {}", squares.iter().sum::<u64>());
    runtime.shutdown().await
}
