//! An update is handled as a query.

use perennial::prelude::*;

const ADD: Update<u32, u32> = Update::named("add");

#[orchestration]
async fn adds(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.on_query(ADD, &(), |(), number: u32| number);
    Ok(())
}

fn main() {}
