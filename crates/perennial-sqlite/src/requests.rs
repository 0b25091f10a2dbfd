//! Requests from processes that do not own the instance, their replies, and settings.

use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::store::{
    NewRequest, PageFill, PageLimit, RequestNumber, RequestOutcome, RequestPage, RequestReply, RequestRow,
    SessionId, ShardSet,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::reader::{Fault, bytes, readable};
use crate::row::{bound, read_key, read_maybe_number, read_number, read_shard};
use crate::seal::{self, Seal};
use crate::shards;

/// The instance is looked up by the insertion itself.
pub(crate) const PUT: &str = "INSERT INTO requests (number, key, shard, deadline_ms, after_number, body) \
     SELECT ?6, key, shard, ?2, ?3, ?4 FROM instances WHERE id = ?1 AND key = ifnull(?5, key) \
     RETURNING number, key, shard, deadline_ms, after_number, body";
const LAST_NUMBER: &str = "SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'requests'), 0)";
const NUMBER_IS_TAKEN: &str = "SELECT EXISTS (SELECT 1 FROM requests WHERE number = ?1)";
pub(crate) const SEAL: &str = "UPDATE requests SET checksum = ?2 WHERE number = ?1";
pub(crate) const SEAL_REPLY: &str = "UPDATE replies SET checksum = ?2 WHERE number = ?1";
pub(crate) const REPLY: &str = "INSERT INTO replies (number, deadline_ms, body) \
     SELECT number, deadline_ms, ?2 FROM requests WHERE number = ?1 RETURNING number, deadline_ms, body";
pub(crate) const DELETE: &str = "DELETE FROM requests WHERE number = ?1 RETURNING shard";
pub(crate) const SWEEP_REQUESTS: &str = "DELETE FROM requests WHERE number IN \
     (SELECT number FROM requests INDEXED BY requests_by_deadline WHERE deadline_ms <= ?1 LIMIT ?2)";
pub(crate) const SWEEP_REPLIES: &str = "DELETE FROM replies WHERE number IN \
     (SELECT number FROM replies INDEXED BY replies_by_deadline WHERE deadline_ms <= ?1 LIMIT ?2)";
pub(crate) const ANY_PAST_DEADLINE: &str = "SELECT EXISTS (SELECT 1 FROM requests WHERE deadline_ms <= ?1) \
     OR EXISTS (SELECT 1 FROM replies WHERE deadline_ms <= ?1)";
pub(crate) const COLUMNS: &str = "number, key, shard, deadline_ms, after_number, body, checksum";
pub(crate) const REPLY_COLUMNS: &str = "number, deadline_ms, body, checksum";
pub(crate) const READ: &str = "SELECT number, key, shard, deadline_ms, after_number, body, checksum FROM requests \
     WHERE number >= ?1 AND deadline_ms > ?2 ORDER BY number";
pub(crate) const READ_REPLY: &str =
    "SELECT number, deadline_ms, body, checksum FROM replies WHERE number = ?1";
pub(crate) const READ_SETTING: &str = "SELECT value FROM settings WHERE name = ?1";
pub(crate) const WRITE_SETTING: &str = "INSERT INTO settings (name, value) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(crate) const DELETE_SETTING: &str = "DELETE FROM settings WHERE name = ?1";

/// How many columns of a request and of a reply are covered by their checksum.
const SEALED: usize = 6;
const SEALED_REPLY: usize = 3;

/// Writes a request, and returns its shard.
pub(crate) fn put(
    connection: &Connection,
    request: &NewRequest,
    now_ms: u64,
) -> rusqlite::Result<Option<(RequestNumber, ShardId)>> {
    let deadline_ms = bound(now_ms.saturating_add(request.patience_ms));
    let key = request.key.as_ref().map(|key| &key.as_bytes()[..]);
    let (after, number) = (request.after.map(bound), next_number(connection)?);
    let values = params![request.instance, deadline_ms, after, &request.body[..], key, number];
    let mut insert = connection.prepare_cached(PUT)?;
    let written = insert.query_row(values, |row| {
        Ok((row.get::<_, i64>(0)?, ShardId(row.get(2)?), Seal::of_row(row, SEALED)?))
    });
    let Some((number, shard, seal)) = written.optional()? else { return Ok(None) };
    connection.prepare_cached(SEAL)?.execute([number, seal])?;
    Ok(Some((number.cast_unsigned(), shard)))
}

/// A number that was never used. SQLite would stop generating numbers, and report a full disk, once a row has the
/// greatest one, which can happen if a number was changed from outside.
fn next_number(connection: &Connection) -> rusqlite::Result<i64> {
    let last: i64 = connection.prepare_cached(LAST_NUMBER)?.query_row([], |row| row.get(0))?;
    let mut is_taken = connection.prepare_cached(NUMBER_IS_TAKEN)?;
    let mut next = last.saturating_add(1);
    while next < i64::MAX && is_taken.query_row([next], |row| row.get(0))? {
        next += 1;
    }
    Ok(next)
}

pub(crate) fn outcome(written: Option<(RequestNumber, ShardId)>) -> RequestOutcome {
    written.map_or(RequestOutcome::NoInstance, |(number, _)| RequestOutcome::Written(number))
}

/// Writes the reply to a request that still exists and deletes the request; returns its shard.
pub(crate) fn reply(connection: &Connection, reply: &RequestReply) -> rusqlite::Result<Option<ShardId>> {
    let number = bound(reply.number);
    let mut insert = connection.prepare_cached(REPLY)?;
    let seal = insert.query_row(params![number, &reply.body[..]], |row| Seal::of_row(row, SEALED_REPLY));
    let Some(seal) = seal.optional()? else { return Ok(None) };
    connection.prepare_cached(SEAL_REPLY)?.execute([number, seal])?;
    delete(connection, reply.number)
}

/// Deletes a request; returns its shard, if it existed.
pub(crate) fn delete(connection: &Connection, number: RequestNumber) -> rusqlite::Result<Option<ShardId>> {
    let mut delete = connection.prepare_cached(DELETE)?;
    delete.query_row([bound(number)], |row| row.get(0).map(ShardId)).optional()
}

/// Whether any row is past its deadline.
pub(crate) fn any_past_deadline(connection: &Connection, now_ms: u64) -> rusqlite::Result<bool> {
    connection.prepare_cached(ANY_PAST_DEADLINE)?.query_row([bound(now_ms)], |row| row.get(0))
}

/// A page of the requests to a session's shards that are not past their deadline.
pub(crate) fn read(
    connection: &Connection,
    session: SessionId,
    shards: &ShardSet,
    from: RequestNumber,
    limit: PageLimit,
    now_ms: u64,
) -> Result<RequestPage, Fault> {
    // The owner of the shards and the requests have to be read from one snapshot.
    let transaction = connection.unchecked_transaction()?;
    shards::check(connection, session, shards)?;
    let mut statement = connection.prepare_cached(READ)?;
    let mut rows = statement.query(params![bound(from), bound(now_ms)])?;
    let mut fill = PageFill::new(limit);
    let mut page = RequestPage::default();
    while let Some(row) = rows.next()? {
        let Some(shard) = readable("requests", row, 0, read_shard(row, 2)) else { continue };
        if !shards.contains(shard) {
            continue;
        }
        let Some(request) = readable("requests", row, 0, request(row)) else { continue };
        if !fill.admits(request.body.len()) {
            page.next = Some(request.number);
            break;
        }
        page.rows.push(request);
    }
    drop(rows);
    transaction.finish()?;
    Ok(page)
}

pub(crate) fn request(row: &Row<'_>) -> Result<RequestRow, Fault> {
    seal::check(row, SEALED)?;
    Ok(RequestRow {
        number: read_number(row, 0)?,
        key: read_key(row, 1)?,
        shard: read_shard(row, 2)?,
        deadline_ms: read_number(row, 3)?,
        after: read_maybe_number(row, 4)?,
        body: bytes(row, 5)?,
    })
}

pub(crate) fn read_reply(connection: &Connection, number: RequestNumber) -> Result<Option<Arc<[u8]>>, Fault> {
    let mut reply = connection.prepare_cached(READ_REPLY)?;
    body(reply.query_row([bound(number)], |row| Ok(reply_of(row).map(|(_, body)| body))))
}

/// A reply, with its request's number.
pub(crate) fn reply_of(row: &Row<'_>) -> Result<(RequestNumber, Arc<[u8]>), Fault> {
    seal::check(row, SEALED_REPLY)?;
    Ok((read_number(row, 0)?, bytes(row, 2)?))
}

pub(crate) fn read_setting(connection: &Connection, name: &str) -> Result<Option<Arc<[u8]>>, Fault> {
    body(connection.prepare_cached(READ_SETTING)?.query_row([name], first))
}

/// Writes or deletes a setting, if its value is still the one that was read.
pub(crate) fn replace_setting(
    connection: &Connection,
    name: &str,
    read: Option<&[u8]>,
    value: Option<&[u8]>,
) -> rusqlite::Result<bool> {
    let stored = connection.prepare_cached(READ_SETTING)?.query_row([name], |row| row.get::<_, Vec<u8>>(0));
    let is_as_read = stored.optional()?.as_deref() == read;
    if is_as_read {
        write_setting(connection, name, value)?;
    }
    Ok(is_as_read)
}

/// Writes a setting, or deletes it.
pub(crate) fn write_setting(
    connection: &Connection,
    name: &str,
    value: Option<&[u8]>,
) -> rusqlite::Result<()> {
    match value {
        Some(value) => connection.prepare_cached(WRITE_SETTING)?.execute(params![name, value]).map(drop),
        None => connection.prepare_cached(DELETE_SETTING)?.execute([name]).map(drop),
    }
}

fn first(row: &Row<'_>) -> rusqlite::Result<Result<Arc<[u8]>, Fault>> {
    Ok(bytes(row, 0))
}

fn body(row: rusqlite::Result<Result<Arc<[u8]>, Fault>>) -> Result<Option<Arc<[u8]>>, Fault> {
    row.optional()?.transpose()
}
