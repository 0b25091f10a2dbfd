//! Converts the row of an instance to and from columns.

use perennial_core::history::ParentLink;
use perennial_core::store::{InstanceRow, Status, StoreError, row_checksum};
use perennial_core::{Attributes, InstanceKey, Payload, ShardId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The columns that [`read_instance`] expects, in this order.
pub(crate) const COLUMNS: &str = "key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked, \
                                  attributes, published, parent, created_ms, ended_ms, parent_key, full, \
                                  checksum";

/// A column that is used only for searching.
pub(crate) const PARENT_KEY_COLUMN: usize = 15;

/// The number of a status. Partial indexes contain these numbers.
pub(crate) fn status_code(status: Status) -> i64 {
    match status {
        Status::Pending => 0,
        Status::Running => 1,
        Status::Completed => 2,
        Status::Failed => 3,
        Status::Cancelled => 4,
        Status::Terminated => 5,
    }
}

/// The status with a number.
pub(crate) fn status_of_code(code: i64) -> Option<Status> {
    Status::ALL.into_iter().find(|status| status_code(*status) == code)
}

/// A number for SQLite, for bounds and wake times. Numbers beyond its range are larger than any stored one, so the
/// largest number serves as a bound; and a wake time beyond it never comes.
pub(crate) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number for SQLite, exactly.
pub(crate) fn exact(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// A value as JSON text.
pub(crate) fn json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Attributes as JSON text; most instances have none.
pub(crate) fn attributes_json(attributes: &Attributes) -> rusqlite::Result<Option<String>> {
    if attributes.is_empty() { Ok(None) } else { json(attributes).map(Some) }
}

/// Reads a row whose first columns are [`COLUMNS`].
pub(crate) fn read_instance(row: &Row<'_>) -> Result<InstanceRow, StoreError> {
    decode(row).map_err(|fault| {
        let id = row.get_ref(1).ok().and_then(|id| id.as_str().ok().map(str::to_owned));
        let key = row.get_ref(0).ok().and_then(|key| key.as_blob().ok().map(key_text));
        StoreError::CorruptRow(format!(
            "instance {} (key {}): {fault}",
            id.as_deref().unwrap_or("without an id"),
            key.as_deref().unwrap_or("missing"),
        ))
    })
}

/// A key in a column.
pub(crate) fn read_key(row: &Row<'_>, column: usize) -> Result<InstanceKey, StoreError> {
    let key = blob::<16>(row, column).map_err(|fault| StoreError::CorruptRow(fault.to_string()))?;
    Ok(InstanceKey::from_bytes(key))
}

/// A key for bytes that should be one. If the length is wrong, it is the first key that is not before them, so that
/// pages continue after such a row and do not show it again.
pub(crate) fn readable_key(bytes: &[u8]) -> InstanceKey {
    let mut key = [0; 16];
    let length = bytes.len().min(16);
    key[..length].copy_from_slice(&bytes[..length]);
    let number = u128::from_be_bytes(key).saturating_add(u128::from(bytes.len() > 16));
    InstanceKey::from_bytes(number.to_be_bytes())
}

/// A shard in a column.
pub(crate) fn read_shard(row: &Row<'_>, column: usize) -> Result<ShardId, StoreError> {
    let shard = row.get(column).map(ShardId);
    shard.map_err(|error| StoreError::CorruptRow(error.to_string()))
}

/// A number in a column.
pub(crate) fn read_number(row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
    number(row, column).map_err(|fault| StoreError::CorruptRow(fault.to_string()))
}

/// A number in a column that may be empty.
pub(crate) fn read_maybe_number(row: &Row<'_>, column: usize) -> Result<Option<u64>, StoreError> {
    maybe_number(row, column).map_err(|fault| StoreError::CorruptRow(fault.to_string()))
}

/// A value as JSON text in a column that may be empty.
pub(crate) fn read_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, StoreError> {
    from_json(row, column).map_err(|fault| StoreError::CorruptRow(fault.to_string()))
}

/// A payload in a column that may be empty.
pub(crate) fn read_payload(row: &Row<'_>, column: usize) -> Result<Option<Payload>, StoreError> {
    payload(row, column).map_err(|fault| StoreError::CorruptRow(fault.to_string()))
}

/// Adds the checksum to every row of an older schema. A row that cannot be read gets none, and is detected by that.
/// Columns are named here because this belongs to one version of the schema.
pub(crate) fn seal_all(connection: &Connection) -> rusqlite::Result<()> {
    let mut all = connection.prepare("SELECT rowid, key, id, name, created_ms, parent FROM instances")?;
    let mut seal = connection.prepare("UPDATE instances SET checksum = ?2 WHERE rowid = ?1")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        if let Ok(checksum) = checksum_of(row) {
            seal.execute(params![row.get::<_, i64>(0)?, checksum])?;
        }
    }
    Ok(())
}

fn checksum_of(row: &Row<'_>) -> Result<u32, Fault> {
    let parent: Option<ParentLink> = from_json(row, 5)?;
    let (key, id, name): (_, String, String) =
        (InstanceKey::from_bytes(blob(row, 1)?), row.get(2)?, row.get(3)?);
    Ok(row_checksum(key, &id, &name, number(row, 4)?, parent.as_ref()))
}

/// What is wrong with a row.
type Fault = Box<dyn std::error::Error>;

fn decode(row: &Row<'_>) -> Result<InstanceRow, Fault> {
    let status: i64 = row.get(5)?;
    let parent: Option<ParentLink> = from_json(row, 12)?;
    // Children are found by it.
    if row.get_ref(PARENT_KEY_COLUMN)?.as_str_or_null()? != parent.as_ref().map(|parent| &*parent.key) {
        return Err("column parent_key: it is not that of the parent".into());
    }
    Ok(InstanceRow {
        key: InstanceKey::from_bytes(blob(row, 0)?),
        id: row.get(1)?,
        shard: ShardId(row.get(2)?),
        name: row.get(3)?,
        version: row.get(4)?,
        status: status_of_code(status).ok_or_else(|| format!("column status: {status} is not a status"))?,
        execution: number(row, 6)?,
        owed: row.get(7)?,
        wake_at_ms: maybe_number(row, 8)?,
        blocked: from_json(row, 9)?,
        full: row.get(16)?,
        attributes: from_json(row, 10)?.unwrap_or_default(),
        published: payload(row, 11)?,
        parent,
        created_ms: number(row, 13)?,
        ended_ms: maybe_number(row, 14)?,
        checksum: row.get(17)?,
    })
}

fn blob<const N: usize>(row: &Row<'_>, column: usize) -> Result<[u8; N], Fault> {
    let bytes = row.get_ref(column)?.as_blob()?;
    bytes.try_into().map_err(|_| format!("a key of {} bytes instead of {N}", bytes.len()).into())
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, Fault> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| format!("{} is {number}", column_name(row, column)).into())
}

fn maybe_number(row: &Row<'_>, column: usize) -> Result<Option<u64>, Fault> {
    if row.get_ref(column)? == ValueRef::Null { Ok(None) } else { number(row, column).map(Some) }
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, Fault> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else {
        return Ok(None);
    };
    match serde_json::from_str(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(format!("{}: {error}", column_name(row, column)).into()),
    }
}

fn payload(row: &Row<'_>, column: usize) -> Result<Option<Payload>, Fault> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else {
        return Ok(None);
    };
    match Payload::from_json(text) {
        Ok(payload) => Ok(Some(payload)),
        Err(error) => Err(format!("{}: {error}", column_name(row, column)).into()),
    }
}

fn column_name(row: &Row<'_>, column: usize) -> String {
    let name = row.as_ref().column_name(column).unwrap_or("unknown");
    format!("column {name}")
}

fn key_text(bytes: &[u8]) -> String {
    match bytes.try_into() {
        Ok(bytes) => InstanceKey::from_bytes(bytes).to_string(),
        Err(_) => format!("of {} bytes", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_every_status_has_a_number_of_its_own_that_indexes_rely_on() {
        let codes: Vec<i64> = Status::ALL.into_iter().map(status_code).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
        for status in Status::ALL {
            assert_eq!(status_of_code(status_code(status)), Some(status));
            // The partial indexes contain `status < 2`.
            assert_eq!(status_code(status) >= 2, status.is_final());
        }
        assert_eq!(status_of_code(6), None);
    }
}
