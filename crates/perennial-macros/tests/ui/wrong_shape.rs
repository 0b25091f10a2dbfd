//! Functions that cannot be found by a name, or cannot take what is read from a history.

use perennial::prelude::*;

#[activity]
async fn generic<T: Send>(_: ActivityContext, _: T) -> Result<(), String> {
    Ok(())
}

#[orchestration]
async fn borrowing<'a>(_: OrchestrationContext, _: &'a str) -> Result<(), String> {
    Ok(())
}

#[activity]
async fn borrowing_too(_: ActivityContext, _: &str) -> Result<(), String> {
    Ok(())
}

#[activity]
async fn anything(_: ActivityContext, _: impl std::fmt::Display) -> Result<(), String> {
    Ok(())
}

#[activity]
async unsafe fn risky(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[orchestration]
fn blocking(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

#[activity]
async fn crowded(_: ActivityContext, _: u8, _: u8, _: u8, _: u8, _: u8) -> Result<(), String> {
    Ok(())
}

struct Shop;

impl Shop {
    #[activity]
    async fn charge(&self, _: ActivityContext) -> Result<(), String> {
        Ok(())
    }
}

trait Bank {
    #[activity]
    async fn refund(_: ActivityContext) -> Result<(), String>;
}

#[activity]
struct Charge;

#[activity(retry = 3, retry = 4)]
async fn twice(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[activity(retry = "3")]
async fn in_words(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[activity(retry = 0)]
async fn never(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[activity(timeout = 30)]
async fn without_a_unit(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[orchestration(version = 2)]
async fn no_semver(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

fn main() {}
