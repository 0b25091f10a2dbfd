//! The store beside a bare program that writes the same rows: `cargo run --release -p perennial-sqlite --example speed
//! [DIRECTORY]`.
//!
//! - `hello`: instances of two turns (row and turn 1; turn 2 and the changed row), in synced batches of 128.
//! - `lone`: turns of one instance, each in a transaction of its own, one after another.
//!
//! The bare program uses prepared statements on one connection, with SQLite's defaults apart from the same durability
//! (WAL, `synchronous=FULL`): once with tables as anybody would write them (a primary key and a unique id), and once
//! with the store's own tables and indexes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Commit, CommitOutcome, InstanceRow, NewSession, RowChange, SessionId, SessionRole, Status, Store,
    StoreError, TurnRow,
};
use perennial_core::{InstanceKey, SHARDS, ShardId};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, params};

const BATCH: usize = 128;
const BATCHES: usize = 200;
const LONE: usize = 2_000;
const RUNS: usize = 3;
/// A turn of hello as it is encoded.
const BODY: [u8; 300] = [b'x'; 300];

fn main() {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("perennial-speed-{}", std::process::id()));
    println!(
        "{BATCHES} batches of {BATCH} instances, {LONE} lone turns of {} bytes; median of {RUNS}",
        BODY.len()
    );
    for (name, hello, lone) in CONTESTANTS {
        let mut per_second = Vec::new();
        let mut lone_steps = Vec::new();
        for _ in 0..RUNS {
            std::fs::create_dir_all(&directory).expect("the directory can be made");
            per_second.push((BATCH * BATCHES) as f64 / hello(&directory.join("hello.db")).as_secs_f64());
            lone_steps.push(lone(&directory.join("lone.db")));
            std::fs::remove_dir_all(&directory).expect("the directory can be removed");
        }
        per_second.sort_by(f64::total_cmp);
        lone_steps.sort_by_key(|steps: &Vec<Duration>| steps.iter().sum::<Duration>());
        let mut steps = lone_steps.swap_remove(RUNS / 2);
        let lone_per_second = LONE as f64 / steps.iter().sum::<Duration>().as_secs_f64();
        steps.sort();
        println!(
            "{name:<22} hello {:>7.0} instances/s   lone {lone_per_second:>6.0} commits/s, p50 {:>5} µs, p99 {:>6} µs",
            per_second[RUNS / 2],
            steps[LONE / 2].as_micros(),
            steps[LONE * 99 / 100].as_micros(),
        );
    }
}

type Contestant = (&'static str, fn(&Path) -> Duration, fn(&Path) -> Vec<Duration>);

const CONTESTANTS: [Contestant; 3] = [
    ("bare, plain tables", |path| bare_hello(&plain(path)), |path| bare_lone(&plain(path))),
    ("bare, store's tables", |path| bare_hello(&same(path)), |path| bare_lone(&same(path))),
    ("store", store_hello, store_lone),
];

fn bare(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("it opens");
    connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").expect("it is configured");
    connection
}

fn plain(path: &Path) -> Connection {
    let connection = bare(path);
    connection
        .execute_batch(
            "CREATE TABLE instances (key BLOB PRIMARY KEY, id TEXT UNIQUE, shard INTEGER, name TEXT, version TEXT,
                                     status INTEGER, execution INTEGER, owed INTEGER, wake_at_ms INTEGER, blocked TEXT,
                                     attributes TEXT, published TEXT, parent TEXT, created_ms INTEGER,
                                     ended_ms INTEGER) WITHOUT ROWID;
             CREATE TABLE turns (key BLOB, execution INTEGER, number INTEGER, body BLOB, checksum INTEGER,
                                 PRIMARY KEY (key, execution, number)) WITHOUT ROWID",
        )
        .expect("the tables are made");
    connection
}

fn same(path: &Path) -> Connection {
    drop(SqliteStore::open(path, SqliteOptions::default()).expect("it opens"));
    bare(path)
}

fn bare_hello(connection: &Connection) -> Duration {
    let mut insert = connection
        .prepare(
            "INSERT INTO instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked,
                                    attributes, published, parent, created_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL, NULL, NULL, NULL, ?9)",
        )
        .expect("it prepares");
    let mut turn = connection.prepare("INSERT INTO turns VALUES (?1, ?2, ?3, ?4, 7)").expect("it prepares");
    let mut update = connection
        .prepare("UPDATE instances SET status = ?2, owed = ?3, ended_ms = ?4 WHERE key = ?1")
        .expect("it prepares");
    let begun = Instant::now();
    for batch in 0..BATCHES {
        let rows = rows(batch);
        connection.execute_batch("BEGIN IMMEDIATE").expect("it begins");
        for row in &rows {
            let key = row.key.as_bytes();
            insert
                .execute(params![
                    key,
                    row.id,
                    row.shard.0,
                    row.name,
                    row.version,
                    1,
                    1,
                    true,
                    row.created_ms as i64
                ])
                .expect("the row goes in");
            turn.execute(params![key, 1, 1, BODY]).expect("the turn goes in");
        }
        connection.execute_batch("COMMIT; BEGIN IMMEDIATE").expect("it commits");
        for row in &rows {
            turn.execute(params![row.key.as_bytes(), 1, 2, BODY]).expect("the turn goes in");
            let ended_ms = row.created_ms as i64 + 5;
            update.execute(params![row.key.as_bytes(), 2, false, ended_ms]).expect("the row changes");
        }
        connection.execute_batch("COMMIT").expect("it commits");
    }
    begun.elapsed()
}

fn bare_lone(connection: &Connection) -> Vec<Duration> {
    let mut begin = connection.prepare("BEGIN IMMEDIATE").expect("it prepares");
    let mut turn = connection.prepare("INSERT INTO turns VALUES (?1, ?2, ?3, ?4, 7)").expect("it prepares");
    let mut commit = connection.prepare("COMMIT").expect("it prepares");
    let key = row(0).key;
    let step = |number| {
        let begun = Instant::now();
        begin.execute([]).expect("it begins");
        turn.execute(params![key.as_bytes(), 1, number, BODY]).expect("the turn goes in");
        commit.execute([]).expect("it commits");
        begun.elapsed()
    };
    (1..=LONE as i64).map(step).collect()
}

fn store_hello(path: &Path) -> Duration {
    let (store, session) = owner(path);
    let begun = Instant::now();
    for batch in 0..BATCHES {
        let rows = rows(batch);
        commit(&store, session, rows.iter().map(start).collect());
        commit(&store, session, rows.iter().map(finish).collect());
    }
    begun.elapsed()
}

fn store_lone(path: &Path) -> Vec<Duration> {
    let (store, session) = owner(path);
    let row = row(0);
    commit(&store, session, vec![start(&row)]);
    let step = |number| {
        let member = Commit { turn: Some(turn(number)), ..member(&row) };
        let begun = Instant::now();
        commit(&store, session, vec![member]);
        begun.elapsed()
    };
    (2..LONE as u64 + 2).map(step).collect()
}

fn owner(path: &Path) -> (SqliteStore, SessionId) {
    let store = SqliteStore::open(path, SqliteOptions::default()).expect("it opens");
    let id = SessionId(7);
    let lane = NewSession { id, role: SessionRole::Lane, node: id, lease_ms: 60_000, info: [].into() };
    wait_for(|reply| store.open_session(lane, reply));
    assert_eq!(wait_for(|reply| store.claim_shards(id, SHARDS, reply)).len(), SHARDS);
    (store, id)
}

fn commit(store: &SqliteStore, session: SessionId, batch: Vec<Commit>) {
    let outcomes = wait_for(|reply| store.commit(session, batch.into(), reply));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
}

fn wait_for<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(Result<T, StoreError>) + Send>)) -> T {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().expect("it is answered").expect("it succeeds")
}

fn rows(batch: usize) -> Vec<InstanceRow> {
    (batch * BATCH..(batch + 1) * BATCH).map(row).collect()
}

fn row(number: usize) -> InstanceRow {
    let id = format!("order-{number}");
    let created_ms = 1_700_000_000_000 + number as u64 / 20;
    // As random as keys are within a millisecond.
    let random = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    InstanceRow {
        key: InstanceKey::new(created_ms, random),
        shard: ShardId::of(&id),
        id,
        name: "hello".to_owned(),
        version: "1.0.0".to_owned(),
        status: Status::Running,
        execution: 1,
        owed: true,
        wake_at_ms: None,
        blocked: None,
        full: false,
        attributes: Default::default(),
        published: None,
        parent: None,
        created_ms,
        ended_ms: None,
        checksum: 0,
    }
    .sealed()
}

fn turn(number: u64) -> TurnRow {
    TurnRow { execution: 1, number, bytes: Arc::from(BODY), checksum: 7 }
}

fn member(row: &InstanceRow) -> Commit {
    // Every shard was claimed once.
    Commit { epoch: 1, ..Commit::empty(row.key, row.shard) }
}

fn start(row: &InstanceRow) -> Commit {
    Commit { insert: Some(Box::new(row.clone())), turn: Some(turn(1)), ..member(row) }
}

fn finish(row: &InstanceRow) -> Commit {
    let change = RowChange {
        status: Some(Status::Completed),
        owed: Some(false),
        ended_ms: Some(Some(row.created_ms + 5)),
        ..RowChange::default()
    };
    Commit { turn: Some(turn(2)), change, ..member(row) }
}
