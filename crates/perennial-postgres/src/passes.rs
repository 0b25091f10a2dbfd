//! Reads that an owner makes in its passes.

use perennial_core::store::{
    DueInstance, InboxPage, InboxQuery, InboxRow, PageLimit, SessionId, ShardSet, StoreError,
};
use perennial_core::{InstanceKey, ShardId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{bound, column, read_bytes, read_key, read_number, read_shard, uuid};
use crate::sessions::{numbers, session_uuid};
use crate::store::Inner;

const INBOX: &str = "SELECT number, key, shard, arrived_ms, urgent, body \
     FROM @.read_inbox($1, $2, $3, $4, $5, $6) ORDER BY number";
const DUE: &str =
    "SELECT key, shard, wake_at_ms FROM @.read_due($1, $2, $3, $4, $5, $6) ORDER BY wake_at_ms, key";
const OWED: &str = "SELECT key, shard FROM @.read_owed($1, $2, $3, $4) ORDER BY key";
const BLOCKED: &str = "SELECT key, shard FROM @.read_blocked($1, $2, $3, $4) ORDER BY key";

/// The number of rows of a page, as the server takes it.
pub(crate) fn rows_of(limit: PageLimit) -> i64 {
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
    page(&inner.query(INBOX, &arguments, Access::Reads).await?, 0)
}

/// Reads messages, whose columns begin with `first`. The one after the page has no body.
pub(crate) fn page<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    first: usize,
) -> Result<InboxPage, StoreError> {
    let mut page = InboxPage::default();
    for row in rows {
        let number = read_number(row, first)?;
        if column::<Option<&[u8]>>(row, first + 5)?.is_none() {
            page.next = Some(number);
            break;
        }
        page.rows.push(InboxRow {
            number,
            key: read_key(row, first + 1)?,
            shard: read_shard(row, first + 2)?,
            arrived_ms: read_number(row, first + 3)?,
            urgent: column(row, first + 4)?,
            body: read_bytes(row, first + 5)?,
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
