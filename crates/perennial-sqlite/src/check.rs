//! Checks rows that loading an instance does not fully verify: whether they can be read, are what was written, and
//! belong to an instance. Used to verify a whole file.

use perennial_core::shard::{BodyError, CallReply};
use perennial_core::store::{CheckedRows, DamagedRow, RowPlace, order_key};
use perennial_core::{Attributes, InstanceKey};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::passes;
use crate::reader::{Fault, at_most};
use crate::requests;
use crate::tasks;

/// The tables, in the order in which they are checked.
const TABLES: [Table; 6] =
    [Table::Instances, Table::Turns, Table::Inbox, Table::Tasks, Table::Requests, Table::Replies];

#[derive(Clone, Copy)]
enum Table {
    Instances,
    Turns,
    Inbox,
    Tasks,
    Requests,
    Replies,
}

impl Table {
    /// Its name, and the checked columns. The row id follows them.
    fn parts(self) -> (&'static str, String) {
        match self {
            Table::Instances => ("instances", "key, attributes".to_owned()),
            Table::Turns => ("turns", "key, execution, number".to_owned()),
            Table::Inbox => ("inbox", passes::MESSAGE_COLUMNS.to_owned()),
            Table::Tasks => ("tasks", tasks::COLUMNS.to_owned()),
            Table::Requests => ("requests", requests::COLUMNS.to_owned()),
            Table::Replies => ("replies", requests::REPLY_COLUMNS.to_owned()),
        }
    }

    /// The column with the key of the instance, if there is one.
    fn key_column(self) -> Option<usize> {
        match self {
            Table::Instances | Table::Turns | Table::Tasks => Some(0),
            Table::Inbox | Table::Requests => Some(1),
            Table::Replies => None,
        }
    }

    /// A description of a row.
    fn what(self, row: i64) -> String {
        match self {
            Table::Instances => "row".to_owned(),
            Table::Turns => format!("row {row} of turns"),
            Table::Inbox => format!("message {row}"),
            Table::Tasks => format!("row {row} of tasks"),
            Table::Requests => format!("request {row}"),
            Table::Replies => format!("reply {row}"),
        }
    }
}

pub(crate) fn check(
    connection: &Connection,
    after: Option<RowPlace>,
    rows: usize,
) -> Result<CheckedRows, Fault> {
    let mut checked = CheckedRows::default();
    if after.is_none() {
        checked.damage = check_file(connection)?;
    }
    let place = after.unwrap_or(beginning(0));
    let Some(table) = TABLES.get(usize::from(place.table)).copied() else { return Ok(checked) };
    let (name, columns) = table.parts();
    let sql =
        format!("SELECT {columns}, rowid AS place FROM {name} WHERE rowid > ?1 ORDER BY rowid LIMIT ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query([place.row.cast_signed(), at_most(rows.max(1))])?;
    let mut last = None;
    while let Some(row) = found.next()? {
        let rowid: i64 = row.get("place")?;
        last = Some(RowPlace { row: rowid.cast_unsigned(), ..place });
        if let Err(problem) = check_row(connection, table, row, &mut checked) {
            let key = table.key_column().and_then(|column| row.get(column).ok()).map(InstanceKey::from_bytes);
            let id = key.map(|key| owner(connection, key)).transpose()?.flatten().map(|(id, _)| id);
            checked.damage.push(DamagedRow { key, id, what: table.what(rowid), problem });
        }
    }
    checked.next =
        last.or((usize::from(place.table) + 1 < TABLES.len()).then_some(beginning(place.table + 1)));
    Ok(checked)
}

/// Damaged messages, tasks, requests and replies that belong to no instance, among the first `rows` rows of each table.
/// For a quick check: histories and the file as a whole are not read.
pub(crate) fn strays(connection: &Connection, rows: usize) -> Result<Vec<DamagedRow>, Fault> {
    let mut strays = Vec::new();
    for (table, number) in TABLES.iter().zip(0..) {
        if !matches!(table, Table::Instances | Table::Turns) {
            let checked = check(connection, Some(beginning(number)), rows)?;
            strays.extend(checked.damage.into_iter().filter(|damage| damage.id.is_none()));
            for (number, body) in checked.replies {
                // A body with encoded payloads is valid.
                if let Err(problem) = CallReply::decode(&body)
                    && !matches!(problem, BodyError::Undecodable(_))
                {
                    let (what, problem) = (format!("reply {number}"), problem.to_string());
                    strays.push(DamagedRow { key: None, id: None, what, problem });
                }
            }
        }
    }
    Ok(strays)
}

/// What SQLite itself finds wrong with the file, including its indexes: rows missing from an index are invisible.
fn check_file(connection: &Connection) -> rusqlite::Result<Vec<DamagedRow>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
    let problems = statement.query_map([], |row| row.get::<_, String>(0))?;
    let damage = problems.filter(|problem| !matches!(problem.as_deref(), Ok("ok"))).map(|problem| {
        problem.map(|problem| DamagedRow { key: None, id: None, what: "the file".to_owned(), problem })
    });
    damage.collect()
}

/// Before all rows of a table, including those whose number was made negative.
fn beginning(table: u8) -> RowPlace {
    RowPlace { table, row: i64::MIN.cast_unsigned() }
}

/// The id and the current execution of an instance.
fn owner(connection: &Connection, key: InstanceKey) -> rusqlite::Result<Option<(String, i64)>> {
    let mut owner = connection.prepare_cached("SELECT id, execution FROM instances WHERE key = ?1")?;
    owner.query_row([key.as_bytes()], |row| Ok((lossy(row, 0)?, row.get(1)?))).optional()
}

fn lossy(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes().unwrap_or_default()).into_owned())
}

fn check_row(
    connection: &Connection,
    table: Table,
    row: &Row<'_>,
    checked: &mut CheckedRows,
) -> Result<(), String> {
    let told = |error: rusqlite::Error| error.to_string();
    let faulty = |fault: Fault| match fault {
        Fault::Row(perennial_core::store::StoreError::CorruptRow(problem)) => problem,
        Fault::Row(error) => error.to_string(),
        Fault::Sqlite(error) => error.to_string(),
    };
    match table {
        Table::Instances => return check_attributes(connection, row),
        Table::Turns => {}
        Table::Inbox => passes::message(row).map(drop).map_err(faulty)?,
        Table::Tasks => tasks::read(row).map(drop).map_err(faulty)?,
        Table::Requests => checked.requests.push(requests::request(row).map_err(faulty)?),
        Table::Replies => checked.replies.push(requests::reply_of(row).map_err(faulty)?),
    }
    let Some(column) = table.key_column() else { return Ok(()) };
    let key = InstanceKey::from_bytes(row.get(column).map_err(told)?);
    let Some((_, current)) = owner(connection, key).map_err(told)? else {
        // Leftover turns of a deleted instance are swept.
        let is_buried = crate::delete::is_buried(connection, key).map_err(told)?;
        let is_left = matches!(table, Table::Turns) && is_buried;
        return if is_left { Ok(()) } else { Err("it belongs to no instance".to_owned()) };
    };
    if matches!(table, Table::Turns) {
        // A load reads turns from the first on, so it does not see this one.
        let number: i64 = row.get(2).map_err(told)?;
        if number < 1 {
            return Err(format!("no turn has number {number}"));
        }
    }
    if matches!(table, Table::Turns | Table::Tasks) {
        let execution: i64 = row.get(1).map_err(told)?;
        if !(1..=current).contains(&execution) {
            return Err(format!(
                "it belongs to execution {execution}, but the instance is in execution {current}"
            ));
        }
    }
    Ok(())
}

/// Whether the attribute index matches the row of the instance.
fn check_attributes(connection: &Connection, row: &Row<'_>) -> Result<(), String> {
    let told = |error: rusqlite::Error| error.to_string();
    // A row that cannot be read is reported when its instance is loaded.
    let Ok(key) = row.get::<_, [u8; 16]>(0) else { return Err("its key cannot be read".to_owned()) };
    let text = lossy(row, 1).map_err(told)?;
    let attributes: Attributes = match text.is_empty() {
        true => Attributes::default(),
        false => serde_json::from_str(&text).map_err(|error| format!("column attributes: {error}"))?,
    };
    let mut indexed =
        connection.prepare_cached("SELECT name, order_key FROM attributes WHERE key = ?1").map_err(told)?;
    let indexed = indexed
        .query_map([key], |row| Ok((lossy(row, 0)?, row.get_ref(1)?.as_bytes()?.to_vec())))
        .map_err(told)?;
    let mut indexed: Vec<(String, Vec<u8>)> = indexed.collect::<Result<_, _>>().map_err(told)?;
    indexed.sort();
    let is_same = indexed.len() == attributes.len()
        && indexed
            .iter()
            .zip(&attributes)
            .all(|((name, indexed), (own, value))| name == own && *indexed == order_key(value));
    if is_same { Ok(()) } else { Err("its attributes are indexed with other values".to_owned()) }
}
