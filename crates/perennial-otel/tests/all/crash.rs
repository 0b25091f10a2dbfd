//! A trace over two processes with a crash between them is one tree.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use perennial::{Client, RuntimeOptions};
use perennial_testkit::postgres::TestServer;

use crate::collected::{Exported, check, collect, collect_to, drawn, of_trace, written};
use crate::shop::{GATE, builder};

const STORE: &str = "PERENNIAL_TEST_STORE";
const SPANS: &str = "PERENNIAL_TEST_SPANS";
const NODE: &str = "PERENNIAL_TEST_NODE";
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that runs the runtime until a file tells it to stop.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is a process of the other tests"]
async fn worker_process() {
    let setting = |name| std::env::var(name).unwrap();
    collect_to(Path::new(&setting(SPANS)));
    let options =
        RuntimeOptions { node: setting(NODE), lease: Duration::from_secs(2), ..RuntimeOptions::default() };
    let runtime = builder(&setting(STORE)).options(options).start().await.unwrap();
    let stop = PathBuf::from(setting(GATE)).join("stop");
    while !stop.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    runtime.shutdown().await.unwrap();
}

/// A worker process, killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn spawn(store: &str, directory: &Path, node: &str) -> Worker {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "crash::worker_process", "--nocapture"])
            .env(STORE, store)
            .env(GATE, directory)
            .env(NODE, node)
            .env(SPANS, directory.join(node))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Worker(child)
    }

    fn kill(&mut self) {
        // SIGKILL: nothing is flushed, nobody is told.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Worker {
    /// Waits until it has ended by itself.
    async fn end(mut self) {
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

async fn one_tree(store: &str, trace: &str) {
    collect();
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path();
    let mut first = Worker::spawn(store, gate, "first");
    let client = {
        let opened = || Client::open(store);
        until("the store exists", async || opened().is_ok()).await;
        opened().unwrap()
    };
    let caller = format!("00-{trace}-b7ad6b7169203331-01");
    let traced = client.with_trace_context(&caller, None).unwrap();
    traced.start("order", "order-1", "order-1".to_owned()).await.unwrap();
    // The first turn is durable and its activity runs: that is when the process dies.
    until("the activity runs", async || gate.join("running").exists()).await;
    first.kill();
    std::fs::remove_file(gate.join("running")).unwrap();
    let second = Worker::spawn(store, gate, "second");
    until("the activity runs again", async || gate.join("running").exists()).await;
    std::fs::write(gate.join("go"), "").unwrap();
    // A turn is visible before the process that took it hears that it is durable, and ends its span.
    let turns = || written(&gate.join("second")).iter().filter(|span| span.name == "turn order").count();
    until("it waits for the event", async || turns() == 2).await;
    // Now nothing happens: no span may reach over this moment.
    let quiet_ns = now_ns();
    traced.raise_event("order-1", "paid", "yes").await.unwrap();
    until("it ends", async || client.run("order", "order-1").result().await.is_ok()).await;
    std::fs::write(gate.join("stop"), "").unwrap();
    second.end().await;
    let (before, after) = (written(&gate.join("first")), written(&gate.join("second")));
    let is_of_it = |span: &Exported| span.trace == trace;
    let mut spans: Vec<Exported> =
        before.iter().chain(&after).filter(|span| is_of_it(span)).cloned().collect();
    spans.extend(of_trace(trace));
    check(&spans, &["b7ad6b7169203331"]);
    assert_eq!(
        drawn(&spans),
        [
            "start order",
            "  turn order",
            "    activity charge",
            "      call bank",
            "  turn order",
            "    start ship",
            "      turn ship",
            "  turn order",
            "  turn order",
        ]
    );
    // The turn that scheduled the attempt was emitted by the process that died.
    let named = |spans: &[Exported], name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!((named(&before, "turn order"), named(&before, "activity charge")), (1, 0));
    assert_eq!((named(&after, "turn order"), named(&after, "activity charge")), (3, 1));
    let node = |span: &Exported| span.attribute("perennial.node").map(str::to_owned);
    assert!(before.iter().all(|span| node(span).as_deref() == Some("first")), "{before:#?}");
    let over: Vec<&Exported> =
        spans.iter().filter(|span| span.began_ns < quiet_ns && quiet_ns < span.ended_ns).collect();
    assert!(over.is_empty(), "open while nothing happened: {over:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn o7_a_trace_with_a_crash_in_it_is_one_tree_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("store.db").display());
    one_tree(&store, "0af7651916cd43dd8448eb211c8031a1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o7_a_trace_with_a_crash_in_it_is_one_tree_on_postgresql() {
    let server = TestServer::shared();
    one_tree(&server.new_schema(), "0af7651916cd43dd8448eb211c8031a2").await;
}
