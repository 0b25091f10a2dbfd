//! What the code returns is not what the function says.

use perennial::prelude::*;

#[activity]
async fn charge(_: ActivityContext, cents: u64) -> Result<u64, String> {
    Ok(cents)
}

#[orchestration]
async fn order(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    ctx.schedule_activity(charge, cents).await
}

#[activity]
fn count(_: ActivityContext) -> Result<u64, String> {
    Ok("five")
}

#[activity]
async fn read(_: ActivityContext) -> Result<String, Box<dyn std::error::Error>> {
    Ok(std::fs::read_to_string("here")?)
}

fn main() {}
