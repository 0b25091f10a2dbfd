//! An attribute is given what it does not know.
//~ `retries` is not known here; known are `name`, `retry`, `timeout`, `total_timeout`, `queue_timeout`, `heartbeat_timeout`, `tag`, `error`
//~ a span of time is expected, such as "250ms", "30s", "5m", "2h" or "7d"
//~ a version has three numbers, such as "1.0.0"

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

fn main() {}
