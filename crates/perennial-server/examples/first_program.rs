//! The program that the dashboard shows for an empty store.

use perennial::prelude::*;

#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[orchestration]
async fn welcome(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("sqlite:shop.db").register(welcome).register(greet).start().await?;
    let run = runtime.client().start(welcome, "welcome-1", "Ada".to_owned()).await?;
    println!("{}", run.result().await?);
    runtime.shutdown().await
}
