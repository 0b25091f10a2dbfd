//! Where the rows of a list come from: the indexes of the table, and the choice of the smallest one for a filter.

use perennial_core::InstanceKey;
use perennial_core::store::{Criteria, KeyRange, Status};
use rusqlite::{Connection, ToSql};

use crate::row::{COLUMNS, bound, status_code};

/// A source whose rows all have to be sorted is used if it has no more than this. Counting stops there.
const FEW: u64 = 10_000;
/// A source with no more rows than this is used without looking for a smaller one.
const VERY_FEW: u64 = 100;

/// Where rows come from, in key order.
#[derive(Debug, PartialEq)]
pub(crate) enum Source {
    All,
    Blocked,
    Status(Status),
    Name(String),
    Parent(String),
    /// An attribute's name and the order key of its value.
    Attribute(String, Vec<u8>),
    /// An attribute's name and the order keys that its value may have.
    AttributeRange(String, KeyRange),
    /// Ids from the first up to, but not including, the second.
    Ids(String, Option<String>),
    /// Instances that ended before a time.
    EndedBefore(u64),
}

impl Source {
    /// The table and index to search, and the condition; its parameters count from 2.
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
            Source::EndedBefore(_) => (
                "instances INDEXED BY instances_ended",
                "status IN (0, 1, 2, 3, 4, 5) AND ended_ms < ?2 AND ended_ms IS NOT NULL",
            ),
        }
    }

    /// The statement; its first parameter is the key after which to continue.
    pub(crate) fn sql(&self, newest_first: bool) -> String {
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

    /// The statement that counts its rows; its first parameter is the limit of the count.
    pub(crate) fn size_sql(&self) -> String {
        let (tables, condition) = match self {
            // The rows themselves need not be read.
            Source::Attribute(..) => {
                ("attributes INDEXED BY attributes_by_order", "name = ?2 AND order_key = ?3")
            }
            _ => self.place(),
        };
        format!("SELECT count(*) FROM (SELECT 1 FROM {tables} WHERE {condition} LIMIT ?1)")
    }

    /// Whether its rows have another order and all of them have to be sorted.
    pub(crate) fn needs_sorting(&self) -> bool {
        matches!(self, Source::AttributeRange(..) | Source::Ids(..) | Source::EndedBefore(_))
    }

    /// Calls `call` with its parameters, after a first one.
    fn with_values<T>(&self, first: &dyn ToSql, call: impl FnOnce(&[&dyn ToSql]) -> T) -> T {
        match self {
            Source::All | Source::Blocked => call(&[first]),
            Source::Status(status) => call(&[first, &status_code(*status)]),
            Source::Name(text) | Source::Parent(text) | Source::Ids(text, None) => call(&[first, text]),
            Source::Attribute(name, order_key) => call(&[first, name, order_key]),
            Source::AttributeRange(name, KeyRange { from, before }) => call(&[first, name, from, before]),
            Source::Ids(from, Some(before)) => call(&[first, from, before]),
            Source::EndedBefore(at_ms) => call(&[first, &bound(*at_ms)]),
        }
    }

    pub(crate) fn query<'s>(
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

    /// How many rows it has; one more than `at_most` stands for any larger number.
    fn size(&self, connection: &Connection, at_most: u64) -> rusqlite::Result<u64> {
        let mut statement = connection.prepare_cached(&self.size_sql())?;
        let limit = bound(at_most.saturating_add(1));
        let count: i64 = self.with_values(&limit, |values| statement.query_row(values, |row| row.get(0)))?;
        Ok(count.cast_unsigned())
    }
}

/// The sources that together contain every matching row, with as few other rows as possible.
pub(crate) fn sources(connection: &Connection, filter: &Criteria) -> rusqlite::Result<Vec<Source>> {
    let mut candidates = candidates(filter);
    if let [only] = &mut candidates[..]
        && !only.iter().any(Source::needs_sorting)
    {
        return Ok(std::mem::take(only));
    }
    let mut best = (u64::MAX, vec![Source::All]);
    for candidate in candidates {
        let mut size = 0;
        for source in &candidate {
            size += source.size(connection, FEW)?;
        }
        if size > FEW && candidate.iter().any(Source::needs_sorting) {
            continue;
        }
        if size < best.0 {
            best = (size, candidate);
        }
        if best.0 <= VERY_FEW {
            break;
        }
    }
    Ok(best.1)
}

/// All ways to find the matching rows, the most promising first.
fn candidates(filter: &Criteria) -> Vec<Vec<Source>> {
    let mut candidates = Vec::new();
    if let Some(parent) = &filter.parent {
        candidates.push(vec![Source::Parent(parent.to_string())]);
    }
    if filter.blocked == Some(true) || filter.paused == Some(true) {
        candidates.push(vec![Source::Blocked]);
    }
    for (name, range) in filter.attribute_ranges() {
        let name = name.to_owned();
        candidates.push(vec![match range.only() {
            Some(order_key) => Source::Attribute(name, order_key.to_vec()),
            None => Source::AttributeRange(name, range),
        }]);
    }
    if let Some(prefix) = filter.id_prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
        candidates.push(vec![Source::Ids(prefix.clone(), after_prefix(prefix))]);
    }
    if !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Completed) {
        let asked = Status::ALL.into_iter().filter(|status| filter.statuses.contains(status));
        candidates.push(asked.map(Source::Status).collect());
    }
    if let Some(ended_before_ms) = filter.ended_before_ms {
        candidates.push(vec![Source::EndedBefore(ended_before_ms)]);
    }
    if let Some(name) = &filter.name {
        candidates.push(vec![Source::Name(name.clone())]);
    }
    candidates
}

/// The first text after all that begin with the prefix; `None` if there is no such text.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::after_prefix;

    #[test]
    fn s7_a_prefix_ends_before_the_next_text() {
        assert_eq!(after_prefix("order-").as_deref(), Some("order."));
        assert_eq!(after_prefix("\u{d7ff}").as_deref(), Some("\u{e000}"), "there are no characters between");
        assert_eq!(after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_prefix("\u{10ffff}"), None);
    }
}
