//! `check_rows` finds every row that is damaged or belongs to no instance, and no other.

use perennial_core::store::{DamagedRow, RequestOutcome};
use perennial_testkit::conformance::instances::{Build, attributes, message, outgoing, row, start, task};
use perennial_testkit::conformance::{Subject, wait_for};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, subject};

/// Checks all rows in pages of so many rows.
fn check(store: &Subject, rows: usize) -> (Vec<DamagedRow>, usize, usize) {
    let (mut after, mut damage, mut requests, mut replies) = (None, Vec::new(), 0, 0);
    for _ in 0..1_000 {
        let page = wait_for(|reply| store.store().check_rows(after, rows, reply)).unwrap();
        damage.extend(page.damage);
        requests += page.requests.len();
        replies += page.replies.len();
        after = page.next;
        if after.is_none() {
            return (damage, requests, replies);
        }
    }
    panic!("the pages do not end");
}

/// A store with a row in every table: instances `a` and `b`.
fn with_rows(url: &str) -> Subject {
    let store = subject(url);
    let session = store.own_all();
    let (mut a, b) = (row(1, "a"), row(2, "b"));
    a.attributes = attributes(&[("customer", "\"ada\""), ("cents", "5")]);
    store.write(session, start(&a).putting([task(&a, 2)]));
    store.write(session, start(&b).sending([outgoing(&a, Some("k"), "hi")]));
    store.sent(message("b", None, "hello"));
    let requested = |id: &str| match store.request(id, 60_000, "?") {
        RequestOutcome::Written(number) => number,
        RequestOutcome::NoInstance => panic!("there is {id}"),
    };
    requested("a");
    let number = requested("b");
    store.write(session, perennial_testkit::conformance::instances::member(&b).replying(number, "done"));
    store
}

#[test]
fn s7_all_rows_are_checked_whatever_the_size_of_a_page() {
    let store = with_rows(&TestServer::shared().new_schema());
    for rows in [1, 2, 100, 100_000] {
        assert_eq!(check(&store, rows), (vec![], 1, 1), "in pages of {rows}");
    }
}

#[test]
fn s7_each_damaged_row_is_named_and_no_other() {
    const STRANGER: &str = "'00000000-0000-0000-0000-0000000000ff'";
    let no_instance = "it belongs to no instance";
    let cases = [
        (format!("UPDATE inbox SET key = {STRANGER} WHERE dedupe = 'k'"), None, "message 1", no_instance),
        (format!("UPDATE tasks SET key = {STRANGER}"), None, "the task of event 2", no_instance),
        (
            "UPDATE tasks SET execution = 7".to_owned(),
            Some("a"),
            "the task of event 2",
            "it is of execution 7",
        ),
        (
            format!("INSERT INTO turns VALUES ({STRANGER}, 1, 1, 0, 'x')"),
            None,
            "turn 1 of execution 1",
            no_instance,
        ),
        (
            "INSERT INTO turns SELECT key, 9, 1, 0, 'x' FROM instances WHERE id = 'b'".to_owned(),
            Some("b"),
            "turn 1 of execution 9",
            "the instance is in execution 1",
        ),
        (
            "INSERT INTO turns SELECT key, 1, 0, 0, 'x' FROM instances WHERE id = 'b'".to_owned(),
            Some("b"),
            "turn 0 of execution 1",
            "turns are counted from 1",
        ),
        (
            "UPDATE attributes SET order_key = 'x' WHERE name = 'cents'".to_owned(),
            Some("a"),
            "row",
            "its attributes are indexed with other values",
        ),
        (
            "DELETE FROM attributes WHERE name = 'customer'".to_owned(),
            Some("a"),
            "row",
            "its attributes are indexed with other values",
        ),
        (
            "UPDATE instances SET attributes = '{' WHERE id = 'a'".to_owned(),
            Some("a"),
            "row",
            "column attributes",
        ),
    ];
    for (damage, id, what, problem) in cases {
        let url = TestServer::shared().new_schema();
        let store = with_rows(&url);
        Sql::in_schema(&url).run(&damage);
        for rows in [1, 1_000] {
            let (found, ..) = check(&store, rows);
            assert_eq!(found.len(), 1, "{damage}: {found:?}");
            assert_eq!((found[0].id.as_deref(), &*found[0].what), (id, what), "{damage}");
            assert!(found[0].problem.starts_with(problem), "{damage}: {found:?}");
        }
    }
}

#[test]
fn s7_turns_of_a_deleted_instance_that_are_not_swept_yet_are_no_damage() {
    let url = TestServer::shared().new_schema();
    let store = with_rows(&url);
    Sql::in_schema(&url).run(
        "INSERT INTO turns VALUES ('00000000-0000-0000-0000-0000000000ff', 1, 1, 0, 'x');
         INSERT INTO graves VALUES ('00000000-0000-0000-0000-0000000000ff')",
    );
    assert_eq!(check(&store, 100).0, []);
}
