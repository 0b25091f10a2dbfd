//! An endless loop: continue-as-new starts each round with an empty history, under the same id.

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Meter {
    round: u32,
    total: u64,
}

const READING: ExternalEvent<u64> = ExternalEvent::named("reading");
const CLOSE: ExternalEvent<()> = ExternalEvent::named("close");

#[orchestration]
async fn meter(ctx: OrchestrationContext, mut meter: Meter) -> Result<Meter, String> {
    // Real code loops until `ctx.should_continue_as_new()` returns `true`, when the history has grown long.
    for _ in 0..2 {
        match ctx.select2(ctx.schedule_wait(READING), ctx.schedule_wait(CLOSE)).await {
            Either::First(reading) => meter.total += reading,
            Either::Second(()) => return Ok(meter),
        }
    }
    meter.round += 1;
    // Ends this execution. Unread events are kept for the next one, in order.
    ctx.continue_as_new(meter).await
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(meter).start().await?;
    let client = runtime.client();
    let run = client.start(meter, "meter-1", Meter { round: 1, total: 0 }).await?;
    for reading in [5, 8, 2, 7, 1] {
        client.raise_event("meter-1", READING, reading).await?;
    }
    client.raise_event("meter-1", CLOSE, ()).await?;
    let Meter { round, total } = run.result().await?;
    println!("closed in round {round} with {total}");
    println!("executions: {}", client.status("meter-1").await?.execution);
    runtime.shutdown().await
}
