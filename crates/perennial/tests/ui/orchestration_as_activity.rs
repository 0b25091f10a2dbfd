//! An orchestration is called as an activity.
//~ this is not an activity that takes this input
//~ an orchestration is called with `schedule_sub_orchestration`
//~ pass a function marked with `#[activity]` and its input (several arguments as a tuple), a name and a string, or an `Activity`

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
