//! What needs no annotation: literals, tuples, names, no arguments, results and errors.

use perennial::prelude::*;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
enum Refused {
    Empty,
}

#[activity]
async fn square(_: ActivityContext, number: i64) -> Result<i64, String> {
    Ok(number * number)
}

#[activity]
async fn add(_: ActivityContext, a: u8, b: f64, c: Option<u16>) -> Result<f64, String> {
    Ok(f64::from(a) + b + f64::from(c.unwrap_or(0)))
}

#[activity]
async fn answer(_: ActivityContext) -> Result<u8, Refused> {
    Err(Refused::Empty)
}

const APPROVED: Event<bool> = Event::named("approved");
const LENGTH: Activity<String, usize> = Activity::named("length");
const OTHER: Orchestration<u8, String> = Orchestration::named("other");

#[orchestration]
async fn child(_: OrchestrationContext, number: u32) -> Result<u32, String> {
    Ok(number)
}

#[orchestration]
async fn parent(ctx: OrchestrationContext) -> Result<String, String> {
    let squared = ctx.schedule_activity(square, 5).await?;
    let negative = ctx.schedule_activity(square, -5).await?;
    let sum = ctx.schedule_activity(add, (1, 2.5, None)).await?;
    let refused = match ctx.schedule_activity(answer, ()).await {
        Ok(answer) => answer.is_power_of_two(),
        Err(ActivityError::Application(Refused::Empty)) => false,
        Err(_) => true,
    };
    let by_name = ctx.schedule_activity("square", "5").await?.len();
    let owned = ctx.schedule_activity(String::from("square"), String::from("5")).await?.len();
    let raw = ctx.schedule_activity("square", serde_json::json!(5)).await.is_ok();
    let length = ctx.schedule_activity(LENGTH, "four".to_owned()).await?.count_ones();
    let two = ctx.join2(ctx.schedule_activity(square, 2), ctx.schedule_activity(answer, ())).await;
    let first = two.0?;
    let number = ctx.schedule_sub_orchestration(child, 7).await?;
    let other = ctx.schedule_sub_orchestration(OTHER, 7).await?.len();
    let named = ctx.schedule_sub_orchestration("child", "7").await?.len();
    ctx.schedule_orchestration(child, "detached", 7);
    let approved = ctx.timeout(Duration::from_secs(1), ctx.schedule_wait(APPROVED)).await.unwrap_or(false);
    let text = ctx.schedule_wait("text").await.len();
    ctx.raise_event("other", APPROVED, true);
    Ok(format!(
        "{squared}{negative}{sum}{refused}{by_name}{owned}{raw}{length}{first}{number}{other}{named}{approved}{text}"
    ))
}

async fn client(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    let run = client.start(child, "a", 7).await?;
    let _: u32 = run.result().await?;
    let run = client.start(parent, "b", ()).await?;
    let _: String = run.result().await?;
    let run = client.start("child", "c", "7").await?;
    let _: String = run.result().await?;
    client.raise_event("b", APPROVED, true).await?;
    client.raise_event("b", "text", "hello").await?;
    Ok(())
}

fn main() {
    let _ = Runtime::open("memory:").register(parent).register(child).register(square).register(add);
    let _ = client;
    // The function itself can still be called.
    let _ = |ctx: ActivityContext| async { square(ctx, 5).await };
}
