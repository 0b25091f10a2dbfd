//! An event is raised with something that does not belong to it.

use perennial::prelude::*;

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");

#[orchestration]
async fn approve(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.raise_event("other", APPROVED, "yes");
    Ok(())
}

fn main() {}
