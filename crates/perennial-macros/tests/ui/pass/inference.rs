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

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const LENGTH: Activity<String, usize> = Activity::named("length");
const OTHER: Orchestration<u8, String> = Orchestration::named("other");
const COUNT: Query<(), u32> = Query::named("count");
const ADD: Update<u32, u32, Refused> = Update::named("add");

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
    let count = ctx.state(0);
    ctx.on_query(COUNT, &count, |count, ()| count.read(|count| *count));
    ctx.on_query("length", &(), |(), text: String| text.len());
    ctx.on_update(ADD, &count, |count, more| async move { Ok(count.update(|count| *count + more)) })
        .validate(|count, more| if count.read(|count| count > more) { Err(Refused::Empty) } else { Ok(()) });
    ctx.on_update("set", &(), |(), to: u8| async move { Ok::<_, String>(to) });
    ctx.on_event(APPROVED, &(), |(), approved| async move { assert!(approved) });
    let later = ExternalEvent::<bool>::new(format!("approved {squared}"));
    let _: Option<bool> = ctx.try_receive(&later);
    let _: usize = ctx.unread(&later) + ctx.unread("text");
    let _: bool = ctx.events(later).receive().await;
    let _: Option<String> = ctx.try_receive("text");
    let _: Option<u32> = ctx.attribute("size").or(ctx.published());
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
    client.raise_event("b", APPROVED, true).once("key").await?;
    client.raise_event("b", "text", "hello").once("key").await?;
    client.raise_event("b", ExternalEvent::new(format!("approved {}", 4)), true).await?;
    let options = StartOptions::default().attribute("size", 3).or_raise(APPROVED, true);
    let _: bool = client.start_with(child, "d", 7, options.or_raise("text", "hello")).await?.is_new();
    let _: u32 = client.run(child, "a").result().await?;
    let _: String = client.run(parent, "b").result().await?;
    let _: String = client.run(OTHER, "o").result().await?;
    let _: Payload = client.run("other", "o").result().await?;
    let _: u32 = client.query("b", COUNT, ()).await?;
    let _: String = client.query("b", "length", "four").await?;
    let _: Payload = client.query("b", "length", serde_json::json!("four")).await?;
    let _: Payload = client.query("b", "count", ()).await?;
    match client.update("b", ADD, 3).await {
        Ok(count) => assert!(count.is_power_of_two()),
        Err(UpdateError::Failed { error: Refused::Empty, .. }) => {}
        Err(UpdateError::Refused { error, .. }) => assert!(error.is_none()),
        Err(error) => return Err(format!("{error:?}").into()),
    }
    let _: String = client.update("b", "set", "3").await?;
    let _: Payload = client.update("b", "set", serde_json::json!(3)).once("key").await?;
    let _: Payload = client.update("b", "set", ()).or_start(parent, ()).await?;
    let _: u32 = client.wait_for("b", |done: &u32| *done > 2).await?;
    Ok(())
}

async fn program(runtime: Runtime) -> perennial::Result<()> {
    let client = runtime.client();
    let _: u32 = client.start(child, "a", 7).await?.result().await?;
    let _: Payload = client.start("child", "b", serde_json::json!(7)).await?.result().await?;
    let _: Payload = client.update("b", "set", ()).await?;
    runtime.shutdown().await
}

async fn unmarked(_: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    Ok(input)
}

fn closures(runtime: perennial::RuntimeBuilder) -> perennial::RuntimeBuilder {
    runtime
        .orchestration("none", "1.0.0", |_: OrchestrationContext| async { Ok::<_, String>(1) })
        .orchestration("payload", "1.0.0", unmarked)
        .orchestration("payloads", "1.0.0", |ctx: OrchestrationContext, input: Payload| async move {
            ctx.schedule_activity("raw", input).await.map_err(String::from)
        })
        .orchestration("three", "1.0.0", |_: OrchestrationContext, a: u8, b: u8, c: u8| async move {
            a.checked_add(b).and_then(|sum| sum.checked_add(c)).ok_or("too much".to_owned())
        })
        .activity("none", async |_: ActivityContext| Ok::<_, String>(1))
        .activity("raw", |_: ActivityContext, input: Payload| async move { Ok::<_, Payload>(input) })
        .activity("two", |_: ActivityContext, a: String, b: String| async move { Ok::<_, String>(a + &b) })
        .activity("marked", square)
        .blocking_activity("length", |_: ActivityContext, text: String| Ok::<_, String>(text.len()))
        .blocking_activity("raw length", |_: ActivityContext, _: Payload| Err::<Payload, _>(Payload::null()))
}

fn main() {
    let _ = Runtime::open("memory:").register(parent).register(child).register(square).register(add);
    let _ = (client, program, closures);
    // The function itself can still be called.
    let _ = |ctx: ActivityContext| async { square(ctx, 5).await };
}
