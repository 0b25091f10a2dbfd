//! Requests from processes that do not own the instance, their answers, and what the engine notes.

use std::sync::Arc;

use perennial_core::store::{Ask, AskAnswer, AskNumber, AskOutcome, AskRow, SessionId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::reader::{Fault, at_most, bytes, collect};
use crate::row::{bound, read_key, read_number, read_shard};

/// The instance is found while inserting.
pub(crate) const ASK: &str = "INSERT INTO asks (key, shard, deadline_ms, body) \
     SELECT key, shard, ?2, ?3 FROM instances WHERE id = ?1";
pub(crate) const ANSWER: &str = "INSERT INTO answers (number, deadline_ms, body) \
     SELECT number, deadline_ms, ?2 FROM asks WHERE number = ?1";
pub(crate) const DELETE_ASK: &str = "DELETE FROM asks WHERE number = ?1";
pub(crate) const SWEEP_ASKS: &str = "DELETE FROM asks WHERE deadline_ms <= ?1";
pub(crate) const SWEEP_ANSWERS: &str = "DELETE FROM answers WHERE deadline_ms <= ?1";
pub(crate) const ANY_PAST_DEADLINE: &str = "SELECT EXISTS (SELECT 1 FROM asks WHERE deadline_ms <= ?1) \
     OR EXISTS (SELECT 1 FROM answers WHERE deadline_ms <= ?1)";
pub(crate) const READ_ASKS: &str = "SELECT number, key, shard, deadline_ms, body FROM asks \
     WHERE number >= ?2 AND deadline_ms > ?3 \
     AND EXISTS (SELECT 1 FROM shards WHERE shards.shard = asks.shard AND session = ?1) \
     ORDER BY number LIMIT ?4";
pub(crate) const READ_ANSWER: &str = "SELECT body FROM answers WHERE number = ?1";
pub(crate) const READ_NOTE: &str = "SELECT body FROM notes WHERE name = ?1";
pub(crate) const WRITE_NOTE: &str = "INSERT INTO notes (name, body) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET body = excluded.body";
pub(crate) const DELETE_NOTE: &str = "DELETE FROM notes WHERE name = ?1";

pub(crate) fn ask(connection: &Connection, ask: &Ask) -> rusqlite::Result<AskOutcome> {
    let mut insert = connection.prepare_cached(ASK)?;
    let inserted = insert.execute(params![ask.instance, bound(ask.deadline_ms), &ask.body[..]])?;
    Ok(match inserted {
        0 => AskOutcome::NoInstance,
        _ => AskOutcome::Asked(connection.last_insert_rowid().cast_unsigned()),
    })
}

/// Answers a request that waits still; the request goes.
pub(crate) fn answer(connection: &Connection, answer: &AskAnswer) -> rusqlite::Result<()> {
    let number = bound(answer.number);
    if connection.prepare_cached(ANSWER)?.execute(params![number, &answer.body[..]])? == 1 {
        connection.prepare_cached(DELETE_ASK)?.execute([number])?;
    }
    Ok(())
}

/// Takes a request back; `false` if it is gone.
pub(crate) fn withdraw(connection: &Connection, number: AskNumber) -> rusqlite::Result<bool> {
    Ok(connection.prepare_cached(DELETE_ASK)?.execute([bound(number)])? == 1)
}

/// Whether there is something to sweep.
pub(crate) fn any_past_deadline(connection: &Connection, now_ms: u64) -> rusqlite::Result<bool> {
    connection.prepare_cached(ANY_PAST_DEADLINE)?.query_row([bound(now_ms)], |row| row.get(0))
}

pub(crate) fn sweep(connection: &Connection, now_ms: u64) -> rusqlite::Result<()> {
    for sweep in [SWEEP_ASKS, SWEEP_ANSWERS] {
        connection.prepare_cached(sweep)?.execute([bound(now_ms)])?;
    }
    Ok(())
}

/// The requests of a session's shards that are not past their deadline.
pub(crate) fn read(
    connection: &Connection,
    session: SessionId,
    from: AskNumber,
    limit: usize,
    now_ms: u64,
) -> Result<Vec<AskRow>, Fault> {
    let mut statement = connection.prepare_cached(READ_ASKS)?;
    let values = params![session.0.to_be_bytes(), bound(from), bound(now_ms), at_most(limit)];
    collect(statement.query(values)?, |row| {
        Ok(AskRow {
            number: read_number(row, 0)?,
            key: read_key(row, 1)?,
            shard: read_shard(row, 2)?,
            deadline_ms: read_number(row, 3)?,
            body: bytes(row, 4)?,
        })
    })
}

pub(crate) fn read_answer(connection: &Connection, number: AskNumber) -> Result<Option<Arc<[u8]>>, Fault> {
    body(connection.prepare_cached(READ_ANSWER)?.query_row([bound(number)], first))
}

pub(crate) fn read_note(connection: &Connection, name: &str) -> Result<Option<Arc<[u8]>>, Fault> {
    body(connection.prepare_cached(READ_NOTE)?.query_row([name], first))
}

/// Notes something, or forgets it.
pub(crate) fn write_note(connection: &Connection, name: &str, note: Option<&[u8]>) -> rusqlite::Result<()> {
    match note {
        Some(note) => connection.prepare_cached(WRITE_NOTE)?.execute(params![name, note]).map(drop),
        None => connection.prepare_cached(DELETE_NOTE)?.execute([name]).map(drop),
    }
}

fn first(row: &Row<'_>) -> rusqlite::Result<Result<Arc<[u8]>, Fault>> {
    Ok(bytes(row, 0))
}

fn body(row: rusqlite::Result<Result<Arc<[u8]>, Fault>>) -> Result<Option<Arc<[u8]>>, Fault> {
    row.optional()?.transpose()
}
