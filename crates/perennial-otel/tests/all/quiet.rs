//! Replay emits nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial::prelude::*;

use crate::collected::{check, collect, of_instance};
use crate::shop::turns;

#[tokio::test(flavor = "multi_thread")]
async fn o9_replay_hydration_and_preflight_emit_no_span_and_no_log_of_the_code() {
    collect();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    // The code opens a span of its own in each turn, and counts how often it runs.
    let ran = Arc::new(AtomicUsize::new(0));
    let builder = || {
        let ran = Arc::clone(&ran);
        let code = move |ctx: OrchestrationContext, _: u32| {
            let ran = Arc::clone(&ran);
            async move {
                ran.fetch_add(1, Ordering::Relaxed);
                tracing::info_span!("first step").in_scope(|| ());
                ctx.schedule_wait("go").await;
                tracing::info_span!("second step").in_scope(|| ());
                Ok::<u32, String>(1)
            }
        };
        Runtime::open(&url).orchestration("quiet", "1.0.0", code)
    };
    let runtime = builder().start().await.unwrap();
    runtime.client().start("quiet", "quiet", Payload::from(serde_json::json!(1))).await.unwrap();
    turns(&runtime.client(), "quiet", 1).await;
    runtime.shutdown().await.unwrap();
    assert!(builder().preflight().await.unwrap().is_ok());
    let runtime = builder().start().await.unwrap();
    runtime.client().raise_event("quiet", "go", "now").await.unwrap();
    runtime.client().run("quiet", "quiet").result().await.unwrap();
    runtime.shutdown().await.unwrap();
    assert!(ran.load(Ordering::Relaxed) >= 3, "it was replayed");
    let spans = of_instance("quiet");
    check(&spans, &[]);
    let mut names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["start quiet", "turn quiet", "turn quiet"]);
    // The spans of the code are children of the turns in which they were opened first.
    let all = crate::collected::of_trace(&spans[0].trace);
    let steps: Vec<&str> = all.iter().map(|span| &*span.name).filter(|name| name.ends_with("step")).collect();
    assert_eq!(steps, ["first step", "second step"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_shadow_replay_emits_no_span_and_no_log_of_the_code() {
    collect();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let code = move |_: OrchestrationContext, _: u32| {
        let ran = Arc::clone(&counted);
        async move {
            ran.fetch_add(1, Ordering::Relaxed);
            tracing::info_span!("only step").in_scope(|| ());
            Ok::<u32, String>(1)
        }
    };
    let runtime = Runtime::open("memory:").orchestration("shadowed", "1.0.0", code).start().await.unwrap();
    let input = Payload::from(serde_json::json!(1));
    let run = runtime.client().start("shadowed", "shadowed", input).await.unwrap();
    run.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    // Builds with debug assertions replay each turn at once, with the code that took it.
    let expected = if cfg!(debug_assertions) { 2 } else { 1 };
    assert_eq!(ran.load(Ordering::Relaxed), expected);
    let spans = crate::collected::of_trace(&of_instance("shadowed")[0].trace);
    check(&spans, &[]);
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["start shadowed", "turn shadowed", "only step"]);
}
