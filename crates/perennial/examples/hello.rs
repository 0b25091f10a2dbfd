//! The smallest durable program: one activity, one orchestration, one result.

use perennial::prelude::*;

/// Activities do the work: any async code, with any side effects. They run at least once.
#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

/// Orchestrations make the decisions. Their calls and the results are recorded.
#[orchestration]
async fn welcome(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(welcome).register(greet).start().await?;
    let run = runtime.client().start(welcome, "welcome-1", "Ada".to_owned()).await?;
    println!("{}", run.result().await?);
    runtime.shutdown().await
}
