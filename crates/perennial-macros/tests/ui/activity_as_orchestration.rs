//! An activity is called as a sub-orchestration.

use perennial::prelude::*;

#[activity]
async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

#[orchestration]
async fn squares(ctx: OrchestrationContext) -> Result<i64, String> {
    Ok(ctx.schedule_sub_orchestration(square, 5).await?)
}

fn main() {}
