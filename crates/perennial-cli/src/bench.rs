//! `perennial bench`: one figure. The load generator, `cargo xtask bench`, measures more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use perennial::prelude::*;
use serde_json::json;

use crate::exit::Failure;
use crate::output::{line, object, progress};

/// The number of concurrent instances.
const IN_FLIGHT: u64 = 128;

#[activity]
async fn hello(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[orchestration]
async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(hello, name).await?)
}

/// Completes instances with one activity each on a temporary SQLite file, durably.
pub(crate) async fn run(instances: u64, as_json: bool) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let store = format!("sqlite:{}", directory.path().join("bench.db").display());
    let runtime = Runtime::open(store).register(greeting).register(hello).start().await?;
    let bar = progress(Some(instances), "hello");
    let (begun, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..IN_FLIGHT.min(instances))
        .map(|_| {
            let (client, next, bar) = (runtime.client(), Arc::clone(&next), bar.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= instances {
                        return Ok(());
                    }
                    let run = client.start(greeting, &format!("hello-{number}"), "you".to_owned()).await?;
                    run.result().await.map_err(Failure::failed)?;
                    bar.inc(1);
                }
            })
        })
        .collect();
    for caller in callers {
        let outcome: Result<(), Failure> = caller.await.map_err(Failure::failed)?;
        outcome?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    runtime.shutdown().await?;
    let per_second = (instances as f64 / seconds).round();
    if as_json {
        return object(
            &json!({"workload": "hello", "instances": instances, "seconds": seconds, "per_second": per_second}),
        );
    }
    line(format!(
        "hello: {per_second} instances/s ({instances} in {seconds:.2} s, every step synced to disk)"
    ))?;
    line("for more workloads and comparisons: cargo xtask bench --help")
}
