//! Pages of instances, by what people look for.
//!
//! Every source gives its rows by key, so that a page can go on behind any row. A page may have to pass over many rows
//! that do not match; the snapshot that it reads from is given up every half second, since as long as one is held the
//! log cannot be written from its beginning again.

use std::time::{Duration, Instant};

use perennial_core::InstanceKey;
use perennial_core::store::{Blocked, Filter, InstanceRow, Page, PageKey, Status, StoreError};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, ToSql, params};

use crate::reader::Fault;
use crate::row::{COLUMNS, read_instance, read_key, status_code};

/// How long a snapshot is held at most, and after how many rows the time is looked at.
const SNAPSHOT: (Duration, usize) = (Duration::from_millis(500), 256);
/// An id prefix that has no more instances than this is searched by id.
const FEW: i64 = 10_000;

pub(crate) fn list(
    connection: &Connection,
    filter: &Filter,
    after: Option<PageKey>,
    limit: usize,
) -> Result<Page, Fault> {
    let limit = limit.max(1);
    let wanted = limit.saturating_add(1);
    let mut rows = Vec::new();
    for source in sources(connection, filter)? {
        rows.extend(gather(connection, &source, filter, after, wanted, SNAPSHOT)?);
    }
    rows.sort_by_key(|row| row.key);
    let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
    rows.truncate(limit);
    Ok(Page { rows, next })
}

/// Where rows come from, in the order of their keys.
#[derive(Debug, PartialEq)]
pub(crate) enum Source {
    All,
    Blocked,
    Status(Status),
    Name(String),
    /// Ids from the first on, up to before the second.
    Ids(String, Option<String>),
}

impl Source {
    /// The statement; its first parameter is the key behind which to go on.
    pub(crate) fn sql(&self) -> String {
        let (index, condition) = match self {
            Source::All => ("instances_by_key", ""),
            Source::Blocked => ("instances_blocked", "blocked IS NOT NULL AND "),
            Source::Status(_) => ("instances_by_status", "status = ?2 AND status <> 2 AND "),
            Source::Name(_) => ("instances_by_name", "name = ?2 AND "),
            Source::Ids(_, Some(_)) => ("instances_by_id", "id >= ?2 AND id < ?3 AND "),
            Source::Ids(_, None) => ("instances_by_id", "id >= ?2 AND "),
        };
        format!("SELECT {COLUMNS} FROM instances INDEXED BY {index} WHERE {condition}key > ?1 ORDER BY key")
    }

    fn query<'s>(
        &self,
        statement: &'s mut rusqlite::Statement<'_>,
        after: Option<InstanceKey>,
    ) -> rusqlite::Result<rusqlite::Rows<'s>> {
        let after: &[u8] = after.as_ref().map_or(&[], |after| after.as_bytes());
        let code;
        let mut values: Vec<&dyn ToSql> = vec![&after];
        match self {
            Source::All | Source::Blocked => {}
            Source::Status(status) => {
                code = status_code(*status);
                values.push(&code);
            }
            Source::Name(name) => values.push(name),
            Source::Ids(from, before) => {
                values.push(from);
                values.extend(before.as_ref().map(|before| before as &dyn ToSql));
            }
        }
        statement.query(values.as_slice())
    }
}

/// The sources that together have every row that matches: those with the fewest others.
fn sources(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Source>> {
    if filter.blocked == Some(true) {
        return Ok(vec![Source::Blocked]);
    }
    if let Some(prefix) = filter.id_prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
        let ids = Source::Ids(prefix.clone(), after_prefix(prefix));
        if are_few(connection, &ids)? {
            return Ok(vec![ids]);
        }
    }
    if !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Completed) {
        let asked = Status::ALL.into_iter().filter(|status| filter.statuses.contains(status));
        return Ok(asked.map(Source::Status).collect());
    }
    Ok(vec![filter.name.clone().map_or(Source::All, Source::Name)])
}

/// Whether an id prefix has few instances. By id they come out of order, so that all of them have to be sorted.
fn are_few(connection: &Connection, ids: &Source) -> rusqlite::Result<bool> {
    let Source::Ids(from, before) = ids else {
        return Ok(false);
    };
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM instances WHERE id >= ?1 AND (?2 IS NULL OR id < ?2) LIMIT ?3)",
    )?;
    let count: i64 = statement.query_row(params![from, before, FEW + 1], |row| row.get(0))?;
    Ok(count <= FEW)
}

/// The first text behind all that begin with the prefix; none if there is no such text.
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

/// The first rows of a source that match, from one snapshot after another.
fn gather(
    connection: &Connection,
    source: &Source,
    filter: &Filter,
    after: Option<InstanceKey>,
    wanted: usize,
    (snapshot, look_every): (Duration, usize),
) -> Result<Vec<InstanceRow>, Fault> {
    let mut gathered = Vec::new();
    let mut after = after;
    'snapshots: loop {
        let begun = Instant::now();
        let mut statement = connection.prepare_cached(&source.sql())?;
        let mut rows = source.query(&mut statement, after)?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            if matches(row, filter)? {
                gathered.push(shown(row)?);
                if gathered.len() == wanted {
                    return Ok(gathered);
                }
            }
            seen += 1;
            if seen % look_every == 0 && begun.elapsed() >= snapshot {
                after = Some(read_key(row, 0)?);
                continue 'snapshots;
            }
        }
        return Ok(gathered);
    }
}

/// [`Filter::matches`], without decoding the row.
fn matches(row: &Row<'_>, filter: &Filter) -> rusqlite::Result<bool> {
    let text =
        |column| -> rusqlite::Result<&[u8]> { Ok(row.get_ref(column)?.as_bytes().unwrap_or_default()) };
    if let Some(prefix) = &filter.id_prefix
        && !text(1)?.starts_with(prefix.as_bytes())
    {
        return Ok(false);
    }
    if let Some(name) = &filter.name
        && text(3)? != name.as_bytes()
    {
        return Ok(false);
    }
    if let Some(blocked) = filter.blocked
        && blocked == (row.get_ref(9)? == ValueRef::Null)
    {
        return Ok(false);
    }
    let status: i64 = row.get(5)?;
    Ok(filter.statuses.is_empty() || filter.statuses.iter().any(|asked| status_code(*asked) == status))
}

/// The row as the list shows it. One that is corrupt must not hide the others: it is shown as blocked, with what can be
/// read of it.
fn shown(row: &Row<'_>) -> Result<InstanceRow, Fault> {
    let fault = match read_instance(row) {
        Ok(instance) => return Ok(instance),
        Err(fault) => fault,
    };
    let text = |column| row.get::<_, String>(column).unwrap_or_default();
    Ok(InstanceRow {
        key: read_key(row, 0)?,
        id: text(1),
        shard: perennial_core::ShardId::of(&text(1)),
        name: text(3),
        version: text(4),
        status: row.get(5).ok().and_then(crate::row::status_of_code).unwrap_or(Status::Running),
        execution: row.get::<_, i64>(6).map_or(0, i64::cast_unsigned),
        owed: false,
        wake_at_ms: None,
        blocked: Some(Blocked {
            code: fault.code().to_owned(),
            reason: reason(&fault),
            report: fault.to_string(),
            since_ms: 0,
            attempts: 0,
        }),
        attributes: Default::default(),
        published: None,
        parent: None,
        created_ms: row.get::<_, i64>(13).map_or(0, i64::cast_unsigned),
    })
}

fn reason(fault: &StoreError) -> String {
    match fault {
        StoreError::CorruptRow(reason) => format!("corrupt row: {reason}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        crate::schema::create(&connection).unwrap();
        connection
            .execute_batch(
                "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100)
                 INSERT INTO instances (key, id, shard, name, version, status, execution, owed, created_ms)
                 SELECT randomblob(16), 'order-' || n, 0, 'checkout', '1.0.0', n % 6, 1, 0, n FROM n",
            )
            .unwrap();
        connection
    }

    #[test]
    fn s7_a_list_goes_on_from_one_snapshot_to_the_next() {
        let connection = filled();
        let filter = Filter { statuses: vec![Status::Failed], ..Filter::default() };
        let sources =
            [Source::All, Source::Name("checkout".to_owned()), Source::Ids("order".to_owned(), None)];
        let gather = |source: &Source, snapshot| {
            let rows = gather(&connection, source, &filter, None, 100, snapshot);
            let keys = rows.map(|rows| rows.iter().map(|row| row.key).collect::<Vec<_>>());
            keys.unwrap_or_else(|_| panic!("{source:?} can be read"))
        };
        let expected = gather(&Source::Status(Status::Failed), SNAPSHOT);
        assert_eq!(expected.len(), 17);
        assert!(expected.is_sorted());
        for source in sources {
            assert_eq!(gather(&source, SNAPSHOT), expected, "{source:?}");
            assert_eq!(gather(&source, (Duration::ZERO, 1)), expected, "{source:?}, a snapshot for each row");
        }
    }

    #[test]
    fn s7_the_smallest_source_is_chosen() {
        let connection = filled();
        let chosen = |filter: Filter| sources(&connection, &filter).unwrap();
        let everything = Filter::default();
        assert_eq!(chosen(everything.clone()), [Source::All]);
        let name = Filter { name: Some("checkout".to_owned()), ..everything.clone() };
        assert_eq!(chosen(name.clone()), [Source::Name("checkout".to_owned())]);
        let statuses = Filter { statuses: vec![Status::Failed, Status::Running, Status::Failed], ..name };
        assert_eq!(
            chosen(statuses.clone()),
            [Source::Status(Status::Running), Source::Status(Status::Failed)]
        );
        let ids = Filter { id_prefix: Some("order-7".to_owned()), ..statuses };
        assert_eq!(chosen(ids.clone()), [Source::Ids("order-7".to_owned(), Some("order-8".to_owned()))]);
        assert_eq!(chosen(Filter { blocked: Some(true), ..ids }), [Source::Blocked]);
        // Most instances are completed: an index would not help.
        let completed = Filter { statuses: vec![Status::Completed], ..everything };
        assert_eq!(chosen(completed), [Source::All]);
    }

    #[test]
    fn s7_a_prefix_ends_before_the_next_text() {
        assert_eq!(after_prefix("order-").as_deref(), Some("order."));
        assert_eq!(after_prefix("\u{d7ff}").as_deref(), Some("\u{e000}"), "there are no characters between");
        assert_eq!(after_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_prefix("\u{10ffff}"), None);
    }
}
