//! If an instance is blocked by its own code, the reason names the source line.

use std::sync::atomic::{AtomicU32, Ordering};

use perennial::prelude::*;

use crate::support::{relaxed, until_blocked};

/// The line after the one that calls this.
#[track_caller]
fn next_line() -> u32 {
    std::panic::Location::caller().line() + 1
}

static PANIC: AtomicU32 = AtomicU32::new(0);
static AWAIT: AtomicU32 = AtomicU32::new(0);
static LIMIT: AtomicU32 = AtomicU32::new(0);
static NEXT: AtomicU32 = AtomicU32::new(0);

const RELAXED: Ordering = Ordering::Relaxed;

#[orchestration]
async fn panics(_: OrchestrationContext) -> Result<(), String> {
    PANIC.store(next_line(), RELAXED);
    panic!("out of socks");
}

#[orchestration]
async fn waits_for_a_channel(ctx: OrchestrationContext) -> Result<(), String> {
    AWAIT.store(next_line(), RELAXED);
    ctx.schedule_timer(Duration::ZERO).await;
    std::future::pending::<()>().await;
    Ok(())
}

#[orchestration]
async fn waits_at_once(_: OrchestrationContext) -> Result<(), String> {
    std::future::pending::<()>().await;
    Ok(())
}

#[orchestration]
async fn schedules_too_much(ctx: OrchestrationContext) -> Result<String, String> {
    LIMIT.store(next_line(), RELAXED);
    ctx.schedule_activity("store", "x".repeat(200)).await
}

#[orchestration]
async fn continues_with_too_much(ctx: OrchestrationContext) -> Result<(), String> {
    NEXT.store(next_line(), RELAXED);
    ctx.continue_as_new("x".repeat(200)).await
}

#[tokio::test]
async fn e13_failures_of_the_code_name_its_source_line() {
    let mut options = relaxed();
    options.shard.execution.limits.payload_bytes = 100;
    let runtime = Runtime::open("memory:")
        .options(options)
        .register(panics)
        .register(waits_for_a_channel)
        .register(waits_at_once)
        .register(schedules_too_much)
        .register(continues_with_too_much);
    let runtime = runtime.start().await.unwrap();
    let client = runtime.client();
    for name in
        ["panics", "waits_for_a_channel", "waits_at_once", "schedules_too_much", "continues_with_too_much"]
    {
        client.start(name, name, ()).await.unwrap();
    }
    let at = |line: &AtomicU32| format!("source_lines.rs:{}", line.load(RELAXED));
    let reason = async |id, code| until_blocked(&client, id, code).await.blocked.unwrap().reason;

    let panicked = reason("panics", "PER-0201").await;
    assert!(panicked.contains(&format!("{}: out of socks", at(&PANIC))), "{panicked}");
    let waited = reason("waits_for_a_channel", "PER-0202").await;
    assert!(waited.contains("(last call of the context: ") && waited.contains(&at(&AWAIT)), "{waited}");
    let waited = reason("waits_at_once", "PER-0202").await;
    assert!(waited.ends_with("(before the first call of the context)"), "{waited}");
    let limit = reason("schedules_too_much", "PER-0204").await;
    assert!(limit.contains(&at(&LIMIT)), "{limit}");
    let limit = reason("continues_with_too_much", "PER-0204").await;
    assert!(limit.contains(&at(&NEXT)), "{limit}");
    runtime.shutdown().await.unwrap();
}
