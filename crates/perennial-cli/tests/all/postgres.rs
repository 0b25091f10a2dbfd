//! S9: URLs of PostgreSQL in the command, and `doctor` on a server.

use perennial::prelude::*;
use perennial_testkit::postgres::{ServerOptions, TestServer};
use serde_json::Value;

use crate::support::{CommandResult, Schema, ShopOn, run};

type Shop = ShopOn<Schema>;

async fn command(arguments: &[&str], url: &str) -> CommandResult {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || run(&arguments, &[("PERENNIAL_STORE", &url)])).await.unwrap()
}

/// The password that the test server drew.
fn password(url: &str) -> &str {
    url.split_once("://").unwrap().1.rsplit_once('@').unwrap().0.split_once(':').unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_no_command_shows_a_password() {
    let shop = Shop::stocked().await;
    let url = shop.url();
    let wrong = url.replace(password(&url), "s3cret");
    let unreachable = "postgres://me:s3cret@127.0.0.1:1/shop";
    let looks: [&[&str]; 9] = [
        &["list"],
        &["show", "order-1"],
        &["top", "--once"],
        &["doctor"],
        &["doctor", "--json"],
        &["verify"],
        &["start", "counter", "another", "1"],
        &["move", "--reopen", "postgres://me:s3cret@127.0.0.1:1/shop?nonsense=1"],
        &["export"],
    ];
    for look in looks {
        for url in [
            &*url,
            &wrong,
            unreachable,
            "postgres://me:s3cret@127.0.0.1/shop?schema=pg_x",
            "mysql://me:s3cret@db",
        ] {
            let result = command(look, url).await;
            let told = format!("{}{}", result.stdout, result.stderr);
            assert!(!told.contains("s3cret") && !told.contains(password(&shop.url())), "{look:?}: {told}");
        }
    }
    let result = command(&["list"], unreachable).await;
    assert!(result.code == 5 && result.stderr.contains("postgres://me@127.0.0.1:1/shop"), "{result:?}");
    let result = command(&["list"], "mysql://db/shop").await;
    assert!(result.code == 2 && result.stderr.contains("postgres://HOST/DATABASE"), "{result:?}");
    let result = command(&["list"], &TestServer::shared().new_schema()).await;
    assert!(result.code == 5 && result.stderr.contains("there is no store in it yet"), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_doctor_checks_a_server_its_schema_nodes_and_rows() {
    let server = TestServer::start(&ServerOptions::default());
    let url = server.with_schema("orders");
    let result = command(&["doctor"], &url).await;
    assert_eq!(result.code, 1, "{result:?}");
    assert!(result.stdout.contains("look  the schema is empty"), "{result:?}");
    #[orchestration]
    async fn forgetful(ctx: OrchestrationContext) -> Result<String, String> {
        ctx.schedule_activity("refund", "5").await
    }
    let runtime = Runtime::open(&url).register(forgetful).start().await.unwrap();
    let result = command(&["doctor"], &url).await;
    assert_eq!((result.code, &*result.stderr), (0, ""), "{result:?}");
    for expected in [
        "ok    postgres://perennial@",
        "schema=orders can be read",
        "ok    the server is PostgreSQL 1",
        "the schema is \"orders\"",
        "ok    the schema has version 1, which this command supports",
        "ok    the server syncs every commit",
        "note  the server has no checksums of its pages",
        "ok    the server's clock is ",
        "ok    1 live node: ",
        &format!("-{0} (process {0} on ", std::process::id()),
        ", 256 shards)",
        "ok    every message can be read",
        "ok    no instance is blocked",
    ] {
        assert!(result.stdout.contains(expected), "{expected:?}: {}", result.stdout);
    }
    let report: Value = serde_json::from_str(&command(&["doctor", "--json"], &url).await.stdout).unwrap();
    assert_eq!(
        (&report["healthy"], &report["owned_shards"]),
        (&Value::from(true), &Value::from(256)),
        "{report}"
    );
    assert_eq!(report["nodes"][0]["process"], std::process::id(), "{report}");
    runtime.client().start(forgetful, "f", ()).await.unwrap();
    while runtime.client().stats().await.unwrap().tasks_queued.rows == 0 {
        tokio::task::yield_now().await;
    }
    let result = command(&["doctor"], &url).await;
    assert!(result.code == 1 && result.stdout.contains("activity `refund` is queued"), "{result:?}");
    runtime.shutdown().await.unwrap();
    let result = command(&["doctor"], &url).await;
    assert!(
        result.stdout.contains("ok    no runtime uses the store; the last one was shut down"),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_doctor_reports_a_server_that_does_not_sync() {
    let unsafe_settings = ServerOptions::default()
        .set("fsync", "off")
        .set("full_page_writes", "off")
        .set("synchronous_commit", "off");
    let server = TestServer::start(&unsafe_settings);
    let url = server.with_schema("orders");
    Runtime::open(&url).start().await.unwrap().shutdown().await.unwrap();
    let result = command(&["doctor"], &url).await;
    assert_eq!(result.code, 1, "{result:?}");
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        let sign = format!("look  {name} is off on the server: a crash of the server");
        assert!(result.stdout.contains(&sign), "{sign:?}: {}", result.stdout);
        assert!(result.stdout.contains(&format!("remedy: set {name} = on")), "{}", result.stdout);
    }
    let report: Value = serde_json::from_str(&command(&["doctor", "--json"], &url).await.stdout).unwrap();
    assert_eq!(report["unsafe_settings"].as_array().map(Vec::len), Some(3), "{report}");
}
