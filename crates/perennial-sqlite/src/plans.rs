//! Tests of the query plans that the engine's speed depends on.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::store::{MovedTable, Source, Status, attribute};
use rusqlite::Connection;

use crate::passes::{BLOCKED, DUE, INBOX, MESSAGE, NUMBERS, OWED};
use crate::reader::{self, TURNS};
use crate::sources::Indexed;
use crate::tables::{self, update_sql};
use crate::{
    attributes, by_end, continuations, delete, directory, export, requests, schema, sessions, shards, stats,
    tasks,
};

/// The plan of a statement, one line per step.
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
                                    created_ms, ended_ms, parent_key)
             SELECT randomblob(16), 'order-' || n, n % 256, 'checkout', '1.0.0', n % 6, 1, n % 2,
                    iif(n % 3 = 0, n, NULL), iif(n % 50 = 0, '{}', NULL), n, iif(n % 6 >= 2, n, NULL),
                    iif(n % 10 = 0, 'parent-' || n % 100, NULL) FROM n;
             INSERT INTO turns SELECT key, 1, 1, x'00', 0 FROM instances;
             INSERT INTO inbox (key, shard, body, parked) SELECT key, shard, x'00', shard % 2 FROM instances;
             INSERT INTO shards (shard, session, epoch, unclean_ends, gaps)
             SELECT DISTINCT shard, x'00', 1, 0, '[]' FROM instances;
             INSERT INTO sessions SELECT DISTINCT key, 'lane', key, 1, 1, 1, x'00' FROM instances WHERE shard = 0;
             INSERT INTO attributes SELECT key, 'customer', CAST(shard AS BLOB) FROM instances;
             INSERT INTO tasks (key, execution, event, shard, state, cancelled, attempt, interruptions, name, tag)
             SELECT key, 1, 2, shard, shard % 3, 0, 1, 0, 'charge', iif(shard % 5 = 0, NULL, 'gpu') FROM instances;
             INSERT INTO requests (key, shard, deadline_ms, body)
             SELECT key, shard, created_ms, x'00' FROM instances;
             INSERT INTO replies (deadline_ms, body) SELECT created_ms, x'00' FROM instances;
             INSERT INTO settings SELECT id, x'00' FROM instances;
             INSERT INTO graves SELECT key FROM instances WHERE shard = 1;
             INSERT INTO continuations SELECT key, 2, created_ms FROM instances;
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
        tables::APPEND_TO_KEY,
        tables::DELETE_MESSAGE,
        tables::WAITING,
        tables::MAKE_URGENT,
        tables::SEE,
        tables::EARLIER,
        tables::COUNT_UNREAD,
        INBOX,
        DUE,
        OWED,
        BLOCKED,
        NUMBERS,
        MESSAGE,
        TURNS,
        requests::READ,
        requests::READ_REPLY,
        requests::READ_SETTING,
        sessions::INSERT,
        sessions::DELETE,
        sessions::TOUCH,
        shards::FIND,
        shards::OWNER,
        shards::GIVE,
        shards::LEAVE,
        shards::RELEASE,
        shards::EXPIRE,
        shards::NOTE,
        shards::STEADY,
        shards::OWNED,
        shards::SESSION_EXISTS,
        delete::IS_BURIED,
    ];
    let by_row = [reader::by_key(), reader::by_id(), update_sql(0b1001, false), update_sql(0x3ff, false)];
    for connection in [empty(), filled()] {
        for sql in hot.iter().copied().chain(by_row.iter().map(String::as_str)) {
            assert_goes_by_index(&connection, sql);
        }
        let by_row_id = plan(&connection, &update_sql(0b1001, true));
        assert_eq!(by_row_id, ["SEARCH instances USING INTEGER PRIMARY KEY (rowid=?)"]);
        let numbers = plan(&connection, NUMBERS);
        assert_eq!(numbers, ["SEARCH inbox USING COVERING INDEX inbox_by_instance (key=?)"]);
        let earlier = plan(&connection, tables::EARLIER);
        assert_eq!(earlier, ["SEARCH inbox USING INDEX inbox_by_instance (key=?)"]);
        // A session has at most 256 shards; they may be sorted.
        let owned = plan(&connection, shards::OF_SESSION);
        assert_eq!(owned[0], "SEARCH shards USING INDEX shards_by_session (session=?)");
        // There are few sessions; all of them are read, in order.
        let sessions = plan(&connection, directory::SESSIONS);
        assert!(sessions.iter().all(|step| !step.contains("TEMP B-TREE")), "{sessions:?}");
    }
}

/// Asserts that a statement neither scans a table nor sorts.
fn assert_goes_by_index(connection: &Connection, sql: &str) {
    for step in plan(connection, sql) {
        // A constant row is scanned where one statement contains two queries.
        let scans = step.starts_with("SCAN") && step != "SCAN CONSTANT ROW";
        assert!(!scans && !step.contains("TEMP B-TREE"), "{step}: {sql}");
    }
}

#[test]
fn s5_no_statement_about_tasks_or_requests_scans_or_sorts() {
    let fixed = [
        tasks::PUT,
        tasks::CANCEL,
        tasks::MARK_CANCELLED,
        tasks::ANY_LEASE_OVER,
        tasks::DROP_LEASES_OVER,
        tasks::LEASES_OVER,
        tasks::PUT_ASIDE,
        tasks::LEASE,
        tasks::SEAL,
        tasks::ANY_QUEUED,
        tasks::ANY_QUEUED_OF_NAME,
        tasks::QUEUED,
        tasks::RENEW,
        tasks::FINISH,
        tasks::DROP_CANCELLED,
        tasks::QUEUE_AGAIN,
        tasks::NEXT_QUEUED_NAME,
        requests::PUT,
        requests::REPLY,
        requests::DELETE,
        requests::SWEEP_REQUESTS,
        requests::SWEEP_REPLIES,
        requests::ANY_PAST_DEADLINE,
        requests::WRITE_SETTING,
        requests::DELETE_SETTING,
    ];
    let made = [tasks::of_event(), tasks::of_execution(), tasks::of_holder(), tasks::after()];
    for connection in [empty(), filled()] {
        for sql in fixed.iter().copied().chain(made.iter().map(String::as_str)) {
            assert_goes_by_index(&connection, sql);
        }
        let queued = plan(&connection, tasks::QUEUED);
        assert_eq!(
            queued[0],
            "SEARCH tasks USING COVERING INDEX tasks_by_state (state=? AND name=? AND tag=?)"
        );
    }
}

#[test]
fn g33_what_an_instance_leaves_behind_is_found_by_its_key() {
    for connection in [empty(), filled()] {
        let others = [
            delete::DELETE_ENDED,
            delete::ENDED_CHILDREN,
            delete::DELETE_TURNS,
            delete::ANY_TURN,
            delete::EXECUTION,
            delete::BURY,
            continuations::NOTE,
            continuations::OLDEST,
            continuations::FORGET,
            continuations::FORGET_UP_TO,
            continuations::FORGET_SOME,
            continuations::ANY_OF,
            delete::CLOSE_GRAVE,
            attributes::INSERT,
        ];
        for sql in delete::DELETE_ROWS.into_iter().chain(others) {
            assert_goes_by_index(&connection, sql);
        }
    }
}

#[test]
fn s4_parked_messages_are_passed_over_by_an_index() {
    for connection in [empty(), filled()] {
        let inbox = plan(&connection, INBOX);
        assert_eq!(inbox[0], "SEARCH inbox USING INDEX inbox_unparked (number>?)");
    }
}

#[test]
fn g33_every_count_goes_by_an_index_and_stops() {
    let counts = [stats::OF_STATUS, stats::COMPLETED, stats::INBOX, stats::TASKS, stats::REQUESTS];
    for connection in [empty(), filled()] {
        for sql in counts {
            assert!(sql.contains("LIMIT ?1"), "{sql}");
            let plan = plan(&connection, sql);
            let by_index = plan.iter().any(|step| step.contains("USING COVERING INDEX"));
            assert!(by_index && plan.iter().all(|step| !step.contains("TEMP B-TREE")), "{plan:?}: {sql}");
        }
        // SQLite also reads the rows, although the index contains only those that are blocked.
        let blocked = plan(&connection, stats::BLOCKED);
        assert!(stats::BLOCKED.contains("LIMIT ?1"));
        assert!(blocked.iter().any(|step| step.contains("USING INDEX instances_blocked")), "{blocked:?}");
        let codes = plan(&connection, stats::BLOCKED_CODES);
        assert!(stats::BLOCKED_CODES.contains("LIMIT ?1"));
        assert!(codes.iter().any(|step| step.contains("USING INDEX instances_blocked")), "{codes:?}");
        let late = plan(&connection, stats::LATE);
        assert!(
            late.iter().any(|step| step == "SEARCH instances USING INDEX instances_due (wake_at_ms<?)"),
            "{late:?}"
        );
        assert!(late.iter().all(|step| !step.contains("TEMP B-TREE")), "{late:?}");
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
        Source::Parent("parent-1".to_owned()),
        Source::Ids("order-".to_owned(), Some("order.".to_owned())),
        Source::Ended(0, 1),
    ];
    for connection in [empty(), filled()] {
        for source in &sources {
            for newest_first in [false, true] {
                let steps = plan(&connection, &source.sql(newest_first));
                assert!(steps[0].starts_with("SEARCH instances USING INDEX"), "{source:?}: {steps:?}");
                // By id and by end the order is different.
                let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
                assert_eq!(sorts, source.needs_sorting(), "{source:?}: {steps:?}");
            }
            let size = plan(&connection, &source.size_sql());
            let by_index = if *source == Source::Blocked { "USING INDEX" } else { "USING COVERING INDEX" };
            assert!(size.iter().any(|step| step.contains(by_index)), "{source:?}: {size:?}");
        }
    }
}

#[test]
fn s7_a_list_by_attribute_reads_only_what_has_it_in_the_order_of_keys() {
    let source = Source::Attribute("customer".to_owned(), b"7".to_vec());
    for connection in [empty(), filled()] {
        for (newest_first, behind) in [(false, "key>?"), (true, "key<?")] {
            let expected = [
                format!(
                    "SEARCH attributes USING COVERING INDEX attributes_by_order (name=? AND order_key=? AND {behind})"
                ),
                "SEARCH instances USING INDEX instances_by_key (key=?)".to_owned(),
            ];
            assert_eq!(plan(&connection, &source.sql(newest_first)), expected);
        }
        let size = plan(&connection, &source.size_sql());
        assert!(
            size.iter().any(|step| {
                step == "SEARCH attributes USING COVERING INDEX attributes_by_order (name=? AND order_key=?)"
            }),
            "{size:?}"
        );
    }
}

#[test]
fn s16_a_list_by_a_range_of_an_attribute_reads_the_index_and_sorts_keys_alone() {
    let source = Source::AttributeRange(
        "customer".to_owned(),
        attribute("customer").starts_with("7").comparison.keys(),
    );
    let by_range =
        "SEARCH attributes USING COVERING INDEX attributes_by_order (name=? AND order_key>? AND order_key<?)";
    for connection in [empty(), filled()] {
        for newest_first in [false, true] {
            let steps = plan(&connection, &source.sql(newest_first));
            let within: Vec<&str> = steps.iter().map(String::as_str).collect();
            assert!(within.contains(&by_range), "{steps:?}");
            let sorted =
                within.iter().position(|step| step.contains("TEMP B-TREE")).expect("keys are sorted");
            let read = within
                .iter()
                .position(|step| *step == "SEARCH instances USING INDEX instances_by_key (key=?)")
                .expect("rows are read by key");
            assert!(sorted < read, "rows are read after the keys are sorted: {steps:?}");
            assert_eq!(within.iter().filter(|step| step.contains("TEMP B-TREE")).count(), 1, "{steps:?}");
        }
        let size = plan(&connection, &source.size_sql());
        assert!(size.iter().any(|step| step == by_range), "{size:?}");
    }
}

#[test]
fn h26_a_list_in_the_order_of_the_end_walks_the_index_of_ends() {
    for connection in [empty(), filled()] {
        let steps = plan(&connection, &by_end::sql());
        assert_eq!(
            steps,
            [
                "SEARCH instances USING INDEX instances_ended (status=? AND ended_ms>? AND ended_ms<?)",
                // Instances that ended within the same millisecond.
                "USE TEMP B-TREE FOR LAST TERM OF ORDER BY",
            ]
        );
    }
}

#[test]
fn g33_what_is_old_enough_to_be_pruned_is_found_by_when_it_ended() {
    for connection in [empty(), filled()] {
        let steps = plan(&connection, &Source::Ended(0, 1).sql(false));
        assert_eq!(
            steps[0], "SEARCH instances USING INDEX instances_ended (status=? AND ended_ms>? AND ended_ms<?)",
            "{steps:?}"
        );
    }
}

#[test]
fn g12_a_step_writes_one_row_and_no_index_of_instances() {
    let connection = empty();
    let names =
        |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(written(&connection, tables::INSERT_TURN), names(&["turns", "turns_by_number"]));
    // The bits are in the order of the columns that may change.
    let (status, owed, wake_at, published) = (1, 1 << 3, 1 << 4, 1 << 7);
    assert_eq!(written(&connection, &update_sql(published, false)), names(&["instances"]));
    assert_eq!(written(&connection, &update_sql(owed, false)), names(&["instances", "instances_owed"]));
    assert_eq!(written(&connection, &update_sql(wake_at, false)), names(&["instances", "instances_due"]));
    assert_eq!(
        written(&connection, &update_sql(status, false)),
        names(&["instances", "instances_by_status", "instances_due", "instances_ended", "instances_owed"])
    );
    assert_eq!(
        written(&connection, &update_sql(1 << 9, false)),
        names(&["instances"]),
        "being full is searched by nobody"
    );
    // A renewal changes only the index of its end.
    assert_eq!(written(&connection, tasks::RENEW), names(&["tasks", "tasks_by_lease"]));
}

#[test]
fn n19_each_page_of_an_export_continues_at_its_place_in_an_index() {
    for connection in [empty(), filled()] {
        for table in MovedTable::ALL {
            if table != MovedTable::Counters {
                assert_goes_by_index(&connection, &export::after_sql(table));
            }
        }
    }
}
