//! An activity is called with something that it does not take.
//~ expected `i64`, found `&str`

use perennial::prelude::*;

#[activity]
async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

#[orchestration]
async fn squares(ctx: OrchestrationContext) -> Result<i64, String> {
    Ok(ctx.schedule_activity(square, "five").await?)
}

fn main() {}
