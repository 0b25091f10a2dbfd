//! The context is forgotten, or is the other one.
//~ the first argument of an activity is its context: `ctx: ActivityContext`
//~ the first argument of an orchestration is its context: `ctx: OrchestrationContext`

use perennial::prelude::*;

#[activity]
async fn square(number: i64) -> Result<i64, String> {
    Ok(number * number)
}

#[orchestration]
async fn nothing() -> Result<(), String> {
    Ok(())
}

#[orchestration]
async fn mistaken(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

fn main() {}
