//! What an owner reads in its passes: messages, and instances that are due, owed or blocked.
//!
//! Each read checks in the same snapshot that the session owns the shards it names. Shards are filtered here rather
//! than in SQL: the owner of a file usually owns all of them.

use perennial_core::store::{
    DueInstance, InboxPage, InboxQuery, InboxRow, PageFill, PageLimit, SessionId, ShardSet,
};
use perennial_core::{InstanceKey, ShardId};
use rusqlite::{Connection, Row, params};

use crate::reader::{Damaged, Fault, bytes, collect, readable};
use crate::row::{bound, read_key, read_number, read_shard};
use crate::seal;
use crate::shards;

/// Messages that are not parked; of blocked instances only urgent ones.
pub(crate) const MESSAGE_COLUMNS: &str =
    "number, key, shard, arrived_ms, body, dedupe, parked, checksum, urgent";
pub(crate) const INBOX: &str = "SELECT number, key, shard, arrived_ms, body, dedupe, parked, checksum, urgent \
     FROM inbox INDEXED BY inbox_unparked WHERE parked = 0 AND number >= ?1 \
     AND (urgent = 1 OR NOT EXISTS (SELECT 1 FROM instances INDEXED BY instances_blocked \
                                    WHERE instances.key = inbox.key AND blocked IS NOT NULL)) \
     ORDER BY number";
pub(crate) const DUE: &str = "SELECT key, shard, wake_at_ms, rowid FROM instances INDEXED BY instances_due \
     WHERE wake_at_ms < ?1 AND status < 2 AND (wake_at_ms, key) > (?2, ?3) ORDER BY wake_at_ms, key";
pub(crate) const OWED: &str = "SELECT key, shard, rowid FROM instances INDEXED BY instances_owed \
     WHERE owed = 1 AND status < 2 AND key > ?1 ORDER BY key";
pub(crate) const BLOCKED: &str = "SELECT key, shard, rowid FROM instances INDEXED BY instances_blocked \
     WHERE blocked IS NOT NULL AND status < 2 AND key > ?1 ORDER BY key";
/// The numbers of an instance's messages, from the index alone, unordered.
pub(crate) const NUMBERS: &str = "SELECT number FROM inbox INDEXED BY inbox_by_instance WHERE key = ?1";
pub(crate) const MESSAGE: &str = "SELECT number, key, shard, arrived_ms, body, dedupe, parked, checksum, urgent FROM inbox WHERE number = ?1";

pub(crate) fn inbox(
    connection: &Connection,
    session: SessionId,
    query: &InboxQuery,
) -> Result<InboxPage, Fault> {
    owned(connection, session, &query.shards, || {
        let mut statement = connection.prepare_cached(INBOX)?;
        let mut rows = statement.query([bound(query.from)])?;
        let mut fill = PageFill::new(query.limit);
        let mut page = InboxPage::default();
        while let Some(row) = rows.next()? {
            let (Some(number), Some(shard)) = (
                readable("inbox", row, 0, read_number(row, 0)),
                readable("inbox", row, 0, read_shard(row, 2)),
            ) else {
                continue;
            };
            // The bodies of rows that are not wanted are not read.
            if !query.shards.contains(shard) || query.known.binary_search(&number).is_ok() {
                continue;
            }
            let Some(message) = readable("inbox", row, 0, message(row)) else { continue };
            if !fill.admits(message.body.len()) {
                page.next = Some(number);
                break;
            }
            page.rows.push(message);
        }
        Ok(page)
    })
}

pub(crate) fn due(
    connection: &Connection,
    session: SessionId,
    shards: &ShardSet,
    before_ms: u64,
    after: Option<(u64, InstanceKey)>,
    limit: usize,
) -> Result<Vec<DueInstance>, Fault> {
    let (after_ms, after_key) = match &after {
        Some((after_ms, key)) => (bound(*after_ms), &key.as_bytes()[..]),
        None => (-1, &[][..]),
    };
    owned(connection, session, shards, || {
        let mut statement = connection.prepare_cached(DUE)?;
        let rows = statement.query(params![bound(before_ms), after_ms, after_key])?;
        of_shards(rows, shards, limit, 3, |row, key, shard| {
            Ok(DueInstance { key, shard, wake_at_ms: read_number(row, 2)? })
        })
    })
}

pub(crate) fn owed(
    connection: &Connection,
    session: SessionId,
    shards: &ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, Fault> {
    keys(connection, OWED, session, shards, after, limit)
}

pub(crate) fn blocked(
    connection: &Connection,
    session: SessionId,
    shards: &ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, Fault> {
    keys(connection, BLOCKED, session, shards, after, limit)
}

/// The messages of an instance, ordered by number.
pub(crate) fn messages(
    connection: &Connection,
    key: InstanceKey,
    limit: PageLimit,
    damaged: Damaged,
) -> Result<InboxPage, Fault> {
    let read = |row: &Row<'_>| match damaged {
        Damaged::Refused => message(row).map(Some),
        Damaged::LeftOut => Ok(readable("inbox", row, 0, message(row))),
    };
    // Only the numbers are sorted: sorting rows with their bodies would need as much memory as the bodies have bytes.
    let mut statement = connection.prepare_cached(NUMBERS)?;
    let mut numbers = collect(statement.query([key.as_bytes()])?, |row| Ok(read_number(row, 0)?))?;
    numbers.sort_unstable();
    let mut fill = PageFill::new(limit);
    let mut page = InboxPage::default();
    let mut statement = connection.prepare_cached(MESSAGE)?;
    for number in numbers {
        for message in collect(statement.query([bound(number)])?, read)?.into_iter().flatten() {
            if !fill.admits(message.body.len()) {
                page.next = Some(number);
                return Ok(page);
            }
            page.rows.push(message);
        }
    }
    Ok(page)
}

/// Reads for a session that owns the shards, from one snapshot.
fn owned<T>(
    connection: &Connection,
    session: SessionId,
    shards: &ShardSet,
    read: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    shards::check(connection, session, shards)?;
    let page = read()?;
    transaction.finish()?;
    Ok(page)
}

fn keys(
    connection: &Connection,
    sql: &str,
    session: SessionId,
    shards: &ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, Fault> {
    let after: &[u8] = after.as_ref().map_or(&[], |after| after.as_bytes());
    owned(connection, session, shards, || {
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query([after])?;
        of_shards(rows, shards, limit, 2, |_, key, shard| Ok((key, shard)))
    })
}

/// The first rows of some shards. The first columns must be key and shard.
fn of_shards<T>(
    mut rows: rusqlite::Rows<'_>,
    shards: &ShardSet,
    limit: usize,
    rowid_column: usize,
    read: impl Fn(&Row<'_>, InstanceKey, ShardId) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut found = Vec::new();
    while found.len() < limit.max(1)
        && let Some(row) = rows.next()?
    {
        let Some(shard) = readable("instances", row, rowid_column, read_shard(row, 1)) else { continue };
        if shards.contains(shard) {
            let instance = read_key(row, 0).map_err(Fault::from).and_then(|key| read(row, key, shard));
            found.extend(readable("instances", row, rowid_column, instance));
        }
    }
    Ok(found)
}

/// How many columns of a message are covered by its checksum.
const SEALED: usize = 7;

pub(crate) fn message(row: &Row<'_>) -> Result<InboxRow, Fault> {
    seal::check(row, SEALED)?;
    Ok(InboxRow {
        number: read_number(row, 0)?,
        key: read_key(row, 1)?,
        shard: read_shard(row, 2)?,
        arrived_ms: read_number(row, 3)?,
        urgent: row.get(8)?,
        body: bytes(row, 4)?,
    })
}
