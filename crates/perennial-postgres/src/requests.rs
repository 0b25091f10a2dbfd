//! Requests from processes that do not own the instance, their replies, and settings.

use std::sync::Arc;

use perennial_core::store::{
    Changes, NewRequest, PageLimit, RequestNumber, RequestOutcome, RequestPage, RequestRow, SessionId,
    ShardSet, StoreError,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{
    bound, column, read_bytes, read_key, read_maybe_number, read_number, read_shard, storable, uuid,
};
use crate::sessions::{numbers, session_uuid};
use crate::store::Inner;

const PUT: &str = "SELECT number, shard FROM @.put_request($1, $2, $3, $4, $5, $6)";
const READ: &str = "SELECT number, key, shard, deadline_ms, after_number, body \
     FROM @.read_requests($1, $2, $3, $4, $5, $6) ORDER BY number";
const READ_REPLY: &str = "SELECT body FROM @.replies WHERE number = $1";
const WITHDRAW: &str = "DELETE FROM @.requests WHERE number = $1 RETURNING number";
const READ_SETTING: &str = "SELECT value FROM @.settings WHERE name = $1";
const WRITE_SETTING: &str = "SELECT @.write_setting($1, $2, $3)";

pub(crate) async fn put(inner: &Inner, request: NewRequest) -> Result<RequestOutcome, StoreError> {
    if storable(&request.instance).is_err() {
        return Ok(RequestOutcome::NoInstance);
    }
    let (key, patience, after) =
        (request.key.map(uuid), bound(request.patience_ms), request.after.map(bound));
    let at = inner.at();
    let arguments: [Argument<'_>; 6] = [
        (&request.instance, Type::TEXT),
        (&key, Type::UUID),
        (&patience, Type::INT8),
        (&after, Type::INT8),
        (&&request.body[..], Type::BYTEA),
        (&at, Type::INT8),
    ];
    let rows = inner.query(PUT, &arguments, Access::Writes).await?;
    let Some(row) = rows.first() else { return Ok(RequestOutcome::NoInstance) };
    let mut changes = Changes::default();
    changes.requests.insert(read_shard(row, 1)?);
    inner.hints.notify(&changes);
    read_number(row, 0).map(RequestOutcome::Written)
}

pub(crate) async fn read(
    inner: &Inner,
    session: SessionId,
    shards: ShardSet,
    from: RequestNumber,
    limit: PageLimit,
) -> Result<RequestPage, StoreError> {
    let (id, shards, from, at) = (session_uuid(session), numbers(&shards), bound(from), inner.at());
    let (rows, bytes) = (bound(limit.rows.max(1) as u64).min(i64::MAX - 1), bound(limit.bytes));
    let arguments: [Argument<'_>; 6] = [
        (&id, Type::UUID),
        (&shards, Type::INT2_ARRAY),
        (&from, Type::INT8),
        (&rows, Type::INT8),
        (&bytes, Type::INT8),
        (&at, Type::INT8),
    ];
    let rows = inner.query(READ, &arguments, Access::Reads).await?;
    let mut page = RequestPage::default();
    for row in &rows {
        if column::<Option<&[u8]>>(row, 5)?.is_none() {
            page.next = Some(read_number(row, 0)?);
            break;
        }
        page.rows.push(request(row)?);
    }
    Ok(page)
}

/// Decodes a row with the columns number, key, shard, deadline, after and body.
pub(crate) fn request(row: &Row) -> Result<RequestRow, StoreError> {
    Ok(RequestRow {
        number: read_number(row, 0)?,
        key: read_key(row, 1)?,
        shard: read_shard(row, 2)?,
        deadline_ms: read_number(row, 3)?,
        after: read_maybe_number(row, 4)?,
        body: read_bytes(row, 5)?,
    })
}

pub(crate) async fn read_reply(
    inner: &Inner,
    number: RequestNumber,
) -> Result<Option<Arc<[u8]>>, StoreError> {
    let number = bound(number);
    let rows = inner.query(READ_REPLY, &[(&number, Type::INT8)], Access::Reads).await?;
    rows.first().map(|row| read_bytes(row, 0)).transpose()
}

pub(crate) async fn withdraw(inner: &Inner, number: RequestNumber) -> Result<bool, StoreError> {
    let number = bound(number);
    let rows = inner.query(WITHDRAW, &[(&number, Type::INT8)], Access::Writes).await?;
    Ok(!rows.is_empty())
}

pub(crate) async fn read_setting(inner: &Inner, name: &str) -> Result<Option<Arc<[u8]>>, StoreError> {
    if storable(name).is_err() {
        return Ok(None);
    }
    let rows = inner.query(READ_SETTING, &[(&name, Type::TEXT)], Access::Reads).await?;
    rows.first().map(|row| read_bytes(row, 0)).transpose()
}

pub(crate) async fn write_setting(
    inner: &Inner,
    name: &str,
    read: Option<Arc<[u8]>>,
    value: Option<Arc<[u8]>>,
) -> Result<bool, StoreError> {
    storable(name).map_err(StoreError::BatchRefused)?;
    let arguments: [Argument<'_>; 3] =
        [(&name, Type::TEXT), (&read.as_deref(), Type::BYTEA), (&value.as_deref(), Type::BYTEA)];
    let rows = inner.query(WRITE_SETTING, &arguments, Access::Writes).await?;
    column(inner.one(&rows)?, 0)
}
