//! An activity of two arguments is called with one.
//~ expected `(i64, i64)`, found integer

use perennial::prelude::*;

#[activity]
async fn add(_: ActivityContext, a: i64, b: i64) -> Result<i64, String> {
    Ok(a + b)
}

#[orchestration]
async fn sums(ctx: OrchestrationContext) -> Result<i64, String> {
    Ok(ctx.schedule_activity(add, 5).await?)
}

fn main() {}
