//! Bytes as changes of a SQLite store: values of rows, and bytes of the file. Then it is opened and read in every way.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use perennial_core::store::{Criteria, PageLimit, Reply, Store, StoreError};
use perennial_sqlite::{SqliteOptions, SqliteStore, inspect};
use perennial_testkit::conformance::instances::{Build, member, message, row, start, task};
use perennial_testkit::conformance::{Subject, answer_of, waiting};
use rusqlite::{Connection, types::Value};

const TABLES: [&str; 10] = [
    "instances",
    "turns",
    "inbox",
    "tasks",
    "requests",
    "replies",
    "settings",
    "sessions",
    "shards",
    "attributes",
];

/// The bytes of a store with a few rows in its tables.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("image.db");
        {
            let owner = Subject::over(SqliteStore::open(&path, SqliteOptions::default()).expect("a store"));
            let session = owner.own_all();
            for number in 1..6 {
                let row = row(number, &format!("order-{number}"));
                owner.write(session, start(&row).putting([task(&row, 2)]));
                owner.write(session, member(&row).turn(2, "second"));
                owner.sent(message(&row.id, None, "x"));
                owner.requested(&row.id, 60_000, "?");
            }
        }
        std::fs::read(path).expect("the file")
    })
}

/// Opens a changed store. Whatever was changed, it is refused, or it can be read and every damage is named.
pub(crate) fn run(input: &[u8]) -> bool {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let directory = made.expect("a temporary directory");
    let path = directory.path().join("fuzzed.db");
    let mut bytes = image().to_vec();
    let (kind, rest) = input.split_first().unwrap_or((&0, &[]));
    if kind % 4 == 0 {
        // Four bytes each: a place, and what is there.
        for change in rest.chunks_exact(4) {
            let place = usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
            let length = bytes.len();
            bytes[place % length] = change[3];
        }
    }
    std::fs::write(&path, &bytes).expect("a file can be written");
    if kind % 4 != 0 {
        change_rows(&path, rest);
    }
    read_everything(&path)
}

/// Each part of the input, divided by zeroes, is a value: its first three bytes say where it goes and of what type it is.
fn change_rows(path: &Path, input: &[u8]) {
    let Ok(connection) = Connection::open(path) else { return };
    for part in input.split(|byte| *byte == 0).filter(|part| part.len() >= 4).take(8) {
        let table = TABLES[usize::from(part[0]) % TABLES.len()];
        let Ok(columns) = columns(&connection, table) else { continue };
        let Some(column) = columns.get(usize::from(part[1]) % columns.len().max(1)) else { continue };
        let rest = &part[3..];
        let value = match part[2] % 4 {
            0 => Value::Null,
            1 => Value::Integer(
                rest.iter().fold(0, |number: i64, byte| number.wrapping_mul(31).wrapping_add((*byte).into())),
            ),
            2 => Value::Text(String::from_utf8_lossy(rest).into_owned()),
            _ => Value::Blob(rest.to_vec()),
        };
        let sql =
            format!("UPDATE OR IGNORE {table} SET \"{column}\" = ?1 WHERE rowid % 3 = {}", part[2] / 4 % 3);
        // The table refuses values of another type, and that is fine.
        let _ = connection.execute(&sql, [value]);
    }
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

fn read_everything(path: &Path) -> bool {
    let _ = inspect(path, 1);
    let options = SqliteOptions::default().relaxed(true).busy_patience(Duration::ZERO);
    let Ok(store) = SqliteStore::open(path, options) else { return false };
    let listed = answered(|reply| store.list(Criteria::default(), None, 100, reply));
    for row in listed.into_iter().flat_map(|page| page.rows) {
        let _ = answered(|reply| store.find(&row.id, reply));
        let _ = answered(|reply| store.load(row.shard, row.key, 0, PageLimit::rows(100), reply));
        let _ = answered(|reply| {
            store.read_turns(row.shard, row.key, row.execution, 0, PageLimit::rows(100), reply)
        });
    }
    let _ = answered(|reply| store.stats(reply));
    let _ = answered(|reply| store.directory(reply));
    let _ = answered(|reply| store.list_tasks(None, 100, reply));
    let mut after = None;
    for _ in 0..20 {
        match answered(|reply| store.check_rows(after.take(), 100, reply)) {
            Ok(checked) if checked.next.is_some() => after = checked.next,
            _ => break,
        }
    }
    true
}

fn answered<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (reply, answer) = waiting();
    call(reply);
    let answered = answer_of(&answer);
    if let Err(StoreError::Failed(reason)) = &answered {
        assert!(!reason.contains("panicked"), "{reason}");
    }
    answered
}
