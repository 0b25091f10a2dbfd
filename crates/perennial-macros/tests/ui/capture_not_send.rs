//! Something that stays on its thread is held across an await.

use std::rc::Rc;

use perennial::prelude::*;

#[orchestration]
async fn counted(ctx: OrchestrationContext) -> Result<i64, String> {
    let count = Rc::new(1);
    ctx.schedule_timer(Duration::from_secs(1)).await;
    Ok(*count)
}

fn main() {}
