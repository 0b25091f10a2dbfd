//! An event is raised with something that does not belong to it.
//~ expected `bool`, found `&str`

use perennial::prelude::*;

const APPROVED: Event<bool> = Event::named("approved");

#[orchestration]
async fn approve(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.raise_event("other", APPROVED, "yes");
    Ok(())
}

fn main() {}
