//! Lists instances that match criteria, in pages.
//!
//! Every source returns its rows in the order of keys, so that a page can continue after any row, in both directions.
//! Rows are read in chunks, so that no snapshot is held for long. The server evaluates most conditions; the others are
//! evaluated here.

use std::sync::LazyLock;

use perennial_core::store::{
    Count, Criteria, InstanceRow, KeyRange, Page, PageKey, Source, SourceChoice, StoreError,
};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::by_end;
use crate::connection::Argument;
use crate::new_rows::ORDER_KEY_BYTES;
use crate::row::{bound, column, instance_columns, read_number, shown, status_code, storable, uuid};
use crate::store::Inner;

/// Number of rows read at once.
pub(crate) const CHUNK: usize = 500;
/// Conditions that the server evaluates for every source. `$1` is the key after which the page continues, `$2` the
/// number of rows.
pub(crate) const CONDITIONS: &str = "($3::smallint[] IS NULL OR i.status = ANY ($3)) AND ($4::text IS NULL OR i.name = $4) \
     AND ($5::text IS NULL OR i.version = $5) AND ($6::text IS NULL OR starts_with(i.id, $6)) \
     AND ($7::boolean IS NULL OR (i.blocked IS NOT NULL) = $7) AND ($8::text IS NULL OR i.parent_key = $8) \
     AND ($9::bigint IS NULL OR i.created_ms >= $9) AND ($10::bigint IS NULL OR i.created_ms < $10) \
     AND ($11::bigint IS NULL OR i.ended_ms < $11) AND ($12::bigint IS NULL OR i.ended_ms >= $12)";

/// The tables and the condition of each kind of source. Its own parameters are numbered from `$13` in a page and from
/// `$2` in a count. The last value is true if the index does not return rows in the order of keys, so that all of them
/// have to be sorted.
const PLACES: [(&str, &str, bool); 10] = [
    ("@.instances AS i", "true", false),
    ("@.instances AS i", "i.blocked IS NOT NULL", true),
    ("@.instances AS i", "i.status = $13::smallint AND i.status <> 2", false),
    ("@.instances AS i", "i.name = $13::text", false),
    ("@.instances AS i", "i.parent_key = $13::text AND i.parent_key IS NOT NULL", false),
    (
        "@.attributes AS a JOIN @.instances AS i ON i.key = a.key",
        "a.name = $13::text AND a.order_key = $14::bytea",
        false,
    ),
    (
        "@.attributes AS a JOIN @.instances AS i ON i.key = a.key",
        "a.name = $13::text AND a.order_key >= $14::bytea AND a.order_key <= $15::bytea",
        true,
    ),
    ("@.instances AS i", "i.id >= $13::text AND i.id < $14::text", true),
    ("@.instances AS i", "i.id >= $13::text", true),
    (
        "@.instances AS i",
        "i.status = ANY ('{0,1,2,3,4,5}') AND i.ended_ms >= $13::bigint AND i.ended_ms < $14::bigint AND i.ended_ms IS NOT NULL",
        true,
    ),
];

/// The statements of each kind of source: oldest first, newest first, number of matches, and number of rows.
static STATEMENTS: LazyLock<Vec<[String; 4]>> = LazyLock::new(|| {
    let statements = |(tables, condition, is_sorted): &(&str, &str, bool)| {
        let key = if tables.starts_with("@.attributes") && !is_sorted { "a.key" } else { "i.key" };
        let own = condition.replace("$13", "$2").replace("$14", "$3").replace("$15", "$4");
        let own_tables = *tables;
        // The subquery makes the server search the source before it sorts. Otherwise it may estimate that scanning all
        // rows in the order of keys finds a match sooner.
        let (tables, condition) = match is_sorted {
            true => (format!("(SELECT i.* FROM {tables} WHERE {condition} OFFSET 0) AS i"), "true"),
            false => ((*tables).to_owned(), *condition),
        };
        let columns: Vec<String> =
            instance_columns!().split(", ").map(|column| format!("i.{column}")).collect();
        let columns = columns.join(", ");
        let page = |after: &str, order: &str| {
            format!(
                "SELECT {columns} FROM {tables} WHERE {condition} AND {key} {after} $1 AND {CONDITIONS} \
                 ORDER BY {key}{order} LIMIT $2"
            )
        };
        let count = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {tables} WHERE {condition} AND {key} > $1 AND {CONDITIONS} LIMIT $2) AS c"
        );
        let size = format!("SELECT count(*) FROM (SELECT 1 FROM {own_tables} WHERE {own} LIMIT $1) AS c");
        [page(">", ""), page("<", " DESC"), count, size]
    };
    PLACES.iter().map(statements).collect()
});

fn kind(source: &Source) -> usize {
    match source {
        Source::All => 0,
        Source::Blocked => 1,
        Source::Status(_) => 2,
        Source::Name(_) => 3,
        Source::Parent(_) => 4,
        Source::Attribute(..) => 5,
        Source::AttributeRange(..) => 6,
        Source::Ids(_, Some(_)) => 7,
        Source::Ids(_, None) => 8,
        Source::Ended(..) => 9,
    }
}

fn needs_sorting(source: &Source) -> bool {
    PLACES[kind(source)].2
}

/// The source's own parameters.
fn values(source: &Source) -> Vec<(Box<dyn ToSql + Sync + Send>, Type)> {
    match source {
        Source::All | Source::Blocked => vec![],
        Source::Status(status) => vec![(Box::new(status_code(*status)), Type::INT2)],
        Source::Name(text) | Source::Parent(text) | Source::Ids(text, None) => {
            vec![(Box::new(text.clone()), Type::TEXT)]
        }
        Source::Attribute(name, key) => {
            vec![(Box::new(name.clone()), Type::TEXT), (Box::new(indexed(key)), Type::BYTEA)]
        }
        Source::AttributeRange(name, KeyRange { from, before }) => vec![
            (Box::new(name.clone()), Type::TEXT),
            (Box::new(indexed(from)), Type::BYTEA),
            (Box::new(indexed(before)), Type::BYTEA),
        ],
        Source::Ids(from, Some(before)) => {
            vec![(Box::new(from.clone()), Type::TEXT), (Box::new(before.clone()), Type::TEXT)]
        }
        Source::Ended(from_ms, before_ms) => {
            vec![(Box::new(bound(*from_ms)), Type::INT8), (Box::new(bound(*before_ms)), Type::INT8)]
        }
    }
}

/// Number of rows of the source. `at_most + 1` stands for any larger number.
async fn size(inner: &Inner, source: &Source, at_most: u64) -> Result<u64, StoreError> {
    let (limit, own) = (bound(at_most.saturating_add(1)), values(source));
    let mut arguments: Vec<Argument<'_>> = vec![(&limit, Type::INT8)];
    arguments.extend(own.iter().map(|(value, type_)| (&**value as &(dyn ToSql + Sync), type_.clone())));
    let rows = inner.query_planned(&STATEMENTS[kind(source)][3], &arguments).await?;
    read_number(inner.one(&rows)?, 0)
}

/// The part of an order key that is indexed.
fn indexed(key: &[u8]) -> Vec<u8> {
    key[..key.len().min(ORDER_KEY_BYTES)].to_vec()
}

pub(crate) async fn list(
    inner: &Inner,
    filter: &Criteria,
    after: Option<PageKey>,
    limit: usize,
) -> Result<Page, StoreError> {
    if names_nothing(filter) {
        return Ok(Page::default());
    }
    if let Some(place) = filter.by_end {
        return by_end::list(inner, filter, place, limit).await;
    }
    let limit = limit.max(1);
    let wanted = limit.saturating_add(1);
    let mut rows = Vec::new();
    for source in sources(inner, filter, needs_sorting).await? {
        rows.extend(gather(inner, &source, filter, after, wanted).await?);
    }
    let mut rows = in_order(rows, filter.newest_first);
    let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
    rows.truncate(limit);
    Ok(Page { rows, next })
}

/// Counts the rows that match, exactly up to a bound.
pub(crate) async fn count(inner: &Inner, filter: &Criteria, at_most: u64) -> Result<Count, StoreError> {
    if names_nothing(filter) {
        return Ok(Count::default());
    }
    // Whether an instance is blocked, paused or waits for code is in the text of its block.
    let is_servers = filter.attributes.is_empty()
        && filter.conditions.is_empty()
        && filter.paused.is_none()
        && filter.blocked.is_none();
    let mut counted: u64 = 0;
    // The order does not matter, so any index may find the rows.
    for source in sources(inner, filter, |_| false).await? {
        if is_servers {
            let left = at_most.saturating_sub(counted).saturating_add(1);
            let rows = query_source(inner, &source, filter, 2, Uuid::nil(), bound(left)).await?;
            counted += read_number(inner.one(&rows)?, 0)?;
        } else {
            let wanted =
                usize::try_from(at_most.saturating_sub(counted).saturating_add(1)).unwrap_or(usize::MAX);
            counted += gather(inner, &source, filter, None, wanted).await?.len() as u64;
        }
        if counted > at_most {
            break;
        }
    }
    Ok(Count::bounded(counted, at_most))
}

/// Returns whether the criteria contain text that no row can contain.
fn names_nothing(filter: &Criteria) -> bool {
    let texts = [&filter.name, &filter.version, &filter.id_prefix];
    texts.into_iter().flatten().any(|text| storable(text).is_err())
        || filter.attribute_ranges().keys().any(|name| storable(name).is_err())
}

/// Merges the rows of all sources and removes duplicates. Sources are read one after the other in the order of
/// statuses, and an instance only moves to a later status. If an instance was read twice, the row that was read last is
/// the current one.
fn in_order(mut rows: Vec<InstanceRow>, newest_first: bool) -> Vec<InstanceRow> {
    rows.reverse();
    rows.sort_by_key(|row| row.key);
    rows.dedup_by_key(|row| row.key);
    if newest_first {
        rows.reverse();
    }
    rows
}

/// Reads the first rows of a source that match.
pub(crate) async fn gather(
    inner: &Inner,
    source: &Source,
    filter: &Criteria,
    after: Option<PageKey>,
    wanted: usize,
) -> Result<Vec<InstanceRow>, StoreError> {
    let beginning = if filter.newest_first { Uuid::max() } else { Uuid::nil() };
    let mut after = after.map_or(beginning, uuid);
    let mut gathered = Vec::new();
    loop {
        let chunk = CHUNK.min(wanted - gathered.len());
        let rows =
            query_source(inner, source, filter, usize::from(filter.newest_first), after, bound(chunk as u64))
                .await?;
        for row in &rows {
            after = column(row, 0)?;
            let row = shown(row, 0)?;
            if filter.matches(&row) {
                gathered.push(row);
            }
        }
        if rows.len() < chunk || gathered.len() >= wanted {
            return Ok(gathered);
        }
    }
}

/// The parameters of [`CONDITIONS`], from `$3`.
pub(crate) struct Conditions<'a> {
    filter: &'a Criteria,
    statuses: Option<Vec<i16>>,
    blocked: Option<bool>,
    parent: Option<String>,
    created: (Option<i64>, Option<i64>),
    ended: (Option<i64>, Option<i64>),
}

pub(crate) fn conditions(filter: &Criteria) -> Conditions<'_> {
    let codes = || filter.statuses.iter().map(|status| status_code(*status)).collect();
    Conditions {
        filter,
        statuses: (!filter.statuses.is_empty()).then(codes),
        // An instance that waits for code is not blocked, although its row says why it waits.
        blocked: filter.blocked.filter(|blocked| *blocked),
        parent: filter.parent.map(|parent| parent.to_string()),
        created: (filter.created_from_ms.map(bound), filter.created_before_ms.map(bound)),
        ended: (filter.ended_from_ms.map(bound), filter.ended_before_ms.map(bound)),
    }
}

impl Conditions<'_> {
    pub(crate) fn arguments(&self) -> [Argument<'_>; 10] {
        [
            (&self.statuses, Type::INT2_ARRAY),
            (&self.filter.name, Type::TEXT),
            (&self.filter.version, Type::TEXT),
            (&self.filter.id_prefix, Type::TEXT),
            (&self.blocked, Type::BOOL),
            (&self.parent, Type::TEXT),
            (&self.created.0, Type::INT8),
            (&self.created.1, Type::INT8),
            (&self.ended.1, Type::INT8),
            (&self.ended.0, Type::INT8),
        ]
    }
}

/// Runs one of a source's statements with all parameters.
async fn query_source(
    inner: &Inner,
    source: &Source,
    filter: &Criteria,
    statement: usize,
    after: Uuid,
    limit: i64,
) -> Result<Vec<tokio_postgres::Row>, StoreError> {
    let (given, own) = (conditions(filter), values(source));
    let mut arguments: Vec<Argument<'_>> = vec![(&after, Type::UUID), (&limit, Type::INT8)];
    arguments.extend(given.arguments());
    arguments.extend(own.iter().map(|(value, type_)| (&**value as &(dyn ToSql + Sync), type_.clone())));
    inner.query_planned(&STATEMENTS[kind(source)][statement], &arguments).await
}

/// Chooses the sources that together contain every match and have the fewest other rows.
pub(crate) async fn sources(
    inner: &Inner,
    filter: &Criteria,
    needs_sorting: fn(&Source) -> bool,
) -> Result<Vec<Source>, StoreError> {
    let mut choice = SourceChoice::new(filter, needs_sorting);
    while let Some(source) = choice.to_count() {
        let rows = size(inner, source, SourceChoice::COUNT_LIMIT).await?;
        choice.set_count(rows);
    }
    Ok(choice.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_every_kind_of_source_has_its_statements() {
        assert_eq!(STATEMENTS.len(), PLACES.len());
        assert_eq!(kind(&Source::Ended(0, 0)), PLACES.len() - 1);
    }
}
