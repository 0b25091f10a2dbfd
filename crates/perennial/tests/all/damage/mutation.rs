//! One mutation of the stored rows, drawn from a seed.

use perennial_core::InstanceKey;
use perennial_testkit::Rng;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

/// The tables that are damaged, and how often.
const TABLES: [(u64, &str); 9] = [
    (30, "instances"),
    (25, "turns"),
    (20, "inbox"),
    (15, "tasks"),
    (8, "requests"),
    (2, "replies"),
    (3, "attributes"),
    (3, "continuations"),
    (4, "shards"),
];

/// What was done to the store.
#[derive(Debug)]
pub(super) struct Mutation {
    /// The statement in words.
    pub(super) what: String,
    /// The instances that the row belonged to before and belongs to now.
    pub(super) victims: Vec<String>,
    /// The keys of the first.
    pub(super) keys: Vec<InstanceKey>,
    /// Whether something is lost of which nothing stored can tell: the last turn of a history, a message, or the instance
    /// itself.
    pub(super) is_silent_loss: bool,
}

/// Damages something. Gives nothing if what was drawn cannot be done.
pub(super) fn mutate(connection: &Connection, rng: &mut Rng) -> Option<Mutation> {
    let table = rng.weighted(&TABLES);
    let rowids = rowids(connection, table);
    if rowids.is_empty() {
        return None;
    }
    let row = rng.pick(&rowids).clone();
    match rng.weighted(&[(80, 0), (12, 1), (8, 2)]) {
        0 => change_column(connection, rng, table, &row, &rowids),
        1 => delete_row(connection, table, &row),
        _ => swap_turns(connection, rng),
    }
}

/// What tells a row from others: tables without row ids have a key of two columns.
fn place(table: &str) -> &'static str {
    match table {
        "continuations" => "(hex(key) || execution)",
        _ => "rowid",
    }
}

fn rowids(connection: &Connection, table: &str) -> Vec<Value> {
    let sql = format!("SELECT {0} FROM {table} ORDER BY {0}", place(table));
    let mut rows = connection.prepare(&sql).unwrap();
    rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// The keys of instances.
fn keys_of(connection: &Connection, ids: &[String]) -> Vec<InstanceKey> {
    let key = |id: &String| {
        connection.query_row("SELECT key FROM instances WHERE id = ?1", [id], |row| row.get(0)).unwrap()
    };
    ids.iter().map(key).map(InstanceKey::from_bytes).collect()
}

/// The instance that a row belongs to.
fn victim(connection: &Connection, table: &str, row: &Value) -> Vec<String> {
    let sql = match table {
        "shards" | "replies" => return Vec::new(),
        "instances" => "SELECT id FROM instances WHERE rowid = ?1".to_owned(),
        _ => format!(
            "SELECT id FROM instances WHERE key = (SELECT key FROM {table} WHERE {} = ?1)",
            place(table)
        ),
    };
    connection.query_row(&sql, [row], |row| row.get(0)).into_iter().collect()
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    columns.query_map([table], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn change_column(
    connection: &Connection,
    rng: &mut Rng,
    table: &str,
    row: &Value,
    rowids: &[Value],
) -> Option<Mutation> {
    let column = rng.pick(&columns(connection, table)).clone();
    let at = place(table);
    let read = |row: &Value| -> Value {
        let sql = format!("SELECT {column} FROM {table} WHERE {at} = ?1");
        connection.query_row(&sql, [row], raw).unwrap()
    };
    let before = read(row);
    let other = read(rng.pick(rowids));
    let after = changed(rng, &before, other);
    if after == before {
        return None;
    }
    let mut victims = victim(connection, table, row);
    let keys = keys_of(connection, &victims);
    let is_text = matches!(after, Value::Blob(_)) && is_text_column(connection, table, &column);
    let value = if is_text { "CAST(?2 AS TEXT)" } else { "?2" };
    let sql = format!("UPDATE {table} SET {column} = {value} WHERE {at} = ?1");
    // What the schema forbids is no damage that can be met.
    connection.execute(&sql, params![row, after]).ok()?;
    // A row that is given to another instance is that one's trouble, too.
    if column == "key" && table != "instances" {
        victims.extend(victim(connection, table, row));
    }
    // A request with another deadline is swept before anybody reads it; its sender hears nothing, as it would in time.
    let is_silent_loss = table == "requests" && column == "deadline_ms";
    let what =
        format!("{table}.{column} of {victims:?} (row {row:?}): {} became {}", short(&before), short(&after));
    Some(Mutation { what, victims, keys, is_silent_loss })
}

/// A value as bytes or numbers: text that is not UTF-8 must not stop the test itself.
fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(0)? {
        rusqlite::types::ValueRef::Text(text) => Value::Blob(text.to_vec()),
        other => Value::try_from(other).expect("it is not text"),
    })
}

fn is_text_column(connection: &Connection, table: &str, column: &str) -> bool {
    let sql = "SELECT type = 'TEXT' FROM pragma_table_info(?1) WHERE name = ?2";
    connection.query_row(sql, [table, column], |row| row.get(0)).unwrap()
}

fn changed(rng: &mut Rng, before: &Value, other: Value) -> Value {
    if rng.percent(15) {
        return other;
    }
    if rng.percent(8) {
        return Value::Null;
    }
    match before {
        Value::Integer(number) => Value::Integer(match rng.below(6) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => -1,
            3 => i64::MAX,
            4 => number ^ (1 << rng.below(40)),
            _ => rng.draw().cast_signed() >> rng.below(60),
        }),
        Value::Blob(bytes) if !bytes.is_empty() => {
            let mut bytes = bytes.clone();
            let place = rng.below(bytes.len());
            match rng.below(6) {
                0 => bytes.truncate(place),
                1 => bytes.push(0x20),
                2 => bytes[place] = rng.draw().to_le_bytes()[0],
                _ => bytes[place] ^= 1 << rng.below(8),
            }
            Value::Blob(bytes)
        }
        Value::Null if rng.percent(50) => Value::Integer(rng.draw().cast_signed() >> rng.below(60)),
        _ => Value::Blob(rng.draw().to_le_bytes().to_vec()),
    }
}

fn delete_row(connection: &Connection, table: &str, row: &Value) -> Option<Mutation> {
    let victims = victim(connection, table, row);
    let keys = keys_of(connection, &victims);
    let is_last_turn = table == "turns"
        && {
            let later = "SELECT NOT EXISTS (SELECT 1 FROM turns b JOIN turns a ON a.rowid = ?1 WHERE b.key = a.key \
                     AND b.execution = a.execution AND b.number > a.number)";
            connection.query_row(later, [row], |row| row.get(0)).unwrap()
        };
    let deleted =
        connection.execute(&format!("DELETE FROM {table} WHERE {} = ?1", place(table)), [row]).unwrap();
    assert_eq!(deleted, 1);
    let is_silent_loss = is_last_turn || matches!(table, "inbox" | "requests" | "instances");
    Some(Mutation {
        what: format!("a row of {table} of {victims:?} (row {row:?}) deleted"),
        victims,
        keys,
        is_silent_loss,
    })
}

/// Two turns of one instance change places.
fn swap_turns(connection: &Connection, rng: &mut Rng) -> Option<Mutation> {
    let pairs = "SELECT a.rowid, b.rowid FROM turns a JOIN turns b ON a.key = b.key AND a.rowid < b.rowid ORDER BY 1, 2";
    let mut pairs = connection.prepare(pairs).unwrap();
    let pairs: Vec<(i64, i64)> =
        pairs.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let (a, b) = *rng.pick(&pairs);
    let victims = victim(connection, "turns", &Value::Integer(a));
    let keys = keys_of(connection, &victims);
    let swap = "UPDATE turns SET (body, checksum) = (SELECT body, checksum FROM turns o WHERE o.rowid = ?1 + ?2 - turns.rowid) \
                WHERE rowid IN (?1, ?2)";
    connection.execute(swap, [a, b]).unwrap();
    Some(Mutation {
        what: format!("turns {a} and {b} of {victims:?} swapped"),
        victims,
        keys,
        is_silent_loss: false,
    })
}

fn short(value: &Value) -> String {
    match value {
        Value::Blob(bytes) if bytes.len() == 16 => {
            InstanceKey::from_bytes(bytes.as_slice().try_into().unwrap()).to_string()
        }
        Value::Blob(bytes) => format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)])),
        other => format!("{other:?}"),
    }
}
