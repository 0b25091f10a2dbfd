//! N19: `perennial move` moves a store to another one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use perennial::prelude::*;
use perennial::store::{
    Criteria, InstanceKey, InstanceRow, MovedMessage, MovedRow, MovedTable, NewSession, PageLimit, Reply,
    SessionId, SessionRole, ShardId, Store, StoreError, TurnRow,
};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::postgres::TestServer;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{CommandResult, PATIENCE};

#[activity]
async fn call_bank(_: ActivityContext, cents: u64) -> Result<u64, String> {
    if cents == 0 { Err("the bank is closed".to_owned()) } else { Ok(cents) }
}

/// Waits for a time, then for an event.
#[orchestration]
async fn reminder(ctx: OrchestrationContext, ms: u64) -> Result<String, String> {
    ctx.set_status("waiting");
    ctx.schedule_timer(Duration::from_millis(ms)).await;
    Ok(ctx.schedule_wait(ExternalEvent::<String>::named("text")).await)
}

/// Waits for a child that waits for an event.
#[orchestration]
async fn family(ctx: OrchestrationContext) -> Result<String, String> {
    let child = ctx.schedule_sub_orchestration(reminder, 0);
    child.await.map_err(|error| error.to_string())
}

/// Retries an activity in an hour, and waits for another that nobody runs.
#[orchestration]
async fn payment(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    let retry = RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(3);
    let paid = ctx.schedule_activity(call_bank, cents).retry(retry);
    let printed: String = ctx.schedule_activity("print", "receipt").await?;
    Ok(paid.await? + printed.len() as u64)
}

#[orchestration]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<u32, String> {
    if left > 0 {
        return ctx.continue_as_new(left - 1).await;
    }
    ctx.schedule_wait("stop").await;
    Ok(left)
}

#[orchestration]
async fn broken(_: OrchestrationContext) -> Result<(), String> {
    panic!("the code is broken")
}

#[orchestration]
async fn outcome(_: OrchestrationContext, fails: bool) -> Result<u32, String> {
    if fails { Err("as asked".to_owned()) } else { Ok(1) }
}

async fn program(url: &str) -> Result<Runtime, perennial::Error> {
    let runtime = Runtime::open(url).register(reminder).register(family).register(payment).register(rounds);
    runtime.register(broken).register(outcome).register(call_bank).start().await
}

fn sqlite(directory: &TempDir, name: &str) -> String {
    format!("sqlite:{}", directory.path().join(name).display())
}

async fn command(arguments: &[&str]) -> CommandResult {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    tokio::task::spawn_blocking(move || crate::support::run(&arguments, &[])).await.unwrap()
}

async fn moved(from: &str, to: &str) -> Value {
    let result = command(&["move", "--from", from, "--to", to, "--json"]).await;
    // A slow machine is told about the progress.
    let is_told =
        result.stderr.lines().all(|line| line.starts_with("copying ") || line.starts_with("comparing "));
    assert!(result.code == 0 && is_told, "{result:?}");
    serde_json::from_str(&result.stdout).unwrap()
}

async fn refused(from: &str, to: &str, why: &str) {
    let result = command(&["move", "--from", from, "--to", to]).await;
    assert_eq!(result.code, 4, "{result:?}");
    assert!(
        result.stderr.starts_with("error: PER-0642") && result.stderr.contains(why),
        "{why:?}: {result:?}"
    );
    for url in [from, to] {
        assert!(!result.stderr.contains(&password(url)), "{result:?}");
    }
}

/// The password of a URL, or a text that is nowhere.
fn password(url: &str) -> String {
    let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(login, _)| login);
    login.and_then(|login| login.split_once(':')).map_or("\0".to_owned(), |(_, password)| password.to_owned())
}

fn answer<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| drop(sender.send(answer))));
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// Opens a store to look at all its rows.
fn look(url: &str) -> Arc<dyn Store> {
    match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(SqliteStore::open_read_only(path, SqliteOptions::default()).unwrap()),
        None => {
            let options = perennial_postgres::PostgresOptions::default().create(false).read_only(true);
            Arc::new(perennial_postgres::open(url, options).unwrap())
        }
    }
}

/// All rows of a store, by table.
fn export(url: &str) -> BTreeMap<&'static str, Vec<MovedRow>> {
    let store = look(url);
    let mut tables = BTreeMap::new();
    for table in MovedTable::ALL {
        let mut rows: Vec<MovedRow> = Vec::new();
        loop {
            let after = rows.last().map(MovedRow::key);
            let page = answer(|reply| store.export_rows(table, after, PageLimit::rows(500), reply)).unwrap();
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        rows.sort_by_key(MovedRow::key);
        tables.insert(table.name(), rows);
    }
    tables
}

/// Instances of all kinds in all states, whose program was shut down. Some of them continue after two seconds.
async fn all_kinds(url: &str) {
    let runtime = program(url).await.unwrap();
    let client = runtime.client();
    let found = StartOptions::default().attribute("customer", "ada").attribute("cents", 1_250);
    client.start_with("reminder", "timer", Payload::encode(&2_000_u64).unwrap(), found).await.unwrap();
    client.start(reminder, "event", 0).await.unwrap();
    client.start(family, "family", ()).await.unwrap();
    client.start(payment, "payment", 0).await.unwrap();
    client.start(rounds, "rounds", 3).await.unwrap();
    client.start(broken, "broken", ()).await.unwrap();
    client.start(outcome, "completed", false).await.unwrap();
    client.start(outcome, "failed", true).await.unwrap();
    client.start(reminder, "cancelled", 3_600_000).await.unwrap();
    client.start(reminder, "terminated", 3_600_000).await.unwrap();
    client.start(reminder, "paused", 0).await.unwrap();
    let delayed = StartOptions::default().delay(Duration::from_secs(2));
    client.start_with("outcome", "delayed", Payload::encode(&false).unwrap(), delayed).await.unwrap();
    client.cancel("cancelled", "enough").await.unwrap();
    client.terminate("terminated", "enough").await.unwrap();
    client.pause("paused", Why::new("holidays")).await.unwrap();
    for id in ["completed", "failed", "cancelled", "terminated"] {
        client.wait(id).await.unwrap();
    }
    let until = async |is_so: &(dyn Fn(&perennial::InstanceView) -> bool + Sync), id: &str| {
        let begun = Instant::now();
        while !is_so(&client.status(id).await.unwrap()) {
            assert!(begun.elapsed() < PATIENCE, "{id}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until(&|view| view.blocked.is_some(), "broken").await;
    until(&|view| view.blocked.is_some(), "paused").await;
    until(&|view| view.execution == 4, "rounds").await;
    while client.tasks("payment").await.unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.pause_orchestration("rounds", Why::new("a repair").by("ada")).await.unwrap();
    runtime.shutdown().await.unwrap();
    // Unread messages, in order and with keys.
    let client = Client::open(url).unwrap();
    client.raise_event("event", "text", "first").once("k-1").await.unwrap();
    client.raise_event("event", "text", "second").once("k-2").await.unwrap();
    client.raise_event("rounds", "stop", ()).await.unwrap();
}

/// Everything that waited goes on in the moved store.
async fn goes_on(url: &str) {
    let runtime = program(url).await.unwrap();
    let client = runtime.client();
    // A message with the key of one that was moved is the same message.
    client.raise_event("event", "text", "another").once("k-1").await.unwrap();
    let soon =
        async |id: &str| tokio::time::timeout(PATIENCE, client.result(id)).await.unwrap().unwrap().to_text();
    assert_eq!(soon("event").await, "first");
    client.raise_event("timer", "text", "after the timer").await.unwrap();
    assert_eq!(soon("timer").await, "after the timer");
    assert_eq!(soon("delayed").await, "1");
    let child = client.tree("family").await.unwrap().children[0].instance.id.clone();
    client.raise_event(&child, "text", "from the child").await.unwrap();
    assert_eq!(soon("family").await, "from the child");
    assert_eq!(soon("completed").await, "1");
    let status = async |id: &str| client.status(id).await.unwrap();
    for (id, expected) in
        [("failed", Status::Failed), ("cancelled", Status::Cancelled), ("terminated", Status::Terminated)]
    {
        assert_eq!(status(id).await.status, expected);
    }
    assert!(status("broken").await.blocked.is_some() && status("paused").await.blocked.is_some());
    client.resume("paused", Why::new("back")).await.unwrap();
    client.raise_event("paused", "text", "resumed").await.unwrap();
    assert_eq!(soon("paused").await, "resumed");
    // The orchestration is still paused, and its message is still there.
    client.resume_orchestration("rounds", Why::new("repaired")).await.unwrap();
    assert_eq!(soon("rounds").await, "0");
    let tasks = client.tasks("payment").await.unwrap();
    let attempts: Vec<u32> = tasks.iter().map(|task| task.attempt).collect();
    assert_eq!(attempts, [2, 1], "{tasks:?}");
    let ada = client.list("attr.customer=ada attr.cents>1000".parse().unwrap(), None, 10).await.unwrap();
    assert_eq!(ada.rows.iter().map(|row| &*row.id).collect::<Vec<_>>(), ["timer"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_instances_of_all_kinds_are_moved_there_and_back_and_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (sqlite(&directory, "first.db"), TestServer::shared().new_schema());
    let (third, fourth) = (sqlite(&directory, "third.db"), sqlite(&directory, "fourth.db"));
    all_kinds(&first).await;
    let rows = export(&first);
    for (table, rows) in &rows {
        assert!(!rows.is_empty(), "the test has no {table}");
    }
    let report = moved(&first, &second).await;
    assert_eq!(
        (&report["resumed"], &report["from"]),
        (&Value::Bool(false), &Value::from(&*first)),
        "{report}"
    );
    assert_eq!(report["tables"][0]["rows"], rows["instances"].len(), "{report}");
    moved(&second, &third).await;
    moved(&third, &fourth).await;
    for url in [&first, &second, &third, &fourth] {
        assert_eq!(export(url), rows, "{url}");
        if *url == fourth {
            continue;
        }
        let error = program(url).await.err().unwrap().to_string();
        assert!(error.starts_with("PER-0506") && error.contains("this store was moved to"), "{error}");
        assert!(!error.contains(&password(&second)), "{error}");
        let result = command(&["raise", "event", "text", "lost", "--store", url]).await;
        assert!(result.code == 5 && result.stderr.contains("this store was moved to"), "{result:?}");
        let result = command(&["doctor", "--store", url]).await;
        assert!(result.code == 1 && result.stdout.contains("look  this store was moved to"), "{result:?}");
        assert_eq!(command(&["list", "--store", url]).await.code, 0, "it can be read");
    }
    // The copy in PostgreSQL goes on if it is reopened.
    let reopened = command(&["move", "--reopen", &second]).await;
    assert!(
        reopened.code == 0 && reopened.stdout.contains("make sure that nobody uses sqlite:"),
        "{reopened:?}"
    );
    goes_on(&second).await;
    goes_on(&fourth).await;
    refused(&first, &second, "this store was moved to postgres").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_a_store_in_use_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let empty = |name| sqlite(&directory, name);
    for used in [sqlite(&directory, "used.db"), TestServer::shared().new_schema()] {
        let runtime = program(&used).await.unwrap();
        refused(&used, &empty("a.db"), "stop").await;
        let source = sqlite(&directory, &format!("source-{}.db", used.len()));
        program(&source).await.unwrap().shutdown().await.unwrap();
        refused(&source, &used, "stop").await;
        // Neither was marked.
        program(&source).await.unwrap().shutdown().await.unwrap();
        runtime.client().start(outcome, "o", false).await.unwrap().result().await.unwrap();
        runtime.shutdown().await.unwrap();
        program(&used).await.unwrap().shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_a_target_with_rows_of_its_own_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let source = sqlite(&directory, "source.db");
    let runtime = program(&source).await.unwrap();
    runtime.client().start(outcome, "o", false).await.unwrap().result().await.unwrap();
    runtime.shutdown().await.unwrap();
    for (number, other) in
        [sqlite(&directory, "other.db"), TestServer::shared().new_schema()].iter().enumerate()
    {
        let runtime = program(other).await.unwrap();
        runtime.client().start(outcome, "its own", false).await.unwrap().result().await.unwrap();
        runtime.shutdown().await.unwrap();
        refused(&source, other, "is not empty: it has instances").await;
        // A store that a runtime has used, without instances.
        let used =
            if number == 0 { sqlite(&directory, "used.db") } else { TestServer::shared().new_schema() };
        program(&used).await.unwrap().shutdown().await.unwrap();
        refused(&source, &used, "is not empty: a runtime has used it").await;
    }
    refused(&source, &source, "both the source and the target").await;
    let result = command(&["move", "--from", &sqlite(&directory, "none.db"), "--to", &source]).await;
    assert!(result.code == 5 && result.stderr.contains("PER-0627"), "{result:?}");
    let result = command(&["move", "--reopen", &source]).await;
    assert!(result.code == 4 && result.stderr.contains("was not moved"), "{result:?}");
    program(&source).await.unwrap().shutdown().await.unwrap();
}

/// Writes a store with many instances: each with three turns, some with messages and attributes.
fn fill(path: &Path, instances: u64) {
    let store = SqliteStore::open(path, SqliteOptions::default().relaxed(true)).unwrap();
    let id = SessionId(7);
    let role = SessionRole::Maintenance;
    let new = NewSession { id, role, node: id, lease_ms: 3_600_000, info: Arc::from([]) };
    answer(|reply| store.open_session(new, reply)).unwrap();
    let body = |number: u64, bytes: usize| -> Arc<[u8]> { format!("{number:>bytes$}").into_bytes().into() };
    let mut last = 0;
    for first in (0..instances).step_by(2_000) {
        let numbers = first..(first + 2_000).min(instances);
        let (mut rows, mut turns, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for number in numbers {
            let row = instance(number);
            for turn in 1..=3 {
                let (bytes, checksum) = (body(number, 200), number as u32 + turn);
                turns.push(MovedRow::Turn(
                    row.key,
                    TurnRow { execution: 1, number: turn.into(), bytes, checksum },
                ));
            }
            if number % 10 == 0 {
                last += 1;
                let (key, shard) = (row.key, row.shard);
                let message = perennial::store::InboxRow {
                    number: last,
                    key,
                    shard,
                    arrived_ms: number,
                    urgent: false,
                    body: body(number, 100),
                };
                let dedupe = Some(format!("key-{number}"));
                messages.push(MovedRow::Message(MovedMessage { row: message, dedupe, parked: false }));
            }
            rows.push(MovedRow::Instance(Box::new(row)));
        }
        for rows in [rows, turns, messages] {
            let imported = answer(|reply| store.import_rows(id, rows, reply)).unwrap();
            assert_eq!(imported.differs, None);
        }
    }
    answer(|reply| store.end_session(id, reply)).unwrap();
    answer(|reply| store.close(reply)).unwrap();
}

fn instance(number: u64) -> InstanceRow {
    let id = format!("order-{number}");
    let attribute = ("number".to_owned(), Payload::encode(&number).unwrap());
    InstanceRow {
        key: InstanceKey::new(1_700_000_000_000 + number, u128::from(number)),
        shard: ShardId::of(&id),
        id,
        name: "checkout".to_owned(),
        version: "1.0.0".to_owned(),
        status: if number.is_multiple_of(3) { Status::Running } else { Status::Completed },
        execution: 1,
        owed: false,
        wake_at_ms: number.is_multiple_of(3).then_some(4_000_000_000_000),
        blocked: None,
        full: false,
        attributes: [attribute].into_iter().collect(),
        published: None,
        parent: None,
        created_ms: 1_700_000_000_000 + number,
        ended_ms: None,
        checksum: 0,
    }
    .sealed()
}

fn spawn_move(from: &str, to: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["move", "--from", from, "--to", to])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_a_move_that_was_killed_is_completed_by_the_same_command() {
    const INSTANCES: u64 = 4_000;
    let directory = tempfile::tempdir().unwrap();
    let first = sqlite(&directory, "first.db");
    fill(&directory.path().join("first.db"), INSTANCES);
    let rows = export(&first);
    let (second, third) = (TestServer::shared().new_schema(), sqlite(&directory, "third.db"));
    for (from, to) in [(&first, &second), (&second, &third)] {
        let mut child = spawn_move(from, to);
        let begun = Instant::now();
        let has_rows = |to: &str| {
            let is_there = to.strip_prefix("sqlite:").is_none_or(|path| Path::new(path).exists());
            is_there && try_count(to).is_some_and(|count| count > 0)
        };
        while !has_rows(to) {
            assert!(begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "it is not under way");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(export(to), rows, "it was killed in the middle");
        // Nobody uses one of the two, or moves something else.
        for (url, why) in [(from, "is being moved to"), (to, "has only a part of the rows")] {
            let error = program(url).await.err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
        refused(from, &sqlite(&directory, "elsewhere.db"), "is being moved to").await;
        let other = sqlite(&directory, &format!("other-{}.db", to.len()));
        program(&other).await.unwrap().shutdown().await.unwrap();
        refused(&other, to, "has only a part of the rows").await;
        let report = moved(from, to).await;
        assert_eq!(report["resumed"], true, "{report}");
        let written = report["tables"][0]["written"].as_u64().unwrap();
        assert!(written < INSTANCES, "rows that were there are not written again: {report}");
        assert_eq!(export(to), rows);
    }
}

/// How many instances a store has, as far as it can be opened.
fn try_count(url: &str) -> Option<u64> {
    let store: Arc<dyn Store> = match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(SqliteStore::open_read_only(path, SqliteOptions::default()).ok()?),
        None => {
            let options = perennial_postgres::PostgresOptions::default().create(false).read_only(true);
            Arc::new(perennial_postgres::open(url, options).ok()?)
        }
    };
    Some(answer(|reply| store.count(Criteria::default(), 1, reply)).ok()?.rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn n19_a_move_is_finished_twice_and_a_row_that_was_changed_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (sqlite(&directory, "first.db"), sqlite(&directory, "second.db"));
    fill(&directory.path().join("first.db"), 10);
    moved(&first, &second).await;
    // As if the move had not been finished: both have their marks.
    let connection = rusqlite::Connection::open(directory.path().join("first.db")).unwrap();
    let mark: Vec<u8> =
        connection.query_row("SELECT value FROM settings WHERE name = 'move'", [], |row| row.get(0)).unwrap();
    let mark = String::from_utf8(mark).unwrap().replace("source", "target");
    drop(connection);
    let unfinished = |damage: &str| {
        let connection = rusqlite::Connection::open(directory.path().join("second.db")).unwrap();
        let insert = "INSERT INTO settings (name, value) VALUES ('move', ?1)";
        connection.execute(insert, [mark.as_bytes()]).unwrap();
        connection.execute_batch(damage).unwrap();
    };
    unfinished("");
    let report = moved(&first, &second).await;
    assert_eq!((&report["resumed"], &report["tables"][1]["written"]), (&true.into(), &0.into()), "{report}");
    unfinished(
        "UPDATE turns SET body = x'00' \
         WHERE key = (SELECT key FROM instances WHERE id = 'order-7') AND number = 2",
    );
    let result = command(&["move", "--from", &first, "--to", &second]).await;
    assert_eq!(result.code, 1, "{result:?}");
    let named = "second.db has turn 2 of execution 1 of instance \"order-7\" with another content than";
    assert!(result.stderr.starts_with("error: PER-0643") && result.stderr.contains(named), "{result:?}");
}

/// Run in release with `cargo nextest run --release -p perennial-cli --run-ignored only n19_`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes a minute"]
async fn n19_a_hundred_thousand_instances_are_moved_there_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let (first, third) = (sqlite(&directory, "first.db"), sqlite(&directory, "third.db"));
    let second = TestServer::shared().new_schema();
    fill(&directory.path().join("first.db"), 100_000);
    for (from, to) in [(&first, &second), (&second, &third)] {
        let begun = Instant::now();
        assert!(spawn_move(from, to).wait().unwrap().success());
        println!("moved in {:?}", begun.elapsed());
    }
    assert_eq!(export(&first), export(&third));
}
