//! The search index of attributes, kept consistent with the attributes column of the rows.
//!
//! Values are stored as bytes that sort like the values ([`order_key`]). An instance without attributes has no rows
//! here.

use perennial_core::store::order_key;
use perennial_core::{Attributes, InstanceKey};
use rusqlite::{Connection, params};

pub(crate) const INSERT: &str = "INSERT INTO attributes (key, name, order_key) VALUES (?1, ?2, ?3)";
pub(crate) const DELETE: &str = "DELETE FROM attributes WHERE key = ?1";

/// How many instances are read at a time when the index is filled.
const FILLED_AT_ONCE: i64 = 1_000;

/// Inserts the attributes of an instance that has none in the index.
pub(crate) fn insert(
    connection: &Connection,
    key: InstanceKey,
    attributes: &Attributes,
) -> rusqlite::Result<()> {
    if attributes.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached(INSERT)?;
    for (name, value) in attributes {
        insert.execute(params![key.as_bytes(), name, order_key(value)])?;
    }
    Ok(())
}

/// Replaces the attributes of an instance in the index.
pub(crate) fn replace(
    connection: &Connection,
    key: InstanceKey,
    attributes: &Attributes,
) -> rusqlite::Result<()> {
    connection.prepare_cached(DELETE)?.execute([key.as_bytes()])?;
    insert(connection, key, attributes)
}

/// Fills the index from existing rows. This cannot be done in SQL, because SQLite does not know the order of values.
pub(crate) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let mut page = connection.prepare(
        "SELECT rowid, key, attributes FROM instances WHERE rowid > ?1 AND attributes IS NOT NULL ORDER BY rowid LIMIT ?2",
    )?;
    let mut after = 0;
    loop {
        let rows = page.query_map([after, FILLED_AT_ONCE], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 16]>(1)?, row.get::<_, String>(2)?))
        })?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((last, _, _)) = rows.last() else { return Ok(()) };
        after = *last;
        for (_, key, text) in rows {
            // A corrupt row is listed as such, and is not found by attributes.
            if let Ok(attributes) = serde_json::from_str(&text) {
                insert(connection, InstanceKey::from_bytes(key), &attributes)?;
            }
        }
    }
}
