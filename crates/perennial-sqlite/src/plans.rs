//! How SQLite goes about the statements that the engine's speed rests on.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::store::Status;
use rusqlite::Connection;

use crate::list::Source;
use crate::reader::{self, DUE, INBOX, MESSAGES, OWED, TURNS};
use crate::schema;
use crate::tables::{self, update_sql};

/// The plan of a statement, a line for each step.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
    let rows = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The tables and indexes that a statement writes.
fn written(connection: &Connection, sql: &str) -> BTreeSet<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
    let mut rows = statement.query(rusqlite::params_from_iter(parameters)).unwrap();
    let mut cursors = BTreeMap::new();
    let mut names = BTreeSet::new();
    while let Some(row) = rows.next().unwrap() {
        let (operation, cursor, root): (String, i64, i64) =
            (row.get(1).unwrap(), row.get(2).unwrap(), row.get(3).unwrap());
        match operation.as_str() {
            "OpenWrite" => {
                let name: rusqlite::Result<String> = connection.query_row(
                    "SELECT name FROM sqlite_schema WHERE rootpage = ?1",
                    [root],
                    |row| row.get(0),
                );
                cursors.insert(cursor, name.unwrap());
            }
            "Insert" | "Delete" | "IdxInsert" | "IdxDelete" => {
                names.extend(cursors.get(&cursor).cloned());
            }
            _ => {}
        }
    }
    names
}

fn empty() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    schema::create(&connection).unwrap();
    connection
}

/// Many rows, and statistics that tell SQLite so.
fn filled() -> Connection {
    let connection = empty();
    connection
        .execute_batch(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
             INSERT INTO instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, blocked,
                                    created_ms)
             SELECT randomblob(16), 'order-' || n, n % 256, 'checkout', '1.0.0', n % 6, 1, n % 2,
                    iif(n % 3 = 0, n, NULL), iif(n % 50 = 0, '{}', NULL), n FROM n;
             INSERT INTO turns SELECT key, 1, 1, x'00' FROM instances;
             INSERT INTO inbox (key, shard, body) SELECT key, shard, x'00' FROM instances;
             INSERT INTO shards SELECT DISTINCT shard, x'00' FROM instances;
             ANALYZE",
        )
        .unwrap();
    connection
}

#[test]
fn s4_no_statement_of_the_engine_scans_or_sorts() {
    let hot = [
        tables::INSERT_INSTANCE,
        tables::INSTANCE_EXISTS,
        tables::ADDRESSEE,
        tables::INSERT_TURN,
        tables::TURN_EXISTS,
        tables::SAME_TURN,
        tables::APPEND_MESSAGE,
        tables::DELETE_MESSAGE,
        tables::MAKE_DUE_IF_BLOCKED,
        tables::COUNT_UNREAD,
        INBOX,
        DUE,
        OWED,
        TURNS,
    ];
    let by_row = [reader::by_key(), reader::by_id(), update_sql(0b1001), update_sql(0xff)];
    for connection in [empty(), filled()] {
        for sql in hot.iter().copied().chain(by_row.iter().map(String::as_str)) {
            for step in plan(&connection, sql) {
                assert!(!step.starts_with("SCAN") && !step.contains("TEMP B-TREE"), "{step}: {sql}");
            }
        }
        // The messages of one instance are few; they are sorted.
        let messages = plan(&connection, MESSAGES);
        assert!(
            messages[0].starts_with("SEARCH inbox USING INDEX inbox_by_instance (key=?)"),
            "{messages:?}"
        );
    }
}

#[test]
fn g13_what_is_due_or_owed_is_found_without_the_rows() {
    for connection in [empty(), filled()] {
        let due = plan(&connection, DUE);
        assert!(due[0].starts_with("SEARCH instances USING COVERING INDEX instances_due"), "{due:?}");
        assert!(
            due[0].contains("wake_at_ms>? AND wake_at_ms<?") || due[0].contains("(wake_at_ms,key)>"),
            "{due:?}"
        );
        let owed = plan(&connection, OWED);
        assert_eq!(owed[0], "SEARCH instances USING COVERING INDEX instances_owed (key>?)");
    }
}

#[test]
fn s7_lists_go_by_an_index_in_the_order_of_keys() {
    let sources = [
        Source::All,
        Source::Blocked,
        Source::Status(Status::Failed),
        Source::Name("checkout".to_owned()),
        Source::Ids("order-".to_owned(), Some("order.".to_owned())),
    ];
    for connection in [empty(), filled()] {
        for source in &sources {
            let steps = plan(&connection, &source.sql());
            assert!(steps[0].starts_with("SEARCH instances USING INDEX"), "{source:?}: {steps:?}");
            // By id the order is another one.
            let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
            assert_eq!(sorts, matches!(source, Source::Ids(..)), "{source:?}: {steps:?}");
        }
    }
}

#[test]
fn g12_a_step_writes_one_row_and_no_index_of_instances() {
    let connection = empty();
    let names =
        |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(written(&connection, tables::INSERT_TURN), names(&["turns", "turns_by_number"]));
    // Bits as in the order of the columns that may change.
    let (status, owed, wake_at, published) = (1, 1 << 3, 1 << 4, 1 << 7);
    assert_eq!(written(&connection, &update_sql(published)), names(&["instances"]));
    assert_eq!(written(&connection, &update_sql(owed)), names(&["instances", "instances_owed"]));
    assert_eq!(written(&connection, &update_sql(wake_at)), names(&["instances", "instances_due"]));
    assert_eq!(
        written(&connection, &update_sql(status)),
        names(&["instances", "instances_by_status", "instances_due", "instances_owed"])
    );
}
