//! Ways to start an instance: delayed, with searchable attributes, once per id, or together with an event.

use std::time::Instant;

use perennial::Filter;
use perennial::prelude::*;

const ITEM: ExternalEvent<String> = ExternalEvent::named("item");

#[orchestration]
async fn remind(_ctx: OrchestrationContext, whom: String) -> Result<String, String> {
    Ok(format!("reminded {whom}"))
}

/// Collects two items.
#[orchestration]
async fn parcel(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    Ok(vec![ctx.schedule_wait(ITEM).await, ctx.schedule_wait(ITEM).await])
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(remind).register(parcel).start().await?;
    let client = runtime.client();

    // Delayed: the start is durable now, the code begins after the delay.
    let begun = Instant::now();
    let later = StartOptions::default().delay(Duration::from_millis(300)).attribute("city", "Oslo");
    client.start_with("remind", "r-1", "Ada", later).await?;
    println!("r-1 is {}", client.status("r-1").await?.status.name());
    println!("{}", client.result("r-1").await?.to_text());
    println!("not early: {}", begun.elapsed() >= Duration::from_millis(300));

    // Found by its attribute.
    let in_oslo = Filter::new().attribute("city", "Oslo");
    println!("in Oslo: {}", client.count(in_oslo).await?.rows);

    // If the id exists, the start is refused by default. It can also use or replace the existing instance.
    println!("{}", client.start(remind, "r-1", "Bob".to_owned()).await.unwrap_err());
    for policy in [OnExisting::Use, OnExisting::ReplaceEnded] {
        let options = StartOptions::default().on_existing(policy);
        let run = client.start_with(remind, "r-1", "Bob".to_owned(), options).await?;
        println!("{policy:?}: {}, {}", if run.is_new() { "started" } else { "existed" }, run.result().await?);
    }

    // Starts the instance, or raises an event at the existing one, in one atomic call.
    for item in ["socks", "hats"] {
        let options = StartOptions::default().or_raise("item", item);
        let run = client.start_with(parcel, "p-1", (), options).await?;
        println!("{item}: {}", if run.is_new() { "a new parcel" } else { "into the parcel" });
    }
    println!("p-1: {}", client.result("p-1").await?.to_text());
    runtime.shutdown().await
}
