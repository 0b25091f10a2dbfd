//! What a program that uses Perennial finds in its log.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use perennial::prelude::*;
use tokio::sync::Notify;
use tracing::Level;

use crate::support::log::{Line, Log};
use crate::support::{Place, soon};

/// Everything that this process logs: turns run on threads of their own, which a subscriber of one thread does not see.
fn log() -> &'static Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        tracing::subscriber::set_global_default(log.clone()).expect("no other test sets one");
        log
    })
}

/// What was logged about an instance, by itself or within a span of it.
fn about(instance: &str) -> Vec<Line> {
    let is_about = |line: &Line| {
        line.field("instance").or(line.span.get("instance").map(String::as_str)) == Some(instance)
    };
    log().lines().into_iter().filter(is_about).collect()
}

#[activity]
async fn charge(_: ActivityContext, amount: u32) -> Result<u32, String> {
    tokio::task::yield_now().await;
    tracing::info!(amount, "charging");
    Ok(amount)
}

#[activity]
fn print(_: ActivityContext, amount: u32) -> Result<u32, String> {
    tracing::info!(amount, "printing");
    Ok(amount)
}

#[orchestration]
async fn order(ctx: OrchestrationContext, amount: u32) -> Result<u32, String> {
    ctx.trace_info(format_args!("charging {amount}"));
    let charged = ctx.schedule_activity(charge, amount).await?;
    ctx.schedule_wait("print").await;
    ctx.trace_warn("printing");
    Ok(ctx.schedule_activity(print, charged).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_an_activity_carry_the_attempt_that_they_belong_to() {
    log();
    let runtime =
        Runtime::open("memory:").register(order).register(charge).register(print).start().await.unwrap();
    let run = runtime.client().start(order, "logs-attempt", 7).await.unwrap();
    runtime.client().raise_event("logs-attempt", "print", "now").await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
    let lines = about("logs-attempt");
    for (message, activity, event) in [("charging", "charge", "2"), ("printing", "print", "6")] {
        let of_activity = |line: &&Line| line.message == message && line.field("amount").is_some();
        let line = lines.iter().find(of_activity).unwrap_or_else(|| panic!("{message}: {lines:#?}"));
        assert_eq!(line.target, module_path!());
        let expected = [
            ("activity", activity),
            ("attempt", "1"),
            ("event", event),
            ("execution", "1"),
            ("instance", "logs-attempt"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(line.span, expected, "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o12_lines_of_turns_and_attempts_carry_the_recorded_trace_without_an_exporter() {
    #[activity]
    async fn pass_on(ctx: ActivityContext) -> Result<String, String> {
        tracing::info!("passing on");
        Ok(ctx.traceparent().unwrap_or_default())
    }
    #[orchestration]
    async fn traced(ctx: OrchestrationContext) -> Result<String, String> {
        ctx.trace_info("in a turn");
        Ok(ctx.schedule_activity(pass_on, ()).await?)
    }
    log();
    let runtime = Runtime::open("memory:").register(traced).register(pass_on).start().await.unwrap();
    let (trace, parent) =
        ("0af7651916cd43dd8448eb211c80319c", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let client = runtime.client().with_trace_context(parent, None).unwrap();
    let run = client.start(traced, "logs-traced", ()).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), parent, "o10: the caller's, as nothing else is exported");
    runtime.shutdown().await.unwrap();
    let lines = about("logs-traced");
    let line = |message: &str| lines.iter().find(|line| line.message == message).unwrap();
    let turn = line("in a turn");
    assert_eq!((turn.field("trace_id"), turn.field("event")), (Some(trace), Some("1")), "{turn:?}");
    assert_eq!(line("passing on").span.get("trace_id").map(String::as_str), Some(trace));
    assert_eq!(line("attempt completed").field("trace_id"), Some(trace));
}

#[tokio::test(flavor = "multi_thread")]
async fn e19_lines_of_an_orchestration_appear_once_under_the_module_of_its_function() {
    log();
    let place = Place::new();
    let builder = || Runtime::open(place.url()).register(order).register(charge).register(print);
    let runtime = builder().start().await.unwrap();
    runtime.client().start(order, "logs-once", 7).await.unwrap();
    soon(async {
        while runtime.client().history("logs-once").await.unwrap().turns.len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    runtime.shutdown().await.unwrap();
    // The first turns are replayed here.
    let runtime = builder().start().await.unwrap();
    runtime.client().raise_event("logs-once", "print", "now").await.unwrap();
    assert_eq!(soon(runtime.client().run(order, "logs-once").result()).await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
    let lines = about("logs-once");
    let written: Vec<(Level, &str, &str)> = lines
        .iter()
        .filter(|line| line.target == module_path!() && line.span.is_empty())
        .map(|line| (line.level, line.message.as_str(), line.field("execution").unwrap_or_default()))
        .collect();
    assert_eq!(written, [(Level::INFO, "charging 7", "1"), (Level::WARN, "printing", "1")]);
    let own: Vec<&Line> = lines.iter().filter(|line| line.target.starts_with("perennial::")).collect();
    assert!(own.iter().all(|line| line.level > Level::WARN), "a normal run: {own:#?}");
    let info: Vec<&str> =
        own.iter().filter(|line| line.level == Level::INFO).map(|line| line.message.as_str()).collect();
    assert_eq!(info, ["instance started", "instance completed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn e19_lines_of_a_closure_have_the_module_that_it_is_written_in() {
    log();
    let code = |ctx: OrchestrationContext, _: u32| async move {
        ctx.trace_error("from a closure");
        Ok::<u32, String>(1)
    };
    let runtime = Runtime::open("memory:").orchestration("closure", "1.0.0", code).start().await.unwrap();
    runtime.client().start("closure", "logs-closure", Payload::from(serde_json::json!(1))).await.unwrap();
    soon(runtime.client().wait("logs-closure")).await.unwrap();
    runtime.shutdown().await.unwrap();
    let lines = about("logs-closure");
    let line = lines.iter().find(|line| line.message == "from a closure").expect("it is logged");
    assert_eq!((line.level, line.target.as_str()), (Level::ERROR, module_path!()));
    assert!(line.file.as_deref().is_some_and(|file| file.ends_with("logs.rs")), "{line:#?}");
}

/// Warnings about these orchestrations and activities. Other tests of the process log their own.
fn missing_registrations(names: &[&str]) -> Vec<Line> {
    let is_meant = |line: &Line| {
        let name = line.field("orchestration").or(line.field("activity"));
        line.message.ends_with("is registered on no live node")
            && name.is_some_and(|name| names.contains(&name))
    };
    log().lines().into_iter().filter(is_meant).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_start_warns_of_an_activity_whose_first_attempt_ran_in_the_last_process() {
    log();
    let place = Place::new();
    let code = |ctx: OrchestrationContext| async move {
        let both = ctx.join2(ctx.schedule_activity("logs-done", ""), ctx.schedule_activity("logs-local", ""));
        both.await.1
    };
    let (begun, copied) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (Arc::clone(&begun), Arc::clone(&copied));
    let runtime = Runtime::open(place.url())
        .orchestration("logs-flow", "1.0.0", code)
        .activity("logs-done", |_: ActivityContext, _: String| async { Ok::<_, String>(String::new()) })
        .activity("logs-local", move |_: ActivityContext, _: String| {
            begins.notify_one();
            let ends = Arc::clone(&ends);
            async move {
                ends.notified().await;
                Ok::<_, String>(String::new())
            }
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("logs-flow", "logs-local-1", ()).await.unwrap();
    soon(begun.notified()).await;
    soon(async {
        while client.history("logs-local-1").await.unwrap().turns.len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    // What a crash would leave.
    let crashed = Place::new();
    place.connection().execute("VACUUM INTO ?1", [crashed.path().to_str().unwrap()]).unwrap();
    let tasks = crashed.connection().query_row("SELECT count(*) FROM tasks", [], |row| row.get::<_, u32>(0));
    assert_eq!(tasks, Ok(0), "a first attempt has no row");
    copied.notify_one();
    runtime.shutdown().await.unwrap();

    let runtime =
        Runtime::open(crashed.url()).orchestration("logs-flow", "1.0.0", code).start().await.unwrap();
    let lines = missing_registrations(&["logs-flow", "logs-done", "logs-local"]);
    let found: Vec<_> = lines.iter().map(|line| (line.field("activity"), line.field("count"))).collect();
    assert_eq!(found, [(Some("logs-local"), Some("1"))], "{lines:#?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_a_start_warns_of_what_open_instances_need_and_nobody_has_registered() {
    log();
    let place = Place::new();
    let runtime = Runtime::open(place.url())
        .orchestration("logs-orphan", "1.0.0", |ctx: OrchestrationContext| async move {
            ctx.schedule_activity("logs-forgotten", "x").await
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    client.start("logs-orphan", "logs-orphan-1", ()).await.unwrap();
    client.start("logs-orphan", "logs-orphan-2", ()).await.unwrap();
    // Nobody can run the activity, so that it waits as a row of the store.
    let is_queued = async {
        while client.find_stuck().await.unwrap().findings.iter().map(|finding| finding.count).sum::<usize>()
            < 2
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(is_queued).await;
    runtime.shutdown().await.unwrap();
    let about_registrations = || missing_registrations(&["logs-orphan", "logs-forgotten"]);
    assert_eq!(about_registrations().len(), 0, "the store was empty");

    // The next deployment has forgotten the orchestration as well.
    Runtime::open(place.url()).start().await.unwrap().shutdown().await.unwrap();
    let lines = about_registrations();
    let orchestration =
        lines.iter().find(|line| line.field("orchestration") == Some("logs-orphan")).expect("it is missing");
    assert_eq!((orchestration.level, orchestration.target.as_str()), (Level::WARN, "perennial::node"));
    assert_eq!((orchestration.field("version"), orchestration.field("count")), (Some("1.0.0"), Some("2")));
    let activity =
        lines.iter().find(|line| line.field("activity") == Some("logs-forgotten")).expect("it is missing");
    assert_eq!((activity.level, activity.field("count")), (Level::WARN, Some("2")));
    assert_eq!(lines.len(), 2, "{lines:#?}");
}

#[tokio::test]
async fn logs_a_runtime_that_is_dropped_is_a_warning_and_not_a_failure() {
    log();
    drop(Runtime::open("memory:").register(order).register(charge).register(print).start().await.unwrap());
    let lines = log().lines();
    let told: Vec<_> =
        lines.iter().filter(|line| line.message.starts_with("runtime ")).map(Line::short).collect();
    assert!(told.contains(&"WARN perennial::node runtime dropped without a shutdown".to_owned()), "{told:?}");
    assert!(!lines.iter().any(|line| line.field("reason") == Some("the runtime was dropped")), "{told:?}");
}
