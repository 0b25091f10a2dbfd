//! What is returned is no `Result`.

use perennial::prelude::*;

#[activity]
async fn square(_: ActivityContext, number: i64) -> i64 {
    number * number
}

#[activity]
async fn pair(_: ActivityContext, number: i64) -> (i64, i64) {
    (number, number)
}

#[orchestration]
async fn nothing(_: OrchestrationContext) {}

fn main() {}
