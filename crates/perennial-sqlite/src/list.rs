//! Pages of instances, by search criteria.
//!
//! Every source returns its rows in key order, so that a page can continue after any row, in both directions. A page
//! may have to skip many rows that do not match; its snapshot is renewed every half second, because the log cannot be
//! restarted while a snapshot is held.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Blocked, Count, Criteria, InstanceRow, Page, PageKey, Source, Status, StoreError,
};
use perennial_core::{Attributes, InstanceKey};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::by_end;
use crate::reader::Fault;
use crate::row::{PARENT_KEY_COLUMN, bound, read_instance, readable_key, status_code};
use crate::sources::{Indexed, sources};

/// How long a snapshot is held at most, and after how many rows the time is checked.
pub(crate) const SNAPSHOT: (Duration, usize) = (Duration::from_millis(500), 256);

pub(crate) fn list(
    connection: &Connection,
    filter: &Criteria,
    after: Option<PageKey>,
    limit: usize,
) -> Result<Page, Fault> {
    if let Some(place) = filter.by_end {
        return by_end::list(connection, filter, place, limit);
    }
    let limit = limit.max(1);
    let wanted = limit.saturating_add(1);
    let mut rows = Vec::new();
    for source in sources(connection, filter)? {
        rows.extend(gather(connection, &source, filter, after, wanted, SNAPSHOT)?);
    }
    let mut rows = in_order(rows, filter.newest_first);
    let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
    rows.truncate(limit);
    Ok(Page { rows, next })
}

/// The rows of all sources, each once. Sources are read one after the other, in the order of statuses, and an
/// instance's status only advances in that order: if a row was met twice, the last one counts.
fn in_order(mut rows: Vec<InstanceRow>, newest_first: bool) -> Vec<InstanceRow> {
    rows.reverse();
    rows.sort_by_key(|row| row.key);
    rows.dedup_by_key(|row| row.key);
    if newest_first {
        rows.reverse();
    }
    rows
}

/// How many rows match, exact up to a bound.
pub(crate) fn count(connection: &Connection, filter: &Criteria, at_most: u64) -> Result<Count, Fault> {
    if let Some(rows) = count_ended(connection, filter, at_most)? {
        return Ok(Count::bounded(rows, at_most));
    }
    let mut counted: u64 = 0;
    for source in sources(connection, filter)? {
        walk(connection, &source, filter, None, SNAPSHOT, |_| {
            counted += 1;
            Ok(if counted > at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if counted > at_most {
            break;
        }
    }
    Ok(Count::bounded(counted, at_most))
}

/// Counts by index alone, if a filter has statuses and a time of the end and nothing else. The index is not in the order of
/// keys, in which other counts walk.
fn count_ended(connection: &Connection, filter: &Criteria, at_most: u64) -> Result<Option<u64>, Fault> {
    let Criteria { statuses, ended_from_ms, ended_before_ms, newest_first, by_end, .. } = filter.clone();
    let is_ended = ended_from_ms.is_some() || ended_before_ms.is_some();
    let alone =
        Criteria { statuses, ended_from_ms, ended_before_ms, newest_first, by_end, ..Criteria::default() };
    if !is_ended || *filter != alone {
        return Ok(None);
    }
    let mut counted = 0;
    let asked = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
    for status in Status::ALL.into_iter().filter(asked) {
        let mut statement = connection.prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM instances INDEXED BY instances_ended WHERE status = ?1 \
             AND (status >= 2 OR ended_ms IS NOT NULL) AND ended_ms >= ?2 AND ended_ms < ?3 LIMIT ?4)",
        )?;
        let left = at_most.saturating_sub(counted).saturating_add(1);
        let (from, before) = (ended_from_ms.unwrap_or(0), ended_before_ms.unwrap_or(u64::MAX));
        let values = (status_code(status), bound(from), bound(before), bound(left));
        counted += statement.query_row(values, |row| row.get::<_, i64>(0))?.unsigned_abs();
    }
    Ok(Some(counted))
}

/// The first matching rows of a source.
fn gather(
    connection: &Connection,
    source: &Source,
    filter: &Criteria,
    after: Option<InstanceKey>,
    wanted: usize,
    snapshot: (Duration, usize),
) -> Result<Vec<InstanceRow>, Fault> {
    let mut gathered = Vec::new();
    walk(connection, source, filter, after, snapshot, |row| {
        gathered.push(shown(row));
        Ok(if gathered.len() < wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(gathered)
}

/// Visits the matching rows of a source, from one snapshot after another.
pub(crate) fn walk(
    connection: &Connection,
    source: &Source,
    filter: &Criteria,
    after: Option<InstanceKey>,
    (snapshot, look_every): (Duration, usize),
    mut visit: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>, Fault>,
) -> Result<(), Fault> {
    let mut after = after;
    'snapshots: loop {
        let begun = Instant::now();
        let mut statement = connection.prepare_cached(&source.sql(filter.newest_first))?;
        let mut rows = source.query(&mut statement, after, filter.newest_first)?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            if matches(row, filter)? && visit(row)?.is_break() {
                return Ok(());
            }
            seen += 1;
            if seen % look_every == 0 && begun.elapsed() >= snapshot {
                after = Some(place_of(row));
                continue 'snapshots;
            }
        }
        return Ok(());
    }
}

/// [`Criteria::matches`], without decoding the row.
pub(crate) fn matches(row: &Row<'_>, filter: &Criteria) -> rusqlite::Result<bool> {
    let text =
        |column| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(column)?.as_bytes().unwrap_or_default()) };
    let is = |column, asked: &Option<String>| -> rusqlite::Result<bool> {
        Ok(match asked {
            Some(asked) => text(column)? == asked.as_bytes(),
            None => true,
        })
    };
    let within = |column, from_ms: Option<u64>, before_ms: Option<u64>| -> rusqlite::Result<bool> {
        if from_ms.is_none() && before_ms.is_none() {
            return Ok(true);
        }
        let at_ms: Option<i64> = row.get(column)?;
        Ok(at_ms.is_some_and(|at_ms| {
            from_ms.is_none_or(|from_ms| at_ms >= bound(from_ms))
                && before_ms.is_none_or(|before_ms| at_ms < bound(before_ms))
        }))
    };
    if let Some(prefix) = &filter.id_prefix
        && !text(1)?.starts_with(prefix.as_bytes())
    {
        return Ok(false);
    }
    if let Some(blocked) = filter.blocked
        && blocked != (row.get_ref(9)? != ValueRef::Null && !is_waiting(text(9)?))
    {
        return Ok(false);
    }
    if let Some(paused) = filter.paused
        && paused != is_paused(text(9)?)
    {
        return Ok(false);
    }
    if !filter.statuses.is_empty() {
        // A damaged row is shown as running and blocked.
        let status: i64 = row.get(5)?;
        if !filter.statuses.iter().any(|asked| status_code(*asked) == status) {
            return Ok(false);
        }
    }
    Ok(is(3, &filter.name)?
        && is(4, &filter.version)?
        && is(PARENT_KEY_COLUMN, &filter.parent.map(|parent| parent.to_string()))?
        && within(13, filter.created_from_ms, filter.created_before_ms)?
        && within(14, filter.ended_from_ms, filter.ended_before_ms)?
        && ((filter.attributes.is_empty() && filter.conditions.is_empty())
            || filter.matches_attributes(&readable_attributes(text(10)?))))
}

/// Whether the block of an instance, as JSON text, is a pause. A corrupt one is not.
fn is_paused(blocked: &[u8]) -> bool {
    serde_json::from_slice::<Blocked>(blocked).is_ok_and(|blocked| blocked.pause.is_some())
}

/// Whether the block of an instance, as JSON text, only says that it waits for code. A corrupt one does not.
fn is_waiting(blocked: &[u8]) -> bool {
    serde_json::from_slice::<Blocked>(blocked).is_ok_and(|blocked| blocked.is_waiting())
}

/// The stored attributes. A corrupt row has none.
fn readable_attributes(stored: &[u8]) -> Attributes {
    serde_json::from_slice(stored).unwrap_or_default()
}

/// The row as shown in lists. A corrupt row must not hide the others: it is shown as blocked, with what can be read of
/// it.
pub(crate) fn shown(row: &Row<'_>) -> InstanceRow {
    let fault = match read_instance(row) {
        Ok(instance) => return instance,
        Err(fault) => fault,
    };
    let text = |column| match row.get_ref(column).ok().and_then(|text| text.as_bytes().ok()) {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => String::new(),
    };
    InstanceRow {
        key: place_of(row),
        id: text(1),
        shard: perennial_core::ShardId::of(&text(1)),
        name: text(3),
        version: text(4),
        status: row.get(5).ok().and_then(crate::row::status_of_code).unwrap_or(Status::Running),
        execution: row.get::<_, i64>(6).map_or(0, i64::cast_unsigned),
        owed: false,
        wake_at_ms: None,
        blocked: Some(Blocked {
            code: fault.code().to_string(),
            cause: "corrupt row".to_owned(),
            reason: reason(&fault),
            report: fault.to_string(),
            ..Blocked::default()
        }),
        full: false,
        attributes: Default::default(),
        published: None,
        parent: None,
        created_ms: row.get::<_, i64>(13).map_or(0, i64::cast_unsigned),
        ended_ms: None,
        checksum: 0,
    }
}

pub(crate) fn place_of(row: &Row<'_>) -> InstanceKey {
    readable_key(row.get_ref(0).ok().and_then(|key| key.as_blob().ok()).unwrap_or_default())
}

pub(crate) fn ended_at(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(14).map(i64::cast_unsigned)
}

fn reason(fault: &StoreError) -> String {
    match fault {
        StoreError::CorruptRow(reason) => format!("corrupt row: {reason}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use perennial_core::Payload;
    use perennial_core::store::{Condition, KeyRange, attribute, order_key};

    use super::*;

    fn key_of(json: &str) -> Vec<u8> {
        order_key(&Payload::from_json(json).unwrap())
    }

    fn filled() -> Connection {
        filled_with(100)
    }

    fn filled_with(rows: u32) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        crate::schema::create(&connection).unwrap();
        connection
            .execute_batch(&format!(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
                 INSERT INTO instances (key, id, shard, name, version, status, execution, owed, created_ms, ended_ms,
                                        attributes, parent_key)
                 SELECT randomblob(16), 'order-' || n, 0, 'checkout', '1.0.0', n % 6, 1, 0, n,
                        iif(n % 6 > 1, n, NULL), '{{\"region\":\"eu\",\"number\":' || n || '}}', iif(n <= 3, 'parent', NULL)
                 FROM n",
            ))
            .unwrap();
        crate::attributes::fill(&connection).unwrap();
        connection
    }

    #[test]
    fn s7_a_list_goes_on_from_one_snapshot_to_the_next_in_both_directions() {
        let connection = filled();
        for newest_first in [false, true] {
            let filter = Criteria { statuses: vec![Status::Failed], newest_first, ..Criteria::default() };
            let sources = [
                Source::All,
                Source::Name("checkout".to_owned()),
                Source::Ids("order".to_owned(), None),
                Source::Attribute("region".to_owned(), key_of("\"eu\"")),
                Source::Ended(0, u64::MAX),
                Source::AttributeRange(
                    "number".to_owned(),
                    attribute("number").at_least(1).comparison.keys(),
                ),
            ];
            let gather = |source: &Source, snapshot| {
                let rows = gather(&connection, source, &filter, None, 100, snapshot);
                let keys = rows.map(|rows| rows.iter().map(|row| row.key).collect::<Vec<_>>());
                keys.unwrap_or_else(|_| panic!("{source:?} can be read"))
            };
            let expected = gather(&Source::Status(Status::Failed), SNAPSHOT);
            assert_eq!(expected.len(), 17);
            let is_ordered = |(a, b): (&InstanceKey, &InstanceKey)| (a > b) == newest_first;
            assert!(expected.iter().zip(&expected[1..]).all(is_ordered));
            for source in sources {
                assert_eq!(gather(&source, SNAPSHOT), expected, "{source:?}");
                let one_by_one = gather(&source, (Duration::ZERO, 1));
                assert_eq!(one_by_one, expected, "{source:?}, a snapshot for each row");
            }
        }
    }

    #[test]
    fn s7_a_row_that_moves_from_one_source_to_the_next_is_listed_once_as_it_is_now() {
        let connection = filled();
        for newest_first in [false, true] {
            let filter = Criteria { newest_first, ..Criteria::default() };
            let of_status = |status| {
                let rows = gather(&connection, &Source::Status(status), &filter, None, 100, SNAPSHOT);
                rows.unwrap_or_else(|_| panic!("{status:?} can be read"))
            };
            let pending = of_status(Status::Pending);
            let moves = "UPDATE instances SET status = 1 - status WHERE key = ?1";
            let moved = pending[3].key;
            connection.execute(moves, [moved.as_bytes()]).unwrap();
            let running = of_status(Status::Running);
            connection.execute(moves, [moved.as_bytes()]).unwrap();
            let listed = in_order([pending, running].concat(), newest_first);
            let now: Vec<Status> =
                listed.iter().filter(|row| row.key == moved).map(|row| row.status).collect();
            assert_eq!((listed.len(), now), (33, vec![Status::Running]));
            assert!(listed.is_sorted_by(|a, b| (a.key > b.key) == newest_first));
        }
    }

    #[test]
    fn s7_the_smallest_source_is_chosen() {
        let connection = filled();
        let chosen = |filter: Criteria| sources(&connection, &filter).unwrap();
        let everything = Criteria::default();
        assert_eq!(chosen(everything.clone()), [Source::All]);
        let name = Criteria { name: Some("checkout".to_owned()), ..everything.clone() };
        assert_eq!(chosen(name.clone()), [Source::Name("checkout".to_owned())]);
        let statuses = Criteria { statuses: vec![Status::Failed, Status::Running, Status::Failed], ..name };
        assert_eq!(
            chosen(statuses.clone()),
            [Source::Status(Status::Running), Source::Status(Status::Failed)]
        );
        let ids = Criteria { id_prefix: Some("order-7".to_owned()), ..statuses };
        assert_eq!(chosen(ids.clone()), [Source::Ids("order-7".to_owned(), Some("order-8".to_owned()))]);
        assert_eq!(chosen(Criteria { blocked: Some(true), ..ids }), [Source::Blocked]);
        // Most instances are completed: an index would not help.
        let completed = Criteria { statuses: vec![Status::Completed], ..everything };
        assert_eq!(chosen(completed), [Source::All]);
    }

    #[test]
    fn s7_what_would_have_to_be_sorted_is_a_source_only_if_it_is_small() {
        let ended = |at_ms| Criteria { ended_before_ms: Some(at_ms), ..Criteria::default() };
        let chosen =
            |connection: &Connection, filter: Criteria| sources(connection, &filter).unwrap().remove(0);
        let connection = filled_with(16_000);
        assert_eq!(chosen(&connection, ended(1_000)), Source::Ended(0, 1_000));
        // Ended instances are many, and quickly found in key order.
        assert_eq!(chosen(&connection, ended(16_000)), Source::All);
        let prefix = |prefix: &str| Criteria { id_prefix: Some(prefix.to_owned()), ..Criteria::default() };
        assert_eq!(
            chosen(&connection, prefix("order-1")),
            Source::Ids("order-1".into(), Some("order-2".into()))
        );
        assert_eq!(chosen(&connection, prefix("order-")), Source::All);
        let value = Payload::from_json("\"eu\"").unwrap();
        let region = Criteria { attributes: [("region".to_owned(), value)].into(), ..Criteria::default() };
        let by_region = Source::Attribute("region".to_owned(), key_of("\"eu\""));
        assert_eq!(chosen(&connection, region.clone()), by_region);
        assert_eq!(chosen(&connection, Criteria { ended_before_ms: Some(9), ..region }), Source::Ended(0, 9));
    }

    #[test]
    fn s16_a_range_is_a_source_if_it_is_small_and_one_value_needs_no_sorting() {
        let connection = filled_with(16_000);
        let chosen = |conditions: Vec<Condition>| {
            let filter = Criteria { conditions, ..Criteria::default() };
            sources(&connection, &filter).unwrap().remove(0)
        };
        let number = |from: &str, before: &str| KeyRange { from: key_of(from), before: key_of(before) };
        let few = vec![attribute("number").at_least(5), attribute("number").less_than(500)];
        assert_eq!(chosen(few), Source::AttributeRange("number".to_owned(), number("5", "500")));
        assert_eq!(chosen(vec![attribute("number").at_least(5)]), Source::All, "most of them match");
        let one = vec![attribute("number").at_least(5), attribute("number").at_most(5)];
        assert_eq!(chosen(one), Source::Attribute("number".to_owned(), key_of("5")));
        let both = vec![attribute("region").starts_with("e"), attribute("number").less_than(9)];
        assert!(matches!(chosen(both), Source::AttributeRange(name, _) if name == "number"));
        let nothing = vec![attribute("number").at_least(9), attribute("number").less_than(5)];
        let filter = Criteria { conditions: nothing, ..Criteria::default() };
        assert!(list(&connection, &filter, None, 10).is_ok_and(|page| page.rows.is_empty()));
    }

    #[test]
    fn g33_a_count_stops_at_its_bound() {
        let connection = filled();
        let count = |filter: Criteria, at_most| {
            count(&connection, &filter, at_most).unwrap_or_else(|_| panic!("{filter:?} can be counted"))
        };
        let unfinished = Criteria { statuses: vec![Status::Pending, Status::Running], ..Criteria::default() };
        assert_eq!(count(unfinished.clone(), 50), Count { rows: 33, more: false });
        assert_eq!(count(unfinished.clone(), 33), Count { rows: 33, more: false });
        assert_eq!(count(unfinished.clone(), 20), Count { rows: 20, more: true });
        assert_eq!(count(unfinished, 5), Count { rows: 5, more: true });
        assert_eq!(count(Criteria { ended_before_ms: Some(9), ..Criteria::default() }, 9).rows, 5);
    }
}
