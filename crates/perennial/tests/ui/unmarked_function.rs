//! A function without an attribute is registered.
//~ this cannot be registered
//~ mark the function with `#[activity]` or `#[orchestration]`, or register a closure with `.activity(name, …)` or `.orchestration(name, version, …)`

use perennial::prelude::*;

async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

fn main() {
    let _ = Runtime::open("memory:").register(square);
}
