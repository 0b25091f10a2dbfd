//! Encodes and decodes the row of an instance.

use std::sync::Arc;

use perennial_core::history::ParentLink;
use perennial_core::store::{Blocked, InstanceRow, Status, StoreError};
use perennial_core::{Attributes, InstanceKey, Payload, ShardId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

/// The columns that [`read_instance`] expects, in its order. A newer schema may have more.
macro_rules! instance_columns {
    () => {
        "key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked, attributes, published, parent, \
         created_ms, ended_ms, parent_key, is_full, checksum"
    };
}

pub(crate) use instance_columns;

/// The number that represents a status. Partial indexes refer to these numbers.
pub(crate) fn status_code(status: Status) -> i16 {
    match status {
        Status::Pending => 0,
        Status::Running => 1,
        Status::Completed => 2,
        Status::Failed => 3,
        Status::Cancelled => 4,
        Status::Terminated => 5,
    }
}

fn status_of_code(code: i16) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status_code(*status) == code)
}

/// Converts a number that is only compared, such as a bound or a future time. Values beyond the range of the column
/// saturate, and so remain larger than every stored value.
pub(crate) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number that must be read back unchanged. Returns an error if it does not fit.
pub(crate) fn exact(number: u64) -> Result<i64, String> {
    i64::try_from(number).map_err(|_| format!("{number} is too large to be stored"))
}

pub(crate) fn uuid(key: InstanceKey) -> Uuid {
    Uuid::from_bytes(*key.as_bytes())
}

pub(crate) fn key(uuid: Uuid) -> InstanceKey {
    InstanceKey::from_bytes(*uuid.as_bytes())
}

pub(crate) fn shard(shard: ShardId) -> i16 {
    i16::from(shard.0)
}

/// Checks that PostgreSQL can store a text: it does not support NUL characters.
pub(crate) fn storable(text: &str) -> Result<&str, String> {
    if text.contains('\0') { Err(format!("{text:?} has a NUL character")) } else { Ok(text) }
}

/// Serializes a value as JSON text.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Serializes attributes as JSON text; `None` if there are none, as in most instances.
pub(crate) fn attributes_json(attributes: &Attributes) -> Result<Option<String>, String> {
    if attributes.is_empty() { Ok(None) } else { json(attributes).map(Some) }
}

/// Reads a column of a row.
pub(crate) fn column<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| {
        let name = row.columns().get(column).map_or("", |column| column.name());
        StoreError::CorruptRow(format!("column {name}: {error}"))
    })
}

pub(crate) fn read_key(row: &Row, place: usize) -> Result<InstanceKey, StoreError> {
    column(row, place).map(key)
}

pub(crate) fn read_shard(row: &Row, place: usize) -> Result<ShardId, StoreError> {
    let number: i16 = column(row, place)?;
    u8::try_from(number).map(ShardId).map_err(|_| StoreError::CorruptRow(format!("{number} is not a shard")))
}

pub(crate) fn read_number(row: &Row, place: usize) -> Result<u64, StoreError> {
    number(column(row, place)?)
}

pub(crate) fn read_maybe_number(row: &Row, place: usize) -> Result<Option<u64>, StoreError> {
    column::<Option<i64>>(row, place)?.map(number).transpose()
}

pub(crate) fn number(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::CorruptRow(format!("{number} is negative")))
}

pub(crate) fn read_bytes(row: &Row, place: usize) -> Result<Arc<[u8]>, StoreError> {
    column::<&[u8]>(row, place).map(Arc::from)
}

pub(crate) fn read_json<T: DeserializeOwned>(row: &Row, place: usize) -> Result<Option<T>, StoreError> {
    let Some(text) = column::<Option<&str>>(row, place)? else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|error| StoreError::CorruptRow(error.to_string()))
}

pub(crate) fn read_payload(row: &Row, place: usize) -> Result<Option<Payload>, StoreError> {
    let Some(text) = column::<Option<&str>>(row, place)? else { return Ok(None) };
    Payload::from_json(text).map(Some).map_err(|error| StoreError::CorruptRow(error.to_string()))
}

/// Decodes a row whose columns from `first` on are those of `instances`, in the order of `instance_columns!`.
pub(crate) fn read_instance(row: &Row, first: usize) -> Result<InstanceRow, StoreError> {
    decode(row, first).map_err(|error| {
        let id: String = row.try_get(first + 1).unwrap_or_default();
        match error {
            StoreError::CorruptRow(reason) => StoreError::CorruptRow(format!("instance {id}: {reason}")),
            other => other,
        }
    })
}

fn decode(row: &Row, first: usize) -> Result<InstanceRow, StoreError> {
    let status: i16 = column(row, first + 5)?;
    let parent: Option<ParentLink> = read_json(row, first + 12)?;
    let checksum: i32 = column(row, first + 17)?;
    Ok(InstanceRow {
        key: read_key(row, first)?,
        id: column(row, first + 1)?,
        shard: read_shard(row, first + 2)?,
        name: column(row, first + 3)?,
        version: column(row, first + 4)?,
        status: status_of_code(status)
            .ok_or_else(|| StoreError::CorruptRow(format!("{status} is not a status")))?,
        execution: read_number(row, first + 6)?,
        owed: column(row, first + 7)?,
        wake_at_ms: read_maybe_number(row, first + 8)?,
        blocked: read_json(row, first + 9)?,
        attributes: read_json(row, first + 10)?.unwrap_or_default(),
        published: read_payload(row, first + 11)?,
        parent,
        created_ms: read_number(row, first + 13)?,
        ended_ms: read_maybe_number(row, first + 14)?,
        full: column(row, first + 16)?,
        checksum: checksum.cast_unsigned(),
    })
}

/// Decodes a row for lists. A corrupt row must not hide the others: it is returned as a blocked instance with the
/// columns that can be read.
pub(crate) fn shown(row: &Row, first: usize) -> Result<InstanceRow, StoreError> {
    let fault = match read_instance(row, first) {
        Ok(instance) => return Ok(instance),
        Err(fault) => fault,
    };
    let id: String = column(row, first + 1)?;
    Ok(InstanceRow {
        key: read_key(row, first)?,
        shard: ShardId::of(&id),
        id,
        name: column(row, first + 3)?,
        version: column(row, first + 4)?,
        status: status_of_code(column(row, first + 5)?).unwrap_or(Status::Running),
        execution: column::<i64>(row, first + 6)?.cast_unsigned(),
        owed: false,
        wake_at_ms: None,
        blocked: Some(Blocked {
            code: fault.code().to_string(),
            cause: "corrupt row".to_owned(),
            reason: format!("corrupt row: {fault}"),
            report: fault.to_string(),
            ..Blocked::default()
        }),
        full: false,
        attributes: Attributes::default(),
        published: None,
        parent: None,
        created_ms: column::<i64>(row, first + 13)?.cast_unsigned(),
        ended_ms: None,
        checksum: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_every_status_has_a_number_of_its_own_that_indexes_rely_on() {
        for (code, status) in (0..).zip(Status::ALL) {
            assert_eq!(status_code(status), code);
            assert_eq!(status_of_code(code), Some(status));
            // Partial indexes use `status < 2` for instances that have not ended.
            assert_eq!(code >= 2, status.is_final());
        }
        assert_eq!(status_of_code(6), None);
    }
}
