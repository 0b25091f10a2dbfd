//! The context is forgotten, or is the other one.

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
