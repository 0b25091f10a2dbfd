//! An attribute is given what it does not know.

use perennial::prelude::*;

#[activity(retries = 5)]
async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

#[activity(timeout = "soon")]
async fn cube(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number * number)
}

#[orchestration(version = "latest")]
async fn nothing(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

#[activity(state)]
async fn stateless(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[orchestration(uses(3))]
async fn numbers(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

#[orchestration(uses(main))]
async fn programs(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

fn main() {}
