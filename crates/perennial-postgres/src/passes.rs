//! Reads that an owner makes in its passes, and reads of whole instances.

use perennial_core::store::{
    DueInstance, InboxPage, InboxQuery, InboxRow, InstanceRow, LoadedInstance, PageLimit, SessionId,
    ShardSet, StoreError, TurnRow,
};
use perennial_core::{InstanceKey, ShardId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::{Access, classify};
use crate::row::{
    bound, column, instance_columns, read_bytes, read_instance, read_key, read_number, read_shard, shown,
    storable, uuid,
};
use crate::sessions::{numbers, session_uuid};
use crate::store::Inner;
use crate::tasks;

const INBOX: &str = "SELECT number, key, shard, arrived_ms, urgent, body \
     FROM @.read_inbox($1, $2, $3, $4, $5, $6) ORDER BY number";
const DUE: &str =
    "SELECT key, shard, wake_at_ms FROM @.read_due($1, $2, $3, $4, $5, $6) ORDER BY wake_at_ms, key";
const OWED: &str = "SELECT key, shard FROM @.read_owed($1, $2, $3, $4) ORDER BY key";
const BLOCKED: &str = "SELECT key, shard FROM @.read_blocked($1, $2, $3, $4) ORDER BY key";
pub(crate) const BY_ID: &str = concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE id = $1");
pub(crate) const BY_KEY: &str = concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE key = $1");
/// Turns of a deleted instance that have not been swept are not returned. A page has at least one turn.
const TURNS: &str = "SELECT t.number, t.checksum, t.body FROM ( \
         SELECT l.number, l.checksum, l.body, row_number() OVER place AS place, \
             sum(octet_length(l.body)) OVER place AS bytes \
         FROM (SELECT number, checksum, body FROM @.turns WHERE key = $1 AND execution = $2 AND number > $3 \
               AND NOT EXISTS (SELECT 1 FROM @.graves AS g WHERE g.key = $1) ORDER BY number LIMIT $4) AS l \
         WINDOW place AS (ORDER BY l.number ROWS UNBOUNDED PRECEDING) \
     ) AS t WHERE t.place = 1 OR t.bytes <= $5 ORDER BY t.number";
const ALL_TURNS: &str = "SELECT number, checksum, body FROM @.turns WHERE key = $1 \
     AND execution = (SELECT i.execution FROM @.instances AS i WHERE i.key = $1) AND number > $2 ORDER BY number";
/// Returns messages as `read_inbox` does.
const MESSAGES: &str = "WITH sized AS ( \
         SELECT b.number, b.key, b.shard, b.arrived_ms, b.urgent, b.body, row_number() OVER place AS place, \
             sum(octet_length(b.body)) OVER place AS bytes \
         FROM (SELECT * FROM @.inbox WHERE key = $1 ORDER BY number LIMIT $2) AS b \
         WINDOW place AS (ORDER BY b.number ROWS UNBOUNDED PRECEDING) \
     ), fitting AS (SELECT s.*, s.place = 1 OR (s.place < $2 AND s.bytes <= $3) AS fits FROM sized AS s) \
     SELECT f.number, f.key, f.shard, f.arrived_ms, f.urgent, CASE WHEN f.fits THEN f.body END FROM fitting AS f \
     WHERE f.fits OR f.place = (SELECT min(n.place) FROM fitting AS n WHERE NOT n.fits) ORDER BY f.number";

/// The number of rows of a page, as the server takes it.
fn rows_of(limit: PageLimit) -> i64 {
    // Statements read one row more than this.
    bound(limit.rows.max(1) as u64).min(i64::MAX - 1)
}

pub(crate) async fn inbox(
    inner: &Inner,
    session: SessionId,
    query: InboxQuery,
) -> Result<InboxPage, StoreError> {
    let (id, shards, from) = (session_uuid(session), numbers(&query.shards), bound(query.from));
    let known: Vec<i64> = query.known.iter().map(|number| bound(*number)).collect();
    let (rows, bytes) = (rows_of(query.limit), bound(query.limit.bytes));
    let arguments: [Argument<'_>; 6] = [
        (&id, Type::UUID),
        (&shards, Type::INT2_ARRAY),
        (&from, Type::INT8),
        (&known, Type::INT8_ARRAY),
        (&rows, Type::INT8),
        (&bytes, Type::INT8),
    ];
    page(&inner.query(INBOX, &arguments, Access::Reads).await?)
}

fn page(rows: &[Row]) -> Result<InboxPage, StoreError> {
    let mut page = InboxPage::default();
    for row in rows {
        let number = read_number(row, 0)?;
        if column::<Option<&[u8]>>(row, 5)?.is_none() {
            page.next = Some(number);
            break;
        }
        page.rows.push(InboxRow {
            number,
            key: read_key(row, 1)?,
            shard: read_shard(row, 2)?,
            arrived_ms: read_number(row, 3)?,
            urgent: column(row, 4)?,
            body: read_bytes(row, 5)?,
        });
    }
    Ok(page)
}

pub(crate) async fn due(
    inner: &Inner,
    session: SessionId,
    shards: ShardSet,
    before_ms: u64,
    after: Option<(u64, InstanceKey)>,
    limit: usize,
) -> Result<Vec<DueInstance>, StoreError> {
    let (id, shards, before) = (session_uuid(session), numbers(&shards), bound(before_ms));
    let (after_ms, after_key) =
        after.map_or((-1, Uuid::nil()), |(after_ms, key)| (bound(after_ms), uuid(key)));
    let limit = rows_of(PageLimit::rows(limit));
    let arguments: [Argument<'_>; 6] = [
        (&id, Type::UUID),
        (&shards, Type::INT2_ARRAY),
        (&before, Type::INT8),
        (&after_ms, Type::INT8),
        (&after_key, Type::UUID),
        (&limit, Type::INT8),
    ];
    let rows = inner.query(DUE, &arguments, Access::Reads).await?;
    let due = |row: &Row| {
        Ok(DueInstance {
            key: read_key(row, 0)?,
            shard: read_shard(row, 1)?,
            wake_at_ms: read_number(row, 2)?,
        })
    };
    rows.iter().map(due).collect()
}

pub(crate) async fn owed(
    inner: &Inner,
    session: SessionId,
    shards: ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
    keys(inner, OWED, session, shards, after, limit).await
}

pub(crate) async fn blocked(
    inner: &Inner,
    session: SessionId,
    shards: ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
    keys(inner, BLOCKED, session, shards, after, limit).await
}

async fn keys(
    inner: &Inner,
    sql: &'static str,
    session: SessionId,
    shards: ShardSet,
    after: Option<InstanceKey>,
    limit: usize,
) -> Result<Vec<(InstanceKey, ShardId)>, StoreError> {
    let (id, shards, after) = (session_uuid(session), numbers(&shards), after.map(uuid));
    let limit = rows_of(PageLimit::rows(limit));
    let arguments: [Argument<'_>; 4] =
        [(&id, Type::UUID), (&shards, Type::INT2_ARRAY), (&after, Type::UUID), (&limit, Type::INT8)];
    let rows = inner.query(sql, &arguments, Access::Reads).await?;
    rows.iter().map(|row| Ok((read_key(row, 0)?, read_shard(row, 1)?))).collect()
}

pub(crate) async fn find(inner: &Inner, id: &str) -> Result<Option<InstanceRow>, StoreError> {
    // No instance can have an id that cannot be stored.
    if storable(id).is_err() {
        return Ok(None);
    }
    let rows = inner.query(BY_ID, &[(&id, Type::TEXT)], Access::Reads).await?;
    // A damaged instance is returned as blocked, so that it can be inspected and terminated.
    rows.first().map(|row| shown(row, 0)).transpose()
}

pub(crate) async fn load(
    inner: &Inner,
    key: InstanceKey,
    after_turn: u64,
    inbox: PageLimit,
) -> Result<Option<LoadedInstance>, StoreError> {
    let (key, after) = (uuid(key), bound(after_turn));
    let (rows, bytes) = (rows_of(inbox) + 1, bound(inbox.bytes));
    let of_key: [Argument<'_>; 1] = [(&key, Type::UUID)];
    let of_turns: [Argument<'_>; 2] = [(&key, Type::UUID), (&after, Type::INT8)];
    let of_inbox: [Argument<'_>; 3] = [(&key, Type::UUID), (&rows, Type::INT8), (&bytes, Type::INT8)];
    let queries = [
        (BY_KEY, &of_key[..]),
        (ALL_TURNS, &of_turns),
        (MESSAGES, &of_inbox),
        (tasks::OF_EXECUTION, &of_key),
    ];
    let mut connection = inner.pool.get().await?;
    let read = connection.snapshot(queries).await;
    let [instance, turns, messages, tasks] =
        read.map_err(|error| classify(&error, Access::Reads).into_error())?;
    let Some(row) = instance.first().map(|row| read_instance(row, 0)).transpose()? else { return Ok(None) };
    let turns = turns.iter().map(|turn| read_turn(turn, row.execution)).collect::<Result<_, _>>()?;
    let tasks = tasks.iter().map(tasks::read).collect::<Result<_, _>>()?;
    Ok(Some(LoadedInstance { row, turns, inbox: page(&messages)?, tasks }))
}

pub(crate) async fn turns(
    inner: &Inner,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
    limit: PageLimit,
) -> Result<Vec<TurnRow>, StoreError> {
    let (key, of, after) = (uuid(key), bound(execution), bound(after_turn));
    let (rows, bytes) = (rows_of(limit), bound(limit.bytes));
    let arguments: [Argument<'_>; 5] = [
        (&key, Type::UUID),
        (&of, Type::INT8),
        (&after, Type::INT8),
        (&rows, Type::INT8),
        (&bytes, Type::INT8),
    ];
    let rows = inner.query(TURNS, &arguments, Access::Reads).await?;
    rows.iter().map(|row| read_turn(row, execution)).collect()
}

fn read_turn(row: &Row, execution: u64) -> Result<TurnRow, StoreError> {
    let checksum: i32 = column(row, 1)?;
    Ok(TurnRow {
        execution,
        number: read_number(row, 0)?,
        bytes: read_bytes(row, 2)?,
        checksum: checksum.cast_unsigned(),
    })
}
