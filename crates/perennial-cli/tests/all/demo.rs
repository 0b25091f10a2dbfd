//! P8: the demo loses no order, duplicates no effect, deletes its files, and leaves no process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, run};
use perennial::Runtime;
use perennial_testkit::postgres::TestServer;
use serde_json::Value;

#[test]
fn p8_the_demo_loses_nothing_and_deletes_its_files() {
    let temporary = tempfile::tempdir().unwrap();
    let place = [("TMPDIR", temporary.path().to_str().unwrap())];
    let result = run(&["demo", "--orders", "40", "--kills", "2", "--json"], &place);
    assert_eq!((result.code, &*result.stderr), (0, ""), "{result:?}");
    let report: Value = serde_json::from_str(&result.stdout).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((count("started"), count("completed"), count("kills")), (40, 40, 2), "{report}");
    assert_eq!((count("lost"), count("doubled")), (0, 0), "{report}");
    assert_eq!((count("shipped"), count("undone")), (38, 2), "two cards of forty are bad: {report}");
    assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "the files are deleted");
}

#[test]
fn p8_the_demo_kills_whole_nodes_on_postgres_and_deletes_its_schema() {
    let server = TestServer::shared();
    let schemas = || schemas(server.url());
    let arguments = ["demo", "--orders", "40", "--kills", "2", "--json", "--store", server.url()];
    let result = run(&arguments, &[]);
    assert_eq!((result.code, &*result.stderr), (0, ""), "{result:?}");
    let report: Value = serde_json::from_str(&result.stdout).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((count("started"), count("completed"), count("kills")), (40, 40, 2), "{report}");
    assert_eq!((count("lost"), count("doubled")), (0, 0), "{report}");
    assert_eq!(schemas(), 0, "the schema is deleted");
    let refused = run(&["demo", "--nodes", "3", "--store", "sqlite:shop.db"], &[]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

/// How many schemas demos have left.
fn schemas(url: &str) -> i64 {
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'perennial_demo_%'";
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let counted = client.query_one(count, &[]).await.unwrap().get(0);
        drop(client);
        connection.await.unwrap().unwrap();
        counted
    })
}

#[test]
fn p8_the_demo_draws_the_timeline_of_an_order_and_can_keep_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept");
    let arguments = ["demo", "--orders", "15", "--kills", "1", "--keep", kept.to_str().unwrap()];
    let result = run(&arguments, &[]);
    assert_eq!(result.code, 0, "{result:?}");
    assert!(
        result.stdout.contains("started 15, completed 15, lost 0, doubled 0, kills 1"),
        "{}",
        result.stdout
    );
    assert!(
        result.stdout.contains("activity reserve") && result.stdout.contains("child shipping"),
        "{}",
        result.stdout
    );
    assert!(result.stdout.contains('✗'), "an order that survived the kill: {}", result.stdout);
    let store = format!("sqlite:{}", kept.join("orders.db").display());
    let listed = run(&["list", "--name", "order", "--json", "--store", &store], &[]);
    assert_eq!(listed.stdout.lines().count(), 15);
    assert_eq!(run(&arguments, &[]).code, 4, "an existing directory is not overwritten");
}

#[tokio::test]
async fn p8_a_worker_does_not_outlive_the_demo() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["demo", "--orders", "5000", "--kills", "0", "--keep"])
        .arg(&kept)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first_line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first_line).unwrap();
    assert!(first_line.starts_with("5000 orders"), "the worker runs: {first_line}");
    let store = format!("sqlite:{}", kept.join("orders.db").display());
    let is_owned = async || Runtime::open(&store).start().await.is_err();
    assert!(is_owned().await, "the worker owns the store");
    demo.kill().unwrap();
    demo.wait().unwrap();
    let killed = Instant::now();
    while is_owned().await {
        assert!(killed.elapsed() < PATIENCE, "the worker still owns the store");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What an HTTP server answers to a GET.
fn get(url: &str) -> String {
    let output = Command::new("curl").args(["-s", url]).output().expect("curl is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn p9_a_served_demo_shows_its_dashboard_until_it_is_interrupted_and_then_counts() {
    let demo = Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["demo", "--orders", "12", "--kills", "1", "--serve", "--listen", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut demo = KilledAtTheEnd(demo);
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let url = first["url"].as_str().unwrap();
    assert!(get(url).contains("<title>Perennial</title>"), "{}", get(url));
    // Six orders for each worker: with the seventh, the first worker has been killed.
    let began = Instant::now();
    while !get(&format!("{url}api/v1/instances?id=order-7")).contains("\"order-7\"") {
        assert!(began.elapsed() < PATIENCE, "{}", get(&format!("{url}api/v1/stats")));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(Command::new("kill").args(["-INT", &demo.0.id().to_string()]).status().unwrap().success());
    let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((report["lost"].as_u64(), report["doubled"].as_i64()), (Some(0), Some(0)), "{report}");
    assert!(report["started"].as_u64() >= Some(12) && report["kills"].as_u64() >= Some(1), "{report}");
    assert_eq!(report["started"], report["completed"], "{report}");
    assert_eq!(demo.0.wait().unwrap().code(), Some(0));
}

#[test]
fn p9_a_served_demo_is_for_this_machine_only() {
    let result = run(&["demo", "--orders", "1", "--kills", "0", "--serve", "--listen", "0.0.0.0:0"], &[]);
    assert_eq!(result.code, 2, "{result:?}");
}

struct KilledAtTheEnd(std::process::Child);

impl Drop for KilledAtTheEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
