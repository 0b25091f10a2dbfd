//! Code by pattern for names that are not registered (G51, G52).

use std::sync::Arc;

use perennial::RuntimeBuilder;
use perennial::prelude::*;
use perennial_core::store::{MemoryStore, NodeInfo, Store};
use tempfile::TempDir;

use crate::support::{relaxed, soon};

const GO: ExternalEvent<String> = ExternalEvent::named("go");

fn url(directory: &TempDir) -> String {
    format!("sqlite:{}", directory.path().join("shop.db").display())
}

async fn interpret(ctx: OrchestrationContext, name: String, steps: Vec<String>) -> Result<String, String> {
    let mut done = vec![name];
    for step in steps {
        done.push(ctx.schedule_activity(step.as_str(), "in").await.map_err(|error| error.to_string())?);
    }
    Ok(done.join(" "))
}

fn activities(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .activity("http.get", |_: ActivityContext, _: String| async { Ok::<_, String>("exact".to_owned()) })
        .fallback_activity("http.*", |_: ActivityContext, name: String, _: Payload| async move {
            Ok::<_, String>(format!("http:{name}"))
        })
        .fallback_activity("http.p*", |_: ActivityContext, name: String, _: Payload| async move {
            Ok::<_, String>(format!("longer:{name}"))
        })
        .fallback_activity("*", |_: ActivityContext, name: String, _: Payload| async move {
            Ok::<_, String>(format!("any:{name}"))
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g51_exact_names_win_then_the_longest_pattern() {
    let runtime = activities(Runtime::open("memory:").options(relaxed()))
        .fallback_orchestration("flow.*", "1.0.0", interpret)
        .start()
        .await
        .unwrap();
    let steps = ["http.get", "http.delete", "http.post", "mail"];
    let run = runtime.client().start("flow.tea", "t", Payload::encode(&steps).unwrap()).await.unwrap();
    let result: Payload = soon(run.result()).await.unwrap();
    assert_eq!(result.to_text(), "flow.tea exact http:http.delete longer:http.post any:mail");
    let refused = runtime.client().start("other", "o", Payload::null()).await.unwrap_err();
    assert!(refused.to_string().starts_with("PER-0608"), "{refused}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g52_an_instance_stays_with_its_pattern_and_version_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let waits = |answer: &'static str| {
        move |ctx: OrchestrationContext, name: String, _: Payload| async move {
            Ok::<_, String>(format!("{answer} {name} {}", ctx.schedule_wait(GO).await))
        }
    };
    let first = Runtime::open(url(&directory)).options(relaxed());
    let runtime = first.fallback_orchestration("flow.*", "1.0.0", waits("old")).start().await.unwrap();
    runtime.client().start("flow.a", "a", Payload::null()).await.unwrap();
    drop(runtime);

    let next = || {
        Runtime::open(url(&directory))
            .options(relaxed())
            .fallback_orchestration("flow.*", "1.0.0", waits("old"))
            .fallback_orchestration("flow.*", "2.0.0", waits("new"))
            .orchestration("flow.a", "3.0.0", |_: OrchestrationContext, _: Payload| async {
                Ok::<_, String>("exact")
            })
    };
    let report = next().preflight().await.unwrap();
    assert!(report.is_ok(), "{report}");
    let runtime = next().start().await.unwrap();
    let client = runtime.client();
    client.start("flow.b", "b", Payload::null()).await.unwrap();
    client.start("flow.a", "a2", Payload::null()).await.unwrap();
    for id in ["a", "b"] {
        client.raise_event(id, GO, "went".to_owned()).await.unwrap();
    }
    assert_eq!(soon(client.result("a")).await.unwrap().to_text(), "old flow.a went");
    assert_eq!(soon(client.result("b")).await.unwrap().to_text(), "new flow.b went");
    assert_eq!(soon(client.result("a2")).await.unwrap().to_text(), "exact");
    runtime.shutdown().await.unwrap();

    let without =
        Runtime::open(url(&directory))
            .orchestration("x", "1.0.0", |_: OrchestrationContext| async { Ok::<_, String>(()) });
    assert!(without.preflight().await.unwrap().is_ok(), "everything has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g51_the_directory_of_nodes_names_patterns() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(|| 1_000));
    let runtime = activities(Runtime::open("memory:").store(Arc::clone(&store)).options(relaxed()))
        .fallback_orchestration("flow.*", "1.0.0", interpret)
        .start()
        .await
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    store.directory(Box::new(move |directory| sender.send(directory.unwrap()).unwrap()));
    let directory = receiver.recv().unwrap();
    let infos: Vec<NodeInfo> =
        directory.sessions.iter().map(|session| NodeInfo::decode(&session.info)).collect();
    let info = infos.iter().find(|info| !info.activities.is_empty()).expect("a node that runs activities");
    assert_eq!(info.activities, ["http.get", "*", "http.*", "http.p*"]);
    assert_eq!(info.orchestrations, [("flow.*".to_owned(), "1.0.0".to_owned())]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn g51_what_is_no_pattern_is_an_error_of_the_start() {
    for pattern in ["http", "*.get", "a*b*", "::*"] {
        let builder = Runtime::open("memory:");
        let code = |_: ActivityContext, _: String, input: Payload| async { Ok::<_, String>(input) };
        let error = builder.fallback_activity(pattern, code).start().await.err().unwrap();
        assert!(error.to_string().contains("PER-0601"), "{error}");
    }
    let code = |_: ActivityContext, _: String, input: Payload| async { Ok::<_, String>(input) };
    let twice = Runtime::open("memory:").fallback_activity("a*", code).fallback_activity("a*", code);
    assert!(twice.start().await.err().unwrap().to_string().starts_with("PER-0603"));
}
