//! An orchestration is called as an activity.

use perennial::prelude::*;

#[orchestration]
async fn inner(_: OrchestrationContext, number: i64) -> Result<i64, String> {
    Ok(number)
}

#[orchestration]
async fn outer(ctx: OrchestrationContext) -> Result<i64, String> {
    Ok(ctx.schedule_activity(inner, 5).await?)
}

fn main() {}
