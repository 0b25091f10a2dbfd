//! The SQLite store of 0.1.0: what is in it, and how it goes on.
//!
//! Nothing in it depends on what time it is: the only timer that is open is due in a hundred years, and the activity that
//! was stopped has been due since 1970.

use std::path::Path;

use perennial::RuntimeBuilder;
use perennial::prelude::*;

use super::programs_of_0_1_0::{GO, add, listener, sequence};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Waits for an event with a timer beside it.
#[orchestration]
async fn dormant(ctx: OrchestrationContext) -> Result<u32, String> {
    let sum = ctx.schedule_activity(add, (1, 1)).await?;
    match ctx.timeout(CENTURY, ctx.schedule_wait(GO)).await {
        Ok(more) => Ok(sum + more),
        Err(_) => Err("a century has passed".to_owned()),
    }
}

#[orchestration]
async fn counting(ctx: OrchestrationContext) -> Result<u32, String> {
    let count = ctx.state(0);
    ctx.on_update("add", &count, |count, by: u32| async move {
        Ok::<u32, String>(count.update(|count| {
            *count += by;
            *count
        }))
    });
    ctx.wait_until(&count, |count| *count >= 10).await;
    Ok(count.read(|count| *count))
}

#[orchestration]
async fn family(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(ctx.schedule_sub_orchestration_with_id(listener, "child", ()).await?)
}

#[orchestration]
async fn working(ctx: OrchestrationContext) -> Result<String, String> {
    ctx.schedule_activity("work", "hard").await
}

/// What was registered when the store was made: an activity that does not end, and code that panics.
mod then {
    use super::*;

    #[activity]
    pub(super) async fn work(ctx: ActivityContext, _: String) -> Result<String, String> {
        ctx.cancelled().await;
        std::future::pending().await
    }

    #[orchestration]
    pub(super) async fn troubled(_: OrchestrationContext) -> Result<u32, String> {
        panic!("not yet")
    }
}

/// What is registered now.
mod now {
    use super::*;

    #[activity]
    pub(super) async fn work(_: ActivityContext, how: String) -> Result<String, String> {
        Ok(format!("worked {how}"))
    }

    #[orchestration]
    pub(super) async fn troubled(ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(ctx.schedule_wait(GO).await)
    }
}

/// What was registered then and is now.
fn lasting(url: &str) -> RuntimeBuilder {
    Runtime::open(url)
        .register(sequence)
        .register(dormant)
        .register(counting)
        .register(family)
        .register(listener)
        .register(working)
        .register(add)
}

/// Makes the store: instances that have ended, sleep, run, are blocked, and have not begun.
pub(crate) async fn record(path: &Path) {
    let url = format!("sqlite:{}", path.display());
    let runtime = lasting(&url).register(then::troubled).register(then::work).start().await.unwrap();
    let client = runtime.client();
    client.start(sequence, "finished", 4).await.unwrap().result().await.unwrap();
    client.start(dormant, "dormant", ()).await.unwrap();
    client.start(counting, "counting", ()).await.unwrap();
    client.update("counting", "add", Payload::encode(&4).unwrap()).await.unwrap();
    client.start(family, "family", ()).await.unwrap();
    client.start(working, "working", ()).await.unwrap();
    client.start(then::troubled, "troubled", ()).await.unwrap();
    client.raise_event("troubled", GO, 9).await.unwrap();
    while client.status("troubled").await.unwrap().blocked.is_none() {
        tokio::task::yield_now().await;
    }
    while client.history("dormant").await.unwrap().turns.len() < 2 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown_within(Duration::ZERO).await.unwrap();
    Client::open(&url).unwrap().start("sequence", "pending", Payload::encode(&3).unwrap()).await.unwrap();
}

/// Opens a copy of the store with the current code, and lets everything end.
pub(crate) async fn finish(path: &Path) {
    let url = format!("sqlite:{}", path.display());
    let runtime = lasting(&url).register(now::troubled).register(now::work).start().await.unwrap();
    let client = runtime.client();
    assert_eq!(client.status("finished").await.unwrap().status, Status::Completed);
    client.raise_event("dormant", GO, 40).await.unwrap();
    client.raise_event("child", GO, 5).await.unwrap();
    client.update("counting", "add", Payload::encode(&6).unwrap()).await.unwrap();
    let expected = [
        ("finished", "6"),
        ("dormant", "42"),
        ("counting", "10"),
        ("family", "5"),
        ("working", "worked hard"),
        ("troubled", "9"),
        ("pending", "3"),
    ];
    for (id, result) in expected {
        assert_eq!(client.result(id).await.unwrap().to_text(), result, "{id}");
    }
    assert_eq!(client.stats().await.unwrap().blocked.rows, 0);
    runtime.shutdown().await.unwrap();
}
