//! An activity is called as a sub-orchestration.
//~ this is not an orchestration that takes this input
//~ an activity is called with `schedule_activity`, inside of an orchestration
//~ pass a function marked with `#[orchestration]` and its input (several arguments as a tuple), a name and a string, or an `Orchestration`

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
