//! Checks the rows outside `instances`: whether they can be decoded and belong to an instance. Used when a whole store
//! is verified.
//!
//! Requests and replies are paged by number. The other tables are paged by block, so that every row is on some page
//! regardless of its key.

use perennial_core::store::{CheckedRows, DamagedRow, RowPlace, StoreError};
use perennial_core::{Attributes, InstanceKey};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::Argument;
use crate::failure::Access;
use crate::new_rows::indexed_key;
use crate::requests::request;
use crate::row::{bound, column, key, read_bytes, read_key, read_number};
use crate::store::Inner;

const REQUESTS: &str = "SELECT number, key, shard, deadline_ms, after_number, body FROM @.requests \
     WHERE number > $1 ORDER BY number LIMIT $2";
const REPLIES: &str = "SELECT number, body FROM @.replies WHERE number > $1 ORDER BY number LIMIT $2";

/// Each query returns the key, the description of the row, the problem, and the instance's id if it exists.
const INBOX: &str = "SELECT b.key, 'message ' || b.number, 'it belongs to no instance', NULL::text FROM @.inbox AS b \
     WHERE b.ctid >= $1::text::tid AND b.ctid < $2::text::tid \
     AND NOT EXISTS (SELECT 1 FROM @.instances AS i WHERE i.key = b.key)";
const TASKS: &str = "SELECT t.key, 'the task of event ' || t.event, \
         CASE WHEN i.key IS NULL THEN 'it belongs to no instance' ELSE 'it is of execution ' || t.execution \
         || ', and the instance is in execution ' || i.execution END, i.id \
     FROM @.tasks AS t LEFT JOIN @.instances AS i ON i.key = t.key \
     WHERE t.ctid >= $1::text::tid AND t.ctid < $2::text::tid \
     AND (i.key IS NULL OR t.execution NOT BETWEEN 1 AND i.execution)";
/// Leaves out turns of instances in `graves`: a sweep deletes those.
const TURNS: &str = "SELECT t.key, 'turn ' || t.number || ' of execution ' || t.execution, \
         CASE WHEN i.key IS NULL THEN 'it belongs to no instance' WHEN t.number < 1 THEN 'turns are counted from 1' \
         ELSE 'the instance is in execution ' || i.execution END, i.id \
     FROM @.turns AS t LEFT JOIN @.instances AS i ON i.key = t.key \
     WHERE t.ctid >= $1::text::tid AND t.ctid < $2::text::tid \
     AND (t.number < 1 OR (i.key IS NOT NULL AND t.execution NOT BETWEEN 1 AND i.execution) \
          OR (i.key IS NULL AND NOT EXISTS (SELECT 1 FROM @.graves AS g WHERE g.key = t.key)))";
/// The attributes of each instance, together with the names and order keys in the index.
const ATTRIBUTES: &str = "SELECT i.key, i.id, i.attributes, \
         ARRAY(SELECT a.name FROM @.attributes AS a WHERE a.key = i.key ORDER BY a.name), \
         ARRAY(SELECT a.order_key FROM @.attributes AS a WHERE a.key = i.key ORDER BY a.name) \
     FROM @.instances AS i WHERE i.ctid >= $1::text::tid AND i.ctid < $2::text::tid \
     AND (i.attributes IS NOT NULL OR EXISTS (SELECT 1 FROM @.attributes AS a WHERE a.key = i.key))";

const BLOCKS: &str = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint";

/// The tables that are paged by block, in this order after requests and replies.
const TABLES: [(&str, &str); 4] =
    [("inbox", INBOX), ("tasks", TASKS), ("turns", TURNS), ("instances", ATTRIBUTES)];
/// Approximate number of rows in a block.
const ROWS_IN_A_BLOCK: usize = 50;

pub(crate) async fn check(
    inner: &Inner,
    after: Option<RowPlace>,
    rows: usize,
) -> Result<CheckedRows, StoreError> {
    let place = after.unwrap_or(RowPlace { table: 0, row: 0 });
    let following = RowPlace { table: place.table.saturating_add(1), row: 0 };
    let mut checked = CheckedRows::default();
    match place.table {
        0 | 1 => {
            let sql = if place.table == 0 { REQUESTS } else { REPLIES };
            let (from, limit) = (bound(place.row), bound(rows.max(1) as u64));
            let arguments: [Argument<'_>; 2] = [(&from, Type::INT8), (&limit, Type::INT8)];
            let found = inner.query(sql, &arguments, Access::Reads).await?;
            for row in &found {
                if place.table == 0 {
                    checked.requests.push(request(row)?);
                } else {
                    checked.replies.push((read_number(row, 0)?, read_bytes(row, 1)?));
                }
            }
            let last = found.last().map(|row| read_number(row, 0)).transpose()?;
            checked.next = Some(last.map_or(following, |row| RowPlace { row, ..place }));
        }
        table => {
            let Some((name, sql)) = TABLES.get(usize::from(table) - 2).copied() else { return Ok(checked) };
            let blocks = (rows / ROWS_IN_A_BLOCK).max(1) as u64;
            let until = place.row.saturating_add(blocks);
            checked.damage = damage(inner, sql, place.row, until).await?;
            let is_last = until >= blocks_of(inner, name).await?;
            let is_last_table = usize::from(table) - 2 + 1 == TABLES.len();
            checked.next = match (is_last, is_last_table) {
                (false, _) => Some(RowPlace { row: until, ..place }),
                (true, false) => Some(following),
                (true, true) => None,
            };
        }
    }
    Ok(checked)
}

async fn blocks_of(inner: &Inner, table: &str) -> Result<u64, StoreError> {
    let name = format!("{}.{table}", inner.target.quoted_schema());
    let rows = inner.query(BLOCKS, &[(&name, Type::TEXT)], Access::Reads).await?;
    read_number(inner.one(&rows)?, 0)
}

async fn damage(
    inner: &Inner,
    sql: &'static str,
    from: u64,
    until: u64,
) -> Result<Vec<DamagedRow>, StoreError> {
    // A block number cannot be larger than this.
    let tid = |block: u64| format!("({},0)", block.min(u64::from(u32::MAX) - 1));
    let (from, until) = (tid(from), tid(until));
    let rows = inner.query(sql, &[(&from, Type::TEXT), (&until, Type::TEXT)], Access::Reads).await?;
    let found =
        rows.iter().map(|row| if sql == ATTRIBUTES { attributes(row) } else { damaged(row).map(Some) });
    found.filter_map(Result::transpose).collect()
}

fn damaged(row: &Row) -> Result<DamagedRow, StoreError> {
    let (what, problem) = (column(row, 1)?, column(row, 2)?);
    Ok(DamagedRow { key: Some(read_key(row, 0)?), id: column(row, 3)?, what, problem })
}

/// Compares the index of attributes with the attributes in the instance's row.
fn attributes(row: &Row) -> Result<Option<DamagedRow>, StoreError> {
    let text: Option<&str> = column(row, 2)?;
    let found: InstanceKey = key(column(row, 0)?);
    let finding = |problem: String| DamagedRow {
        key: Some(found),
        id: row.try_get(1).ok(),
        what: "row".to_owned(),
        problem,
    };
    let attributes: Attributes = match text.map(serde_json::from_str).transpose() {
        Ok(attributes) => attributes.unwrap_or_default(),
        Err(error) => return Ok(Some(finding(format!("column attributes: {error}")))),
    };
    let (names, keys): (Vec<&str>, Vec<&[u8]>) = (column(row, 3)?, column(row, 4)?);
    let is_same = names.len() == attributes.len()
        && names.iter().zip(&keys).zip(&attributes).all(|((name, indexed), (own, value))| {
            *name == own.as_str() && **indexed == indexed_key(value)[..]
        });
    Ok((!is_same).then(|| finding("its attributes are indexed with other values".to_owned())))
}
