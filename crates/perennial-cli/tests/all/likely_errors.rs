//! P3: the error texts of common mistakes: the cause, the instance and the remedy.

use std::fmt::Display;

use perennial::prelude::*;
use tempfile::TempDir;

#[activity]
async fn charge(_: ActivityContext, cents: u64) -> Result<u64, String> {
    Ok(cents)
}

#[orchestration]
async fn order(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    ctx.schedule_activity(charge, cents).await.map_err(|error| error.to_string())
}

#[orchestration]
async fn waiting(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_wait("go").await;
    Ok(())
}

/// Calls an activity by name, with an input of the wrong type.
#[orchestration]
async fn mistaken(ctx: OrchestrationContext) -> Result<String, String> {
    ctx.schedule_activity("charge", "twelve").await.map_err(|error| error.to_string())
}

/// Makes another decision in each run.
#[orchestration]
async fn unsteady(ctx: OrchestrationContext) -> Result<(), String> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    ctx.schedule_activity(charge, RUNS.fetch_add(1, Ordering::Relaxed)).await?;
    Ok(())
}

#[orchestration]
async fn sleeping(_: OrchestrationContext) -> Result<(), String> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// The text of each mistake, under its name.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn add(&mut self, mistake: &str, error: impl Display) {
        let error = error.to_string();
        self.text += &format!("# {mistake}\n{}\n\n", error.trim_end());
    }
}

fn shop(url: &str) -> perennial::RuntimeBuilder {
    Runtime::open(url)
        .register(order)
        .register(waiting)
        .register(mistaken)
        .register(unsteady)
        .register(sleeping)
        .register(charge)
}

fn url(directory: &TempDir, file: &str) -> String {
    format!("sqlite:{}", directory.path().join(file).display())
}

/// The reason of a block, once the instance is blocked.
async fn blocked(client: &Client, id: &str) -> String {
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(blocked) = client.status(id).await.unwrap().blocked {
            return blocked.report;
        }
        assert!(std::time::Instant::now() < patience, "{id:?} is not blocked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn check(name: &str, page: &Page, directory: Option<&TempDir>) {
    let mut settings = insta::Settings::clone_current();
    if let Some(directory) = directory {
        settings.add_filter(&directory.path().display().to_string(), "[directory]");
    }
    settings.add_filter(r"process \d+", "process [id]");
    settings.add_filter(r"[a-z/_-]*likely_errors\.rs:\d+(:\d+)?", "src/main.rs:[line]");
    settings.bind(|| insta::assert_snapshot!(name, page.text.trim_end()));
}

#[tokio::test]
async fn p3_errors_of_a_runtime_that_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = Page::default();
    let runtime = shop(&url(&directory, "shop.db")).start().await.unwrap();
    let second = shop(&url(&directory, "shop.db")).start().await.err().unwrap();
    page.add("a second runtime on the file", second);
    runtime.shutdown().await.unwrap();
    page.add("a URL that names no store", shop("shop.db").start().await.err().unwrap());
    page.add(
        "a directory that is not there",
        shop(&url(&directory, "data/shop.db")).start().await.err().unwrap(),
    );
    std::fs::write(
        directory.path().join("notes.txt"),
        "milk, eggs, and a file that is long enough to be looked at",
    )
    .unwrap();
    page.add("a file of something else", shop(&url(&directory, "notes.txt")).start().await.err().unwrap());
    page.add("registered twice", shop("memory:").register(order).start().await.err().unwrap());
    page.add("an activity registered twice", shop("memory:").register(charge).start().await.err().unwrap());
    page.add("preflight of a missing file", shop(&url(&directory, "shpo.db")).preflight().await.unwrap_err());
    check("starting", &page, Some(&directory));
}

#[test]
fn p3_errors_without_tokio() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    let mut page = Page::default();
    let mut starting = Box::pin(shop("memory:").start());
    match starting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => page.add("a runtime outside of tokio", error),
        _ => panic!("it started without tokio"),
    }
    check("without_tokio", &page, None);
}

#[tokio::test]
async fn p3_errors_of_impossible_requests() {
    let mut page = Page::default();
    let runtime = shop("memory:").start().await.unwrap();
    let client = runtime.client();
    client.start(waiting, "order-1", ()).await.unwrap();
    page.add("the id exists", client.start(waiting, "order-1", ()).await.unwrap_err());
    page.add("an id that is none", client.start(order, "a::b", 5).await.unwrap_err());
    page.add("an id of nothing", client.start(order, "", 5).await.unwrap_err());
    page.add(
        "an orchestration that is not registered",
        client.start("oder", "order-2", "5").await.unwrap_err(),
    );
    page.add("nobody has the id", client.status("order-9").await.unwrap_err());
    page.add(
        "a payload that is too large",
        client.start("order", "order-3", "x".repeat(5 << 20)).await.unwrap_err(),
    );
    client.start(order, "order-4", 5).await.unwrap().result().await.unwrap();
    page.add(
        "an event to an instance that has ended",
        client.raise_event("order-4", "go", "").await.unwrap_err(),
    );
    page.add("a retry of what is not blocked", client.retry("order-1").await.unwrap_err());
    page.add("deleting what runs", client.delete("order-1", false).await.unwrap_err());
    page.add("a query that nobody answers", client.query("order-1", "count", ()).await.unwrap_err());
    page.add("an update that nobody handles", client.update("order-1", "add", ()).await.unwrap_err());
    runtime.shutdown().await.unwrap();
    page.add("after the shutdown", client.start(order, "order-5", 5).await.unwrap_err());
    check("asking", &page, None);
}

#[tokio::test]
async fn p3_errors_of_types_that_do_not_fit() {
    let mut page = Page::default();
    let runtime = shop("memory:").start().await.unwrap();
    let client = runtime.client();
    let refused = client.start("order", "order-1", "twelve").await.err().unwrap();
    page.add("the wrong input for an orchestration", refused);
    let run = client.start(mistaken, "order-2", ()).await.unwrap();
    page.add("the wrong input for an activity", run.result().await.unwrap_err());
    let described = perennial::typed::Orchestration::<u64, String, String>::named("order");
    let run = client.start(described, "order-3", 5).await.unwrap();
    page.add("a result of another type", run.result().await.unwrap_err());
    runtime.shutdown().await.unwrap();
    check("types", &page, None);
}

#[tokio::test]
async fn p3_errors_of_blocked_instances() {
    let mut page = Page::default();
    let mut options = RuntimeOptions::default();
    options.shard.missing_code_wait = Duration::ZERO;
    let runtime = shop("memory:").options(options).start().await.unwrap();
    let client = runtime.client();
    client.start(unsteady, "order-1", ()).await.unwrap();
    page.add("code that decides otherwise", blocked(&client, "order-1").await);
    client.start(sleeping, "order-2", ()).await.unwrap();
    page.add("tokio in an orchestration", blocked(&client, "order-2").await);
    let options = StartOptions::default().version("7.0.0");
    client.start_with("order", "order-3", Payload::from_json("5").unwrap(), options).await.unwrap();
    page.add("a version that is not registered", blocked(&client, "order-3").await);
    page.add("a query to a blocked instance", client.query("order-3", "count", ()).await.unwrap_err());
    runtime.shutdown().await.unwrap();
    check("blocked", &page, None);
}
