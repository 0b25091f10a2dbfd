//! The machine's limit: a plain program that writes the same rows as a durable engine, with the same syncs.
//!
//! Shape `hello`: two turn rows and an instance row are inserted, and the instance row is updated, in batches
//! of 128 instances. Shape `step`: one turn row per transaction.

use std::time::Instant;

use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::figures::Report;
use crate::fleet::Outcome;

const BATCH: u64 = 128;
/// The approximate size of a turn with an activity's result and the next schedule.
const TURN_BYTES: usize = 300;

pub(crate) fn measure(runs: usize, scale: u64) -> Outcome<Vec<Report>> {
    let (mut instances, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let directory = TempDir::new()?;
        let connection = open(&directory)?;
        instances.push(hello(&connection, 256 / scale.min(16))?);
        steps.push(step(&connection, 2_000 / scale)?);
    }
    Ok(vec![
        Report::new("bare", "sqlite", "instances/s", instances).with("shape", "hello").with("batch", BATCH),
        Report::new("bare", "sqlite", "steps/s", steps).with("shape", "step"),
    ])
}

fn open(directory: &TempDir) -> rusqlite::Result<Connection> {
    let connection = Connection::open(directory.path().join("bare.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE instances (key BLOB NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL,
             status INTEGER NOT NULL, execution INTEGER NOT NULL, owed INTEGER NOT NULL, created_ms INTEGER NOT NULL);
         CREATE UNIQUE INDEX instances_by_key ON instances (key);
         CREATE UNIQUE INDEX instances_by_id ON instances (id);
         CREATE TABLE turns (key BLOB NOT NULL, execution INTEGER NOT NULL, number INTEGER NOT NULL,
             body BLOB NOT NULL);
         CREATE UNIQUE INDEX turns_by_number ON turns (key, execution, number);",
    )?;
    Ok(connection)
}

fn hello(connection: &Connection, batches: u64) -> rusqlite::Result<f64> {
    let body = vec![b'x'; TURN_BYTES];
    let mut insert = connection.prepare(
        "INSERT INTO instances (key, id, name, version, status, execution, owed, created_ms)
         VALUES (?1, ?2, 'hello', '1.0.0', 1, 1, 1, 0)",
    )?;
    let mut turn =
        connection.prepare("INSERT INTO turns (key, execution, number, body) VALUES (?1, 1, ?2, ?3)")?;
    let mut update = connection.prepare("UPDATE instances SET status = 2, owed = 0 WHERE key = ?1")?;
    let begun = Instant::now();
    for batch in 0..batches {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for index in batch * BATCH..(batch + 1) * BATCH {
            let key = u128::from(index).to_be_bytes();
            insert.execute(params![key, format!("hello-{index}")])?;
            turn.execute(params![key, 1, body])?;
        }
        connection.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
        for index in batch * BATCH..(batch + 1) * BATCH {
            let key = u128::from(index).to_be_bytes();
            turn.execute(params![key, 2, body])?;
            update.execute(params![key])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok((batches * BATCH) as f64 / begun.elapsed().as_secs_f64())
}

fn step(connection: &Connection, count: u64) -> rusqlite::Result<f64> {
    let (key, body) = ([0xff_u8; 16], vec![b'x'; TURN_BYTES]);
    let mut turn =
        connection.prepare("INSERT INTO turns (key, execution, number, body) VALUES (?1, 1, ?2, ?3)")?;
    let begun = Instant::now();
    for number in 1..=count as i64 {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        turn.execute(params![key, number, body])?;
        connection.execute_batch("COMMIT")?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
