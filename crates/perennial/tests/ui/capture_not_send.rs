//! Something that stays on its thread is held across an await.
//~ future cannot be sent between threads safely
//~ await occurs here, with `count` maybe used later

use std::rc::Rc;

use perennial::prelude::*;

#[orchestration]
async fn counted(ctx: OrchestrationContext) -> Result<i64, String> {
    let count = Rc::new(1);
    ctx.schedule_timer(Duration::from_secs(1)).await;
    Ok(*count)
}

fn main() {}
