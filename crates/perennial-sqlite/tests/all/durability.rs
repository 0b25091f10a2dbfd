//! What stays on disk, and what happens when the disk does not play along.

use std::fs;

use crate::support::{Place, durable};
use perennial_core::store::{
    Commit, CommitOutcome, Conflict, Criteria, InstanceRow, PageLimit, Status, StoreError, TaskChange,
    TaskId, TaskRow,
};
use perennial_core::{InstanceKey, ShardId};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{
    Build, blocked, bytes, key, member, message, row, start, status, task, urgent,
};
use perennial_testkit::conformance::{Subject, answer_of, waiting};

#[test]
fn g5_everything_is_there_after_opening_again() {
    let place = Place::new();
    let a = row(1, "a");
    let numbers: Vec<u64> = {
        let owner = place.owner();
        let session = owner.own_all();
        owner.write(session, start(&a));
        owner.write(session, member(&a).turn(2, "second").changing(status(Status::Completed)));
        owner.write(session, start(&row(2, "b")));
        ["x", "y"].map(|body| owner.sent(message("b", None, body))).into()
    };
    for _ in 0..3 {
        let owner = place.owner();
        assert_eq!(owner.find("a"), Some(InstanceRow { status: Status::Completed, ..a.clone() }));
        assert_eq!(owner.load(&a, 0).unwrap().turns, [bytes("started"), bytes("second")]);
        let session = owner.own_all();
        let inbox = owner.inbox(session, 0, 10);
        assert_eq!(inbox.iter().map(|row| row.number).collect::<Vec<_>>(), numbers);
    }
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, member(&row(2, "b")).turn(2, "read").consuming(numbers.clone()));
    drop(owner);
    // Not even a number is forgotten.
    assert!(place.guest().sent(message("b", None, "z")) > numbers[1]);
}

#[test]
fn g5_a_relaxed_store_keeps_everything_when_it_is_closed() {
    let place = Place::new();
    let relaxed = || SqliteStore::open(place.path(), SqliteOptions::default().relaxed(true)).unwrap();
    {
        let owner = Subject::over(relaxed());
        let session = owner.own_all();
        owner.write(session, start(&row(1, "a")));
    }
    assert_eq!(Subject::over(relaxed()).find("a"), Some(row(1, "a")));
}

#[test]
fn g32_a_full_disk_stops_the_store_and_loses_nothing() {
    let place = Place::new();
    let small = SqliteOptions::default().max_pages(70);
    let owner = Subject::over(SqliteStore::open(place.path(), small).unwrap());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let body = "x".repeat(1_000);
    let mut acknowledged = 1;
    let failure = loop {
        match owner.try_commit(session, [member(&a).turn(acknowledged + 1, &body)]) {
            Ok(outcomes) => assert_eq!(outcomes, [durable()]),
            Err(failure) => break failure,
        }
        acknowledged += 1;
    };
    assert!(acknowledged > 50, "{acknowledged}");
    let file = place.path().canonicalize().unwrap();
    assert_eq!(
        failure.to_string(),
        format!(
            "PER-0503 store failed: no room left for {} (database or disk is full, SQLite error 13); free some space, \
             then start again",
            file.display()
        )
    );
    // From now on every answer is the same, whatever would fit.
    assert_eq!(owner.renew(session), Err(failure.clone()));
    assert_eq!(owner.try_commit(session, []), Err(failure.clone()));
    assert_eq!(owner.try_send(vec![]), Err(failure.clone()));
    let (reply, answer) = waiting();
    owner.store().find("a", reply);
    assert_eq!(answer_of(&answer), Err(failure));
    owner.close().unwrap();
    let heir = place.owner();
    assert_eq!(heir.load(&a, 0).unwrap().turns.len(), usize::try_from(acknowledged).unwrap());
    let session = heir.own_all();
    heir.write(session, member(&a).turn(acknowledged + 1, &body));
}

#[test]
fn g32_a_batch_that_does_not_fit_leaves_nothing_behind() {
    let place = Place::new();
    let small = SqliteOptions::default().max_pages(60);
    let owner = Subject::over(SqliteStore::open(place.path(), small).unwrap());
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let many = (2..1_000).map(|number| start(&row(number, &format!("order-{number}"))));
    assert!(matches!(owner.try_commit(session, many), Err(StoreError::Failed(_))));
    drop(owner);
    let rows = place.owner().list(&Criteria::default(), None, 10).rows;
    assert_eq!(rows, [row(1, "a")]);
}

#[test]
fn a_corrupt_row_is_named_and_stands_in_nobodys_way() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let rows = [row(1, "a"), row(2, "broken"), row(3, "c")];
    owner.commit(session, rows.iter().map(start));
    let faults = [
        ("attributes = '{not json'", "column attributes: key must be a string at line 1 column 2"),
        (
            "attributes = NULL, published = ''",
            "column published: EOF while parsing a value at line 1 column 0",
        ),
        ("published = NULL, status = 17", "column status: 17 is not a status"),
        ("status = 1, created_ms = -5", "column created_ms is -5"),
    ];
    for (fault, reason) in faults {
        let sql = format!("UPDATE instances SET {fault} WHERE id = 'broken'");
        place.connection().execute_batch(&sql).unwrap();
        let corrupt = StoreError::CorruptRow(format!("instance broken (key {}): {reason}", key(2)));
        assert_eq!(load(&owner, key(2)), Err(corrupt.clone()));
        let page = owner.list(&Criteria::default(), None, 10);
        assert_eq!((&page.rows[0], &page.rows[2]), (&rows[0], &rows[2]));
        assert_eq!(find(&owner, "broken"), Ok(Some(page.rows[1].clone())), "it is found as it is listed");
        let shown = page.rows[1].blocked.clone().expect("it is shown as blocked");
        assert_eq!((page.rows[1].key, page.rows[1].id.as_str()), (key(2), "broken"));
        assert_eq!((shown.code.as_str(), shown.report), ("PER-0508", corrupt.to_string()));
        assert_eq!(owner.find("a"), Some(rows[0].clone()));
    }
    // A start of its id is refused without stopping anybody.
    let outcomes = owner.commit(session, [start(&row(4, "broken")), start(&row(5, "e"))]);
    assert!(
        matches!(&outcomes[0], CommitOutcome::Conflict(Conflict::IdTaken(taken)) if taken.key == key(2)),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[1], durable());
}

#[test]
fn i16_rows_whose_key_cannot_be_read_are_left_out_of_passes_and_shown_in_lists() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let rows = [1, 2, 3].map(|number| InstanceRow {
        owed: true,
        wake_at_ms: Some(number),
        blocked: Some(blocked()),
        ..row(number, &format!("order-{number}"))
    });
    owner.commit(session, rows.iter().map(|row| member(row).inserting(row.clone())));
    for row in &rows {
        owner.sent(urgent(&row.id, None, "x"));
        owner.requested(&row.id, 60_000, "?");
    }
    place
        .connection()
        .execute_batch(
            "UPDATE inbox SET key = x'0102' WHERE number = 2; UPDATE requests SET key = x'0102' WHERE number = 2;
             UPDATE instances SET key = x'0102' WHERE id = 'order-2'",
        )
        .unwrap();
    let readable = [rows[0].key, rows[2].key];
    assert_eq!(owner.inbox(session, 0, 10).iter().map(|row| row.key).collect::<Vec<_>>(), readable);
    assert_eq!(owner.requests(session, 0, 10).iter().map(|row| row.key).collect::<Vec<_>>(), readable);
    assert_eq!(owner.due(session, 10, None, 10).iter().map(|row| row.key).collect::<Vec<_>>(), readable);
    assert_eq!(owner.owed(session, None, 10).iter().map(|row| row.0).collect::<Vec<_>>(), readable);
    assert_eq!(owner.blocked(session, None, 10).iter().map(|row| row.0).collect::<Vec<_>>(), readable);
    let listed = owner.list(&Criteria::default(), None, 10).rows;
    let named = listed.iter().map(|row| (&*row.id, row.blocked.as_ref().map(|blocked| &*blocked.code)));
    let damaged = ("order-2", Some("PER-0508"));
    assert_eq!(named.filter(|named| *named == damaged).count(), 1, "{listed:?}");
    // Page by page, each is shown once.
    for newest_first in [false, true] {
        let filter = Criteria { newest_first, ..Criteria::default() };
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = owner.list(&filter, after, 1);
            seen.extend(page.rows.into_iter().map(|row| row.id));
            after = page.next;
            if after.is_none() || seen.len() > 3 {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, ["order-1", "order-2", "order-3"]);
    }
}

fn find(subject: &Subject, id: &str) -> Result<Option<InstanceRow>, StoreError> {
    let (reply, answer) = waiting();
    subject.store().find(id, reply);
    answer_of(&answer)
}

fn load(subject: &Subject, key: InstanceKey) -> Result<Option<InstanceRow>, StoreError> {
    let (reply, answer) = waiting();
    subject.store().load(ShardId(0), key, 0, PageLimit::rows(10), reply);
    answer_of(&answer).map(|loaded| loaded.map(|loaded| loaded.row))
}

#[test]
fn s2_values_that_sqlite_cannot_hold_are_rejected_alone() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    let too_late = InstanceRow { created_ms: u64::MAX, ..row(3, "c") };
    let of_no_execution = TaskRow { id: TaskId { execution: u64::MAX, ..task(&a, 2).id }, ..task(&a, 2) };
    let batch = [
        start(&a),
        start(&too_late),
        // The key of another instance, which cannot happen.
        start(&row(1, "d")).turn(1, "of a"),
        member(&a).turn_of(u64::MAX, 1, "x"),
        member(&a).turn(0, "x"),
        // Its turn and its row fit, its task does not.
        Commit { tasks: vec![TaskChange::Put(Box::new(of_no_execution))], ..member(&a).turn(2, "x") },
        start(&b),
    ];
    let outcomes = owner.commit(session, batch);
    let rejected: Vec<bool> =
        outcomes.iter().map(|outcome| matches!(outcome, CommitOutcome::Rejected(_))).collect();
    assert_eq!(rejected, [false, true, false, true, true, true, false], "{outcomes:?}");
    assert_eq!(owner.load(&a, 0).unwrap().turns, [bytes("started")]);
    let ids: Vec<String> =
        owner.list(&Criteria::default(), None, 10).rows.into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn the_log_is_reused_and_does_not_grow() {
    let place = Place::new();
    let options = SqliteOptions::default().relaxed(true);
    let owner = Subject::over(SqliteStore::open(place.path(), options).unwrap());
    let session = owner.own_all();
    let a = row(1, "a");
    owner.write(session, start(&a));
    let body = "x".repeat(3_000);
    for batch in 0..60 {
        let first = 2 + batch * 256;
        let turns = (first..first + 256).map(|number| member(&a).turn(number, &body));
        assert!(owner.commit(session, turns).iter().all(|outcome| *outcome == durable()));
    }
    let megabytes = |suffix: &str| fs::metadata(place.beside(suffix)).unwrap().len() >> 20;
    let (database, log) = (megabytes(""), megabytes("-wal"));
    assert!(database >= 40, "the log is moved into the database: {database} MiB");
    assert!(log <= 24, "what was moved is written over: {log} MiB");
}

#[test]
fn i18_messages_and_tasks_of_an_instance_that_is_gone_are_swept() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    for row in [&a, &b] {
        owner.write(session, start(row).putting([task(row, 2)]));
        owner.sent(message(&row.id, None, "x"));
    }
    place.connection().execute_batch("DELETE FROM instances WHERE id = 'a'").unwrap();
    owner.sweep_some(100);
    let left = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        place.connection().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((left("inbox"), left("tasks")), (1, 1));
    let stays = owner.load(&b, 0).unwrap();
    assert_eq!((stays.inbox.len(), stays.tasks.len()), (1, 1));
}
