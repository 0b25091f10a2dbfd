//! What is returned is no `Result`.
//~ an activity returns a `Result<T, E>`, so that failing is a value like any other
//~ an orchestration returns a `Result<T, E>`, so that failing is a value like any other

use perennial::prelude::*;

#[activity]
async fn square(_: ActivityContext, number: i64) -> i64 {
    number * number
}

#[orchestration]
async fn nothing(_: OrchestrationContext) {}

fn main() {}
