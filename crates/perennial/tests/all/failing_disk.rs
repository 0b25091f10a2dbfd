//! A disk that is full or whose sync fails, under a process of its own with a preloaded shim: the node stops with a
//! clear message, callers learn that the outcome is unknown, and nothing that was acknowledged is lost.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use perennial::{
    ActivityContext, ClientError, OrchestrationContext, Payload, Runtime, RuntimeBuilder, Status,
};
use perennial_testkit::invariants::ClientLog;

use crate::support::{Place, event, failed, soon};

const DIRECTORY: &str = "PERENNIAL_DISK_DIRECTORY";
const FLAG: &str = "PERENNIAL_DISK_FLAG";
const WORD: &str = "PERENNIAL_DISK_WORD";

type Outcome = Result<Payload, Payload>;

async fn waiter(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let event = ctx.schedule_wait(event("go")).await;
    ctx.schedule_activity("echo", event).await.map_err(failed)
}

fn runtime(url: &str) -> RuntimeBuilder {
    Runtime::open(url)
        .orchestration("waiter", "1.0.0", waiter)
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
}

fn shim(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/failing_disk/shim.c");
    let library = directory.join("shim.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "the shim does not compile");
    library
}

/// The process under the shim. It writes a journal.
#[test]
#[ignore = "it is a process of the other tests"]
fn worker_process() {
    let (Some(directory), Ok(word)) = (std::env::var_os(DIRECTORY), std::env::var(WORD)) else { return };
    let directory = PathBuf::from(directory);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let failure = tokio.block_on(async {
        let runtime =
            runtime(&format!("sqlite:{}", directory.join("shop.db").display())).start().await.unwrap();
        let client = runtime.client();
        for count in 0..20 {
            client.start("waiter", &format!("before-{count}"), Payload::null()).await.unwrap();
        }
        client.raise_event("before-0", "go", "went").await.unwrap();
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.wait("before-1").await }
        });
        fs::write(std::env::var_os(FLAG).unwrap(), &word).unwrap();
        let ids: Vec<String> = (0..20).map(|count| format!("during-{count}")).collect();
        let starts = join_all(ids.iter().map(|id| client.start("waiter", id, Payload::null())));
        for start in soon(starts).await {
            let is_unknown = matches!(start, Err(ClientError::Unknown { .. } | ClientError::Stopped { .. }));
            assert!(is_unknown, "neither success nor failure: {start:?}");
        }
        let event = soon(client.raise_event("before-2", "go", "went")).await;
        assert!(matches!(event, Err(ClientError::Stopped { .. })), "{event:?}");
        let answer = soon(waiting).await.unwrap();
        // It may have come to ask only when the node had stopped.
        let is_unknown = matches!(answer, Err(ClientError::Unknown { .. } | ClientError::Stopped { .. }));
        assert!(is_unknown, "{answer:?}");
        runtime.failure().expect("the node stopped")
    });
    fs::write(directory.join("failure"), failure).unwrap();
}

fn run_on_a_failing_disk(word: &str) -> (Place, String) {
    let place = Place::new();
    let directory = place.path().parent().unwrap().to_owned();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "failing_disk::worker_process", "--nocapture"])
        .env(DIRECTORY, &directory)
        .env(WORD, word)
        .env(FLAG, directory.join("flag"))
        .env("LD_PRELOAD", shim(&directory))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the worker failed:\n{said}");
    let failure = fs::read_to_string(directory.join("failure")).expect("the worker got to its end");
    (place, failure)
}

/// On a working disk, everything acknowledged is there and continues; the rest may be there or not.
async fn nothing_is_lost(place: &Place) {
    let handlers = Runtime::open("memory:").orchestration("waiter", "1.0.0", waiter).handlers();
    let mut log = ClientLog::default();
    (0..20).for_each(|count| log.started(format!("before-{count}")));
    log.raised("worker", "before-0", "go", "went");
    place.check(&log, &handlers);
    let runtime = runtime(&place.url()).start().await.unwrap();
    let client = runtime.client();
    assert_eq!(soon(client.result("before-0")).await.unwrap().as_json(), r#""went""#);
    for count in 1..20 {
        let id = format!("before-{count}");
        client.raise_event(&id, "go", "later").await.unwrap();
        log.raised("me", &id, "go", "later");
        assert_eq!(soon(client.result(&id)).await.unwrap().as_json(), r#""later""#);
    }
    for count in 0..20 {
        match client.status(&format!("during-{count}")).await {
            Ok(status) => assert_eq!((status.status, status.blocked), (Status::Running, None)),
            Err(error) => assert!(matches!(error, ClientError::NotFound { .. }), "{error}"),
        }
    }
    runtime.shutdown_within(Duration::from_secs(1)).await.unwrap();
    place.check(&log, &handlers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_a_full_disk_stops_the_node_with_a_clear_message_and_loses_nothing() {
    let (place, failure) = run_on_a_failing_disk("full");
    assert!(failure.starts_with("PER-0503 store failed: ") && failure.contains("full"), "{failure}");
    nothing_is_lost(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g32_a_failing_sync_stops_the_node_with_a_clear_message_and_loses_nothing() {
    let (place, failure) = run_on_a_failing_disk("sync");
    assert!(failure.starts_with("PER-0503 store failed: "), "{failure}");
    nothing_is_lost(&place).await;
}
