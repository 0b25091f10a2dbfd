//! Ordinary channels, streams and locks between the units of one execution. Replay restores their state.

use futures::stream::{self, StreamExt};
use perennial::prelude::*;
use tokio::sync::mpsc;

#[activity]
async fn measure(_: ActivityContext, city: String) -> Result<u64, String> {
    Ok(city.len() as u64)
}

#[orchestration]
async fn survey(ctx: OrchestrationContext, cities: Vec<String>) -> Result<Vec<String>, String> {
    let (measured, mut results) = mpsc::channel(4);
    // One unit measures two cities at a time; the other receives the results.
    let measuring = ctx.spawn({
        let ctx = ctx.clone();
        async move {
            let open = stream::iter(cities).map(|city| {
                let ctx = ctx.clone();
                async move { (city.clone(), ctx.schedule_activity(measure, city).await) }
            });
            let mut open = open.buffered(2);
            while let Some(result) = open.next().await {
                if measured.send(result).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut lines = Vec::new();
    loop {
        // `biased;` makes the choice deterministic; without it, it would be random.
        tokio::select! {
            biased;
            result = results.recv() => match result {
                Some((city, size)) => lines.push(format!("{city}: {}", size?)),
                None => break,
            },
            () = ctx.schedule_timer(Duration::from_secs(60)) => lines.push("a minute without news".to_owned()),
        }
    }
    measuring.await;
    Ok(lines)
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(survey).register(measure).start().await?;
    let cities = ["Oslo", "Bergen", "Å"].map(str::to_owned).to_vec();
    for line in runtime.client().start(survey, "survey-1", cities).await?.result().await? {
        println!("{line}");
    }
    runtime.shutdown().await
}
