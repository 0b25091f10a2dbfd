//! Ways to start: later, found by attributes, once per id, or as an event if it is there already.

use std::time::Instant;

use perennial::Filter;
use perennial::prelude::*;

const ITEM: ExternalEvent<String> = ExternalEvent::named("item");

#[orchestration]
async fn remind(_ctx: OrchestrationContext, whom: String) -> Result<String, String> {
    Ok(format!("reminded {whom}"))
}

/// Collects two items, whoever sends them.
#[orchestration]
async fn parcel(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    Ok(vec![ctx.schedule_wait(ITEM).await, ctx.schedule_wait(ITEM).await])
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(remind).register(parcel).start().await?;
    let client = runtime.client();

    // Later: the start is durable now, the code begins after the delay.
    let begun = Instant::now();
    let later = StartOptions::default().delay(Duration::from_millis(300)).attribute("city", "Oslo");
    client.start_with("remind", "r-1", "Ada", later).await?;
    println!("r-1 is {}", client.status("r-1").await?.status.name());
    println!("{}", client.result("r-1").await?.to_text());
    println!("not early: {}", begun.elapsed() >= Duration::from_millis(300));

    // Found by what it was given.
    let in_oslo = Filter::new().attribute("city", "Oslo");
    println!("in Oslo: {}", client.count(in_oslo).await?.rows);

    // Once per id: refused by default, or taken as it is, or replaced.
    println!("{}", client.start(remind, "r-1", "Bob".to_owned()).await.unwrap_err());
    for policy in [OnExisting::Use, OnExisting::ReplaceEnded] {
        let options = StartOptions::default().on_existing(policy);
        let run = client.start_with(remind, "r-1", "Bob".to_owned(), options).await?;
        println!("{policy:?}: {}, {}", if run.is_new() { "started" } else { "existed" }, run.result().await?);
    }

    // Start it, or tell the one that is there: one call, no race.
    for item in ["socks", "hats"] {
        let options = StartOptions::default().or_raise("item", item);
        let run = client.start_with(parcel, "p-1", (), options).await?;
        println!("{item}: {}", if run.is_new() { "a new parcel" } else { "into the parcel" });
    }
    println!("p-1: {}", client.result("p-1").await?.to_text());
    runtime.shutdown().await
}
