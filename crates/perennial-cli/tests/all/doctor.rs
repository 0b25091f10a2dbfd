//! P8: `doctor` finds problems in a store, suggests remedies, and does not change it.

use std::time::SystemTime;

use crate::support::{CommandResult, Shop, settings};
use perennial::prelude::*;
use perennial_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use serde_json::{Value, json};

fn described(shop: &Shop, result: &CommandResult) -> String {
    let text = format!("exit {}\n{}{}", result.code, result.stdout, result.stderr);
    text.replace(&shop.url(), "[store]").replace(&shop.path().display().to_string(), "[path]")
}

fn masked() -> insta::Settings {
    let mut settings = settings();
    settings.add_filter(r"in process \d+", "in process [id]");
    settings.add_filter(r"[\d.]+ (bytes|KiB|MiB) of", "[size] of");
    settings
}

#[tokio::test]
async fn p8_doctor_finds_no_problem_in_a_healthy_store() {
    let shop = Shop::open().await;
    let delayed = StartOptions::default().delay(Duration::from_secs(3_600));
    shop.client().start_with("counter", "later", Payload::encode(&1).unwrap(), delayed).await.unwrap();
    let result = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(described(&shop, &result)));
    let result = shop.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((result.code, &report["healthy"]), (0, &json!(true)), "{result:?}");
    assert_eq!(report["schema"]["store"], report["schema"]["known"]);
    assert_eq!(report["owner"], json!({"alive": true, "process": std::process::id()}));
}

#[tokio::test]
async fn p8_doctor_names_blocked_instances_and_remedies() {
    let shop = Shop::stocked().await;
    let result = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(described(&shop, &result)));
    let result = shop.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((result.code, &report["healthy"]), (1, &json!(false)), "{result:?}");
    assert_eq!(report["blocked"][0]["instance"]["id"], "broken-1");
    assert_eq!(report["owner"], json!({"alive": false, "process": null}));
}

#[tokio::test]
async fn p8_doctor_reports_a_store_without_a_runtime() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    shop.masked(&["start", "counter", "c", "1"]).await;
    let result = shop.run(&["doctor"]).await;
    assert_eq!(result.code, 1, "{result:?}");
    assert!(
        result.stdout.contains("look  waiting messages that no runtime handles: 1\n        remedy: start"),
        "{result:?}"
    );
}

/// Has an update that takes an hour.
#[orchestration]
async fn slow(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.on_update("think", &ctx.clone(), |ctx, ()| async move {
        ctx.schedule_timer(Duration::from_secs(3_600)).await;
        Ok::<(), String>(())
    });
    ctx.schedule_wait(ExternalEvent::<()>::named("stop")).await;
    Ok(())
}

#[tokio::test]
async fn n14_doctor_and_show_tell_of_instances_that_wait_for_code() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let runtime = Runtime::open(&url).register(slow).start().await.unwrap();
    let client = runtime.client();
    let newer = StartOptions::default().version("2.0.0");
    client.start_with(slow, "newer", (), newer).await.unwrap();
    while client.status("newer").await.unwrap().missing_code.is_none() {
        tokio::task::yield_now().await;
    }
    let run = |arguments: &'static [&'static str]| {
        let url = url.clone();
        let arguments = move || {
            let arguments: Vec<&str> = arguments.iter().copied().chain(["--store", &url]).collect();
            crate::support::run(&arguments, &[])
        };
        tokio::task::spawn_blocking(arguments)
    };
    let doctor = run(&["doctor"]).await.unwrap();
    assert_eq!(doctor.code, 0, "{doctor:?}");
    assert!(doctor.stdout.contains("note  instances are waiting for code for "), "{doctor:?}");
    assert!(
        doctor.stdout.contains("does not have `slow` 2.0.0, no live node has it; it is blocked at "),
        "{doctor:?}"
    );
    assert!(doctor.stdout.contains("ok    no instance is blocked\n"), "{doctor:?}");
    let blocked = run(&["list", "--blocked"]).await.unwrap();
    assert_eq!(blocked.stdout, "no instances\n");
    let list = run(&["list"]).await.unwrap();
    assert!(
        list.stdout.contains("pending, waiting for code") && list.stdout.contains("missing code"),
        "{list:?}"
    );
    let show = run(&["show", "newer"]).await.unwrap();
    assert!(show.stdout.contains("its node does not have `slow` 2.0.0"), "{show:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p8_doctor_exits_with_0_for_paused_instances_and_requests_in_progress() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let runtime = Runtime::open(&url).register(slow).start().await.unwrap();
    let client = runtime.client();
    for id in ["asked", "held"] {
        client.start(slow, id, ()).await.unwrap();
    }
    client.pause("held", "an audit").await.unwrap();
    while client.status("held").await.unwrap().blocked.is_none() {
        tokio::task::yield_now().await;
    }
    let guest = Client::open(&url).unwrap();
    let update = tokio::spawn(async move { drop(guest.update("asked", "think", ()).await) });
    while client.stats().await.unwrap().requests.rows == 0 {
        tokio::task::yield_now().await;
    }
    let result = tokio::task::spawn_blocking(move || crate::support::run(&["doctor", "--store", &url], &[]));
    let result = result.await.unwrap();
    for expected in [
        "note  paused instances: 1, the first: \"held\" an audit\n",
        "ok    requests in progress: 1\n",
        "ok    no instance is blocked\n",
    ] {
        assert!(result.stdout.contains(expected), "{expected:?}: {result:?}");
    }
    assert_eq!(result.code, 0, "{result:?}");
    update.abort();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p8_doctor_exits_with_1_for_a_timer_that_is_due_without_a_runtime() {
    let mut shop = Shop::open().await;
    let delayed = StartOptions::default().delay(Duration::from_secs(3_600));
    shop.client().start_with("counter", "later", Payload::encode(&1).unwrap(), delayed).await.unwrap();
    shop.client().start("rounds", "waits", Payload::encode(&0).unwrap()).await.unwrap();
    while shop.client().status("waits").await.unwrap().status == Status::Pending {
        tokio::task::yield_now().await;
    }
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    let result = shop.run(&["doctor"]).await;
    assert_eq!(result.code, 0, "nothing is due: {result:?}");
    connection
        .execute("UPDATE instances SET wake_at_ms = wake_at_ms - 3600001 WHERE id = 'later'", [])
        .unwrap();
    drop(connection);
    let result = shop.run(&["doctor"]).await;
    let due = "look  instances have work to do, and no runtime is running on this store";
    assert!(result.stdout.contains(due) && result.stdout.contains(": \"later\"\n"), "{result:?}");
    assert_eq!(result.code, 1, "{result:?}");
}

#[tokio::test]
async fn p8_remedies_name_the_store_that_was_given() {
    let shop = Shop::stocked().await;
    let url = shop.url();
    let run = |command: &'static str, id: &'static [&'static str]| {
        let arguments: Vec<String> =
            [command, "--store", &url].iter().chain(id).map(|argument| (*argument).to_owned()).collect();
        crate::support::run(&arguments, &[])
    };
    let expected = format!("`perennial --store {url} retry`");
    for result in [run("doctor", &[]), run("show", &["broken-1"])] {
        assert!(result.stdout.contains(&expected), "{result:?}");
    }
    let by_variable = shop.run(&["doctor"]).await;
    assert!(by_variable.stdout.contains("`perennial retry`"), "{by_variable:?}");
}

#[tokio::test]
async fn h42_show_names_events_that_nothing_waits_for() {
    let shop = Shop::open().await;
    shop.masked(&["start", "counter", "c", "1"]).await;
    for _ in 0..2 {
        shop.masked(&["raise", "c", "stopp"]).await;
    }
    let shown = loop {
        let shown: Value = serde_json::from_str(&shop.masked(&["show", "c", "--json"]).await).unwrap();
        if shown["untaken_events"]["stopp"] == 2 {
            break shown;
        }
    };
    assert_eq!(shown["more_waits"], 0);
    let shown = shop.masked(&["show", "c"]).await;
    assert!(shown.contains("unread") && shown.contains("`stopp` (2)"), "{shown}");
}

#[tokio::test]
async fn g9_doctor_notices_that_the_clock_was_set_back() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let two_hours_on =
        || u64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() + 7_200_000;
    let store = SqliteStore::open(shop.path(), SqliteOptions::default().clock(two_hours_on)).unwrap();
    let runtime = Runtime::open("").store(std::sync::Arc::new(store)).start().await.unwrap();
    runtime.shutdown().await.unwrap();
    let result = shop.run(&["doctor"]).await;
    assert_eq!(result.code, 1, "{result:?}");
    let line = result.stdout.lines().find(|line| line.contains("PER-0304")).unwrap_or_default();
    assert!(
        line.starts_with("look  this machine's clock is ") && line.contains("behind the store's"),
        "{result:?}"
    );
}

#[tokio::test]
async fn p8_doctor_distinguishes_a_crash_from_a_shutdown_and_names_overdue_work() {
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
    // The lock file of a process that was killed two hours ago.
    std::fs::write(shop.path().with_extension("db-lock"), "4194305\n").unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    connection.execute("UPDATE instances SET wake_at_ms = wake_at_ms - 7200000", []).unwrap();
    drop(connection);
    let result = shop.run(&["doctor"]).await;
    let mut settings = masked();
    settings.add_filter(r"for 1 h \d+ min|for 59 min \d+ s", "for [span]");
    settings.add_filter(r"\(lag [^)]*\)", "(lag [span])");
    settings.bind(|| insta::assert_snapshot!(described(&shop, &result)));
    let report: Value = serde_json::from_str(&shop.run(&["doctor", "--json"]).await.stdout).unwrap();
    assert_eq!(report["oldest_overdue"]["instance"], "later");
}

#[tokio::test]
async fn p8_doctor_names_unreadable_messages_and_accessible_files() {
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
    let result = shop.run(&["doctor"]).await;
    masked().bind(|| insta::assert_snapshot!(described(&shop, &result)));
}

#[tokio::test]
async fn p8_doctor_distinguishes_damaged_messages_from_newer_ones() {
    let mut shop = Shop::open().await;
    shop.client().start("counter", "c", Payload::encode(&1).unwrap()).await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    shop.masked(&["raise", "c", "other"]).await;
    let connection = Connection::open(shop.path()).unwrap();
    let newer = "UPDATE inbox SET body = cast(replace(cast(body AS TEXT), '{\"v\":1,', '{\"v\":9,') AS BLOB)";
    assert_eq!(connection.execute(newer, []).unwrap(), 1);
    connection
        .execute("INSERT INTO inbox (key, shard, body) SELECT key, shard, x'7b7d' FROM instances", [])
        .unwrap();
    connection
        .execute("INSERT INTO replies (number, deadline_ms, body) VALUES (99, 9000000000000000, x'00')", [])
        .unwrap();
    drop(connection);
    let result = shop.run(&["doctor"]).await;
    for expected in [
        "look  messages of a newer Perennial: 1 to \"c\"\n",
        "look  damaged messages: 2 to \"c\"\n",
        "look  damaged rows that belong to no instance: reply 99 (",
    ] {
        assert!(result.stdout.contains(expected), "{expected:?}: {}", result.stdout);
    }
    let verified = shop.run(&["verify"]).await;
    assert_eq!(verified.code, 1);
    let lines: Vec<&str> = verified.stdout.lines().collect();
    let remedies = lines.iter().filter(|line| line.starts_with("  remedy: ")).count();
    assert!(remedies > 0 && remedies * 2 + 1 == lines.len(), "{}", verified.stdout);
}

#[tokio::test]
async fn p8_doctor_names_activities_that_are_not_registered() {
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
    let result = tokio::task::spawn_blocking(move || crate::support::run(&["doctor", "--store", &url], &[]));
    let result = result.await.unwrap();
    let expected = "look  activity `refund` is queued, and no live node has it registered: \"f\"\n        remedy: register \
                    `refund` in a program that runs on this store, and start it\n";
    assert!(result.stdout.contains(expected), "{result:?}");
    assert_eq!(result.code, 1, "an action is needed");
}

#[tokio::test]
async fn h42_doctor_names_activities_that_fail_repeatedly() {
    #[activity]
    async fn refund(_: ActivityContext) -> Result<(), String> {
        Err("the bank is closed".to_owned())
    }
    #[orchestration]
    async fn returns(ctx: OrchestrationContext) -> Result<(), String> {
        // 1 ms, 1 s, then hours.
        let backoff = perennial::Backoff::Exponential {
            first: Duration::from_millis(1),
            factor_percent: 100_000,
            max: Duration::from_secs(86_400),
        };
        Ok(ctx.schedule_activity(refund, ()).retry(backoff.attempts(9)).await?)
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let runtime = Runtime::open(&url).register(returns).register(refund).start().await.unwrap();
    let client = runtime.client();
    client.start(returns, "r", ()).await.unwrap();
    while client.tasks("r").await.unwrap().first().is_none_or(|task| task.attempt < 4) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let run = async |arguments: &[&str]| {
        let store = ["--store", url.as_str()];
        let arguments: Vec<String> =
            arguments.iter().chain(&store).map(|argument| (*argument).to_owned()).collect();
        let run = move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            crate::support::run(&arguments, &[])
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let result = run(&["doctor"]).await;
    assert_eq!(result.code, 1, "{result:?}");
    let failing = "look  activity `refund` fails repeatedly: 3 attempts, the last ";
    assert!(result.stdout.contains(failing), "{result:?}");
    assert!(
        result.stdout.contains("ago with the bank is closed: \"r\"\n        remedy: fix the cause of"),
        "{result:?}"
    );
    let report: Value = serde_json::from_str(&run(&["doctor", "--json"]).await.stdout).unwrap();
    assert_eq!(report["stuck"]["findings"][0]["kind"], "activity_failing");
    assert_eq!(report["stuck"]["findings"][0]["instances"], json!(["r"]));
    // `show` and `list` report the same, for people and for programs.
    let shown = run(&["show", "r"]).await.stdout;
    assert!(shown.contains("activity `refund` (event 2): attempt 3 of 9 failed "), "{shown}");
    let listed = run(&["list"]).await.stdout;
    assert!(listed.contains("activity refund: retry in 16 min"), "{listed}");
    for arguments in [["show", "r", "--json"].as_slice(), &["list", "--json"]] {
        let object: Value = serde_json::from_str(&run(arguments).await.stdout).unwrap();
        let wait = &object["waits_for"][0];
        assert_eq!(
            (&wait["kind"], &wait["state"], &wait["attempt"]),
            (&json!("activity"), &json!("retry"), &json!(4))
        );
        assert_eq!(wait["failed"]["error"], "the bank is closed");
        assert!(wait["text"].as_str().unwrap().contains("next at") && wait["remedy"].is_string(), "{wait}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn s9_no_command_migrates_a_store_and_doctor_names_the_remedy() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    std::fs::remove_file(shop.path()).unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    connection.execute_batch(include_str!("../../../perennial-sqlite/src/migrations/1.sql")).unwrap();
    connection.execute_batch("PRAGMA application_id=1348825701; PRAGMA user_version=1").unwrap();
    drop(connection);
    let before = shop.files();
    let result = shop.run(&["doctor"]).await;
    let mut transcript = described(&shop, &result);
    for arguments in [&["list"][..], &["start", "counter", "c", "1"]] {
        let result = shop.run(arguments).await;
        transcript += &format!("\n$ perennial {}\n{}", arguments.join(" "), described(&shop, &result));
    }
    assert!(before == shop.files(), "a command has changed the store");
    masked().bind(|| insta::assert_snapshot!(transcript));
}

#[tokio::test]
async fn s9_reading_changes_no_byte_of_a_store() {
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
    let result = crate::support::run(&["list", "--store", &url], &[]);
    assert_eq!(result.code, 5, "{result:?}");
    assert_eq!(std::fs::read(empty.path().with_file_name("empty.db")).unwrap(), b"");
}
