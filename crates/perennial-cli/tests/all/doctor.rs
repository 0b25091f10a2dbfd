//! P8: the doctor says what is wrong with a store and what to do, and leaves it as it is.

use crate::support::{Said, Shop, settings};
use perennial::prelude::*;
use rusqlite::Connection;
use serde_json::{Value, json};

fn told(shop: &Shop, said: &Said) -> String {
    let text = format!("exit {}\n{}{}", said.code, said.stdout, said.stderr);
    text.replace(&shop.url(), "[store]").replace(&shop.path().display().to_string(), "[path]")
}

fn masked() -> insta::Settings {
    let mut settings = settings();
    settings.add_filter(r"in process \d+", "in process [id]");
    settings.add_filter(r"[\d.]+ (bytes|KiB|MiB) of", "[size] of");
    settings
}

#[tokio::test]
async fn p8_doctor_finds_a_store_that_runs_healthy() {
    let shop = Shop::open().await;
    let delayed = StartOptions::default().delay(Duration::from_secs(3_600));
    shop.client().start_with("counter", "later", Payload::encode(&1).unwrap(), delayed).await.unwrap();
    let said = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(told(&shop, &said)));
    let said = shop.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &report["healthy"]), (0, &json!(true)), "{said:?}");
    assert_eq!(report["schema"]["store"], report["schema"]["known"]);
    assert_eq!(report["owner"], json!({"alive": true, "process": std::process::id()}));
}

#[tokio::test]
async fn p8_doctor_names_what_is_blocked_and_what_to_do() {
    let shop = Shop::stocked().await;
    let said = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(told(&shop, &said)));
    let said = shop.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, &report["healthy"]), (1, &json!(false)), "{said:?}");
    assert_eq!(report["blocked"][0]["instance"]["id"], "broken-1");
    assert_eq!(report["owner"], json!({"alive": false, "process": null}));
}

#[tokio::test]
async fn p8_doctor_notices_that_nobody_runs_the_store() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    shop.masked(&["start", "counter", "c", "1"]).await;
    let said = shop.run(&["doctor"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout.contains("look  messages wait (1), and no runtime takes them\n        remedy: start"),
        "{said:?}"
    );
}

#[tokio::test]
async fn p8_doctor_tells_a_crash_from_a_shutdown_and_names_what_is_overdue() {
    let mut shop = Shop::open().await;
    let client = shop.client();
    client
        .start_with(
            "counter",
            "later",
            Payload::from_json("1").unwrap(),
            StartOptions::default().delay(Duration::from_secs(3_600)),
        )
        .await
        .unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    // As a process leaves it that was killed two hours ago.
    std::fs::write(shop.path().with_extension("db-lock"), "4194305\n").unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    connection.execute("UPDATE instances SET wake_at_ms = wake_at_ms - 7200000", []).unwrap();
    drop(connection);
    let said = shop.run(&["doctor"]).await;
    let mut settings = masked();
    settings.add_filter(r"for 1 h \d+ min|for 59 min \d+ s", "for [span]");
    settings.add_filter(r"\(lag [^)]*\)", "(lag [span])");
    settings.bind(|| insta::assert_snapshot!(told(&shop, &said)));
    let report: Value = serde_json::from_str(&shop.run(&["doctor", "--json"]).await.stdout).unwrap();
    assert_eq!(report["oldest_overdue"]["instance"], "later");
}

#[tokio::test]
async fn p8_doctor_names_messages_that_cannot_be_read_and_files_that_others_can() {
    let mut shop = Shop::open().await;
    shop.client().start("counter", "c", Payload::encode(&1).unwrap()).await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    connection
        .execute("INSERT INTO inbox (key, shard, body) SELECT key, shard, x'7b7d' FROM instances", [])
        .unwrap();
    drop(connection);
    #[cfg(unix)]
    std::fs::set_permissions(shop.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let said = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(told(&shop, &said)));
}

#[tokio::test]
async fn p8_doctor_names_activities_that_nobody_registered() {
    #[orchestration]
    async fn forgetful(ctx: OrchestrationContext) -> Result<String, String> {
        ctx.schedule_activity("refund", "5").await
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let runtime = Runtime::open(&url).register(forgetful).start().await.unwrap();
    runtime.client().start(forgetful, "f", ()).await.unwrap();
    while runtime.client().stats().await.unwrap().tasks_queued.rows == 0 {
        tokio::task::yield_now().await;
    }
    let said = tokio::task::spawn_blocking(move || crate::support::run(&["doctor", "--store", &url], &[]));
    let said = said.await.unwrap();
    let expected = "note  activities that wait for a process that can run them: \"refund\" (1)\n        remedy: register them";
    assert!(said.stdout.contains(expected), "{said:?}");
    assert_eq!(said.code, 0, "it may be meant so");
}

#[tokio::test]
async fn s9_no_command_migrates_a_store_and_doctor_says_who_does() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    std::fs::remove_file(shop.path()).unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    connection.execute_batch(include_str!("../../../perennial-sqlite/src/migrations/1.sql")).unwrap();
    connection.execute_batch("PRAGMA application_id=1348825701; PRAGMA user_version=1").unwrap();
    drop(connection);
    let before = shop.files();
    let said = shop.run(&["doctor"]).await;
    let mut told_so = told(&shop, &said);
    for arguments in [&["list"][..], &["start", "counter", "c", "1"]] {
        let said = shop.run(arguments).await;
        told_so += &format!("\n$ perennial {}\n{}", arguments.join(" "), told(&shop, &said));
    }
    assert!(before == shop.files(), "a command has changed the store");
    masked().bind(|| insta::assert_snapshot!(told_so));
}

#[tokio::test]
async fn s9_looking_leaves_every_byte_of_a_store_as_it_is() {
    let shop = Shop::stocked().await;
    let before = shop.files();
    let looks: [&[&str]; 8] = [
        &["list"],
        &["show", "order-1"],
        &["history", "order-1"],
        &["history", "order-1", "--timeline"],
        &["tree", "order-1"],
        &["export"],
        &["top", "--once"],
        &["doctor"],
    ];
    for look in looks {
        shop.run(look).await;
        assert!(before == shop.files(), "{look:?} has changed {:?}", shop.files().keys());
    }
    let empty = Shop::open().await;
    std::fs::write(empty.path().with_file_name("empty.db"), "").unwrap();
    let url = format!("sqlite:{}", empty.path().with_file_name("empty.db").display());
    let said = crate::support::run(&["list", "--store", &url], &[]);
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(std::fs::read(empty.path().with_file_name("empty.db")).unwrap(), b"");
}
