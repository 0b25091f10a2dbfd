//! Functions of every shape that people write.

#![deny(warnings)]

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub struct Point {
    x: i64,
    y: i64,
}

/// One's own short form.
type Outcome<T> = Result<T, String>;

/// Another, under the name of the standard one.
mod short {
    pub type Result<T = ()> = std::result::Result<T, String>;
}

#[activity]
async fn aliased(_: ActivityContext) -> Outcome<u64> {
    let five: u64 = "5".parse().map_err(|_| "no number".to_owned())?;
    Ok(five)
}

#[activity]
fn aliased_and_blocking(_: ActivityContext) -> short::Result<u64> {
    Ok(5)
}

#[activity(error = "message")]
async fn foreign(_: ActivityContext) -> std::io::Result<u64> {
    Ok(std::fs::metadata("here")?.len())
}

#[orchestration]
async fn nothing(_: OrchestrationContext) -> short::Result {
    Ok(())
}

/// Documented, and with other attributes.
#[orchestration]
#[allow(unused_variables)]
#[must_use]
pub(crate) async fn patterns(
    ctx: OrchestrationContext,
    Point { x, y }: Point,
    (mut a, _): (i64, String),
    #[allow(unused)] spare: Option<bool>,
) -> Result<i64, String> {
    a += 1;
    Ok(x + y + a)
}

/// A name that is a keyword.
#[activity]
async fn r#move(_: ActivityContext, r#type: String) -> Result<String, String> {
    Ok(r#type)
}

struct Shop;

impl Shop {
    #[activity]
    pub async fn charge(_: ActivityContext, cents: u64) -> Result<u64, String> {
        Ok(cents)
    }
}

/// Calls itself.
#[orchestration]
async fn countdown(ctx: OrchestrationContext, from: u32) -> Result<u32, String> {
    if from == 0 {
        return Ok(0);
    }
    ctx.schedule_activity(Shop::charge, 1).await?;
    Ok(1 + ctx.schedule_sub_orchestration(countdown, from - 1).await?)
}

fn main() {
    #[activity]
    async fn within(_: ActivityContext) -> Result<(), String> {
        Ok(())
    }
    let runtime = Runtime::open("memory:").register(aliased).register(aliased_and_blocking).register(foreign);
    let runtime = runtime.register(nothing).register(patterns).register(r#move).register(Shop::charge);
    let _ = runtime.register(countdown).register(within);
}
