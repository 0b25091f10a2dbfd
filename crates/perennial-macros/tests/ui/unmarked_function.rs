//! A function without an attribute is registered.

use perennial::prelude::*;

async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

fn main() {
    let _ = Runtime::open("memory:").register(square);
}
