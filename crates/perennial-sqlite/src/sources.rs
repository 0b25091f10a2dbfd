//! Where the rows of a list come from: the index of each source, and the choice of the smallest one for a filter.

use perennial_core::InstanceKey;
use perennial_core::store::{Criteria, KeyRange, Source, SourceChoice, Status};
use rusqlite::{Connection, ToSql};

use crate::row::{COLUMNS, bound, status_code};

/// How SQLite finds the rows of a source.
pub(crate) trait Indexed {
    /// The table and index to search, and the condition; its parameters count from 2.
    fn place(&self) -> (&'static str, &'static str);

    /// The statement; its first parameter is the key after which to continue.
    fn sql(&self, newest_first: bool) -> String;

    /// The statement that counts its rows; its first parameter is the limit of the count.
    fn size_sql(&self) -> String;

    /// Whether its rows have another order and all of them have to be sorted.
    fn needs_sorting(&self) -> bool;

    /// Calls `call` with its parameters, after a first one.
    fn with_values<T>(&self, first: &dyn ToSql, call: impl FnOnce(&[&dyn ToSql]) -> T) -> T;

    /// Its rows after a key.
    fn query<'s>(
        &self,
        statement: &'s mut rusqlite::Statement<'_>,
        after: Option<InstanceKey>,
        newest_first: bool,
    ) -> rusqlite::Result<rusqlite::Rows<'s>>;

    /// How many rows it has; one more than `at_most` stands for any larger number.
    fn size(&self, connection: &Connection, at_most: u64) -> rusqlite::Result<u64>;
}

impl Indexed for Source {
    fn place(&self) -> (&'static str, &'static str) {
        match self {
            Source::All => ("instances INDEXED BY instances_by_key", "TRUE"),
            Source::Blocked => ("instances INDEXED BY instances_blocked", "blocked IS NOT NULL"),
            Source::Status(Status::Completed) => {
                unreachable!("most instances are completed: an index in the order of keys would not help")
            }
            Source::Status(_) => ("instances INDEXED BY instances_by_status", "status = ?2 AND status <> 2"),
            Source::Name(_) => ("instances INDEXED BY instances_by_name", "name = ?2"),
            Source::Parent(_) => {
                ("instances INDEXED BY instances_by_parent", "parent_key = ?2 AND parent_key IS NOT NULL")
            }
            Source::Attribute(..) => (
                "attributes INDEXED BY attributes_by_order CROSS JOIN instances INDEXED BY instances_by_key",
                "attributes.name = ?2 AND attributes.order_key = ?3 AND instances.key = attributes.key",
            ),
            Source::AttributeRange(..) => (
                "attributes INDEXED BY attributes_by_order",
                "name = ?2 AND order_key >= ?3 AND order_key < ?4",
            ),
            Source::Ids(_, Some(_)) => ("instances INDEXED BY instances_by_id", "id >= ?2 AND id < ?3"),
            Source::Ids(_, None) => ("instances INDEXED BY instances_by_id", "id >= ?2"),
            Source::Ended(..) => (
                "instances INDEXED BY instances_ended",
                "status IN (0, 1, 2, 3, 4, 5) AND ended_ms >= ?2 AND ended_ms < ?3 AND ended_ms IS NOT NULL",
            ),
        }
    }

    fn sql(&self, newest_first: bool) -> String {
        let (tables, condition) = self.place();
        let of_instances = || {
            let columns: Vec<String> =
                COLUMNS.split(", ").map(|column| format!("instances.{column}")).collect();
            columns.join(", ")
        };
        let (columns, key) = match self {
            Source::Attribute(..) | Source::AttributeRange(..) => (of_instances(), "attributes.key"),
            _ => (COLUMNS.to_owned(), "key"),
        };
        let (behind, order) = if newest_first { ("<", " DESC") } else { (">", "") };
        if let Source::AttributeRange(..) = self {
            // Keys are sorted first, and rows are read one by one in that order. Without a limit SQLite would read all
            // rows first and sort those.
            return format!(
                "SELECT {columns} FROM (SELECT {key} AS found FROM {tables} WHERE {condition} AND {key} {behind} ?1 \
                 ORDER BY {key}{order} LIMIT -1) CROSS JOIN instances INDEXED BY instances_by_key \
                 WHERE instances.key = found"
            );
        }
        format!(
            "SELECT {columns} FROM {tables} WHERE {condition} AND {key} {behind} ?1 ORDER BY {key}{order}"
        )
    }

    fn size_sql(&self) -> String {
        let (tables, condition) = match self {
            // The rows themselves need not be read.
            Source::Attribute(..) => {
                ("attributes INDEXED BY attributes_by_order", "name = ?2 AND order_key = ?3")
            }
            _ => self.place(),
        };
        format!("SELECT count(*) FROM (SELECT 1 FROM {tables} WHERE {condition} LIMIT ?1)")
    }

    fn needs_sorting(&self) -> bool {
        matches!(self, Source::AttributeRange(..) | Source::Ids(..) | Source::Ended(..))
    }

    fn with_values<T>(&self, first: &dyn ToSql, call: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        match self {
            Source::All | Source::Blocked => call(&[first]),
            Source::Status(status) => call(&[first, &status_code(*status)]),
            Source::Name(text) | Source::Parent(text) | Source::Ids(text, None) => call(&[first, text]),
            Source::Attribute(name, order_key) => call(&[first, name, order_key]),
            Source::AttributeRange(name, KeyRange { from, before }) => call(&[first, name, from, before]),
            Source::Ids(from, Some(before)) => call(&[first, from, before]),
            Source::Ended(from_ms, before_ms) => call(&[first, &bound(*from_ms), &bound(*before_ms)]),
        }
    }

    fn query<'s>(
        &self,
        statement: &'s mut rusqlite::Statement<'_>,
        after: Option<InstanceKey>,
        newest_first: bool,
    ) -> rusqlite::Result<rusqlite::Rows<'s>> {
        // Before and after all keys.
        const ENDS: (&[u8], &[u8]) = (&[], &[0xff; 17]);
        let beginning = if newest_first { ENDS.1 } else { ENDS.0 };
        let after: &[u8] = after.as_ref().map_or(beginning, |after| after.as_bytes());
        self.with_values(&after, |values| statement.query(values))
    }

    fn size(&self, connection: &Connection, at_most: u64) -> rusqlite::Result<u64> {
        let mut statement = connection.prepare_cached(&self.size_sql())?;
        let limit = bound(at_most.saturating_add(1));
        let count: i64 = self.with_values(&limit, |values| statement.query_row(values, |row| row.get(0)))?;
        Ok(count.cast_unsigned())
    }
}

/// The sources that together contain every matching row, with as few other rows as possible.
pub(crate) fn sources(connection: &Connection, filter: &Criteria) -> rusqlite::Result<Vec<Source>> {
    sources_for(connection, filter, Indexed::needs_sorting)
}

/// The same, for a list in an order that sources have to be sorted for.
pub(crate) fn sources_for(
    connection: &Connection,
    filter: &Criteria,
    needs_sorting: fn(&Source) -> bool,
) -> rusqlite::Result<Vec<Source>> {
    let mut choice = SourceChoice::new(filter, needs_sorting);
    while let Some(source) = choice.to_count() {
        let rows = source.size(connection, SourceChoice::COUNT_LIMIT)?;
        choice.set_count(rows);
    }
    Ok(choice.finish())
}
